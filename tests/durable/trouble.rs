//! A full disk, a damaged, locked or forbidden file: a clear error, the documented exit code, nothing lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{ask, call, fence, json, number, put};
use crate::support::clients::Curl;
use crate::support::gate::Gate;
use crate::support::raw_client::request;
use crate::support::raw_store::RawStore;
use crate::support::wait::DEADLINE;

/// What `docs/operations/embedded-ledger.md` says of a failed commit.
const EXIT_STORE_FAILED: i32 = 74;
const REFUSED_TO_START: i32 = 3;

fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A small file system of its own.
struct Disk(PathBuf);

impl Disk {
    /// `None` where nobody may mount one.
    fn mount(at: PathBuf) -> Option<Disk> {
        fs::create_dir_all(&at).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(&at).output().unwrap();
        mounted.status.success().then_some(Disk(at))
    }

    fn grow(&self) {
        let options = ["-o", "remount,size=64m"];
        assert!(Command::new("mount").args(options).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server of a failed test may still have its file open.
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// Acquires leases, each with a write, until the server is gone. Returns what was acknowledged, and what
/// it said to the first that it could not serve.
fn fill(gate: &Gate) -> (Vec<(String, u64)>, Option<String>) {
    let mut acknowledged = Vec::new();
    let end = Instant::now() + 4 * DEADLINE;
    for n in 0.. {
        assert!(Instant::now() < end, "it did not get full with {n} leases");
        // A long name fills the file sooner.
        let resource = format!("load/{n}/{}", "x".repeat(900));
        let body = serde_json::json!({ "resource": resource, "holder": "h", "ttl": "1h" });
        match ask(gate.admin_address(), "/v1/lease/acquire", &body) {
            Some(answer) if answer.status == 200 => {
                acknowledged.push((resource, number(&json(&answer)["token"])));
            }
            refused => {
                let said = refused.map(|answer| format!("{} {}", answer.status, json(&answer)));
                return (acknowledged, said);
            }
        }
    }
    unreachable!("the numbers do not end");
}

/// Each lease and the mark that were acknowledged are there, and the database works on.
fn assert_nothing_lost(gate: &Gate, acknowledged: &[(String, u64)], mark: u64) {
    for (resource, token) in acknowledged {
        let target = format!("/v1/lease?resource={resource}");
        let ask = request("GET", &target, "localhost", &["Connection: close"], b"");
        let lease = json(&call(gate.admin_address(), &ask).expect("an answer"));
        assert_eq!((number(&lease["token"]), &lease["live"]), (*token, &true.into()));
    }
    assert_eq!(number(&fence(gate, "wal/main")["mark"]), mark);
    let after = gate.acquire("after", "a", "60s");
    assert!(acknowledged.iter().all(|(_, token)| after > *token));
    assert_eq!(put(gate, "/wal/x", mark).status, 200);
    let status = json(&gate.get("/v1/status"));
    assert!(status["service"]["revoked"].is_null(), "{status}");
}

#[test]
fn a_full_disk_ends_the_server_and_loses_nothing_acknowledged() {
    let store = RawStore::start();
    let dir = tempfile::tempdir().unwrap();
    // Where nobody may mount, a limit on the size of files stands for the full disk.
    let disk = Disk::mount(dir.path().join("disk"));
    let path = dir.path().join("disk/fencegate.redb");
    let mut builder = Gate::builder(&store.url())
        .fence("settle_after = \"1s\"")
        .lease(&format!("path = \"{}\"", path.display()));
    if disk.is_none() {
        let script = "test -e lifted || ulimit -f 3000; trap '' XFSZ; exec \"$@\"";
        builder = builder.under(&["sh", "-c", script, "sh"]);
    }
    let mut gate = builder.start();
    let mark = gate.acquire("wal/main", "a", "1h");
    assert_eq!(put(&gate, "/wal/x", mark).status, 200);

    let (acknowledged, said) = fill(&gate);
    assert!(acknowledged.len() > 20, "it did not even begin: {said:?}");
    let said = said.expect("whoever waited is told");
    // Paths and causes are for the log.
    assert!(said.starts_with("503") && said.contains("lease-backend-failed"), "{said}");
    assert_eq!(gate.wait_exit(DEADLINE).code(), Some(EXIT_STORE_FAILED));
    let line = gate.wait_log(&["could not be written", "nothing that was acknowledged is lost"]);
    assert!(line.contains(path.to_str().unwrap()) && line.contains("exit_code=74"), "{line}");

    match &disk {
        Some(disk) => disk.grow(),
        None => fs::write(gate.dir().join("lifted"), "").unwrap(),
    }
    gate.restart();
    assert_nothing_lost(&gate, &acknowledged, mark);
    gate.stop();
}

/// Damages the stopped database in some way.
type Damage = fn(&Path);

#[test]
fn a_database_that_cannot_be_used_is_refused_with_what_to_do() {
    let store = RawStore::start();
    let cases: [(&str, Damage, &[&str]); 5] = [
        ("another file", |path| fs::write(path, vec![0x5a; 65_536]).unwrap(), &DAMAGED),
        ("cut off", |path| cut(path, 2), &DAMAGED),
        ("text", |path| fs::write(path, "token = 7\n").unwrap(), &DAMAGED),
        ("a directory", make_directory, &["cannot", "name a file"]),
        ("flipped bits", flip, &DAMAGED),
    ];
    for (case, damage, texts) in cases {
        let mut gate = Gate::builder(&store.url()).start();
        let token = gate.acquire("wal/main", "a", "60s");
        assert_eq!(put(&gate, "/wal/x", token).status, 200);
        gate.stop();
        let path = gate.dir().join("fencegate.redb");
        damage(&path);
        let before = fs::read(&path).ok();
        let (status, said) = gate.restart_refused();
        assert_eq!(status.code(), Some(REFUSED_TO_START), "{case}: {said}");
        for text in texts.iter().chain(&[path.to_str().unwrap()]) {
            assert!(said.contains(text), "{case}: no {text:?} in {said}");
        }
        assert!(fs::read(&path).ok() == before, "{case}: the file was changed");
        assert!(Curl::get(&gate.url()).unsigned().try_send().is_none(), "{case}: it serves");
    }
}

const DAMAGED: [&str; 2] = ["is damaged", "fencegate fence restore"];

fn cut(path: &Path, by: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / by).unwrap();
}

fn make_directory(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

/// Every byte of the second half of the header page, and of all pages after the first.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[2_048..].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_second_server_waits_for_the_file_and_then_names_its_holder() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let path = gate.dir().join("fencegate.redb");
    let second = || {
        let lines = format!("path = \"{}\"\nopen_wait = \"1s\"", path.display());
        Gate::builder(&store.url()).lease(&lines)
    };
    let begun = Instant::now();
    let (status, said) = second().start_refused();
    assert_eq!(status.code(), Some(REFUSED_TO_START), "{said}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it did not wait");
    let holder = format!("in use by process {} on", gate.pid());
    for text in [&holder, "after waiting 1s", "stop that process", path.to_str().unwrap()] {
        assert!(said.contains(text), "no {text:?} in {said}");
    }
    let token = gate.acquire("wal/main", "a", "60s");
    assert_eq!(put(&gate, "/wal/x", token).status, 200, "the first server serves on");

    // One that ends within the wait hands over.
    let waits = format!("path = \"{}\"\nopen_wait = \"25s\"", path.display());
    let waiting = std::thread::scope(|scope| {
        let started = scope.spawn(|| Gate::builder(&store.url()).lease(&waits).start());
        gate.stop();
        started.join().unwrap()
    });
    assert_eq!(put(&waiting, "/wal/x", token).status, 200, "the same leases, the same marks");
}

#[test]
fn a_place_that_cannot_be_used_is_refused_with_what_to_do() {
    let store = RawStore::start();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let forbidden = dir.path().join("forbidden.redb");
    for suffix in ["", ".lock", ".witness"] {
        let path = format!("{}{suffix}", forbidden.display());
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    }
    let missing = dir.path().join("no/such/file.redb");
    let cases = [(&missing, "make its directory"), (&forbidden, "let this user write")];
    for (path, text) in cases {
        let lines = format!("path = \"{}\"", path.display());
        let mut builder = Gate::builder(&store.url()).lease(&lines);
        if root() && *path == forbidden {
            // Nothing is forbidden to root, so one of its capabilities is given up.
            let caps = "--bounding-set=-dac_override,-dac_read_search";
            builder = builder.under(&["setpriv", caps, "--inh-caps=-all", "--"]);
        }
        let (status, said) = builder.start_refused();
        assert_eq!(status.code(), Some(REFUSED_TO_START), "{said}");
        for text in [text, path.to_str().unwrap()] {
            assert!(said.contains(text), "no {text:?} in {said}");
        }
    }
}
