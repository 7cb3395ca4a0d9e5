//! Many writers, many takeovers, random delays.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::{NO_END, put, send, wait_settled};
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::raw_store::Step::*;
use crate::support::wait::{DEADLINE, long, wait_for};

const EXISTS: &[u8] = b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 46\r\n\r\n\
    <Error><Code>PreconditionFailed</Code></Error>";

/// Small, and the same on every run: the interleaving is what differs.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// wal-g/wal-g#420
#[test]
fn no_write_of_the_old_token_is_applied_after_one_of_the_new() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence(NO_END).start();
    let rounds: usize = if long() { 2_000 } else { 120 };
    let mut dice = Dice(7);
    // More than there will be requests, whichever way they fall.
    for _ in 0..8 * rounds {
        let mut pause = || Pause(Duration::from_millis(dice.below(25)));
        let (before, after) = (pause(), pause());
        let script = match dice.below(8) {
            0 => vec![ReadBody, before, Send(EXISTS.to_vec())],
            _ => vec![ReadBody, before, Apply, after, Answer],
        };
        store.next("/wal/history", script);
    }
    let a = gate.acquire("wal/main", "a", "60s");
    let over = AtomicBool::new(false);
    let (old, new) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Writers go on after they were refused, as real ones do.
    let write = |token: u64, name: &str, conditional: bool, done: &AtomicUsize| {
        let header = format!("Fencing-Token: {token}");
        let mut headers = vec![header.as_str()];
        if conditional {
            headers.push("If-None-Match: *");
        }
        while !over.load(Ordering::SeqCst) {
            let mut client = RawClient::connect(gate.address());
            client.send(&request("PUT", "/wal/history", "localhost", &headers, name.as_bytes()));
            let answer = client.answer();
            match (answer.status, answer.code().as_deref()) {
                (200, _) => {
                    done.fetch_add(1, Ordering::SeqCst);
                }
                // The store's own.
                (412, Some("PreconditionFailed")) => {}
                (412, Some("StaleFencingToken" | "LeaseReleased")) if !conditional => {}
                (403, Some("StaleFencingToken" | "LeaseReleased")) if conditional => {}
                other => panic!("{name}, conditional: {conditional}: {other:?}"),
            }
        }
    };
    std::thread::scope(|threads| {
        let write = &write;
        for conditional in [false, true, false, true] {
            let old = &old;
            threads.spawn(move || write(a, "old", conditional, old));
        }
        wait_for("the old ones write", DEADLINE, || old.load(Ordering::SeqCst) >= rounds / 2);
        let b = gate.hand_over("wal/main", a, "b");
        for conditional in [false, true, false, true] {
            let new = &new;
            threads.spawn(move || write(b, "new", conditional, new));
        }
        wait_for("the new ones write", DEADLINE, || new.load(Ordering::SeqCst) >= rounds / 2);
        over.store(true, Ordering::SeqCst);
    });
    let applied = store.applied();
    let first = applied.iter().position(|(_, body)| body == b"new").expect("new ones wrote");
    assert!(applied[first..].iter().all(|(_, body)| body == b"new"), "an old one landed later");
    assert!(first >= rounds / 2);
    wait_settled(&gate);
}

#[test]
fn takeovers_under_a_thousand_validations_raise_no_false_alarm() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let latest = AtomicU64::new(gate.acquire("wal/main", "holder", "60s"));
    let sent = AtomicUsize::new(0);
    let total: usize = if long() { 20_000 } else { 1_000 };
    std::thread::scope(|threads| {
        let mut writers = Vec::new();
        for _ in 0..20 {
            writers.push(threads.spawn(|| {
                let mut client = RawClient::connect(gate.address());
                while sent.fetch_add(1, Ordering::SeqCst) < total {
                    let token = latest.load(Ordering::SeqCst);
                    client.send(&put("/wal/x", token, b"body"));
                    let answer = client.answer();
                    assert!(matches!(answer.status, 200 | 412), "{}", answer.text());
                    if answer.header("connection") == Some("close") {
                        client = RawClient::connect(gate.address());
                    }
                }
            }));
        }
        while writers.iter().any(|writer| !writer.is_finished()) {
            let token = latest.load(Ordering::SeqCst);
            latest.store(gate.hand_over("wal/main", token, "holder"), Ordering::SeqCst);
        }
    });
    let alarms: Vec<_> =
        gate.log().into_iter().filter(|line| line.contains("has lost tokens")).collect();
    assert!(alarms.is_empty(), "{alarms:?}");
    assert_eq!(send(&gate, "/wal/x", latest.load(Ordering::SeqCst), b"last").status, 200);
    wait_settled(&gate);
}
