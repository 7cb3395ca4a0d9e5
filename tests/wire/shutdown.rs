//! SIGTERM: what is silent ends at once, what writes is finished, what would start is refused.
//!
//! hyperium/hyper#3576, tokio-rs/axum#2673, utensils/mold#1582

use std::net::TcpStream;
use std::time::Duration;

use crate::support::gate::{Builder, Gate};
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::wait::{DEADLINE, wait_for};

/// A permit that was not given back would keep a successor out for ever.
fn gate(store: &RawStore) -> Builder {
    Gate::builder(&store.url()).fence("settle_after = \"never\"\ndrain_wait = \"1s\"")
}

fn put(target: &str, token: u64, body: &[u8]) -> Vec<u8> {
    request("PUT", target, "localhost", &[&format!("Fencing-Token: {token}")], body)
}

#[test]
fn at_the_end_the_silent_go_at_once_and_the_writers_when_they_are_done() {
    let store = RawStore::start();
    let mut gate = gate(&store).proxy("shutdown_timeout = \"25s\"").start();
    let stale = gate.acquire("wal/main", "a", "60s");
    let token = gate.hand_over("wal/main", stale, "b");

    let mut silent = RawClient::connect(gate.address());
    let mut used = RawClient::connect(gate.address());
    used.send(b"GET /public/none HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(used.answer().status, 404);
    let mut half = RawClient::connect(gate.address());
    half.send(b"GET /public/none HTTP/1.1\r\nHost: loc");
    let mut stream = RawClient::connect(gate.admin_address());
    stream.send(b"GET /v1/leases/watch?prefix=wal HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(stream.head().starts_with(b"HTTP/1.1 200"));
    let body = vec![b'd'; 400 << 10];
    let whole = put("/wal/dripping", token, &body);
    let mut dripping = RawClient::connect(gate.address());
    let (first, rest) = whole.split_at(whole.len() / 2);
    dripping.send(first);
    store.wait_head("/wal/dripping");
    store.next("/wal/held", script::hold());
    let mut held = RawClient::connect(gate.address());
    held.send(&put("/wal/held", token, b"h"));
    store.wait_applied("/wal/held");

    gate.sigterm();
    for client in [&mut silent, &mut used, &mut half] {
        assert!(client.rest().is_empty());
    }
    assert!(stream.event_with("0\r\n\r\n"), "the stream was torn, not ended");
    wait_for("new connections to be refused", DEADLINE, || {
        TcpStream::connect(gate.address()).is_err()
    });
    // Its writers may renew until the last of them is done.
    let renewed = gate.cli(&["lease", "renew", "wal/main", &token.to_string()]);
    assert!(renewed.status.success(), "{}", String::from_utf8_lossy(&renewed.stderr));
    dripping.send(rest);
    assert_eq!(dripping.answer().status, 200);
    assert!(dripping.rest().is_empty());
    store.release("/wal/held");
    assert_eq!(held.answer().status, 200);
    assert!(gate.wait_exit(DEADLINE).success());
    assert_eq!(store.object("/wal/dripping"), Some(body));

    gate.restart();
    let fence = gate.get("/v1/fence?resource=wal/main").text();
    assert!(fence.contains(&token.to_string()), "the mark is gone: {fence}");
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", stale, b""));
    assert_eq!(client.answer().status, 412);
    let next = gate.hand_over("wal/main", token, "c");
    assert!(next > token);
    client.send(&put("/wal/x", next, b"c"));
    assert_eq!(client.answer().status, 200, "a permit was not given back");
}

#[test]
fn a_request_on_an_open_connection_is_turned_away_at_the_end() {
    let store = RawStore::start();
    let gate = gate(&store).start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/held", script::hold());
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/held", token, b"h"));
    store.wait_applied("/wal/held");
    gate.sigterm();
    gate.wait_log(&["told to end"]);
    // Behind the one in flight: the connection ends after that one's answer.
    client.send(&put("/wal/late", token, b"l"));
    store.release("/wal/held");
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    let rest = client.rest();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 503"), "{rest:?}");
    assert!(gate.wait_exit(DEADLINE).success());
    assert!(store.seen_at("/wal/late").is_empty());
}

#[test]
fn a_second_signal_ends_now_and_the_successor_waits_for_what_was_in_flight() {
    let store = RawStore::start();
    let mut gate = gate(&store).start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/held", script::hold());
    let mut held = RawClient::connect(gate.address());
    held.send(&put("/wal/held", token, b"h"));
    store.wait_applied("/wal/held");
    gate.sigterm();
    gate.wait_log(&["told to end"]);
    gate.sigterm();
    assert_eq!(gate.wait_exit(DEADLINE).code(), Some(1));
    assert!(held.rest().is_empty());
    gate.restart();
    let next = gate.hand_over("wal/main", token, "b");
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", next, b"b"));
    assert_eq!(client.answer().status, 503, "nobody knows what became of the write");
}

#[test]
fn a_write_that_does_not_end_is_cut_off_within_the_stated_time() {
    let store = RawStore::start();
    let gate = gate(&store).proxy("shutdown_timeout = \"2s\"").start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/held", script::hold());
    let mut held = RawClient::connect(gate.address());
    held.send(&put("/wal/held", token, b"h"));
    store.wait_applied("/wal/held");
    gate.sigterm();
    assert_eq!(gate.wait_exit(Duration::from_secs(10)).code(), Some(1));
    assert!(held.rest().is_empty());
}

#[test]
fn an_answer_that_its_client_takes_slowly_is_finished() {
    let store = RawStore::start();
    let gate = gate(&store).start();
    let object = vec![b'o'; 16 << 20];
    store.put_object("/public/large", &object);
    let mut client = RawClient::connect(gate.address());
    client.send(b"GET /public/large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with(b"HTTP/1.1 200"));
    gate.sigterm();
    gate.wait_log(&["told to end"]);
    assert_eq!(client.rest().len(), object.len());
    assert!(gate.wait_exit(DEADLINE).success());
}
