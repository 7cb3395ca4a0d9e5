//! The driver of the gates: what it remembers, what it forgets, what a reload may not overtake.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::*;
use crate::core::gate::{Commit, HoldId};
use crate::lease::embedded::EmbeddedLease;
use crate::ledger::memory::MemoryLedger;
use crate::store::embedded::{Options, Store};

const POLICY: Policy = Policy {
    require_live: false,
    drain_wait: Duration::from_secs(60),
    settle_after: Quarantine::For(Duration::from_secs(60)),
    revalidate_after: Duration::from_secs(60),
    max_waiting: 1_000,
};

struct Setup {
    fences: Fences,
    _dir: tempfile::TempDir,
}

fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&Options::new(dir.path().join("leases.redb"))).unwrap();
    let fences = Fences::new(Parts {
        lease: AnyLease::Embedded(EmbeddedLease::new(store)),
        ledger: AnyLedger::Memory(MemoryLedger::new()),
        timeout: Duration::from_secs(2),
        incarnation: Incarnation(1),
        policy: POLICY,
        quarantines: Quarantines::new(POLICY.settle_after, Vec::new()),
        guards: Guards::ALL,
        metrics: Arc::new(Metrics::new(1, &[])),
    });
    Setup { fences, _dir: dir }
}

fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn cargo(generation: u64, key: &str) -> Cargo {
    Cargo { generation, method: http::Method::PUT, keys: vec![key.into()] }
}

fn validated() -> Validated {
    Validated { sent: clock::monotonic(), mark: None }
}

fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets the control tasks run until the fact holds.
async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !fact() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_waiter_that_leaves_in_the_moment_of_its_admission_leaves_nothing_behind() {
    let Setup { fences, _dir } = setup();
    let wal = resource("wal");
    let mut old = fences
        .enter(&wal, token(1), &POLICY, Kind::Write, validated(), cargo(1, "k"))
        .await
        .expect("admitted");
    assert_eq!(old.commit(validated()), Commit::Go);
    {
        let mut new =
            pin!(fences.enter(&wal, token(2), &POLICY, Kind::Write, validated(), cargo(1, "k")));
        assert!(poll_once(new.as_mut()).is_pending());
        until("the new one waits", || fences.in_memory(&wal).mark == Some(token(2))).await;
        old.settle(Outcome::Answered { applied: true });
        let admitted = || fences.in_memory(&wal).permits.iter().any(|permit| permit.streaming == 1);
        until("the new one is admitted", admitted).await;
        // Dropped without having heard of it.
    }
    assert_eq!(fences.unsettled(), 0);
    // The next holder is not held up.
    fences
        .enter(&wal, token(3), &POLICY, Kind::Write, validated(), cargo(1, "k"))
        .await
        .expect("admitted");
}

#[tokio::test]
async fn nobody_enters_under_the_new_rules_before_every_hold_is_in_place() {
    let Setup { fences, _dir } = setup();
    let old = resource("old");
    let new = (0..100)
        .map(|at| resource(&format!("new-{at}")))
        .find(|new| !std::ptr::eq(fences.shard(new), fences.shard(&old)))
        .expect("one of another shard");
    let mut writing = fences
        .enter(&old, token(1), &POLICY, Kind::Write, validated(), cargo(1, "k"))
        .await
        .expect("admitted");
    assert_eq!(writing.commit(validated()), Commit::Go);
    // So that it would be admitted from memory.
    fences
        .enter(&new, token(1), &POLICY, Kind::Pass, validated(), cargo(1, "x"))
        .await
        .expect("admitted");
    fences.adopt(2, |_, key| {
        assert_eq!(key, "k");
        let early =
            pin!(fences.enter(&new, token(1), &POLICY, Kind::Pass, validated(), cargo(2, "k")));
        assert!(matches!(poll_once(early), Poll::Ready(Err(Turned::Rerouted))));
        Some(new.clone())
    });
    let mut next =
        pin!(fences.enter(&new, token(1), &POLICY, Kind::Pass, validated(), cargo(2, "k")));
    assert!(poll_once(next.as_mut()).is_pending(), "it waits for the write under the old rules");
    writing.settle(Outcome::Answered { applied: true });
    next.await.expect("admitted");
}

#[tokio::test]
async fn a_reload_forgets_what_those_wanted_that_waited() {
    let Setup { fences, _dir } = setup();
    let wal = resource("wal");
    fences.with(&wal, |cell, _, _| cell.gate.hold(HoldId(1)));
    let mut waiting =
        pin!(fences.enter(&wal, token(1), &POLICY, Kind::Write, validated(), cargo(1, "k")));
    assert!(poll_once(waiting.as_mut()).is_pending());
    fences.adopt(2, |_, _| None);
    assert!(matches!(waiting.await, Err(Turned::Rerouted)));
    fences.with(&wal, |cell, _, _| assert!(cell.cargo.is_empty() && cell.waiting.is_empty()));
}

#[tokio::test]
async fn plans_that_were_overtaken_do_not_breed() {
    let Setup { fences, _dir } = setup();
    let wal = resource("wal");
    let far = clock::monotonic() + Duration::from_secs(3_600);
    fences.with(&wal, |cell, now, fresh| {
        cell.gate.hold(HoldId(1));
        cell.gate.release(now, HoldId(1), Taint::Until(far), fresh);
    });
    for millis in (100..200).rev() {
        let policy = Policy { drain_wait: Duration::from_millis(millis), ..POLICY };
        let mut waiting =
            pin!(fences.enter(&wal, token(1), &policy, Kind::Pass, validated(), cargo(1, "k")));
        assert!(poll_once(waiting.as_mut()).is_pending());
    }
    assert!(fences.0.timers.len() > 50);
    // One for the plan that counts, one for the hold's end, planned before all others.
    until("they pass without effect", || fences.0.timers.len() <= 2).await;
}

#[tokio::test]
async fn a_cell_that_holds_nothing_is_planned_to_be_forgotten() {
    let Setup { fences, _dir } = setup();
    let wal = resource("wal");
    fences.reopen(&wal);
    let at = fences.with(&wal, |cell, _, _| cell.wake_at).expect("planned");
    assert!(lock(fences.shard(&wal)).cells[&wal].is_spent(at));
}

#[tokio::test]
async fn the_timers_do_not_keep_the_fences_open() {
    let Setup { fences, _dir } = setup();
    let weak = Arc::downgrade(&fences.0);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    drop(fences);
    assert!(weak.upgrade().is_none());
}
