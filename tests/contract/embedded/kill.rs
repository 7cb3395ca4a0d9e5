//! `kill -9` and a full disk: what was acknowledged is there afterwards.
//!
//! The child is this very test binary, told by an environment variable to run a load and to print a
//! line for everything it was acknowledged.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencegate::core::Token;
use fencegate::core::lease::Verdict;
use fencegate::lease::LeaseBackend;
use fencegate::lease::embedded::EmbeddedLease;
use fencegate::ledger::embedded::EmbeddedLedger;
use fencegate::ledger::{Incarnation, Ledger, PermitId};
use fencegate::store::embedded::{EXIT_STORE_FAILED, Options, Store};

use super::{ask, name};

const CHILD: &str = "FENCEGATE_TEST_CHILD";
const RESOURCES: u64 = 4;

// === the child ===

/// Prints one line, whole or not at all.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\nack {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Not a test of its own: the load that the tests below start in another process.
#[test]
fn child_under_load() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    say(format_args!("opening"));
    let (refused, told) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let options = Options {
        // The default, but sure that somebody who waited has been told.
        on_fatal: std::sync::Arc::new(move |_| {
            let told = told.lock().unwrap().recv_timeout(Duration::from_secs(20));
            std::process::exit(if told.is_ok() { EXIT_STORE_FAILED } else { 1 });
        }),
        ..Options::new(PathBuf::from(path))
    };
    let store = Store::open(&options).unwrap();
    say(format_args!("opened {}", store.revoked().is_some()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut load = tokio::task::JoinSet::new();
        for n in 0..RESOURCES {
            load.spawn(lease_load(store.clone(), n));
            load.spawn(permit_load(store.clone(), n));
        }
        load.join_next().await.unwrap().unwrap();
    });
    refused.send(()).unwrap();
    // A failed commit ends the process from the writer's thread; the load only hears of it.
    std::thread::park_timeout(Duration::from_secs(20));
    panic!("the load ended and the process did not");
}

