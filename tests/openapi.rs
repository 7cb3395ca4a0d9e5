//! The lease API against its OpenAPI document: schemathesis makes up requests, right and wrong ones, and judges
//! every answer by the document.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::clients::{client, stdout_of};
use crate::support::gate::Gate;
use crate::support::raw_store::RawStore;
use crate::support::wait::long;

/// Requests for each call; most of the time goes into those that are the same in every run.
fn examples() -> String {
    if long() { "500" } else { "15" }.to_owned()
}

/// Runs schemathesis on the document at `location`. Watching is left out: it never ends.
fn schemathesis(gate: &Gate, location: &str, args: &[&str]) -> Output {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/schemathesis.toml");
    let mut command = client("schemathesis", &gate.admin());
    command
        .current_dir(gate.dir())
        .args(["--config-file", config, "run", location, "--url", &gate.admin()])
        .args(["--exclude-operation-id", "watchLeases", "--request-timeout", "20"])
        .args(["--generation-database", "none", "--continue-on-failure", "--checks", "all"])
        .args(["-n", &examples()])
        .args(args);
    command.output().expect("schemathesis of the environment runs; see `make prereqs`")
}

fn report(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The document as it is served, but for the longest wait, which would be waited for.
fn document(gate: &Gate) -> Value {
    let mut document: Value = serde_json::from_slice(&gate.get("/openapi.json").body).unwrap();
    let wait = &mut document["components"]["schemas"]["Wait"];
    assert!(wait["pattern"].is_string(), "{wait}");
    wait["pattern"] = "^0*[0-9]{1,3}ms$".into();
    wait["examples"] = json!(["0ms"]);
    document
}

fn write(gate: &Gate, document: &Value) -> String {
    let file = gate.dir().join("openapi.json");
    fs::write(&file, document.to_string()).unwrap();
    file.into_os_string().into_string().unwrap()
}

/// A gate whose calls end soon, whatever they wait for.
fn gate(admin: &str) -> Gate {
    let store = RawStore::start();
    Gate::builder(&store.url()).fence("drain_wait = \"1s\"").admin(admin).start()
}

#[test]
fn every_answer_of_the_api_is_in_its_document() {
    let gate = gate("");
    let document = document(&gate);
    let file = write(&gate, &document);
    // Without FENCEGATE_LONG the same requests in every run.
    let seed: &[&str] = if long() { &[] } else { &["--seed", "1"] };
    let output = schemathesis(&gate, &file, seed);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    let paths = document["paths"].as_object().unwrap().values();
    let calls: usize = paths.map(|path| path.as_object().unwrap().len()).sum();
    let tried = format!("{} selected / {calls} total", calls - 1);
    assert!(report.contains(&tried), "every call was tried:\n{report}");
    assert!(report.contains("4 covered"), "grants were renewed and released:\n{report}");
    assert_eq!(gate.get("/readyz").status, 200);
}

#[test]
fn a_server_with_tokens_wants_one_for_every_call_that_says_so() {
    let gate = gate("tokens = [\"hunter2-hunter2\"]");
    let file = write(&gate, &document(&gate));
    let bearer = "Authorization: Bearer hunter2-hunter2";
    let output = schemathesis(&gate, &file, &["-H", bearer, "--phases", "examples,coverage"]);
    assert!(output.status.success(), "{}", report(&output));
}

#[test]
fn a_document_that_leaves_something_out_is_found_out() {
    let gate = gate("");
    let served = document(&gate);
    let cases: [(&str, &str, Value); 3] = [
        (
            "renewLease",
            "/paths/~1v1~1lease~1renew/post/responses",
            json!({ "200": { "description": "" } }),
        ),
        ("listLeases", "/components/schemas/LeasePage/required", json!(["leases", "total"])),
        ("healthz", "/paths/~1healthz/get/responses/200/content", json!({ "text/html": {} })),
    ];
    for (operation, at, wrong) in cases {
        let mut document = served.clone();
        *document.pointer_mut(at).expect("it is there") = wrong;
        let file = write(&gate, &document);
        let args = ["--include-operation-id", operation, "--phases", "coverage", "--no-shrink"];
        let output = schemathesis(&gate, &file, &args);
        assert_eq!(output.status.code(), Some(1), "{operation}: {}", report(&output));
    }
}

#[test]
fn the_document_is_served_to_everybody_and_is_the_one_in_the_docs() {
    let gate = gate("tokens = [\"hunter2-hunter2\"]");
    let answer = gate.get("/openapi.json");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/openapi.json");
    assert_eq!(answer.text(), fs::read_to_string(page).unwrap());
    assert_eq!(gate.get("/v1/status").status, 401);
    let version = client("schemathesis", "").arg("--version").output().unwrap();
    assert!(stdout_of(&version).contains("4.32.5"), "the one that tests/requirements.txt pins");
}
