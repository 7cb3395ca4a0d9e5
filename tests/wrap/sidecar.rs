//! The sidecar of `run` and `with`: what it changes (one header), what it refuses, what it leaves alone.

use std::net::SocketAddr;

use super::run::number;
use crate::support::gate::Gate;
use crate::support::process::Process;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};

/// A command that waits under `run`, with its sidecar's address and token.
struct Running {
    process: Process,
    address: SocketAddr,
    token: u64,
}

fn run_against(gate: &Gate, proxy: &str) -> Running {
    let script = "echo port=${FENCEGATE_PROXY##*:}; echo token=$FENCING_TOKEN; exec sleep 600";
    let args = ["run", "wal/main", "--ttl", "3s", "--proxy", proxy, "--", "sh", "-c", script];
    let process = gate.spawn(&args, |_| {});
    let port = u16::try_from(number(&process, "port")).unwrap();
    let line = process.wait_line("token", |line| line.starts_with("token="));
    let token = line["token=".len()..].parse().unwrap();
    Running { process, address: SocketAddr::from(([127, 0, 0, 1], port)), token }
}

fn gate() -> (RawStore, Gate) {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    (store, gate)
}

#[test]
fn a_request_goes_on_byte_for_byte_with_the_token_added() {
    let (_store, gate) = gate();
    // Straight into a recorder, so that it is the sidecar's work that is seen.
    let recorder = RawStore::start();
    let running = run_against(&gate, &recorder.url());
    let token = running.token;
    let head = "PUT /b/a%20B//c%2f?x-id=PutObject&b=%7E&a HTTP/1.1\r\nhOsT: Some.Host:77\r\nAuthorization: AWS4-HMAC-SHA256 Credential=x, SignedHeaders=host;x-amz-date, Signature=y\r\nX-Amz-Date: 20260101T000000Z\r\naccept-ENCODING: identity\r\nx-amz-meta-One: a  b\r\nx-amz-meta-one: c\r\nContent-Length: 5\r\n\r\n";
    let mut client = RawClient::connect(running.address);
    client.send(head.as_bytes());
    client.send(b"hello");
    assert_eq!(client.answer().status, 200);
    let seen = recorder.wait_complete("/b/a%20B//c%2f");
    let mut want: Vec<_> = head.split("\r\n").map(str::to_owned).collect();
    want.push(format!("fencing-token: {token}"));
    let got = String::from_utf8(seen.head).unwrap();
    let mut got: Vec<_> = got.split("\r\n").map(str::to_owned).collect();
    assert_eq!(got[0], want[0]);
    want.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, want);
    assert_eq!(seen.raw_body, b"hello");
    // As a client with HTTP_PROXY sends it.
    client.send(b"GET http://some.host/b/%7e HTTP/1.1\r\nHost: some.host\r\n\r\n");
    client.answer();
    let targets: Vec<_> = recorder.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets[1], "http://some.host/b/%7e");
}

#[test]
fn a_chunked_body_and_a_head_come_through() {
    let (_store, gate) = gate();
    let recorder = RawStore::start();
    let running = run_against(&gate, &recorder.url());
    let mut client = RawClient::connect(running.address);
    client.send(b"PUT /b/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    recorder.wait_seen("/b/c", "half read", |seen| {
        seen.raw_body.windows(3).any(|three| three == b"abc")
    });
    client.send(b"2\r\nde\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert_eq!(recorder.object("/b/c").as_deref(), Some(&b"abcde"[..]));
    client.send(&request("HEAD", "/b/c", "h", &[], b""));
    assert_eq!(client.answer_to("HEAD").header("content-length"), Some("5"));
    client.send(&request("GET", "/b/c", "h", &[], b""));
    assert_eq!(client.answer().body, b"abcde");
    assert_eq!(recorder.connections(), 1, "one connection for one connection");
}