async fn lease_load(store: Store, n: u64) {
    let incarnation = store.incarnation().0;
    let lease = EmbeddedLease::new(store);
    let again = name(&format!("r{n}"));
    for round in 0_u64.. {
        // A new name makes the file grow; an old one makes tokens follow each other. What an
        // earlier child held still runs, so it is ended first.
        let resource = match round % 2 {
            0 => again.clone(),
            _ => name(&format!("r{n}/{incarnation:x}/{round}")),
        };
        let done: Result<(), fencegate::lease::LeaseError> = async {
            if round == 0 {
                lease.bump(&resource, None).await?;
            }
            let grant = lease.acquire(ask(resource.as_str(), "child")).await?;
            say(format_args!("token {resource} {}", grant.token));
            if round % 4 == 0 {
                lease.release(&resource, grant.token).await?;
                say(format_args!("released {resource} {}", grant.token));
            } else if round % 2 == 0 {
                lease.bump(&resource, None).await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = done {
            return say(format_args!("refused {error}"));
        }
    }
}

async fn permit_load(store: Store, n: u64) {
    let (resource, incarnation) = (name(&format!("m{n}")), store.incarnation());
    let ledger = EmbeddedLedger::new(store);
    let first = ledger.mark(&resource).await.unwrap().map_or(1, Token::get);
    for serial in 1_u64.. {
        let mark = Token::new(first + serial).unwrap();
        let id = PermitId { incarnation, serial };
        let done: Result<(), fencegate::ledger::LedgerError> = async {
            let raised = ledger.raise(&resource, mark).await?;
            say(format_args!("mark {resource} {raised}"));
            assert!(ledger.take(&resource, id, raised).await?);
            say(format_args!("permit {resource} {:x} {serial} {raised}", incarnation.0));
            if serial.is_multiple_of(2) {
                say(format_args!("returning {resource} {:x} {serial} {raised}", incarnation.0));
                ledger.give_back(&resource, id).await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = done {
            return say(format_args!("refused {error}"));
        }
    }
}

// === the parent ===

/// Everything that any child was ever acknowledged.
#[derive(Default)]
struct Acknowledged {
    tokens: HashMap<String, Vec<u64>>,
    released: HashSet<(String, u64)>,
    marks: HashMap<String, u64>,
    permits: HashMap<String, HashSet<(u128, u64, u64)>>,
    refusals: Vec<String>,
    false_revocations: usize,
}

impl Acknowledged {
    fn note(&mut self, line: &str) {
        let Some(line) = line.strip_prefix("ack ") else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let permit = || (u128::from_str_radix(words[2], 16).unwrap(), number(3), number(4));
        match words[0] {
            "opened" => self.false_revocations += usize::from(words[1] == "true"),
            "token" => self.tokens.entry(words[1].into()).or_default().push(number(2)),
            "released" => drop(self.released.insert((words[1].into(), number(2)))),
            "mark" => drop(self.marks.insert(words[1].into(), number(2))),
            "permit" => {
                self.permits.entry(words[1].into()).or_default().insert(permit());
            }
            "returning" => {
                self.permits.entry(words[1].into()).or_default().remove(&permit());
            }
            "refused" => self.refusals.push(line.to_owned()),
            _ => {}
        }
    }

    fn count(&self) -> usize {
        self.tokens.values().map(Vec::len).sum::<usize>() + self.marks.len()
    }

    /// Opens the file and looks for everything.
    async fn check(&self, path: &Path) {
        let store = Store::open(&Options::new(path)).unwrap();
        assert_eq!(store.revoked(), None, "a crash is not a restore");
        assert_eq!(self.false_revocations, 0, "a crash is not a restore");
        let (lease, ledger) =
            (EmbeddedLease::new(store.clone()), EmbeddedLedger::new(store.clone()));
        for (resource, tokens) in &self.tokens {
            assert!(tokens.is_sorted_by(|a, b| a < b), "{resource}: issued twice: {tokens:?}");
            let last = *tokens.last().unwrap();
            let latest = lease.inspect(&name(resource)).await.unwrap().unwrap().token.get();
            assert!(latest >= last, "{resource}: token {last} lost, {latest} is there");
            if self.released.contains(&(resource.clone(), last)) && latest == last {
                let token = Token::new(last).unwrap();
                let verdict = lease.validate(&name(resource), token).await.unwrap().verdict;
                assert_eq!(verdict, Verdict::Released, "{resource}: release of {last} lost");
            }
        }
        for (resource, mark) in &self.marks {
            let there = ledger.mark(&name(resource)).await.unwrap().unwrap().get();
            assert!(there >= *mark, "{resource}: mark {mark} lost, {there} is there");
        }
        for (resource, permits) in &self.permits {
            let there = ledger.permits(&name(resource)).await.unwrap();
            let there: HashSet<_> =
                there.iter().map(|p| (p.id.incarnation.0, p.id.serial, p.token.get())).collect();
            let lost: Vec<_> = permits.difference(&there).collect();
            assert!(lost.is_empty(), "{resource}: permits lost: {lost:?}");
        }
        assert_ne!(store.incarnation(), Incarnation(0));
        store.close().unwrap();
    }
}

fn spawn(mut command: Command, path: &Path) -> Child {
    command
        .env(CHILD, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

const CHILD_TEST: [&str; 3] =
    ["--exact", "contract::embedded::kill::child_under_load", "--nocapture"];

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes) % below
}

#[tokio::test]
async fn c10_kill_9_loses_nothing_acknowledged_and_repeats_no_token() {
    let kills: u64 = std::env::var("FENCEGATE_KILLS").map_or(10, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fencegate.redb");
    let mut acknowledged = Acknowledged::default();
    for round in 0..kills {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(CHILD_TEST);
        let mut child = spawn(command, &path);
        // The first is killed while it makes the file.
        let lines = if round == 0 { 1 } else { 1 + random(300) };
        let mut seen = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            acknowledged.note(&line);
            seen += u64::from(line.starts_with("ack "));
            if seen == lines {
                // SIGKILL. What it had printed by then is read to the end.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let refusals = &acknowledged.refusals;
        assert!(
            seen >= lines,
            "round {round}: it ended by itself after {seen} lines: {refusals:?}"
        );
        acknowledged.check(&path).await;
    }
    assert!(acknowledged.count() > 0);
}

#[tokio::test]
async fn a_full_disk_ends_the_process_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fencegate.redb");
    // A limit on the size of a file stands for the full disk: the write fails where ENOSPC would.
    let mut command = Command::new("sh");
    let script = "ulimit -f 1000; trap '' XFSZ; exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(std::env::current_exe().unwrap()).args(CHILD_TEST);
    let mut child = spawn(command, &path);
    let stderr = child.stderr.take().unwrap();
    let log = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap());
    let mut acknowledged = Acknowledged::default();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        acknowledged.note(&line.unwrap());
    }
    let status = child.wait().unwrap();
    let log = log.join().unwrap();
    assert_eq!(status.code(), Some(EXIT_STORE_FAILED), "{log}");
    assert!(log.contains(path.to_str().unwrap()) && log.contains("File too large"), "{log}");
    assert!(acknowledged.count() > 20, "it did not even begin");
    assert!(!acknowledged.refusals.is_empty(), "whoever waited was not told: {log}");
    acknowledged.check(&path).await;

    // With room again, the same file works on.
    let store = Store::open(&Options { open_wait: Duration::ZERO, ..Options::new(&path) }).unwrap();
    EmbeddedLease::new(store.clone()).acquire(ask("after", "a")).await.unwrap();
}
