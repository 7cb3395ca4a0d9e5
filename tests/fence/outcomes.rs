//! How exchanges end: the settle table, seen from the store, from the client and in the log.

use std::time::{Duration, Instant};

use super::{NO_END, RULE_PER_BUCKET, begin, fence, send, wait_settled, wait_waiting};
use crate::support::clients::boto3;
use crate::support::gate::{Builder, Gate};
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::Step::*;
use crate::support::raw_store::{Ended, RawStore, Step, script};
use crate::support::wait::{DEADLINE, wait_for};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!";
const FAILED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";

fn gate(store: &RawStore) -> Builder {
    Gate::builder(&store.url())
        .rules(RULE_PER_BUCKET)
        .env("FENCEGATE_LOG", "info,fencegate::pipeline=debug")
}

fn say(bytes: &[u8]) -> Step {
    Send(bytes.to_vec())
}

/// A conditional PUT.
fn put_if_none_match(gate: &Gate, path: &str, token: u64) -> RawClient {
    let mut client = RawClient::connect(gate.address());
    let token = format!("Fencing-Token: {token}");
    client.send(&request("PUT", path, "localhost", &[&token, "If-None-Match: *"], b"body"));
    client
}

#[test]
fn what_comes_back_after_the_tail_settles_the_exchange_as_the_table_says() {
    let store = RawStore::start();
    let gate = gate(&store).upstream("answer_timeout = \"2s\"").start();
    let partial = say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    let hidden = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n<Error/>";
    let rows: [(&str, Vec<Step>, u16, &str); 14] = [
        ("ok", vec![ReadBody, Apply, Answer], 200, "applied"),
        ("refused", vec![ReadBody, say(FORBIDDEN)], 403, "not_applied"),
        ("reset", script::reset_after_body(), 502, "unknown"),
        ("closed", script::applied_without_answer(), 502, "unknown"),
        ("closed-after-head", vec![Close], 502, "unknown"),
        ("half-line", vec![ReadBody, Apply, say(b"HTTP/1.1 2"), Close], 502, "unknown"),
        ("half-answer", vec![ReadBody, Apply, partial, Close], 502, "unknown"),
        ("silent", vec![ReadBody, Apply, AwaitEnd], 504, "unknown"),
        ("failed", vec![ReadBody, Apply, say(FAILED)], 500, "unknown"),
        ("busy", vec![ReadBody, Apply, say(BUSY)], 503, "unknown"),
        ("accepted", vec![ReadBody, say(ACCEPTED), Apply], 202, "unknown"),
        ("twice", vec![ReadBody, Apply, say(&[OK, OK].concat()), AwaitEnd], 502, "unknown"),
        ("switching", vec![ReadBody, say(b"HTTP/1.1 101 X\r\n\r\n"), AwaitEnd], 502, "unknown"),
        ("hidden-error", vec![ReadBody, say(hidden)], 200, "applied"),
    ];
    for (bucket, steps, status, outcome) in rows {
        let (path, resource) = (format!("/{bucket}/x"), format!("r/{bucket}"));
        let token = gate.acquire(&resource, "a", "60s");
        store.next(&path, steps);
        let answer = send(&gate, &path, token, b"body");
        assert_eq!(answer.status, status, "{bucket}: {}", answer.text());
        let line = gate.wait_log(&[&format!("resource={resource} "), "outcome="]);
        assert!(line.contains(&format!("outcome=\"{outcome}\"")), "{bucket}: {line}");
        let tainted = fence(&gate, &resource)["permits"][0]["tainted"] == true;
        assert_eq!(tainted, outcome == "unknown", "{bucket}");
        assert_eq!(store.seen_at(&path).len(), 1, "{bucket}: sent once");
    }
    for bucket in ["silent", "twice", "switching"] {
        assert_eq!(store.wait_ended(&format!("/{bucket}/x")), Ended::Reset, "{bucket}");
    }
    wait_settled(&gate);
}

