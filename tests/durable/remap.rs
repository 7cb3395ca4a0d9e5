//! A restart that cannot tell which resource a write of before belongs to holds every resource.

use std::fs;
use std::time::{Duration, Instant};

use super::{Quarantine, applied, fence, json, overtake, put, said, write_in_flight};
use crate::support::clients::stdout_of;
use crate::support::gate::{Builder, Gate};
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

const SETTLE: Duration = Duration::from_secs(2);
const HELD: &str = "every resource is held";

/// `wal/**` is `old`, `other/**` is `other`.
fn builder(store: &RawStore) -> Builder {
    let rules = "[[rule]]\nmatch = \"wal/**\"\nresource = \"old\"\n\
                 [[rule]]\nmatch = \"other/**\"\nresource = \"other\"\n";
    Gate::builder(&store.url()).fence("settle_after = \"2s\"").rules(rules)
}

/// Rewrites the configuration.
fn edit(gate: &Gate, from: &str, to: &str) {
    let text = fs::read_to_string(gate.config_path()).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    fs::write(gate.config_path(), text.replace(from, to)).unwrap();
}

fn held(gate: &Gate) -> bool {
    !json(&gate.get("/v1/status"))["service"]["held_on_all"].is_null()
}

/// `new` of `resource` waits for the write of `old` that was in flight before the start.
#[track_caller]
fn assert_waits(
    gate: &Gate,
    store: &RawStore,
    resource: &str,
    tokens: (u64, u64),
    started: Instant,
) {
    let quarantine = Quarantine { started, settle_after: SETTLE };
    overtake(gate, store, "/wal/x", resource, tokens, quarantine);
}

#[test]
fn a_key_that_moved_while_the_gate_was_dead_waits_for_the_write_of_before() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let old = gate.acquire("old", "a", "60s");
    let _lost = write_in_flight(&gate, &store, "/wal/x", old);
    gate.sigkill();
    edit(&gate, "\"old\"", "\"new\"");
    let started = Instant::now();
    gate.restart();
    gate.wait_log(&[HELD, "the rules have changed"]);
    let new = gate.acquire("new", "b", "60s");
    assert_waits(&gate, &store, "new", (old, new), started);
    gate.wait_log(&["permits of an earlier process are over", "old"]);
    wait_for("the hold to end", DEADLINE, || !held(&gate));
    assert_eq!(fence(&gate, "old")["permits"], serde_json::json!([]));
    // From here on these are the rules of before.
    gate.restart();
    assert!(!gate.log().iter().any(|line| line.contains(HELD)));
}

#[test]
fn the_hold_survives_a_crash_even_under_the_rules_of_before() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let old = gate.acquire("old", "a", "60s");
    let _lost = write_in_flight(&gate, &store, "/wal/x", old);
    gate.sigkill();
    edit(&gate, "\"old\"", "\"new\"");
    gate.restart();
    gate.wait_log(&[HELD]);
    gate.restart();
    gate.wait_log(&[HELD]);
    gate.sigkill();
    edit(&gate, "\"new\"", "\"old\"");
    let started = Instant::now();
    gate.restart();
    gate.wait_log(&[HELD]);
    let new = gate.acquire("other", "b", "60s");
    assert_eq!(put(&gate, "/other/y", new).status, 200);
    let forwarded = store.seen_at("/other/y")[0].head_at;
    assert!(forwarded >= started + SETTLE, "{:?} after the start", forwarded - started);
}

#[test]
fn a_reload_with_a_write_in_flight_is_remembered_across_a_crash() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let old = gate.acquire("old", "a", "60s");
    let _lost = write_in_flight(&gate, &store, "/wal/x", old);
    edit(&gate, "\"old\"", "\"new\"");
    gate.sighup();
    gate.wait_log(&["configuration reloaded", "keys_moved=true"]);
    let started = Instant::now();
    gate.restart();
    gate.wait_log(&[HELD]);
    let new = gate.acquire("new", "b", "60s");
    assert_waits(&gate, &store, "new", (old, new), started);
}

