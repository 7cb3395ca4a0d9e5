//! Files that cannot be opened, clocks that jump, a store that is closed.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fencegate::core::lease::Verdict;
use fencegate::lease::{LeaseBackend, LeaseError};
use fencegate::ledger::{Ledger, LedgerError, PermitId};
use fencegate::store::embedded::{Options, Store, StoreError};
use redb::{ReadableDatabase, ReadableTableMetadata};

use super::{Embedded, WALL_US, ask, fixture, name, options, t};

fn refused(db: &Embedded) -> StoreError {
    match Store::open(&options(&db.path(), &db.clock)) {
        Err(error) => error,
        Ok(_) => panic!("it opened"),
    }
}

#[tokio::test]
async fn a_database_in_use_is_refused_with_the_name_of_its_user() {
    let db = fixture().await;
    let error = refused(&db);
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    db.store.close().unwrap();

    // Another program that uses the file without our lock beside it.
    let other = redb::Database::open(db.path()).unwrap();
    let error = refused(&db);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(other);
    Store::open(&options(&db.path(), &db.clock)).unwrap();
}

#[tokio::test]
async fn an_open_waits_for_the_process_before_to_end() {
    let db = fixture().await;
    let patient = Options { open_wait: Duration::from_secs(20), ..Options::new(db.path()) };
    let second = std::thread::spawn(move || Store::open(&patient).map(|store| store.id()));
    let id = db.store.id();
    db.store.close().unwrap();
    let opened = tokio::task::spawn_blocking(move || second.join().unwrap()).await.unwrap();
    assert_eq!(opened.unwrap(), id);
}

#[tokio::test]
async fn a_store_dropped_without_close_frees_its_file() {
    let db = fixture().await;
    let (dir, clock) = (db.dir.clone(), db.clock.clone());
    drop(db);
    Embedded::open(dir, clock);
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_what_to_do() {
    type Damage = fn(&fs::File);
    let cases: [(&str, Damage); 4] = [
        ("not a database", |file| {
            file.set_len(0).unwrap();
            file.write_all_at(&[0x5a; 50_000], 0).unwrap();
        }),
        ("cut short", |file| file.set_len(file.metadata().unwrap().len() / 2).unwrap()),
        ("the header overwritten", |file| file.write_all_at(&[0xff; 300], 20).unwrap()),
        ("every page damaged", |file| {
            let pages = file.metadata().unwrap().len() / 4_096;
            (1..pages).for_each(|page| file.write_all_at(&[0xff; 64], page * 4_096 + 8).unwrap());
        }),
    ];
    for (case, damage) in cases {
        let db = fixture().await;
        for n in 0..500 {
            db.ledger.raise(&name(&format!("r{n}")), t(n + 1)).await.unwrap();
        }
        db.store.close().unwrap();
        damage(&fs::OpenOptions::new().read(true).write(true).open(db.path()).unwrap());
        let error = refused(&db);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{case}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("fence restore") && text.contains("lost"), "{case}: {text}");
        assert!(text.contains(db.path().to_str().unwrap()), "{case}: {text}");
    }
}