#[test]
fn what_comes_back_before_the_tail_is_not_sent_unless_the_store_says_done() {
    let store = RawStore::start();
    let gate = gate(&store).fence(NO_END).start();
    let read = ReadAtLeast(1);
    let rows: [(&str, Vec<Step>, u16, bool); 6] = [
        ("reset", script::reset_after_head(), 502, false),
        ("closed", vec![read.clone(), Close], 502, false),
        ("refused", vec![read.clone(), say(FORBIDDEN), AwaitEnd], 403, false),
        ("failed", vec![read.clone(), say(FAILED), AwaitEnd], 500, false),
        ("busy", vec![read.clone(), say(BUSY), AwaitEnd], 503, false),
        ("done", vec![read, say(OK), AwaitEnd], 502, true),
    ];
    for (bucket, steps, status, alarm) in rows {
        let (path, resource) = (format!("/{bucket}/x"), format!("r/{bucket}"));
        let a = gate.acquire(&resource, "a", "60s");
        store.next(&path, steps);
        let mut client = RawClient::connect(gate.address());
        let whole = super::put(&path, a, &vec![b'x'; 1 << 20]);
        // All but its last byte: the tail cannot have left.
        client.try_send(&whole[..whole.len() - 1]);
        let answer = client.answer();
        assert_eq!(answer.status, status, "{bucket}: {}", answer.text());
        let line = gate.wait_log(&[&format!("resource={resource} "), "outcome="]);
        let outcome = if alarm { "unknown" } else { "not_sent" };
        assert!(line.contains(&format!("outcome=\"{outcome}\"")), "{bucket}: {line}");
        assert_eq!(line.contains("ERROR") && line.contains("torn"), alarm, "{bucket}: {line}");
        // Nothing of it holds up the next holder, or only an operator ends that.
        let b = gate.hand_over(&resource, a, "b");
        let mut next = begin(&gate, &path, b, b"new");
        if alarm {
            wait_waiting(&gate, &resource, 1);
            assert!(gate.cli(&["fence", "settle", &resource]).status.success());
        }
        assert_eq!(next.answer().status, 200, "{bucket}");
    }
    wait_settled(&gate);
}

#[test]
fn a_store_that_cannot_be_reached_leaves_nothing_in_doubt() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let gate = Gate::builder(&url).fence(NO_END).start();
    let token = gate.acquire("wal/main", "a", "60s");
    assert_eq!(send(&gate, "/wal/x", token, b"small").status, 502);
    assert_eq!(fence(&gate, "wal/main")["permits"][0]["tainted"], false);
    wait_settled(&gate);
}

/// apache/iceberg#3717, ClickHouse/ClickHouse#112081, trinodb/trino#10462
#[test]
fn a_commit_that_answered_with_an_error_is_not_taken_for_not_done() {
    let store = RawStore::start();
    let gate = gate(&store).fence("settle_after = \"3s\"").start();
    let applied = |answer: &[u8]| vec![ReadBody, Apply, say(answer), Close];
    // The last one takes effect after its answer, and after its successor has come.
    let rows: [(&str, Vec<Step>, u16); 5] = [
        ("failed", applied(FAILED), 500),
        ("busy", applied(BUSY), 503),
        ("half-line", applied(b"HTTP/1.1 2"), 502),
        ("closed", script::applied_without_answer(), 502),
        ("late", vec![ReadBody, say(FAILED), Hold, Apply], 500),
    ];
    let started: Vec<_> = rows
        .into_iter()
        .map(|(bucket, steps, status)| {
            let (path, resource) = (format!("/{bucket}/x"), format!("r/{bucket}"));
            let a = gate.acquire(&resource, "a", "60s");
            store.next(&path, steps);
            let before = Instant::now();
            assert_eq!(send(&gate, &path, a, b"old").status, status, "{bucket}");
            let permit = fence(&gate, &resource)["permits"][0].clone();
            assert_eq!(permit["tainted"], true, "{bucket}");
            assert!(permit["clears_in_ms"].as_u64().is_some_and(|ms| ms <= 3_000), "{bucket}");
            let b = gate.hand_over(&resource, a, "b");
            (bucket, path.clone(), before, begin(&gate, &path, b, b"new"))
        })
        .collect();
    wait_waiting(&gate, "r/late", 1);
    let status = gate.get("/v1/status").text();
    assert!(status.contains("r/late") && status.contains("tainted"), "{status}");
    store.release("/late/x");
    for (bucket, path, before, mut new) in started {
        assert_eq!(new.answer().status, 200, "{bucket}");
        assert!(before.elapsed() >= Duration::from_secs(3), "{bucket}: let through too early");
        assert_eq!(store.object(&path).as_deref(), Some(&b"new"[..]), "{bucket}");
    }
}

