//! Copies, backups and files put back: everything of before is refused. Anything else is not.

use std::fs;
use std::path::{Path, PathBuf};

use fencegate::core::lease::Verdict;
use fencegate::lease::LeaseBackend;
use fencegate::ledger::{Incarnation, Ledger, PermitId};
use fencegate::store::embedded::{Options, Reason, Store, StoreError, restore};

use super::{Embedded, WALL_US, ask, fixture, name};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Grants a lease on `resource`, writes under it: token, mark, permit.
async fn used(db: &Embedded, resource: &str, serial: u64) -> fencegate::core::Token {
    let token = db.lease.acquire(ask(resource, "a")).await.unwrap().token;
    db.ledger.raise(&name(resource), token).await.unwrap();
    let id = PermitId { incarnation: db.store.incarnation(), serial };
    assert!(db.ledger.take(&name(resource), id, token).await.unwrap());
    token
}

async fn verdict(db: &Embedded, resource: &str, token: fencegate::core::Token) -> Verdict {
    db.lease.validate(&name(resource), token).await.unwrap().verdict
}

fn reason(db: &Embedded) -> Option<Reason> {
    db.store.revoked().map(|revocation| revocation.reason)
}

/// Everything of before `db` was opened is refused; new tokens are greater.
async fn assert_revoked(db: &Embedded, why: Reason, old: &[(&str, fencegate::core::Token)]) {
    assert_eq!(reason(db), Some(why));
    assert!(db.store.revoked().unwrap().this_start);
    for (resource, token) in old {
        assert_eq!(verdict(db, resource, *token).await, Verdict::Stale, "{resource}");
        assert!(db.lease.renew(&name(resource), *token, None).await.is_err(), "{resource}");
        assert!(db.lease.release(&name(resource), *token).await.is_err(), "{resource}");
        assert!(db.ledger.mark(&name(resource)).await.unwrap() > Some(*token), "{resource}");
        assert!(db.ledger.raise(&name(resource), *token).await.unwrap() > *token, "{resource}");
        let new = db.lease.acquire(ask(resource, "b")).await.unwrap().token;
        assert!(new > *token, "{resource}");
        assert_eq!(db.ledger.raise(&name(resource), new).await.unwrap(), new, "{resource}");
    }
}

