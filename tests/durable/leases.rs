//! The lease commands and calls against the real server: lists, watches, queues, barriers, shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{fence, json, number, put, said, write_in_flight};
use crate::support::clients::stdout_of;
use crate::support::gate::Gate;
use crate::support::process::Process;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::wait::DEADLINE;

fn gate() -> (RawStore, Gate) {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    (store, gate)
}

#[test]
fn list_and_show_tell_every_lease_and_only_show_its_token() {
    let (_store, gate) = gate();
    let a = gate.acquire("wal/a", "one", "60s");
    let b = gate.acquire("wal/b", "two", "1h");
    gate.release("wal/b", b);
    gate.acquire("zoo", "three", "60s");
    assert_eq!(put(&gate, "/wal/x", gate.acquire("wal/main", "four", "60s")).status, 200);

    let list = stdout_of(&gate.cli(&["lease", "list", "--prefix", "wal/"]));
    let rows: Vec<Vec<&str>> =
        list.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let want = [
        ["RESOURCE", "HOLDER", "STATE"],
        ["wal/a", "one", "live"],
        ["wal/b", "two", "released"],
        ["wal/main", "four", "live"],
    ];
    assert_eq!(rows, want);
    assert!(!list.contains(&a.to_string()), "{list}");
    let page =
        stdout_of(&gate.cli(&["lease", "list", "--after", "wal/b", "--limit", "1", "--json"]));
    assert!(page.contains("\"wal/main\"") && page.contains("\"next\"") && !page.contains("zoo"));

    let shown = stdout_of(&gate.cli(&["lease", "show", "wal/a"]));
    assert!(
        shown.contains(&format!("token       {a}")) && shown.contains("mark        -"),
        "{shown}"
    );
    assert_eq!(gate.cli(&["lease", "show", "never"]).status.code(), Some(1));
}

/// The events that a watch tells, until one of this resource.
fn events_until(client: &mut RawClient, last: &str) -> Vec<BTreeMap<String, String>> {
    let mut events = Vec::new();
    loop {
        let text = String::from_utf8(client.chunk()).unwrap();
        let fields = text.lines().filter_map(|line| line.split_once(": "));
        let event: BTreeMap<String, String> =
            fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some(data) = event.get("data") {
            let end = data.contains(&format!("\"{last}\""));
            events.push(event);
            if end {
                return events;
            }
        }
    }
}