/// aws/aws-sdk-java-v2#6580, apache/opendal#6741
#[test]
fn a_conditional_write_is_sent_once_and_the_stores_own_refusals_pass() {
    const EXISTS: &[u8] = b"HTTP/1.1 412 Precondition Failed\r\nContent-Type: application/xml\r\n\
        Content-Length: 46\r\n\r\n<Error><Code>PreconditionFailed</Code></Error>";
    const CONFLICT: &[u8] = b"HTTP/1.1 409 Conflict\r\nContent-Type: application/xml\r\n\
        Content-Length: 55\r\n\r\n<Error><Code>ConditionalRequestConflict</Code></Error>\n";
    let store = RawStore::start();
    let gate = gate(&store).fence("settle_after = \"1s\"").start();
    let a = gate.acquire("r/b", "a", "60s");
    store.next("/b/x", script::applied_without_answer());
    assert_eq!(put_if_none_match(&gate, "/b/x", a).answer().status, 502);
    gate.wait_log(&["resource=r/b ", "outcome=\"unknown\""]);
    assert_eq!(store.seen_at("/b/x").len(), 1, "sent once");
    for (answer, status, code) in
        [(EXISTS, 412, "PreconditionFailed"), (CONFLICT, 409, "ConditionalRequestConflict")]
    {
        store.next("/b/x", script::answer(answer));
        let passed = put_if_none_match(&gate, "/b/x", a).answer();
        assert_eq!((passed.status, passed.code().as_deref()), (status, Some(code)));
    }
    // The whole story with an SDK that retries: its second attempt meets its own first one.
    let code = r#"
try:
    s3.put_object(Bucket="b", Key="y", Body=b"body", IfNoneMatch="*")
except ClientError as error:
    print(error.response["Error"]["Code"], error.response["ResponseMetadata"]["RetryAttempts"])
"#;
    store.next("/b/y", script::applied_without_answer());
    store.next("/b/y", script::answer(EXISTS));
    let output = boto3(&gate.url(), Some(a), code, &[]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "PreconditionFailed 1",
        "{output:?}"
    );
    let b = gate.hand_over("r/b", a, "b");
    let output = boto3(&gate.url(), Some(a), code, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "StaleFencingToken 0", "{output:?}");
    let stale = put_if_none_match(&gate, "/b/x", a).answer();
    assert_eq!((stale.status, stale.code().as_deref()), (403, Some("StaleFencingToken")));
    assert_eq!(store.seen_at("/b/y").len(), 2, "the stale attempts did not reach the store");
    assert_eq!(send(&gate, "/b/x", b, b"new").status, 200);
}

/// rclone/rclone#8500, supabase/storage#1388
#[test]
fn lengths_of_answers_arrive_as_the_store_sent_them() {
    let store = RawStore::start();
    let gate = gate(&store).start();
    let token = gate.acquire("r/b", "a", "60s");
    let heads: [(&[u8], u16, Option<&str>); 4] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, Some("0")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5368709120\r\n\r\n", 200, Some("5368709120")),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 17\r\n\r\n", 404, Some("17")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n",
            200,
            Some("9"),
        ),
    ];
    for headers in [Vec::new(), vec![format!("Fencing-Token: {token}")]] {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let mut client = RawClient::connect(gate.address());
        for (answer, status, length) in heads {
            store.next("/b/head", vec![say(answer)]);
            client.send(&request("HEAD", "/b/head", "localhost", &headers, b""));
            let answer = client.answer_to("HEAD");
            assert_eq!((answer.status, answer.header("content-length")), (status, length));
            assert_eq!(answer.header("transfer-encoding"), None);
        }
        // The connection is still in step.
        client.send(&request("GET", "/b/none", "localhost", &headers, b""));
        assert_eq!(client.answer().status, 404);
    }
    let puts: [(&str, &[u8], u16, &str); 3] = [
        ("no-content", b"HTTP/1.1 204 No Content\r\n\r\n", 204, "applied"),
        ("to-the-end", b"HTTP/1.1 200 OK\r\n\r\n<Result/>", 200, "applied"),
        ("empty", b"HTTP/1.1 200 OK\r\n\r\n", 200, "applied"),
    ];
    for (bucket, answer, status, outcome) in puts {
        let (path, resource) = (format!("/{bucket}/x"), format!("r/{bucket}"));
        let token = gate.acquire(&resource, "a", "60s");
        let mut steps = vec![ReadBody, Apply, say(answer)];
        if status != 204 {
            steps.push(Close);
        }
        store.next(&path, steps);
        assert_eq!(send(&gate, &path, token, b"body").status, status, "{bucket}");
        let line = gate.wait_log(&[&format!("resource={resource} "), "outcome="]);
        assert!(line.contains(&format!("outcome=\"{outcome}\"")), "{bucket}: {line}");
    }
    wait_settled(&gate);
}

#[test]
fn a_connection_that_the_store_closed_while_it_was_idle_makes_no_write_unknown() {
    let store = RawStore::start();
    let gate = gate(&store).start();
    let token = gate.acquire("r/b", "a", "60s");
    let mut client = RawClient::connect(gate.address());
    for round in 0..20 {
        store.next("/b/x", vec![ReadBody, Apply, Answer, Close]);
        client.send(&super::put("/b/x", token, b"body"));
        assert_eq!(client.answer().status, 200, "round {round}");
        wait_for("the store closed it", DEADLINE, || store.open_connections() == 0);
    }
    assert_eq!(fence(&gate, "r/b")["permits"][0]["tainted"], false);
    assert_eq!(store.seen_at("/b/x").len(), 20, "sent once each");
}
