//! `Expect: 100-continue`, and a store that answers before it has the body.
//!
//! haproxy/haproxy#3316, aws/aws-cli#1116, python-hyper/h11#43, hyperium/hyper#2791

use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, Step, script};

const SIZE: usize = 10 << 20;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

struct Scene {
    store: RawStore,
    gate: Gate,
    stale: u64,
    token: u64,
}

impl Scene {
    fn new() -> Scene {
        let store = RawStore::start();
        let gate = Gate::builder(&store.url()).start();
        let stale = gate.acquire("wal/main", "a", "60s");
        let token = gate.hand_over("wal/main", stale, "b");
        Scene { store, gate, stale, token }
    }

    /// A client that has sent its head and waits to be asked for the body.
    fn asks(&self, token: u64, length: usize) -> RawClient {
        let mut client = RawClient::connect(self.gate.address());
        let head = format!(
            "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        );
        client.send(head.as_bytes());
        client
    }
}

fn status(head: &[u8]) -> &str {
    std::str::from_utf8(&head[9..12]).unwrap()
}

#[test]
fn a_stale_writer_gets_its_412_without_being_asked_for_the_body() {
    let scene = Scene::new();
    let mut client = scene.asks(scene.stale, SIZE);
    let head = client.head();
    assert_eq!(status(&head), "412", "{}", String::from_utf8_lossy(&head));
    assert!(String::from_utf8_lossy(&head).to_lowercase().contains("connection: close"));
    assert_eq!(scene.store.connections(), 0);
}

#[test]
fn a_good_writer_is_asked_exactly_once_and_only_when_the_store_asks() {
    let scene = Scene::new();
    let asking =
        vec![Step::Hold, Step::Send(CONTINUE.to_vec()), Step::ReadBody, Step::Apply, Step::Answer];
    scene.store.next("/wal/x", asking);
    let mut client = scene.asks(scene.token, SIZE);
    let seen = scene.store.wait_head("/wal/x");
    assert_eq!(seen.header("expect").as_deref(), Some("100-continue"));
    scene.store.release("/wal/x");
    assert_eq!(client.head(), CONTINUE);
    client.send(&vec![b'b'; SIZE]);
    assert_eq!(status(&client.head()), "200");
    assert_eq!(scene.store.object("/wal/x").map(|object| object.len()), Some(SIZE));
}

#[test]
fn a_store_that_knows_no_expectations_gets_the_body_all_the_same() {
    let scene = Scene::new();
    for length in [1, SIZE] {
        let mut client = scene.asks(scene.token, length);
        assert_eq!(client.head(), CONTINUE);
        client.send(&vec![b'b'; length]);
        assert_eq!(status(&client.head()), "200");
        assert_eq!(scene.store.object("/wal/x").map(|object| object.len()), Some(length));
    }
}

#[test]
fn a_stores_refusal_before_the_body_arrives_whole_and_nothing_is_asked_for() {
    let scene = Scene::new();
    for framing in [
        "Content-Length: 6\r\n\r\ndenied",
        "Transfer-Encoding: chunked\r\n\r\n6\r\ndenied\r\n0\r\n\r\n",
        "Connection: close\r\n\r\ndenied",
    ] {
        let answer = format!("HTTP/1.1 403 Forbidden\r\n{framing}");
        scene.store.next("/wal/x", script::early(answer.as_bytes()));
        let mut client = scene.asks(scene.token, SIZE);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (403, "denied"), "{framing}");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert_eq!(scene.store.object("/wal/x"), None);
    // Refused before the tail: nothing is left behind that a successor would wait for.
    let next = scene.gate.hand_over("wal/main", scene.token, "c");
    let mut client = scene.asks(next, 1);
    client.send(b"c");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_body_that_comes_after_its_refusal_is_never_read_as_a_request() {
    let scene = Scene::new();
    let hidden = b"GET /public/secret HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for length in [hidden.len(), SIZE] {
        let mut client = scene.asks(scene.stale, length);
        assert_eq!(client.answer().status, 412);
        let mut bytes = hidden.repeat(length / hidden.len());
        bytes.resize(length, b'x');
        client.try_send(&bytes);
        let rest = client.rest();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
    assert_eq!(scene.store.connections(), 0);
}

#[test]
fn a_store_that_stalls_inside_its_early_answer_delays_no_successor() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence("drain_wait = \"2s\"").start();
    let token = gate.acquire("wal/main", "a", "60s");
    let begun = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nden";
    store.next("/wal/x", vec![Step::ReadAtLeast(1), Step::Send(begun.to_vec()), Step::Hold]);
    let mut client = RawClient::connect(gate.address());
    let head = format!(
        "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nContent-Length: {SIZE}\r\n\r\n"
    );
    client.send(head.as_bytes());
    client.send(&vec![b'b'; SIZE / 2]);
    store.wait_seen("/wal/x", "answered", |seen| seen.answered_at.is_some());
    let next = gate.hand_over("wal/main", token, "b");
    let mut successor = RawClient::connect(gate.address());
    let line = format!("Fencing-Token: {next}");
    successor.send(&request("PUT", "/wal/y", "localhost", &[&line], b"y"));
    assert_eq!(successor.answer().status, 200);
    assert_eq!(client.answer().code().as_deref(), Some("StaleFencingToken"));
}
