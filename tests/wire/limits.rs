//! What one client may send, and what a connection may be used for again.

use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::wait::{DEADLINE, long, wait_for};

fn get(path: &str) -> Vec<u8> {
    request("GET", path, "localhost", &[], b"")
}

#[test]
fn a_head_that_is_too_long_or_has_too_many_fields_is_431() {
    let store = RawStore::start();
    let gate =
        Gate::builder(&store.url()).proxy("limits = { head = \"16KiB\", headers = 100 }").start();
    let long = format!("X-Long: {}", "x".repeat(17 << 10));
    let target = format!("/public/{}", "x".repeat(17 << 10));
    let many: Vec<String> = (0..100).map(|at| format!("X-{at}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (name, bytes, statuses) in [
        ("a long field", request("GET", "/public/x", "localhost", &[&long], b""), &[431][..]),
        ("a long target", get(&target), &[414, 431]),
        ("many fields", request("GET", "/public/x", "localhost", &many, b""), &[431]),
    ] {
        let mut client = RawClient::connect(gate.address());
        client.try_send(&bytes);
        assert!(statuses.contains(&client.answer().status), "{name}");
        assert!(client.rest().is_empty(), "{name}");
    }
    assert_eq!(store.connections(), 0);
    let mut client = RawClient::connect(gate.address());
    client.send(&request("GET", "/public/x", "localhost", &many[..99], b""));
    assert_eq!(client.answer().status, 404);
}

#[test]
fn a_chunk_extension_without_end_is_refused() {
    // apache/trafficserver#10580
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let mut client = RawClient::connect(gate.address());
    let head = format!(
        "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nTransfer-Encoding: chunked\r\n\r\n5;"
    );
    client.send(head.as_bytes());
    client.try_send(&vec![b'a'; 1 << 20]);
    client.try_send(b"\r\nAAAAA\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    assert!(client.rest().is_empty());
    assert_eq!(store.connections(), 0);
}

#[test]
fn a_body_in_chunks_of_one_byte_costs_no_more_than_its_size() {
    // golang/go#71988
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let count = if long() { 1_000_000 } else { 150_000 };
    let mut bytes = format!(
        "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    bytes.extend(b"1\r\nx\r\n".repeat(count));
    bytes.extend(b"0\r\n\r\n");
    let before = peak(&gate);
    let mut client = RawClient::connect(gate.address());
    client.send(&bytes);
    assert_eq!(client.answer().status, 200);
    assert_eq!(store.object("/wal/x").map(|object| object.len()), Some(count));
    let grown = peak(&gate) - before;
    assert!(grown < 96 << 10, "{grown} KiB for {count} bytes");
}

/// The most memory that it ever had, in KiB.
fn peak(gate: &Gate) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_hundred_requests_at_once_are_answered_in_their_order() {
    // HackTricks-wiki/hacktricks#2063, cloudflare/pingora#673
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let mut bytes = Vec::new();
    for at in 0..100 {
        let path = format!("/public/{at}");
        store.put_object(&path, path.as_bytes());
        bytes.extend(get(&path));
        if at == 50 {
            bytes.extend(request("PUT", "/wal/x", "localhost", &[], b""));
        }
    }
    let mut client = RawClient::connect(gate.address());
    client.send(&bytes);
    for at in 0..100 {
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, format!("/public/{at}")));
        if at == 50 {
            assert_eq!(client.answer().status, 428);
        }
    }
    assert_eq!(store.seen().len(), 100);
}

#[test]
fn reads_of_every_shape_give_their_connection_back() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    store.put_object("/public/large", &vec![b'l'; 1 << 20]);
    store.put_object("/public/empty", b"");
    let mut client = RawClient::connect(gate.address());
    for _ in 0..5 {
        for (method, path, status) in [
            ("GET", "/public/large", 200),
            ("GET", "/public/empty", 200),
            ("GET", "/public/none", 404),
            ("HEAD", "/public/large", 200),
            ("HEAD", "/public/none", 404),
            ("DELETE", "/public/none", 204),
            ("PUT", "/public/small", 200),
        ] {
            client.send(&request(method, path, "localhost", &[], b""));
            assert_eq!(client.answer_to(method).status, status, "{method} {path}");
        }
        store.next(
            "/public/g",
            script::answer(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        );
        client.send(&get("/public/g"));
        assert_eq!(client.answer().status, 304);
        store.next(
            "/public/c",
            script::answer(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            ),
        );
        client.send(&get("/public/c"));
        assert_eq!(client.answer().text(), "a");
    }
    assert_eq!(store.connections(), 1);
}

#[test]
fn an_incomplete_exchange_never_leaves_a_connection_to_be_used_again() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    for (name, steps, complete) in [
        (
            "surplus",
            script::answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n"),
            true,
        ),
        (
            "torn",
            [
                script::answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
                vec![crate::support::raw_store::Step::Close],
            ]
            .concat(),
            false,
        ),
    ] {
        store.next("/public/odd", steps);
        let mut client = RawClient::connect(gate.address());
        client.send(&get("/public/odd"));
        client.half_close();
        let answer = client.rest();
        assert!(complete == answer.ends_with(b"\r\n\r\na"), "{name}: {answer:?}");
        let mut next = RawClient::connect(gate.address());
        next.send(&get("/public/none"));
        assert_eq!(next.answer().status, 404, "{name}");
        let seen = store.seen();
        let [odd, none] = &seen[seen.len() - 2..] else { panic!("{name}") };
        assert_ne!(none.connection, odd.connection, "{name}");
    }
}

