//! `fencegate explain`, on the binary, beside a gate with the same configuration.

use std::process::Output;

use crate::support::clients::stdout_of;
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;

/// An S3 store, and a REST store for what is under `state/`.
fn gate(store: &RawStore, state: &RawStore) -> Gate {
    let tables = format!(
        r#"
        [upstreams.state]
        kind = "rest"
        url = "{}"
        [[rule]]
        match = "wal/{{name}}/**"
        resource = "wal/{{name}}"
        [[rule]]
        match = "state/**"
        resource = "state"
        upstream = "state"
        read_methods = ["POST"]
        [[rule]]
        match = "public/**"
        fence = "none"
        "#,
        state.url()
    );
    Gate::builder(&store.url()).rules(&tables).start()
}

fn explain(gate: &Gate, args: &[&str]) -> Output {
    let config = gate.config_path();
    let config = config.to_str().unwrap();
    gate.cli(&[&["explain", "--config", config], args].concat())
}

#[test]
fn explain_says_what_the_gate_then_does() {
    let (store, state) = (RawStore::start(), RawStore::start());
    let gate = gate(&store, &state);
    let cases: &[(&str, &str, &[&str])] = &[
        ("PUT", "/wal/main/x", &[]),
        ("PUT", "/wal/main/x", &["Fencing-Token: 0"]),
        ("PUT", "/wal/main/x", &["If-None-Match: *", "Fencing-Token: 07"]),
        ("PUT", "/wal/main/a%2Fb", &[]),
        ("PUT", "/wal//x", &[]),
        ("PUT", "/elsewhere/x", &[]),
        ("PUT", "/public/x", &[]),
        ("PUT", "/public/x?nonsense", &[]),
        ("PATCH", "/wal/main/x", &[]),
        ("GET", "/wal/main/x", &[]),
        ("POST", "/state/main", &[]),
        ("PUT", "/state/main", &[]),
        ("PUT", "/wal/main/x", &["x-amz-copy-source: /wal/../y"]),
    ];
    for (method, target, headers) in cases {
        let mut args = vec!["--json", method, target];
        headers.iter().for_each(|line| args.extend(["--header", *line]));
        let output = explain(&gate, &args);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let token = said["token"]["refusal"].clone();
        let refusal = if token.is_null() { said["refusal"].clone() } else { token.clone() };
        let ends = if said["refusal"].is_null() { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(ends), "{method} {target}: {said}");
        let mut client = RawClient::connect(gate.address());
        client.send(&request(method, target, "localhost", headers, b""));
        let answer = client.answer_to(method);
        let refused_by_gate = answer.header("x-fencegate-request-id").is_some();
        assert_eq!(!refusal.is_null(), refused_by_gate, "{method} {target}: {said} {answer:?}");
        if refused_by_gate {
            let status = refusal["status"].as_u64();
            assert_eq!(status, Some(answer.status.into()), "{method} {target}: {said}");
            if let Some(code) = answer.code() {
                assert_eq!(refusal["code"].as_str(), Some(code.as_str()), "{method} {target}");
            }
        }
    }
    // The state's rule sent its reads to the other store, and only there.
    let seen = |store: &RawStore| -> Vec<String> {
        store.seen().iter().map(|seen| format!("{} {}", seen.method, seen.target)).collect()
    };
    assert_eq!(seen(&state), ["POST /state/main"]);
    assert_eq!(seen(&store), ["PUT /public/x", "GET /wal/main/x"]);
}

#[test]
fn explain_is_readable_and_needs_no_server() {
    let (store, state) = (RawStore::start(), RawStore::start());
    let gate = gate(&store, &state);
    gate.sigkill();
    let shown = stdout_of(&explain(&gate, &["PUT", "/wal/main/d/"]));
    for line in [
        "PUT /wal/main/d/ (Host: localhost)",
        "operation  PutObject (write)",
        "key        wal/main/d/",
        "           a store may read wal/main/d, which falls under the same rule",
        "rule       1 (wal/{name}/**), level drained",
        "resource   wal/main",
        "upstream   upstream (s3)",
        "token      required; none is carried",
        "as it is   428 MissingFencingToken: ",
    ] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line:?} in\n{shown}");
    }
    let refused = explain(&gate, &["PUT", "/elsewhere/x"]);
    let shown = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(shown.contains("refused    403 NoFenceRule: no rule covers"), "{shown}");
    assert_eq!(refused.status.code(), Some(1));
    for bad in [&["PUT", "no target"][..], &["P T", "/x"], &["PUT", "/x", "--header", "none"]] {
        let output = explain(&gate, bad);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains("write "), "{shown}");
    }
}
