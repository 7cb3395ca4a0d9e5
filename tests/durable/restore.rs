//! The database restored, copied, deleted: every older token is stale, and the server says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{fence, json, number, put, said};
use crate::support::clients::stdout_of;
use crate::support::gate::{Builder, Gate};
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

const RESOURCE: &str = "wal/main";

/// What was in flight when a ledger was lost is waited for; here for a second.
fn builder(store: &RawStore) -> Builder {
    Gate::builder(&store.url()).fence("settle_after = \"1s\"")
}

fn database(gate: &Gate) -> PathBuf {
    gate.dir().join("fencegate.redb")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Every token of `old` is refused, the server says why, and a new one is above all and writes.
#[track_caller]
fn assert_revoked(gate: &Gate, store: &RawStore, reason: &str, old: &[u64]) {
    gate.wait_log(&["everything is revoked", "every token of before is stale"]);
    let revoked = json(&gate.get("/v1/status"))["service"]["revoked"].clone();
    assert_eq!(
        (revoked["reason"].as_str(), revoked["this_start"].as_bool()),
        (Some(reason), Some(true))
    );
    for token in old {
        let refused = put(gate, "/wal/x", *token);
        let code = refused.code();
        assert_eq!((refused.status, code.as_deref()), (412, Some("StaleFencingToken")), "{token}");
        assert_eq!(
            gate.cli(&["lease", "renew", RESOURCE, &token.to_string()]).status.code(),
            Some(1)
        );
    }
    let new = gate.acquire(RESOURCE, "new", "60s");
    assert!(old.iter().all(|token| new > *token), "{new} after {old:?}");
    assert_eq!(put(gate, "/wal/x", new).status, 200);
    assert_eq!(store.object("/wal/x"), Some(new.to_string().into_bytes()));
}

#[test]
fn t18_after_fence_restore_every_older_token_is_stale() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    stdout_of(&gate.cli(&["fence", "backup", "copy.redb"]));
    let b = gate.hand_over(RESOURCE, a, "b");
    assert_eq!(put(&gate, "/wal/x", b).status, 200);

    let restore = ["fence", "restore", "copy.redb"];
    let refused = gate.cli(&restore);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let named = format!("in use by process {}", gate.pid());
    assert!(said(&refused).contains(&named), "{}", said(&refused));
    assert_eq!(put(&gate, "/wal/x", b).status, 200, "a refused restore changed something");

    gate.stop();
    // `--config` has the default `fencegate.toml`, in the directory it runs in.
    let restored = stdout_of(&gate.cli(&restore));
    assert!(restored.contains("every token of before stale"), "{restored}");
    assert!(restored.contains("fencegate.redb.before-restore-"), "{restored}");
    gate.restart();
    assert_revoked(&gate, &store, "restored", &[a, b]);
}

#[test]
fn t18_an_older_copy_put_over_the_stopped_file_makes_every_token_stale() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    gate.stop();
    let copy = beside(&database(&gate), ".yesterday");
    fs::copy(database(&gate), &copy).unwrap();
    gate.restart();
    let b = gate.hand_over(RESOURCE, a, "b");
    assert_eq!(put(&gate, "/wal/x", b).status, 200);
    gate.stop();
    // As `cp` does: the file stays the same inode.
    fs::copy(&copy, database(&gate)).unwrap();
    gate.restart();
    assert_revoked(&gate, &store, "rolled-back", &[a, b]);
}

#[test]
fn t18_a_server_on_a_copy_elsewhere_honours_no_older_token() {
    let store = RawStore::start();
    let gate = builder(&store).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    gate.stop();
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy.redb");
    fs::copy(database(&gate), &copy).unwrap();
    fs::copy(beside(&database(&gate), ".witness"), beside(&copy, ".witness")).unwrap();
    let path = format!("path = \"{}\"", copy.display());
    let second = builder(&store).lease(&path).start();
    assert_revoked(&second, &store, "copied", &[a]);
}

/// redis/redis#6062 and etcd-io/etcd#16028, on the embedded database: the token source was lost.
#[test]
fn r21_a_deleted_database_repeats_no_token() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    gate.stop();
    fs::remove_file(database(&gate)).unwrap();
    gate.restart();
    assert_revoked(&gate, &store, "database-missing", &[a]);
}

