//! What a scrape of the metrics shows, and what it must not: anything that a request could make up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::wait::{DEADLINE, long, wait_for};

/// One scrape: the value of each series, by its name with its labels as written.
fn scrape(gate: &Gate) -> BTreeMap<String, f64> {
    let text = gate.get("/metrics").text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').expect("a name and a value"));
    series.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// The sum of the series of one family that have all these labels.
fn total(scrape: &BTreeMap<String, f64>, family: &str, labels: &[&str]) -> f64 {
    let of_family = |name: &str| name.split('{').next() == Some(family);
    let wanted = |name: &str| labels.iter().all(|label| name.contains(label));
    scrape.iter().filter(|(name, _)| of_family(name) && wanted(name)).map(|(_, n)| n).sum()
}

#[track_caller]
fn wait_metric(gate: &Gate, family: &str, labels: &[&str], value: f64) {
    let what = format!("{family} {labels:?} is {value}");
    wait_for(&what, DEADLINE, || total(&scrape(gate), family, labels) == value);
}

fn put(path: &str, token: u64) -> Vec<u8> {
    request("PUT", path, "localhost", &[&format!("Fencing-Token: {token}")], b"body")
}

/// Sends `count` requests whose paths, methods and tokens are made up, on one connection after another.
fn make_up(address: SocketAddr, seed: u64, count: usize) {
    let mut state = seed;
    let mut draw = |below: u64| {
        // Constants of Knuth's MMIX; its low bits repeat soon.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut client = RawClient::connect(address);
    for _ in 0..count {
        let method = match draw(8) {
            0 | 1 => "PUT".to_owned(),
            2 => "DELETE".to_owned(),
            3 | 4 => "GET".to_owned(),
            5 => "POST".to_owned(),
            6 => "HEAD".to_owned(),
            _ => format!("M{}", draw(1_000_000)),
        };
        let bucket = ["wal", "public", "nobody", "b\u{e4}"][draw(3) as usize];
        let path = format!("/{bucket}/{:x}/{:x}", draw(1 << 30), draw(1 << 30));
        let query = if draw(4) == 0 { format!("?q{}=1", draw(1 << 20)) } else { String::new() };
        let token = match draw(4) {
            0 => format!("Fencing-Token: {}", draw(1 << 30)),
            1 => format!("Fencing-Token: x{}", draw(1 << 30)),
            _ => format!("X-{}: 1", draw(1 << 30)),
        };
        client.send(&request(&method, &format!("{path}{query}"), "localhost", &[&token], b""));
        let answer = client.answer_to(&method);
        if answer.header("connection").is_some_and(|value| value == "close") {
            client = RawClient::connect(address);
        }
    }
}

#[test]
fn no_request_makes_a_series() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let count = if long() { 100_000 } else { 5_000 };
    make_up(gate.address(), 1, 10);
    let names = |scrape: &BTreeMap<String, f64>| scrape.keys().cloned().collect::<BTreeSet<_>>();
    let before = names(&scrape(&gate));
    std::thread::scope(|scope| {
        for seed in 2..6 {
            let address = gate.address();
            scope.spawn(move || make_up(address, seed, count / 4));
        }
    });
    let after = scrape(&gate);
    assert_eq!(names(&after), before);
    let requests = total(&after, "fencegate_requests_total", &[]);
    assert_eq!(requests, (count + 10) as f64, "each request is counted once");
    assert_eq!(
        total(&after, "fencegate_requests_total", &["answer=\"refused\""]),
        total(&after, "fencegate_refusals_total", &[]),
        "each refusal is counted under its rule and under its code"
    );
    assert_eq!(total(&after, "fencegate_step_seconds_count", &["step=\"request\""]), requests);
    assert!(total(&after, "fencegate_requests_total", &["answer=\"unfenced\""]) > 0.0);
}

#[test]
fn a_connection_to_the_store_serves_one_write_after_another() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let mut client = RawClient::connect(gate.address());
    for _ in 0..10 {
        client.send(&put("/wal/x", token));
        assert_eq!(client.answer().status, 200);
    }
    let after = scrape(&gate);
    let by = |event| total(&after, "fencegate_upstream_connections_total", &[event]);
    assert_eq!((by("event=\"made\""), by("event=\"reused\"")), (1.0, 9.0));
    assert_eq!(store.connections(), 1);
}

#[test]
fn an_exchange_is_in_flight_until_it_is_settled() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::hold());
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", token));
    store.wait_applied("/wal/x");
    wait_metric(&gate, "fencegate_exchanges_in_flight", &[], 1.0);
    assert_eq!(total(&scrape(&gate), "fencegate_connections", &[]), 1.0);
    store.release("/wal/x");
    assert_eq!(client.answer().status, 200);
    drop(client);
    wait_metric(&gate, "fencegate_exchanges_in_flight", &[], 0.0);
    wait_metric(&gate, "fencegate_connections", &[], 0.0);
    let after = scrape(&gate);
    let rule = ["rule=\"1\"", "resource=\"wal/main\""];
    let of_rule = |family: &str, label: &str| total(&after, family, &[rule[0], rule[1], label]);
    assert_eq!(of_rule("fencegate_exchanges_settled_total", "outcome=\"answered\""), 1.0);
    assert_eq!(of_rule("fencegate_requests_total", "answer=\"admitted\""), 1.0);
    assert_eq!(total(&after, "fencegate_step_seconds_count", &["step=\"fence\""]), 1.0);
    assert_eq!(total(&after, "fencegate_step_seconds_count", &["step=\"upstream\""]), 1.0);
    assert_eq!(total(&after, "fencegate_lease_grants_total", &[]), 1.0);
}