#[tokio::test]
async fn a_database_closed_and_opened_again_is_itself() {
    let db = fixture().await;
    let token = used(&db, "wal", 1).await;
    let id = db.store.id();
    let db = db.reopen_after(|_| {});
    assert_eq!(reason(&db), None);
    assert_eq!(db.store.id(), id);
    assert_eq!(verdict(&db, "wal", token).await, Verdict::Live);
    assert_eq!(db.ledger.mark(&name("wal")).await.unwrap(), Some(token));
    assert_eq!(db.ledger.look(&name("wal"), token.next().unwrap()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_directory_renamed_with_its_database_is_no_copy() {
    let db = fixture().await;
    let token = used(&db, "wal", 1).await;
    let db = db.reopen_after(|path| {
        let moved = path.with_file_name("moved.redb");
        fs::rename(path, &moved).unwrap();
        fs::rename(&moved, path).unwrap();
    });
    assert_eq!(reason(&db), None);
    assert_eq!(verdict(&db, "wal", token).await, Verdict::Live);
}

#[tokio::test]
async fn a_witness_that_lags_behind_after_a_power_cut_is_no_restore() {
    let db = fixture().await;
    used(&db, "wal", 1).await;
    let db = db.reopen_after(|path| {
        fs::copy(beside(path, ".witness"), beside(path, ".lagging")).unwrap();
    });
    let token = used(&db, "other", 2).await;
    let db = db.reopen_after(|path| {
        fs::copy(beside(path, ".lagging"), beside(path, ".witness")).unwrap();
    });
    assert_eq!(reason(&db), None);
    assert_eq!(verdict(&db, "other", token).await, Verdict::Live);
}

#[tokio::test]
async fn t18_a_copy_started_elsewhere_revokes_everything() {
    let db = fixture().await;
    let token = used(&db, "wal", 1).await;
    let db = db.reopen_after(|path| {
        // A copy of all files in another place, which then takes the old one's name.
        for suffix in ["", ".witness"] {
            fs::copy(beside(path, suffix), beside(path, &format!(".copy{suffix}"))).unwrap();
        }
        fs::rename(beside(path, ".copy"), path).unwrap();
        fs::rename(beside(path, ".copy.witness"), beside(path, ".witness")).unwrap();
    });
    assert_revoked(&db, Reason::Copied, &[("wal", token)]).await;
}

#[tokio::test]
async fn t18_an_older_copy_written_over_the_file_in_place_revokes_everything() {
    let db = fixture().await;
    let before = used(&db, "wal", 1).await;
    let db = db.reopen_after(|path| {
        fs::copy(path, beside(path, ".old")).unwrap();
    });
    // The copy knows nothing of this one.
    let after = used(&db, "later", 2).await;
    let db = db.reopen_after(|path| {
        // Truncates and rewrites: the inode and its birth time stay.
        fs::copy(beside(path, ".old"), path).unwrap();
    });
    assert_revoked(&db, Reason::RolledBack, &[("wal", before), ("later", after)]).await;
}

#[tokio::test]
async fn a_missing_or_torn_or_foreign_witness_revokes_everything() {
    type Damage = fn(&Path);
    let cases: [(Damage, Reason); 3] = [
        (|path| fs::remove_file(beside(path, ".witness")).unwrap(), Reason::WitnessMissing),
        (|path| fs::write(beside(path, ".witness"), [7; 8_192]).unwrap(), Reason::WitnessMissing),
        (
            |path| {
                let other = beside(path, ".other");
                Store::open(&Options::new(&other)).unwrap().close().unwrap();
                fs::rename(beside(&other, ".witness"), beside(path, ".witness")).unwrap();
            },
            Reason::ForeignWitness,
        ),
    ];
    for (damage, why) in cases {
        let db = fixture().await;
        let token = used(&db, "wal", 1).await;
        let db = db.reopen_after(damage);
        assert_revoked(&db, why, &[("wal", token)]).await;
    }
}

#[tokio::test]
async fn a_deleted_database_starts_above_what_its_witness_saw() {
    let db = fixture().await;
    let token = used(&db, "wal", 1).await;
    db.clock.step_wall(WALL_US / 2);
    let db = db.reopen_after(|path| fs::remove_file(path).unwrap());
    assert_revoked(&db, Reason::DatabaseMissing, &[("wal", token)]).await;
}

#[tokio::test]
async fn t18_a_restored_backup_revokes_everything_even_if_the_clock_went_back() {
    let db = fixture().await;
    let before = used(&db, "wal", 1).await;
    let permit = db.ledger.permits(&name("wal")).await.unwrap();
    let backup = db.path().with_file_name("backup.redb");
    db.store.backup(&backup).unwrap();
    let after = used(&db, "later", 2).await;
    assert!(matches!(restore(&backup, &db.path()), Err(StoreError::Locked { .. })), "it runs");
    fs::remove_file(beside(&db.path(), ".lock")).unwrap();
    assert!(
        matches!(restore(&backup, &db.path()), Err(StoreError::Locked { .. })),
        "it still runs"
    );
    assert!(matches!(db.store.backup(&backup), Err(StoreError::Io { .. })), "it exists");

    db.clock.step_wall(WALL_US / 2);
    let mut kept = None;
    let db = db.reopen_after(|path| kept = restore(&backup, path).unwrap().kept);
    assert!(kept.is_some_and(|kept| kept.exists()));
    // What the lost lineage had in flight may still land: its permits stay, as taints.
    assert_eq!(db.ledger.permits(&name("wal")).await.unwrap(), permit);
    assert_revoked(&db, Reason::Restored, &[("wal", before), ("later", after)]).await;

    let new = db.lease.inspect(&name("wal")).await.unwrap().unwrap().token;
    let db = db.reopen_after(|_| {});
    let revoked = db.store.revoked().unwrap();
    assert_eq!((revoked.reason, revoked.this_start), (Reason::Restored, false));
    assert_eq!(verdict(&db, "wal", new).await, Verdict::Live, "revoked once, not at every start");
    assert_eq!(verdict(&db, "wal", before).await, Verdict::Stale);
    assert_eq!(verdict(&db, "never", before).await, Verdict::Stale, "the floor stays");
}

#[tokio::test]
async fn a_downloaded_backup_holds_what_was_there() {
    let db = fixture().await;
    let token = used(&db, "wal", 1).await;
    let mut download = db.store.backup_file().unwrap();
    let backup = db.path().with_file_name("download.redb");
    std::io::copy(&mut download, &mut fs::File::create(&backup).unwrap()).unwrap();
    let leftovers = fs::read_dir(db.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!leftovers.into_iter().any(|name| name.to_string_lossy().contains(".backup-")));
    let db = db.reopen_after(|path| drop(restore(&backup, path).unwrap()));
    let view = db.lease.inspect(&name("wal")).await.unwrap().unwrap();
    assert_eq!((view.holder.as_str(), view.live, view.released), ("a", false, false));
    assert_revoked(&db, Reason::Restored, &[("wal", token)]).await;
}

#[tokio::test]
async fn a_backup_that_is_none_leaves_the_database_alone() {
    let db = fixture().await;
    let token = used(&db, "wal", 1).await;
    let db = db.reopen_after(|path| {
        let bad = beside(path, ".bad");
        fs::write(&bad, vec![0x5a; 100_000]).unwrap();
        let refused = restore(&bad, path);
        assert!(
            matches!(&refused, Err(StoreError::Corrupt { path, .. }) if *path == bad),
            "{refused:?}"
        );
        assert!(matches!(restore(&beside(path, ".none"), path), Err(StoreError::Io { .. })));
        assert!(!beside(path, ".restoring").exists());
    });
    assert_eq!(reason(&db), None);
    assert_eq!(verdict(&db, "wal", token).await, Verdict::Live);
}

#[tokio::test]
async fn every_start_is_another_incarnation() {
    let db = fixture().await;
    let first = db.store.incarnation();
    let db = db.reopen_after(|_| {});
    assert_ne!(db.store.incarnation(), first);
    assert_ne!(first, Incarnation(0));
}
