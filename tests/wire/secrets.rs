//! Secrets in requests and in the configuration appear nowhere, at the most verbose level of the log.
//!
//! aws/mcp-proxy-for-aws#166, apache/opendal#184, boto/botocore#2945

use std::process::Command;

use crate::support::gate::{Gate, program};
use crate::support::process::clean_env;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};

const SECRETS: [&str; 7] = [
    "SIGNATURE-IN-A-HEADER",
    "SESSION-TOKEN-IN-A-HEADER",
    "SIGNATURE-IN-A-QUERY",
    "SESSION-TOKEN-IN-A-QUERY",
    "cGFzc3dvcmQtaW4tYmFzaWM",
    "BEARER-OF-THE-ADMIN",
    "BEARER-OF-NOBODY",
];

fn shown(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {what}: {text}");
    }
}

#[test]
fn no_secret_of_a_request_is_in_a_log_a_metric_a_page_or_an_error() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url())
        .env("FENCEGATE_LOG", "trace")
        .admin("tokens = [\"BEARER-OF-THE-ADMIN\"]")
        .start();
    let authorization = "Authorization: AWS4-HMAC-SHA256 Credential=AKID/20260101/r/s3/aws4_request, SignedHeaders=host, Signature=SIGNATURE-IN-A-HEADER";
    let session = "X-Amz-Security-Token: SESSION-TOKEN-IN-A-HEADER";
    let basic = "Authorization: Basic cGFzc3dvcmQtaW4tYmFzaWM=";
    let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID&X-Amz-Signature=SIGNATURE-IN-A-QUERY&X-Amz-Security-Token=SESSION-TOKEN-IN-A-QUERY";
    store.next("/public/broken", script::reset_after_head());
    let mut errors = String::new();
    for (method, target, headers, status) in [
        ("PUT", "/wal/x".to_owned(), &[authorization, session][..], 428),
        ("PUT", format!("/wal/x?{query}"), &[], 428),
        ("GET", format!("/public/none?{query}"), &[], 404),
        ("GET", "/public/none".to_owned(), &[basic], 404),
        ("PUT", "/wal/x".to_owned(), &[authorization, session, "Fencing-Token: 1, 2"], 400),
        ("GET", "/public/broken".to_owned(), &[authorization, session], 502),
        ("PUT", format!("/nowhere/x?{query}"), &[], 403),
        (
            "PUT",
            "/public/x".to_owned(),
            &[authorization, session, "Connection: authorization"],
            400,
        ),
    ] {
        let mut client = RawClient::connect(gate.address());
        client.send(&request(method, &target, "localhost", headers, b"x"));
        let answer = client.answer_to(method);
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
        errors.push_str(&answer.text());
    }
    for bearer in ["BEARER-OF-THE-ADMIN", "BEARER-OF-NOBODY"] {
        for path in
            ["/v1/status", "/v1/fence?resource=wal/main", "/healthz", "/readyz", "/metrics", "/"]
        {
            let mut client = RawClient::connect(gate.admin_address());
            let line = format!("Authorization: Bearer {bearer}");
            client.send(&request("GET", path, "localhost", &[&line], b""));
            errors.push_str(&client.answer().text());
        }
    }
    shown("errors and pages", &errors);
    for print in [&["check"][..], &["check", "--print"], &["check", "--json"]] {
        let output = gate
            .cli_command(&[print, &["--config", gate.config_path().to_str().unwrap()]].concat())
            .output()
            .unwrap();
        assert!(output.status.success());
        shown("check", &String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }
    gate.sighup();
    gate.wait_log(&["configuration reloaded"]);
    let log = gate.log().join("\n");
    shown("the log", &log);
    // Still enough to debug by: which key, which credential, which way of signing.
    assert!(log.contains("/wal/x") && log.contains("X-Amz-Signature"), "{log}");
}

#[test]
fn a_fault_beside_a_secret_does_not_print_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fencegate.toml");
    let good = "[upstream]\nkind = \"s3\"\nurl = \"http://127.0.0.1:9\"\n";
    for (name, text) in [
        (
            "a typo on its line",
            format!("{good}[admin]\ntokens = [\"BEARER-OF-THE-ADMIN\"] tokns = 1\n"),
        ),
        ("a key misspelt", format!("{good}[admin]\ntoken = [\"BEARER-OF-THE-ADMIN\"]\n")),
        ("not closed", format!("{good}[admin]\ntokens = [\"BEARER-OF-THE-ADMIN\n")),
        (
            "of the wrong type",
            format!("{good}[admin]\ntokens = {{ text = \"BEARER-OF-THE-ADMIN\" }}\n"),
        ),
        ("a bare one", format!("{good}[admin]\ntokens = [BEARER-OF-THE-ADMIN]\n")),
        ("in a URL", good.replace("127.0.0.1", "user:BEARER-OF-THE-ADMIN@127.0.0.1")),
    ] {
        std::fs::write(&path, text).unwrap();
        for command in [&["check"][..], &["check", "--json"], &["check", "--print"], &["serve"]] {
            let output = clean_env(&mut Command::new(program()))
                .args(command)
                .arg("--config")
                .arg(&path)
                .env("FENCEGATE_LOG", "trace")
                .current_dir(dir.path())
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(2), "{name}: {command:?}");
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            shown(&format!("{command:?}, {name}"), &text);
        }
    }
}