#[test]
fn a_taint_and_the_takeover_that_waits_for_it_are_visible() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence("settle_after = \"3s\"").start();
    let a = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/x", script::applied_without_answer());
    let mut old = RawClient::connect(gate.address());
    old.send(&put("/wal/x", a));
    assert_eq!(old.answer().status, 502);
    wait_metric(&gate, "fencegate_tainted_permits", &[], 1.0);
    let b = gate.hand_over("wal/main", a, "b");
    let mut new = RawClient::connect(gate.address());
    new.send(&put("/wal/y", b));
    wait_metric(&gate, "fencegate_drains_waiting", &[], 1.0);
    assert_eq!(new.answer().status, 200);
    wait_metric(&gate, "fencegate_tainted_permits", &[], 0.0);
    wait_metric(&gate, "fencegate_drains_waiting", &[], 0.0);
    wait_metric(&gate, "fencegate_exchanges_in_flight", &[], 0.0);
    let after = scrape(&gate);
    assert_eq!(total(&after, "fencegate_taints_total", &[]), 1.0);
    let unknown = total(&after, "fencegate_exchanges_settled_total", &["outcome=\"unknown\""]);
    assert_eq!(unknown, 1.0);
    assert_eq!(total(&after, "fencegate_takeover_seconds_count", &[]), 1.0);
    let took = total(&after, "fencegate_takeover_seconds_sum", &[]);
    assert!(took > 0.1, "the successor waited: {took} s");
}

#[test]
fn a_takeover_of_an_idle_resource_is_timed_too() {
    let store = RawStore::start();
    let mut gate = Gate::builder(&store.url()).fence("settle_after = \"1s\"").start();
    let a = gate.acquire("wal/main", "a", "60s");
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", a));
    assert_eq!(client.answer().status, 200);
    assert_eq!(
        total(&scrape(&gate), "fencegate_takeover_seconds_count", &[]),
        0.0,
        "no mark before"
    );
    // Nothing is left in memory of the mark.
    gate.restart();
    let b = gate.hand_over("wal/main", a, "b");
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", b));
    assert_eq!(client.answer().status, 200);
    client.send(&put("/wal/x", b));
    assert_eq!(client.answer().status, 200);
    assert_eq!(total(&scrape(&gate), "fencegate_takeover_seconds_count", &[]), 1.0);
}

#[test]
fn a_head_that_cannot_be_parsed_is_counted() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    RawClient::connect(gate.address()).send(b"no request\r\n\r\n");
    wait_metric(&gate, "fencegate_parse_errors_total", &[], 1.0);
}

#[test]
fn a_refused_write_is_one_line_with_resource_token_rule_client_and_id() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let mut client = RawClient::connect(gate.address());
    client.send(&put("/wal/x", 7));
    let answer = client.answer();
    assert_eq!(answer.status, 403);
    let id = answer.header("x-fencegate-request-id").expect("an id");
    let parts = ["resource=\"wal/main\"", "rule=1", "token=7", "client=127.0.0.1:"];
    let line = gate.wait_log(&["request refused", &format!("request_id={id}")]);
    for part in parts {
        assert!(line.contains(part), "{part} in {line}");
    }
    // The first answer closed its connection: the body had not been read.
    let mut client = RawClient::connect(gate.address());
    client.send(&request("PUT", "/wal/x", "localhost", &["Fencing-Token: 07"], b""));
    client.answer();
    let line = gate.wait_log(&["request refused", "InvalidFencingToken"]);
    for part in ["resource=\"wal/main\"", "rule=1"] {
        assert!(line.contains(part), "{part} in {line}: known although the token is none");
    }
    let count = |text: &str| gate.log().iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("request refused"), 2);
}

/// `name`, kind and labels of each row of the table in the docs.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| fencegate_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[1].to_owned(), (cells[2].to_owned(), labels))
    })
    .collect()
}

#[test]
fn the_page_lists_every_metric_with_its_kind_and_labels() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let text = gate.get("/metrics").text();
    let mut shown = BTreeMap::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            shown.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let (name, labels) = line.split_once('{').unwrap_or((line, ""));
            let name = name.split(' ').next().unwrap();
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
            let (_, known) = shown.get_mut(family).expect("a TYPE line comes first");
            let labels = labels.split(',').filter_map(|label| label.split_once("=\""));
            known.extend(labels.map(|(label, _)| label.to_owned()).filter(|label| label != "le"));
        }
    }
    assert_eq!(shown, documented());
}