#[tokio::test]
async fn a_later_schema_is_refused_and_left_alone() {
    let db = fixture().await;
    db.store.close().unwrap();
    let raw = redb::Database::open(db.path()).unwrap();
    let txn = raw.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u128>::new("meta");
    txn.open_table(meta).unwrap().insert("schema", 2).unwrap();
    txn.commit().unwrap();
    drop(raw);
    let error = refused(&db);
    assert!(matches!(error, StoreError::TooNew { found: 2, known: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_wall_clock_that_jumps_changes_no_lease_and_lowers_no_token() {
    let db = fixture().await;
    let mut last = db.lease.acquire(ask("wal", "a")).await.unwrap();
    assert_eq!(last.token, t(WALL_US), "the clock in microseconds");
    let year_us = 365 * 86_400 * 1_000_000;
    for wall in [WALL_US + year_us, WALL_US - 3_600_000_000, 0, WALL_US + 90_000_000_000] {
        db.clock.step_wall(wall);
        db.store.tick().await.unwrap();
        let validation = db.lease.validate(&name("wal"), last.token).await.unwrap();
        assert_eq!(validation.verdict, Verdict::Live, "clock at {wall}");
        let renewed = db.lease.renew(&name("wal"), last.token, None).await.unwrap();
        assert_eq!(renewed.expires_in, Duration::from_secs(10), "clock at {wall}");
        db.lease.release(&name("wal"), last.token).await.unwrap();
        let next = db.lease.acquire(ask("wal", "a")).await.unwrap();
        assert!(next.token > last.token, "clock at {wall}");
        last = next;
    }
}

#[tokio::test]
async fn a_closed_store_answers_nothing_and_closes_again() {
    let db = fixture().await;
    let token = db.lease.acquire(ask("wal", "a")).await.unwrap().token;
    db.store.close().unwrap();
    db.store.close().unwrap();
    let r = name("wal");
    assert!(matches!(db.lease.validate(&r, token).await, Err(LeaseError::Backend { .. })));
    assert!(matches!(db.lease.renew(&r, token, None).await, Err(LeaseError::Backend { .. })));
    assert!(matches!(db.lease.acquire(ask("x", "a")).await, Err(LeaseError::Backend { .. })));
    assert!(matches!(db.lease.list("", None, 9).await, Err(LeaseError::Backend { .. })));
    assert!(matches!(db.ledger.mark(&r).await, Err(LedgerError::Failed { .. })));
    assert!(matches!(db.ledger.raise(&r, token).await, Err(LedgerError::Failed { .. })));
    assert!(matches!(db.ledger.look(&r, token).await, Err(LedgerError::Failed { .. })));
}

#[tokio::test]
async fn permits_of_earlier_incarnations_are_seen_until_given_back() {
    let db = fixture().await;
    let r = name("wal");
    db.ledger.raise(&r, t(5)).await.unwrap();
    let id = |serial| PermitId { incarnation: db.store.incarnation(), serial };
    let (left, returned) = (id(1), id(2));
    for id in [left, returned] {
        assert!(db.ledger.take(&r, id, t(5)).await.unwrap());
    }
    db.ledger.give_back(&r, returned).await.unwrap();
    // The close writes what was given back just before.
    let db = db.reopen_after(|_| {});
    let found = db.ledger.look(&r, t(6)).await.unwrap();
    assert_eq!(found.iter().map(|permit| permit.id).collect::<Vec<_>>(), [left]);
    db.ledger.give_back(&r, left).await.unwrap();
    assert_eq!(db.ledger.permits(&r).await.unwrap(), []);
    let db = db.reopen_after(|_| {});
    assert_eq!(db.ledger.permits(&r).await.unwrap(), []);
}

#[tokio::test]
async fn a_permit_given_back_leaves_the_file_without_another_commit_to_ride_with() {
    let db = fixture().await;
    let r = name("wal");
    db.ledger.raise(&r, t(5)).await.unwrap();
    let id = super::permit(&db, 1);
    assert!(db.ledger.take(&r, id, t(5)).await.unwrap());
    let permits_in_file = |attempt: usize| {
        let copy = db.dir.path().join(format!("copy-{attempt}"));
        db.store.backup(&copy).unwrap();
        let database = redb::Database::open(&copy).unwrap();
        let txn = database.begin_read().unwrap();
        let table = redb::TableDefinition::<(&str, u128, u64), u64>::new("permits");
        txn.open_table(table).unwrap().len().unwrap()
    };
    assert_eq!(permits_in_file(0), 1);
    db.ledger.give_back(&r, id).await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let mut attempts = 1..;
    while permits_in_file(attempts.next().unwrap()) > 0 {
        assert!(std::time::Instant::now() < deadline, "it stays for ever");
    }
}

#[tokio::test]
async fn calls_that_change_nothing_commit_nothing() {
    let db = fixture().await;
    let r = name("wal");
    let token = db.lease.acquire(ask("wal", "a")).await.unwrap().token;
    db.ledger.raise(&r, token).await.unwrap();
    // Every commit writes its number to the witness.
    let witness = || fs::read(db.dir.path().join("fencegate.redb.witness")).unwrap();
    let before = witness();
    for _ in 0..3 {
        db.ledger.raise(&r, token).await.unwrap();
        db.ledger.raise(&r, t(1)).await.unwrap();
        db.ledger.look(&r, token).await.unwrap();
        db.lease.validate(&r, token).await.unwrap();
        db.lease.renew(&r, token, None).await.unwrap();
        db.lease.acquire(ask("wal", "b")).await.unwrap_err();
        db.lease.release(&r, t(1)).await.unwrap_err();
        assert!(!db.ledger.take(&r, super::permit(&db, 1), t(1)).await.unwrap());
    }
    assert_eq!(witness(), before);
    db.lease.release(&r, token).await.unwrap();
    assert_ne!(witness(), before);
}
