//! A reload that moves keys of writes in flight to another resource.

use super::{NO_END, begin, fence, send, wait_settled, wait_waiting};
use crate::support::clients::stdout_of;
use crate::support::gate::Gate;
use crate::support::raw_store::{RawStore, script};

/// `wal/**` belongs to another resource from now on.
fn move_keys(gate: &Gate, to: &str) {
    let path = gate.config_path();
    let text = std::fs::read_to_string(&path).unwrap();
    let moved = text.replace("resource = \"wal/main\"", &format!("resource = \"{to}\""));
    assert_ne!(text, moved);
    std::fs::write(&path, moved).unwrap();
    gate.sighup();
    gate.wait_log(&["configuration reloaded", "generation=2"]);
}

#[test]
fn a_write_in_flight_holds_up_the_resource_that_a_reload_gives_its_key_to() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::late());
    let mut old = begin(&gate, "/wal/x", a, b"old");
    store.wait_complete("/wal/x");
    // One more waits for it, under the old rules.
    let a2 = gate.hand_over("wal/main", a, "a2");
    let mut waiting = begin(&gate, "/wal/x", a2, b"waited");
    wait_waiting(&gate, "wal/main", 1);
    let b = gate.acquire("wal/new", "b", "60s");
    move_keys(&gate, "wal/new");
    // It is routed again, to a resource that its token does not belong to.
    let refused = waiting.answer();
    assert!(matches!(refused.status, 403 | 412), "{}", refused.text());
    assert_eq!(refused.header("fencing-resource"), Some("wal/new"));
    let mut new = begin(&gate, "/wal/x", b, b"new");
    wait_waiting(&gate, "wal/new", 1);
    assert_eq!(store.seen_at("/wal/x").len(), 1, "it waits for the write under the old rules");
    store.release("/wal/x");
    assert_eq!(new.answer().status, 200);
    assert_eq!(old.answer().status, 200);
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"new"[..]));
    // From then on nothing is in the way.
    assert_eq!(send(&gate, "/wal/x", b, b"again").status, 200);
    wait_settled(&gate);
}

#[test]
fn an_unknown_outcome_holds_up_the_resource_that_a_reload_gives_its_key_to() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::reset_after_body());
    assert_eq!(send(&gate, "/wal/x", a, b"old").status, 502);
    // This one turns unknown only after the reload.
    store.next("/wal/y", script::late());
    let mut later = begin(&gate, "/wal/y", a, b"old");
    store.wait_complete("/wal/y");
    let b = gate.acquire("wal/new", "b", "60s");
    move_keys(&gate, "wal/new");
    let mut new = begin(&gate, "/wal/x", b, b"new");
    wait_waiting(&gate, "wal/new", 1);
    // An operator's word is for what is unknown; the write in flight is still waited for.
    stdout_of(&gate.cli(&["fence", "settle", "wal/new"]));
    assert_eq!(fence(&gate, "wal/new")["waiting"], 1);
    store.release("/wal/y");
    assert_eq!(later.answer().status, 200);
    assert_eq!(new.answer().status, 200);
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"new"[..]));
    wait_settled(&gate);
}