/// redis/redis#6062, redisson/redisson#6510: leases lost, marks not. The resource fails closed until
/// an operator has raised its tokens above its mark.
#[test]
fn r21_lost_leases_close_the_resource_until_a_bump() {
    let store = RawStore::start();
    let rules = "[ledger]\nkind = \"embedded\"\npath = \"marks.redb\"\n\
                 [[rule]]\nmatch = \"wal/**\"\nresource = \"wal/main\"\n";
    let mut gate = builder(&store).lease("path = \"leases.redb\"").rules(rules).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    gate.stop();
    for lost in ["leases.redb", "leases.redb.witness"] {
        fs::remove_file(gate.dir().join(lost)).unwrap();
    }
    gate.restart();
    let closed = put(&gate, "/wal/x", a);
    assert_eq!(closed.status, 503);
    let text = String::from_utf8_lossy(&closed.body).into_owned();
    assert!(text.contains(RESOURCE) && text.contains("fencegate fence bump"), "{text}");
    gate.wait_log(&["fails closed", RESOURCE]);
    // A new token does not open it by itself: nobody knows what else was lost.
    let b = gate.acquire(RESOURCE, "b", "60s");
    assert_eq!(put(&gate, "/wal/x", b).status, 503);
    stdout_of(&gate.cli(&["fence", "bump", RESOURCE]));
    for old in [a, b] {
        assert_eq!(put(&gate, "/wal/x", old).status, 412, "{old}");
    }
    let c = gate.acquire(RESOURCE, "c", "60s");
    assert!(c > a && c > b);
    assert_eq!(put(&gate, "/wal/x", c).status, 200);
    assert_eq!(number(&fence(&gate, RESOURCE)["mark"]), c);
}

#[test]
fn a_bump_ends_the_lease_and_refuses_its_holder_for_good() {
    let store = RawStore::start();
    let gate = builder(&store).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    stdout_of(&gate.cli(&["fence", "bump", RESOURCE]));
    assert_eq!(put(&gate, "/wal/x", a).status, 412);
    assert_eq!(gate.cli(&["lease", "renew", RESOURCE, &a.to_string()]).status.code(), Some(1));
    // The token that the bump used up is nobody's.
    let shown = json(&gate.get(&format!("/v1/lease?resource={RESOURCE}")));
    let bumped = number(&shown["token"]);
    assert!(bumped > a && shown["live"] == false, "{shown}");
    assert_eq!(put(&gate, "/wal/x", bumped).status, 412);
    let b = gate.acquire(RESOURCE, "b", "60s");
    assert!(b > bumped);
    assert_eq!(put(&gate, "/wal/x", b).status, 200);
}

#[test]
fn a_backup_taken_under_load_is_whole_and_revokes_when_restored() {
    let store = RawStore::start();
    let rules = "[[rule]]\nmatch = \"load/{n}/**\"\nresource = \"load/{n}\"\n\
                 [[rule]]\nmatch = \"wal/**\"\nresource = \"wal/main\"\n";
    let mut gate = builder(&store).rules(rules).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
    let stop = AtomicBool::new(false);
    let tokens = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|n| {
                let (gate, stop) = (&gate, &stop);
                scope.spawn(move || {
                    let mut tokens = Vec::new();
                    let resource = format!("load/{n}");
                    while !stop.load(Ordering::SeqCst) {
                        let token = gate.acquire(&resource, "w", "60s");
                        assert_eq!(put(gate, &format!("/{resource}/x"), token).status, 200);
                        gate.release(&resource, token);
                        tokens.push(token);
                    }
                    tokens
                })
            })
            .collect();
        wait_for("writes under way", DEADLINE, || store.applied().len() > 3);
        for _ in 0..3 {
            stdout_of(&gate.cli(&["fence", "backup", "copy.redb"]));
        }
        let so_far = store.applied().len();
        wait_for("writes after the backup", DEADLINE, || store.applied().len() > so_far + 2);
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    gate.stop();
    stdout_of(&gate.cli(&["fence", "restore", "copy.redb", "--to", "fencegate.redb"]));
    gate.restart();
    assert_revoked(&gate, &store, "restored", &[a]);
    for (n, tokens) in tokens.iter().enumerate() {
        let old = *tokens.last().unwrap();
        assert_eq!(put(&gate, &format!("/load/{n}/x"), old).status, 412, "load/{n}");
        assert!(gate.acquire(&format!("load/{n}"), "new", "60s") > old);
    }
}

#[test]
fn a_copy_that_a_killed_server_was_about_to_send_is_removed_by_the_next() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let copy = beside(&database(&gate), &format!(".backup-{}", "0a".repeat(16)));
    let mine = beside(&database(&gate), ".backup-of-monday");
    for file in [&copy, &mine] {
        fs::write(file, "a copy").unwrap();
    }
    gate.restart();
    assert_eq!((copy.exists(), mine.exists()), (false, true));
}

#[test]
fn a_restore_of_something_else_changes_nothing_and_says_what_to_do() {
    let store = RawStore::start();
    let mut gate = builder(&store).start();
    let a = gate.acquire(RESOURCE, "a", "60s");
    gate.stop();
    fs::write(gate.dir().join("other.redb"), vec![0x5a; 100_000]).unwrap();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["other.redb"], 1, "other.redb is damaged"),
        (&["missing.redb"], 1, "cannot copy the backup missing.redb"),
        (&["other.redb", "--config", "missing.toml"], 2, "missing.toml"),
        (&["other.redb", "--to", "no/such/dir.redb"], 1, "no/such/dir.redb"),
    ];
    for (args, code, text) in cases {
        let output = gate.cli(&[&["fence", "restore"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(text), "{args:?}: {}", said(&output));
    }
    gate.restart();
    assert_eq!(json(&gate.get("/v1/status"))["service"]["revoked"], serde_json::Value::Null);
    assert_eq!(put(&gate, "/wal/x", a).status, 200);
}
