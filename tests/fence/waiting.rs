//! The queue: who waits, who leaves it, what an operator sees and may do.

use std::time::Duration;

use super::{NO_END, begin, fence, retry_after, send, wait_settled, wait_waiting};
use crate::support::clients::stdout_of;
use crate::support::gate::Gate;
use crate::support::raw_store::{RawStore, script};

#[test]
fn an_operator_sees_what_blocks_and_frees_the_successor_at_once() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::late());
    store.next("/wal/y", script::reset_after_body());
    let mut counted = begin(&gate, "/wal/x", a, b"old");
    store.wait_complete("/wal/x");
    assert_eq!(send(&gate, "/wal/y", a, b"old").status, 502);
    let b = gate.hand_over("wal/main", a, "b");
    let mut new = begin(&gate, "/wal/x", b, b"new");
    wait_waiting(&gate, "wal/main", 1);
    let shown = stdout_of(&gate.cli(&["fence", "show", "wal/main", "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["mark"], b.to_string());
    let permit = &shown["permits"][0];
    assert_eq!(permit["token"], a.to_string());
    assert_eq!((&permit["counted"], &permit["tainted"]), (&1.into(), &true.into()));
    assert_eq!(permit["clears_in_ms"], serde_json::Value::Null, "only an operator ends it");
    let text = stdout_of(&gate.cli(&["fence", "show", "wal/main"]));
    assert!(text.contains("until settled"), "{text}");
    // An operator's word does not end what is in flight ...
    stdout_of(&gate.cli(&["fence", "settle", "wal/main"]));
    let permit = fence(&gate, "wal/main")["permits"][0].clone();
    assert_eq!((&permit["counted"], &permit["tainted"]), (&1.into(), &false.into()));
    assert_eq!(store.seen_at("/wal/x").len(), 1);
    store.release("/wal/x");
    assert_eq!(counted.answer().status, 200);
    assert_eq!(new.answer().status, 200);
    // ... but it does end what is unknown.
    store.next("/wal/z", script::reset_after_body());
    assert_eq!(send(&gate, "/wal/z", b, b"old").status, 502);
    let c = gate.hand_over("wal/main", b, "c");
    let mut new = begin(&gate, "/wal/z", c, b"new");
    wait_waiting(&gate, "wal/main", 1);
    stdout_of(&gate.cli(&["fence", "settle", "wal/main"]));
    assert_eq!(new.answer().status, 200);
    wait_settled(&gate);
}

#[test]
fn what_waits_too_long_or_in_too_long_a_queue_is_told_when_to_come_back() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url());
    let fence_lines = "drain_wait = \"2s\"\nsettle_after = \"60s\"\nmax_waiting = 1";
    let gate = gate.fence(fence_lines).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::reset_after_body());
    assert_eq!(send(&gate, "/wal/x", a, b"old").status, 502);
    let clears = fence(&gate, "wal/main")["permits"][0]["clears_in_ms"].as_u64().unwrap();
    assert!((40_000..=60_000).contains(&clears), "{clears}");
    let b = gate.hand_over("wal/main", a, "b");
    let mut first = begin(&gate, "/wal/x", b, b"new");
    wait_waiting(&gate, "wal/main", 1);
    let full = send(&gate, "/wal/x", b, b"new");
    assert_eq!((full.status, full.code().as_deref()), (503, Some("SlowDown")), "{}", full.text());
    assert_eq!(retry_after(&full), Duration::from_secs(1));
    let drain = first.answer();
    assert_eq!(
        (drain.status, drain.code().as_deref()),
        (503, Some("SlowDown")),
        "{}",
        drain.text()
    );
    let after = retry_after(&drain).as_secs();
    assert!((30..=60).contains(&after), "the quarantine's rest, not {after} s");
    assert_eq!(store.seen_at("/wal/x").len(), 1, "nothing was forwarded");
}

#[test]
fn a_client_that_goes_away_leaves_the_queue() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::hold());
    let mut old = begin(&gate, "/wal/x", a, b"old");
    store.wait_applied("/wal/x");
    let b = gate.hand_over("wal/main", a, "b");
    let goes = begin(&gate, "/wal/x", b, b"gone");
    let mut stays = begin(&gate, "/wal/x", b, b"new");
    wait_waiting(&gate, "wal/main", 2);
    goes.reset();
    wait_waiting(&gate, "wal/main", 1);
    let mut raise = gate.cli_command(&["fence", "raise", "wal/main", &b.to_string()]);
    let mut raising = raise.stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_waiting(&gate, "wal/main", 2);
    raising.kill().unwrap();
    raising.wait().unwrap();
    wait_waiting(&gate, "wal/main", 1);
    store.release("/wal/x");
    assert_eq!(old.answer().status, 200);
    assert_eq!(stays.answer().status, 200);
    wait_settled(&gate);
    assert!(store.applied().iter().all(|(_, body)| body != b"gone"));
}