#[test]
fn a_ledger_that_was_restored_waits_for_permits_it_may_lack() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    stdout_of(&gate.cli(&["fence", "backup", "copy.redb"]));
    let old = gate.acquire("old", "a", "60s");
    let _lost = write_in_flight(&gate, &store, "/wal/x", old);
    gate.sigkill();
    stdout_of(&gate.cli(&["fence", "restore", "copy.redb"]));
    let started = Instant::now();
    gate.restart();
    gate.wait_log(&[HELD, "permits may be missing"]);
    let new = gate.acquire("old", "b", "60s");
    assert_waits(&gate, &store, "old", (old, new), started);
    wait_for("the hold to end", DEADLINE, || !held(&gate));
    gate.restart();
    assert!(!gate.log().iter().any(|line| line.contains(HELD)));
}

#[test]
fn the_same_rules_after_a_crash_hold_only_the_resource_of_the_write() {
    let store = RawStore::start();
    let mut gate = builder(&store).fence("drain_wait = \"1s\"").start();
    edit(&gate, "settle_after = \"2s\"", "settle_after = \"600s\"");
    gate.restart();
    let old = gate.acquire("old", "a", "60s");
    let _lost = write_in_flight(&gate, &store, "/wal/x", old);
    gate.restart();
    let (new, other) = (gate.hand_over("old", old, "b"), gate.acquire("other", "c", "60s"));
    assert_eq!(put(&gate, "/other/y", other).status, 200);
    assert_eq!(put(&gate, "/wal/x", new).status, 503);
    assert!(!gate.log().iter().any(|line| line.contains(HELD)));
    assert_eq!(applied(&store, "/wal/x"), [0; 0]);
}

#[test]
fn a_clean_stop_leaves_nothing_to_wait_for_even_if_keys_move() {
    let store = RawStore::start();
    let mut gate = builder(&store).fence("drain_wait = \"1s\"").start();
    edit(&gate, "settle_after = \"2s\"", "settle_after = \"600s\"");
    gate.restart();
    let old = gate.acquire("old", "a", "60s");
    assert_eq!(put(&gate, "/wal/x", old).status, 200);
    gate.stop();
    edit(&gate, "\"old\"", "\"new\"");
    gate.restart();
    assert_eq!(fence(&gate, "old")["permits"], serde_json::json!([]));
    assert!(!gate.log().iter().any(|line| line.contains(HELD)));
    let new = gate.acquire("new", "b", "60s");
    assert_eq!(put(&gate, "/wal/x", new).status, 200);
}

#[test]
fn an_operator_ends_a_hold_that_has_no_end() {
    let store = RawStore::start();
    let mut gate = builder(&store).fence("drain_wait = \"1s\"").start();
    edit(&gate, "settle_after = \"2s\"", "settle_after = \"never\"");
    gate.restart();
    let old = gate.acquire("old", "a", "60s");
    let _lost = write_in_flight(&gate, &store, "/wal/x", old);
    gate.sigkill();
    edit(&gate, "\"old\"", "\"new\"");
    gate.restart();
    gate.wait_log(&[HELD, "until `fencegate fence settle`"]);
    let (new, other) = (gate.acquire("new", "b", "60s"), gate.acquire("other", "c", "60s"));
    assert_eq!(put(&gate, "/wal/x", new).status, 503);
    // One resource alone, on the operator's word; the others stay held.
    stdout_of(&gate.cli(&["fence", "settle", "other"]));
    assert_eq!(put(&gate, "/other/y", other).status, 200);
    assert_eq!(put(&gate, "/wal/x", new).status, 503);
    // What holds all of them is the permit of the old resource.
    let settled = gate.cli(&["fence", "settle", "old"]);
    assert!(said(&settled).contains(&format!("of token {old}")), "{}", said(&settled));
    wait_for("the hold to end", DEADLINE, || !held(&gate));
    store.release("/wal/x");
    store.wait_applied("/wal/x");
    assert_eq!(put(&gate, "/wal/x", new).status, 200);
}