#[test]
fn another_token_than_ours_is_refused_and_the_same_one_passes() {
    let (store, gate) = gate();
    let running = run_against(&gate, &gate.url());
    let ours = format!("Fencing-Token: {}", running.token);
    let cases: [(&str, &[&str], u16); 4] = [
        ("ours, by the client", &[&ours], 200),
        ("another", &["Fencing-Token: 1"], 400),
        ("no token", &["Fencing-Token: x"], 400),
        ("two", &[&ours, &ours], 400),
    ];
    for (case, headers, want) in cases {
        let mut client = RawClient::connect(running.address);
        client.send(&request("PUT", "/wal/x", "localhost", headers, b"a"));
        let answer = client.answer();
        assert_eq!(answer.status, want, "{case}: {}", answer.text());
        assert!(
            want == 200 || answer.text().contains("invalid-fencing-token"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(store.seen_at("/wal/x").len(), 1);
}

#[test]
fn after_the_loss_everything_is_refused_in_the_clients_dialect() {
    let (store, gate) = gate();
    // The command outlives SIGTERM for a moment, and the sidecar lives as long as it does.
    let script =
        "trap 'echo termed=1' TERM; echo port=${FENCEGATE_PROXY##*:}; while :; do sleep 0.05; done";
    let args = ["run", "wal/main", "--ttl", "20s", "--", "sh", "-c", script];
    let process = gate.spawn(&args, |_| {});
    let port = u16::try_from(number(&process, "port")).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut early = RawClient::connect(address);
    early.send(b"PUT /wal/early HTTP/1.1\r\nHost: localhost\r\n");
    gate.cli(&["fence", "bump", "wal/main"]);
    number(&process, "termed");
    early.send(b"Content-Length: 1\r\n\r\nx");
    assert_eq!(early.answer().status, 412, "a request that was under way");
    let s3 = "x-amz-date: 20260101T000000Z";
    let cases: [(&[&str], u16, &str); 3] = [
        (&[], 412, r#""type":"/errors/lease-expired""#),
        (&[s3], 412, "<Code>LeaseExpired</Code>"),
        (&[s3, "If-None-Match: *"], 403, "<Code>LeaseExpired</Code>"),
    ];
    for (headers, status, text) in cases {
        let mut client = RawClient::connect(address);
        client.send(&request("PUT", "/wal/late", "localhost", headers, b"a"));
        let answer = client.answer();
        assert_eq!(answer.status, status);
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    assert!(store.seen().is_empty(), "{:?}", store.seen());
}

#[test]
fn a_client_that_waits_for_a_100_gets_it_from_the_proxy() {
    let (store, gate) = gate();
    let running = run_against(&gate, &gate.url());
    let head = "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut client = RawClient::connect(running.address);
    client.send(head.as_bytes());
    assert!(client.head().starts_with(b"HTTP/1.1 100 "));
    client.send(b"hello");
    assert_eq!(client.answer().status, 200);
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"hello"[..]));
    // No rule: refused with the body unsent, and no 100 before.
    let mut client = RawClient::connect(running.address);
    client.send(head.replace("/wal/x", "/other/x").as_bytes());
    let head = client.head();
    assert!(head.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&head));
}

#[test]
fn an_early_refusal_reaches_a_client_that_is_still_sending() {
    let (_store, gate) = gate();
    let running = run_against(&gate, &gate.url());
    let size = 64 << 20;
    for _ in 0..5 {
        let mut client = RawClient::connect(running.address);
        client.send(
            &format!("PUT /other/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n")
                .into_bytes(),
        );
        let piece = vec![0; 1 << 20];
        // All of it before reading, as simple clients do.
        for _ in 0..size >> 20 {
            assert!(client.try_send(&piece), "reset before it could read");
        }
        assert_eq!(client.answer().status, 403);
    }
}

#[test]
fn what_two_parsers_could_read_differently_goes_no_further() {
    let (_store, gate) = gate();
    let recorder = RawStore::start();
    let running = run_against(&gate, &recorder.url());
    let cases = [
        "PUT /wal/x HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
        "PUT /wal/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "PUT /wal/x HTTP/1.1\r\nHost: a\r\nConnection: Fencing-Token\r\nContent-Length: 0\r\n\r\n",
    ];
    for case in cases {
        let mut client = RawClient::connect(running.address);
        client.send(case.as_bytes());
        assert_eq!(client.answer().status, 400, "{case}");
    }
    assert!(recorder.seen().is_empty());
}

#[test]
fn a_proxy_that_is_gone_is_502_and_its_return_is_noticed() {
    let (store, mut gate) = gate();
    let running = run_against(&gate, &gate.url());
    let mut client = RawClient::connect(running.address);
    let mut put = |body: &[u8]| {
        client.send(&request("PUT", "/wal/x", "localhost", &[], body));
        client.answer().status
    };
    assert_eq!(put(b"one"), 200);
    gate.restart();
    // The connection behind the client's has gone; the same client goes on.
    assert_eq!(put(b"two"), 200);
    gate.sigkill();
    let mut client = RawClient::connect(running.address);
    client.send(&request("PUT", "/wal/x", "localhost", &[], b"three"));
    let answer = client.answer();
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("fencing proxy"), "{}", answer.text());
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"two"[..]));
    drop(running.process);
}

#[test]
fn the_stores_answer_comes_back_as_it_is() {
    let (store, gate) = gate();
    let running = run_against(&gate, &gate.url());
    let own = b"HTTP/1.1 412 Precondition Failed\r\nX-Store: yes\r\nETag: \"q\"\r\nContent-Length: 3\r\n\r\nown";
    store.next("/wal/x", script::answer(own));
    let mut client = RawClient::connect(running.address);
    client.send(&request("PUT", "/wal/x", "localhost", &[], b"a"));
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.header("x-store"), answer.text().as_str()),
        (412, Some("yes"), "own")
    );
}
