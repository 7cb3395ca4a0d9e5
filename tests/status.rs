//! `fencegate status`, and what it rests on: the health of backends and stores, fences at work.

use serde_json::Value;

use crate::support::gate::Gate;
use crate::support::process::free_port;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::wait::{DEADLINE, wait_for};

/// What `status ARGS` printed, and its exit code.
fn status(gate: &Gate, args: &[&str]) -> (String, Option<i32>) {
    let output = gate.cli(&[&["status"], args].concat());
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

fn json(gate: &Gate) -> Value {
    serde_json::from_str(&status(gate, &["--json"]).0).unwrap()
}

fn put(path: &str, token: u64) -> Vec<u8> {
    request("PUT", path, "localhost", &[&format!("Fencing-Token: {token}")], b"body")
}

#[test]
fn a_server_that_is_well_says_so_with_the_level_of_each_rule() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let (text, code) = status(&gate, &[]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        ": ready\n",
        &format!("proxy   {}\n", gate.url()),
        "lease   up, single-node-durable\n",
        &format!("store   up, upstream: s3 {}\n", store.url()),
        "1     wal/**     wal/main  drained  assuming U1 U2 U3 U4 U5 U6",
        "2     public/**  -         -        fence = \"none\"",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains("RESOURCE  MARK"), "nothing is at work:\n{text}");
    let gate = Gate::builder(&store.url()).without_assumptions().start();
    let (text, code) = status(&gate, &[]);
    assert_eq!(code, Some(0), "a level is what the operator chose:\n{text}");
    assert!(text.contains("advisory  U1 set upstream.sole_path = true if"), "{text}");
}

#[test]
fn a_store_that_cannot_be_reached_needs_attention_and_leaves_readiness_alone() {
    let store = RawStore::start();
    let dead = format!("http://127.0.0.1:{}", free_port());
    let rules = format!(
        "[[rule]]\nmatch = \"wal/**\"\nresource = \"wal/main\"\n[upstreams.spare]\nkind = \"s3\"\nurl = \"{dead}\"\n"
    );
    let gate = Gate::builder(&store.url()).rules(&rules).start();
    let (text, code) = status(&gate, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("store   down, spare: s3 {dead}\n")), "{text}");
    assert!(text.contains("attention: the store spare cannot be reached: connecting failed"));
    let answer = gate.get("/readyz");
    assert_eq!(answer.status, 200);
    let ready: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(ready["backends"]["lease"], "up");
    assert_eq!(
        (&ready["backends"]["stores_up"], &ready["backends"]["stores_down"]),
        (&1.into(), &1.into())
    );
    for secret in ["spare", &dead, &store.url()] {
        assert!(!answer.text().contains(secret), "anyone may read it: {}", answer.text());
    }
}

#[test]
fn writes_in_flight_and_in_doubt_are_shown_until_they_end() {
    let store = RawStore::start();
    let mut gate = Gate::builder(&store.url()).fence("settle_after = \"2s\"").start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::hold());
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", token));
    store.wait_applied("/wal/x");
    let (text, code) = status(&gate, &[]);
    let row = format!("wal/main  {token}");
    let shown = text.lines().find(|line| line.starts_with(&row)).expect("a row").to_owned();
    let cells: Vec<_> = shown.split_whitespace().skip(2).collect();
    assert_eq!((cells, code), (vec!["1", "0", "no", "0"], Some(0)), "{text}");
    store.release("/wal/x");
    assert_eq!(client.answer().status, 200);

    store.next("/wal/x", script::applied_without_answer());
    client.send(&put("/wal/x", token));
    assert_eq!(client.answer().status, 502);
    let tainted = &json(&gate)["fences"][0]["permits"][0];
    assert_eq!(tainted["tainted"], true, "{tainted}");
    assert!(tainted["clears_in_ms"].as_u64().is_some_and(|ms| ms <= 2_000), "{tainted}");
    wait_for("the taint is over", DEADLINE, || json(&gate)["fences"] == serde_json::json!([]));

    // What a killed process left in the ledger is shown as soon as its successor looks.
    store.next("/wal/x", script::hold());
    client.send(&put("/wal/x", token));
    store.wait_applied("/wal/x");
    gate.restart();
    let b = gate.hand_over("wal/main", token, "b");
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/y", b));
    wait_for("a permit of before is shown", DEADLINE, || {
        let fences = json(&gate);
        fences["fences"][0]["permits"][0]["mine"] == false && fences["fences"][0]["waiting"] == 1
    });
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_server_that_is_gone_is_exit_code_3_and_ends_a_watch() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let mut watch = gate.cli_command(&["status", "--watch", "--json"]);
    watch.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut watch = watch.spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    for _ in 0..2 {
        let line = lines.next().expect("a look").unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["ready"], true);
    }
    gate.sigkill();
    assert_eq!(watch.wait().unwrap().code(), Some(3));
    assert_eq!(status(&gate, &[]).1, Some(3));
    assert_eq!(gate.cli(&["status", "--wach"]).status.code(), Some(2));
}
