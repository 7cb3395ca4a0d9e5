//! The watch stream and the queue of waiters of the embedded backend.

use std::pin::pin;
use std::time::Duration;

use fencegate::lease::embedded::EmbeddedLease;
use fencegate::lease::watch::{Heard, Subscription};
use fencegate::lease::{Ask, Change, LeaseBackend, LeaseError, LeaseEvent};
use fencegate::store::clock::{Clock, SystemClock};
use fencegate::store::embedded::{Options, Store};
use futures_util::poll;

use super::super::lease::Fixture;
use super::{ask, fixture, name};

async fn next(subscription: &mut Subscription) -> LeaseEvent {
    let heard = tokio::time::timeout(Duration::from_secs(20), subscription.next()).await;
    match heard.expect("an event in time") {
        Some(Heard::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c16_a_watcher_sees_every_change_once_and_in_order() {
    let db = fixture().await;
    let mut all = db.lease.subscribe("", None);
    let mut wal = db.lease.subscribe("wal/", None);
    let first = db.lease.acquire(ask("wal/1", "a")).await.unwrap();
    db.lease.acquire(ask("other", "x")).await.unwrap();
    db.lease.release(&first.resource, first.token).await.unwrap();
    db.lease.release(&first.resource, first.token).await.unwrap();
    db.lease.acquire(ask("wal/1", "b")).await.unwrap();
    db.lease.bump(&first.resource, None).await.unwrap();
    db.lease.acquire(ask("wal/1", "c")).await.unwrap();
    db.pass(Duration::from_secs(11)).await;

    let mut seen = Vec::new();
    for _ in 0..6 {
        let event = next(&mut wal).await;
        assert_eq!(event.resource, name("wal/1"));
        seen.push((event.change, event.holder.as_str().to_owned()));
    }
    let want = [
        (Change::Acquired, "a"),
        (Change::Released, "a"),
        (Change::Acquired, "b"),
        (Change::Revoked, "b"),
        (Change::Acquired, "c"),
        (Change::Expired, "c"),
    ];
    assert_eq!(seen, want.map(|(change, holder)| (change, holder.to_owned())));

    let first_id = next(&mut all).await.id;
    for n in 1..8 {
        assert_eq!(next(&mut all).await.id, first_id + n);
    }
    let resumed = db.lease.subscribe("", Some(first_id + 5));
    assert_eq!(resumed.backlog.len(), 2);
    assert!(!resumed.gap);
}

#[tokio::test]
async fn an_expiry_that_a_successor_finds_first_is_told_before_it() {
    let db = fixture().await;
    let mut wal = db.lease.subscribe("", None);
    db.lease.acquire(ask("wal", "a")).await.unwrap();
    db.clock.advance(Duration::from_secs(11));
    db.lease.acquire(ask("wal", "b")).await.unwrap();
    for want in [(Change::Acquired, "a"), (Change::Expired, "a"), (Change::Acquired, "b")] {
        let event = next(&mut wal).await;
        assert_eq!((event.change, event.holder.as_str()), want);
    }
}

#[tokio::test]
async fn a_lease_that_was_seen_to_end_does_not_come_back_after_a_restart() {
    let mut db = fixture().await;
    let token = db.lease.acquire(ask("wal", "a")).await.unwrap().token;
    db.pass(Duration::from_secs(11)).await;
    db.restart().await;
    assert!(!db.lease.inspect(&name("wal")).await.unwrap().unwrap().live);
    assert!(db.lease.renew(&name("wal"), token, None).await.is_err());
}

#[tokio::test]
async fn the_store_wakes_itself_when_a_lease_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&Options::new(dir.path().join("x.redb"))).unwrap();
    let lease = EmbeddedLease::new(store);
    let begun = SystemClock.boottime();
    lease.acquire(Ask { ttl: Duration::from_secs(1), ..ask("wal", "a") }).await.unwrap();
    let patient = Ask { wait: Duration::from_secs(30), ..ask("wal", "b") };
    assert_eq!(lease.acquire(patient).await.unwrap().holder.as_str(), "b");
    assert!(SystemClock.boottime() >= begun + Duration::from_secs(1));
}

#[tokio::test]
async fn a_thousand_may_wait_and_no_more() {
    let db = fixture().await;
    let first = db.lease.acquire(ask("wal", "a")).await.unwrap();
    let waiting = |n: usize| Ask { wait: Duration::from_secs(60), ..ask("wal", &format!("w{n}")) };
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let (lease, ask) = (db.lease.clone(), waiting(n));
        tasks.spawn(async move { lease.acquire(ask).await });
    }
    while db.lease.waiting(&name("wal")) < 1_000 {
        tokio::task::yield_now().await;
    }
    let refused = db.lease.acquire(waiting(1_000)).await;
    assert!(
        matches!(refused, Err(LeaseError::TooManyWaiters { waiting: 1_000, .. })),
        "{refused:?}"
    );
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    assert_eq!(db.lease.waiting(&name("wal")), 0);
    db.lease.release(&first.resource, first.token).await.unwrap();
    db.lease.acquire(ask("wal", "b")).await.unwrap();
}

#[tokio::test]
async fn an_ask_that_does_not_wait_does_not_overtake_those_who_do() {
    let db = fixture().await;
    let first = db.lease.acquire(ask("wal", "a")).await.unwrap();
    let mut waiter =
        pin!(db.lease.acquire(Ask { wait: Duration::from_secs(60), ..ask("wal", "b") }));
    while db.lease.waiting(&name("wal")) == 0 {
        assert!(poll!(&mut waiter).is_pending());
    }
    // The lease is free, and the waiter, which nobody polls, has not got to it yet.
    db.lease.release(&first.resource, first.token).await.unwrap();
    let barging = db.lease.acquire(ask("wal", "c")).await;
    assert!(matches!(barging, Err(LeaseError::Held { .. })), "{barging:?}");
    assert_eq!(waiter.await.unwrap().holder.as_str(), "b");
}
