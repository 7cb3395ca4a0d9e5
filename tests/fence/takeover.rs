//! One older write in flight while the lease moves.

use super::{NO_END, begin, fence, send, wait_settled, wait_waiting};
use crate::support::clients::{Curl, stdout_of};
use crate::support::gate::{Builder, Gate};
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{Ended, RawStore, script};
use crate::support::scenario::Verdict;
use crate::support::wait::{DEADLINE, wait_for};

/// An admitted write that the store takes its time with, the lease moves, the successor writes. It is told to
/// come back while the older one is in flight; that it was told so shows that it had waited.
pub fn old_write_in_flight(gate: Builder, store: &RawStore) -> Verdict {
    let gate = gate.fence("drain_wait = \"3s\"\nsettle_after = \"never\"").start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::late());
    let mut old = begin(&gate, "/wal/x", a, b"old");
    store.wait_complete("/wal/x");
    let b = gate.hand_over("wal/main", a, "b");
    let early = send(&gate, "/wal/x", b, b"new").status;
    // This one is there before the older one is settled.
    let mut new = (early == 503).then(|| begin(&gate, "/wal/x", b, b"new"));
    if new.is_some() {
        wait_waiting(&gate, "wal/main", 1);
    }
    store.release("/wal/x");
    assert_eq!(old.answer().status, 200, "the store did it, and says so");
    if let Some(new) = &mut new {
        assert_eq!(new.answer().status, 200);
    }
    let last = store.object("/wal/x");
    Verdict::held_if(early == 503 && last.as_deref() == Some(b"new"), || {
        format!("the successor was answered {early}, and the store holds {last:?}")
    })
}

#[test]
fn a_successor_waits_for_the_write_in_flight_and_then_wins() {
    let store = RawStore::start();
    old_write_in_flight(Gate::builder(&store.url()), &store).must_hold();
}

/// neondatabase/neon#4314, tokio-rs/axum#2610, quickwit-oss/quickwit#4675
#[test]
fn a_write_whose_client_died_after_its_tail_stays_counted() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::hold());
    let dying = begin(&gate, "/wal/x", a, b"olddd");
    store.wait_applied("/wal/x");
    dying.reset();
    let b = gate.hand_over("wal/main", a, "b");
    let mut new = begin(&gate, "/wal/x", b, b"new");
    wait_waiting(&gate, "wal/main", 1);
    let permit = fence(&gate, "wal/main")["permits"][0].clone();
    assert_eq!((&permit["counted"], &permit["tainted"]), (&1.into(), &false.into()));
    assert_eq!(store.seen_at("/wal/x").len(), 1, "B was not let through");
    store.release("/wal/x");
    assert_eq!(new.answer().status, 200);
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"new"[..]));
    wait_settled(&gate);
}

/// neondatabase/neon#4314
#[test]
fn a_write_whose_client_died_inside_its_body_is_cut_and_delays_nobody() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    let mut dying = RawClient::connect(gate.address());
    let token = format!("Fencing-Token: {a}");
    let head = format!(
        "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\n{token}\r\nContent-Length: 10485760\r\n\r\n"
    );
    dying.send(head.as_bytes());
    dying.send(&vec![b'a'; 5 << 20]);
    store.wait_seen("/wal/x", "half-read", |seen| seen.raw_body.len() > 1 << 20 || seen.torn);
    dying.reset();
    let b = gate.hand_over("wal/main", a, "b");
    // Were anything of it in doubt, nothing would ever let B through.
    assert_eq!(send(&gate, "/wal/x", b, b"new").status, 200);
    store.wait_torn("/wal/x");
    assert_eq!(store.wait_ended("/wal/x"), Ended::Reset, "reset, not closed");
    assert_eq!(store.applied(), [("PUT /wal/x".to_owned(), b"new".to_vec())]);
    wait_settled(&gate);
}

#[test]
fn an_upload_that_is_overtaken_before_its_tail_is_reset_and_delays_nobody() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    let mut old = RawClient::connect(gate.address());
    let body = vec![b'a'; 1 << 20];
    let whole = request("PUT", "/wal/x", "localhost", &[&format!("Fencing-Token: {a}")], &body);
    old.send(&whole[..whole.len() - 1]);
    store.wait_seen("/wal/x", "nearly read", |seen| seen.raw_body.len() > 1 << 19);
    let b = gate.hand_over("wal/main", a, "b");
    assert_eq!(send(&gate, "/wal/x", b, b"new").status, 200);
    assert_eq!(store.wait_ended("/wal/x"), Ended::Reset, "reset, not closed");
    let refused = old.answer();
    assert_eq!((refused.status, refused.code().as_deref()), (412, Some("StaleFencingToken")));
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"new"[..]));
}

#[test]
fn after_the_barrier_an_unfenced_read_shows_every_older_write_that_will_ever_land() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::late());
    let mut old = begin(&gate, "/wal/x", a, b"old");
    store.wait_complete("/wal/x");
    let b = gate.hand_over("wal/main", a, "b");
    let mut raise = gate.cli_command(&["fence", "raise", "wal/main", &b.to_string()]);
    let raising = std::thread::spawn(move || raise.output().unwrap());
    wait_waiting(&gate, "wal/main", 1);
    // Not the old holder's next write either: the mark rose at once.
    assert_eq!(send(&gate, "/wal/y", a, b"late").status, 412);
    assert!(!raising.is_finished(), "the barrier waits for the older write");
    store.release("/wal/x");
    stdout_of(&raising.join().unwrap());
    let read = Curl::get(&format!("{}/wal/x", gate.url())).unsigned().send();
    assert_eq!(read.body, b"old");
    assert_eq!(send(&gate, "/wal/x", b, b"old, new").status, 200);
    assert_eq!(old.answer().status, 200);
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"old, new"[..]));
}

/// elastic/elasticsearch#22148, elastic/elasticsearch#49060
#[test]
fn a_fenced_read_waits_for_older_writes_and_an_unfenced_one_does_not() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let a = gate.acquire("wal/main", "a", "60s");
    assert_eq!(send(&gate, "/wal/index", a, b"one").status, 200);
    store.next("/wal/index", script::late());
    let mut old = begin(&gate, "/wal/index", a, b"one, two");
    store.wait_seen("/wal/index", "second", |seen| seen.body == b"one, two");
    let b = gate.hand_over("wal/main", a, "b");
    let token = format!("Fencing-Token: {b}");
    let ask = |method, target: &str| {
        let mut client = RawClient::connect(gate.address());
        client.send(&request(method, target, "localhost", &[&token], b""));
        client
    };
    let mut get = ask("GET", "/wal/index");
    let mut head = ask("HEAD", "/wal/index");
    let mut list = ask("GET", "/wal?list-type=2&prefix=index");
    wait_waiting(&gate, "wal/main", 3);
    let open = Curl::get(&format!("{}/wal/index", gate.url())).unsigned().send();
    assert_eq!(open.body, b"one", "a read without a token returns at once");
    store.release("/wal/index");
    let read = get.answer();
    assert_eq!(read.body, b"one, two", "what is read holds all that was written before");
    assert_eq!(head.answer_to("HEAD").header("content-length"), Some("8"));
    assert_eq!(list.answer().status, 404, "the store lists nothing, but it was asked");
    let next = [&read.body[..], b", three"].concat();
    assert_eq!(send(&gate, "/wal/index", b, &next).status, 200);
    assert_eq!(old.answer().status, 200);
    wait_for("nothing is lost", DEADLINE, || {
        store.object("/wal/index").as_deref() == Some(b"one, two, three")
    });
}