#[test]
fn a_long_answer_to_a_write_that_is_torn_does_not_look_whole() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let mut torn = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..64 {
        torn.extend(b"4000\r\n");
        torn.extend(vec![b'x'; 0x4000]);
        torn.extend(b"\r\n");
    }
    let steps = [script::answer(&torn), vec![crate::support::raw_store::Step::Close]].concat();
    store.next("/wal/x", steps);
    let mut client = RawClient::connect(gate.address());
    client.send(&request(
        "PUT",
        "/wal/x",
        "localhost",
        &[&format!("Fencing-Token: {token}")],
        b"x",
    ));
    assert!(client.head().starts_with(b"HTTP/1.1 200"));
    gate.wait_log(&["the outcome of a write is unknown", "wal/main"]);
    let rest = client.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{} bytes that look whole", rest.len());
}

#[test]
fn each_of_the_connections_that_may_be_open_is_served_whichever_thread_got_it() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).proxy("limits = { connections = 2 }").start();
    for _ in 0..20 {
        let mut clients = [RawClient::connect(gate.address()), RawClient::connect(gate.address())];
        for client in &mut clients {
            client.send(&get("/public/none"));
            assert_eq!(client.answer().status, 404);
        }
        let mut third = RawClient::connect(gate.address());
        third.send(&get("/public/third"));
        let [mut first, second] = clients;
        first.send(&get("/public/none"));
        assert_eq!(first.answer().status, 404);
        assert!(store.seen_at("/public/third").len() < store.seen().len());
        drop((first, second));
        assert_eq!(third.answer().status, 404);
    }
}

#[test]
fn a_connection_beyond_the_limit_waits_for_one_to_end() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).proxy("limits = { connections = 1 }").start();
    let mut first = RawClient::connect(gate.address());
    first.send(&get("/public/first"));
    assert_eq!(first.answer().status, 404);
    let mut second = RawClient::connect(gate.address());
    second.send(&get("/public/second"));
    assert!(second.silent_for(Duration::from_millis(300)));
    first.send(&get("/public/first"));
    assert_eq!(first.answer().status, 404);
    assert!(store.seen_at("/public/second").is_empty());
    drop(first);
    assert_eq!(second.answer().status, 404);
}

#[test]
fn slow_heads_and_bodies_end_and_nobody_else_notices() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url())
        .proxy("limits = { header_time = \"1s\", body_idle = \"1s\" }")
        .env("FENCEGATE_LOG", "debug")
        .start();
    let token = gate.acquire("wal/main", "a", "60s");
    let began = Instant::now();
    let mut still = RawClient::connect(gate.address());
    still.send(b"GET /public/x HTTP/1.1\r\n");
    let mut drip = RawClient::connect(gate.address());
    drip.send(b"GET /public/x HTTP/1.1\r\nX-Drip: ");
    let start = |path: &str, length: usize, sent: usize| {
        let mut client = RawClient::connect(gate.address());
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nContent-Length: {length}\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.send(&vec![b's'; sent]);
        client
    };
    let mut bodies = [
        start("/wal/small", 10, 1),
        start("/wal/large", 1 << 20, 1 << 19),
        start("/public/open", 10, 1),
    ];
    let mut other = RawClient::connect(gate.address());
    // An end is all that the drip can get: nothing it sends now makes its head last longer.
    while drip.silent_for(Duration::from_millis(50)) && drip.try_send(b"x") {
        other.send(&get("/public/none"));
        assert_eq!(other.answer().status, 404);
        assert!(began.elapsed() < Duration::from_secs(20), "a dripping head goes on for ever");
    }
    still.rest();
    for client in &mut bodies {
        let answer = client.answer();
        assert_eq!((answer.status, answer.code().as_deref()), (408, Some("RequestTimeout")));
        assert_eq!(answer.header("connection"), Some("close"));
    }
    store.wait_torn("/wal/large");
    assert_eq!((store.object("/wal/small"), store.object("/public/open")), (None, None));
    let mut other = RawClient::connect(gate.address());
    other.send(&get("/public/none"));
    assert_eq!(other.answer().status, 404);
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_given_up() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).proxy("limits = { body_idle = \"1s\" }").start();
    store.put_object("/public/large", &vec![b'l'; 64 << 20]);
    let mut client = RawClient::connect(gate.address());
    client.send(&get("/public/large"));
    store.wait_head("/public/large");
    assert_eq!(store.open_connections(), 1);
    wait_for("the store's connection to be free", DEADLINE, || store.open_connections() == 0);
    assert!(client.rest().len() < 64 << 20);
}

#[test]
fn a_client_that_ends_its_side_after_a_request_still_gets_its_answer() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::hold());
    let mut client = RawClient::connect(gate.address());
    client.send(&request(
        "PUT",
        "/wal/x",
        "localhost",
        &[&format!("Fencing-Token: {token}")],
        b"x",
    ));
    client.half_close();
    store.wait_applied("/wal/x");
    store.release("/wal/x");
    assert_eq!(client.answer().status, 200);
    assert!(client.rest().is_empty());
}