fn watch(gate: &Gate, after: Option<&str>) -> RawClient {
    let mut client = RawClient::connect(gate.admin_address());
    let header = after.map(|id| format!("Last-Event-ID: {id}"));
    let headers: Vec<&str> = header.iter().map(String::as_str).collect();
    client.send(&request("GET", "/v1/leases/watch?prefix=wal/", "localhost", &headers, b""));
    let head = String::from_utf8(client.head()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client
}

#[test]
fn a_watch_goes_on_after_the_last_event_and_never_shows_a_token() {
    let (_store, gate) = gate();
    let mut first = watch(&gate, None);
    let a = gate.acquire("wal/a", "one", "60s");
    gate.acquire("other", "two", "60s");
    let seen = events_until(&mut first, "wal/a");
    assert_eq!(seen.len(), 1);
    let id = seen[0]["id"].clone();
    drop(first);

    gate.release("wal/a", a);
    let b = gate.acquire("wal/a", "three", "60s");
    stdout_of(&gate.cli(&["fence", "bump", "wal/a"]));
    let c = gate.acquire("wal/end", "four", "60s");
    let mut again = watch(&gate, Some(&id));
    let missed = events_until(&mut again, "wal/end");
    let changes: Vec<&str> = missed.iter().map(|event| event["event"].as_str()).collect();
    assert_eq!(changes, ["released", "acquired", "revoked", "acquired"]);
    let all = format!("{seen:?}{missed:?}");
    for token in [a, b, c] {
        assert!(!all.contains(&token.to_string()), "{token} in {all}");
    }
}

#[test]
fn the_watch_command_tells_changes_until_the_server_is_gone() {
    let (_store, gate) = gate();
    let args = ["lease", "watch", "--prefix", "wal/", "--server", &gate.admin()];
    let program = crate::support::gate::program();
    let watching = Process::start("watch", &program, &args, |_| {});
    // It has begun when it tells something.
    for n in 0.. {
        let token = gate.acquire(&format!("wal/probe/{n}"), "probe", "60s");
        gate.release(&format!("wal/probe/{n}"), token);
        if !watching.lines().is_empty() {
            break;
        }
    }
    let token = gate.acquire("wal/a", "one", "60s");
    gate.release("wal/a", token);
    watching.wait_line("acquired", |line| line == "acquired  wal/a  one");
    watching.wait_line("released", |line| line == "released  wal/a  one");
    gate.stop();
    let (status, lines) = watching.wait_end(DEADLINE);
    assert_eq!(status.code(), Some(3), "{lines}");
    assert!(!lines.contains(&token.to_string()), "{lines}");
}

/// An acquire that waits, on a connection of its own; sent, and taken up by the server.
fn waiter(gate: &Gate, holder: &str) -> RawClient {
    let body = serde_json::json!({
        "resource": "wal/main", "holder": holder, "ttl": "60s", "wait": "60s",
    });
    let mut client = RawClient::connect(gate.admin_address());
    let headers = ["Content-Type: application/json"];
    let body = body.to_string();
    client.send(&request("POST", "/v1/lease/acquire", "localhost", &headers, body.as_bytes()));
    // The admin side has one thread, which has read what came before it answers what came later.
    (0..3).for_each(|_| assert_eq!(gate.get("/healthz").status, 200));
    client
}

#[test]
fn waiters_are_served_in_the_order_they_came_and_leavers_are_passed_over() {
    let (_store, gate) = gate();
    let mut token = gate.acquire("wal/main", "first", "60s");
    let mut waiters: Vec<(usize, RawClient)> =
        (0..6).map(|n| (n, waiter(&gate, &format!("w{n}")))).collect();
    // Two go away, one of them the first in the queue.
    waiters.remove(3).1.reset();
    waiters.remove(0).1.reset();
    for (n, mut client) in waiters {
        gate.release("wal/main", token);
        let answer = client.answer();
        assert_eq!(answer.status, 200, "w{n}: {}", json(&answer));
        let answer = json(&answer);
        assert_eq!(answer["holder"], format!("w{n}"));
        assert!(number(&answer["token"]) > token);
        token = number(&answer["token"]);
        // Whoever does not wait does not get in between.
        let between = gate.cli(&["lease", "acquire", "wal/main", "--holder", "pushy"]);
        assert_eq!(between.status.code(), Some(1), "{}", said(&between));
    }
    gate.release("wal/main", token);
    let last = gate.cli(&["lease", "acquire", "wal/main", "--holder", "pushy"]);
    assert_eq!(last.status.code(), Some(0), "nobody is left in the queue: {}", said(&last));
    let late = gate.cli(&["lease", "acquire", "wal/main", "--wait", "1s"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(said(&late).contains("pushy"), "{}", said(&late));
}

#[test]
fn a_barrier_that_does_not_end_leaves_the_grant_to_be_asked_for_again() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence("drain_wait = \"1s\"").start();
    let a = gate.acquire("wal/main", "a", "60s");
    let mut old = write_in_flight(&gate, &store, "/wal/x", a);
    gate.release("wal/main", a);
    let acquire = [
        "lease",
        "acquire",
        "wal/main",
        "--holder",
        "b",
        "--ttl",
        "60s",
        "--drain",
        "--request-id",
        "r 1",
    ];
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let refused = gate.cli(&acquire);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        let text = said(&refused);
        assert!(
            text.contains("the lease is granted") && text.contains("--request-id \"r 1\""),
            "{text}"
        );
        assert!(refused.stdout.is_empty(), "a token on stdout says that older writes have settled");
        let lease = json(&gate.get("/v1/lease?resource=wal/main"));
        assert_eq!((&lease["holder"], &lease["live"]), (&"b".into(), &true.into()));
        tokens.push(number(&lease["token"]));
    }
    store.release("/wal/x");
    assert_eq!(old.answer().status, 200, "a write past its commit point is let finish");
    let token: u64 = stdout_of(&gate.cli(&acquire)).parse().unwrap();
    assert_eq!(tokens, [token, token]);
    assert_eq!(number(&fence(&gate, "wal/main")["mark"]), token);
    // With another id it is held like for anybody else.
    let other = gate.cli(&["lease", "acquire", "wal/main", "--holder", "b", "--request-id", "r 2"]);
    assert_eq!(other.status.code(), Some(1));
}

#[test]
fn sigterm_ends_waits_at_once_and_the_server_with_them() {
    let (_store, mut gate) = gate();
    let token = gate.acquire("wal/main", "a", "60s");
    let mut waiting = waiter(&gate, "b");
    assert!(waiting.silent_for(Duration::from_millis(50)));
    gate.sigterm();
    let answer = waiting.answer();
    assert_eq!(answer.status, 503);
    let answer = json(&answer);
    assert_eq!(answer["type"], "/errors/shutting-down", "{answer}");
    let status = gate.wait_exit(DEADLINE);
    assert!(status.success(), "{status}");
    // Whoever waited was not granted anything; whoever held still does.
    gate.restart();
    let lease = json(&gate.get("/v1/lease?resource=wal/main"));
    assert_eq!((number(&lease["token"]), &lease["holder"]), (token, &"a".into()));
    assert_eq!(put(&gate, "/wal/x", token).status, 200);
}
