//! Everything that can be stopped for longer than a lease, and what it does on waking: nothing.
//!
//! restic/restic#3126, borgbackup/borg#9870, restic/restic#2452: a machine slept past its lock's life, another
//! one pruned, the first woke and wrote on.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::run::{number, parent_of};
use crate::support::clients::Curl;
use crate::support::gate::Gate;
use crate::support::process::{Process, wait_stopped};
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

/// Writes through the sidecar again and again.
const WRITER: &str = "echo main=$$ token=$FENCING_TOKEN; n=0; while :; do n=$((n+1)); curl -s -o /dev/null -X PUT --data-binary a$n $FENCEGATE_PROXY/wal/x; sleep 0.1; done";

const TTL: Duration = Duration::from_secs(3);

struct Story {
    store: RawStore,
    gate: Gate,
    process: Process,
    group: Pid,
    token: u64,
}

fn start() -> Story {
    let store = RawStore::start();
    // Without it a token passes as long as nobody has acquired since.
    let gate = Gate::builder(&store.url()).fence("require_live = true").start();
    let script = WRITER.replace(" token=", "; echo token=");
    let args = ["run", "wal/main", "--ttl", "3s", "--", "sh", "-c", &script];
    let process = gate.spawn(&args, |_| {});
    let group = Pid::from_raw(number(&process, "main"));
    let line = process.wait_line("token", |line| line.starts_with("token="));
    let token = line["token=".len()..].parse().unwrap();
    store.wait_applied("/wal/x");
    Story { store, gate, process, group, token }
}

// === impl Story ===

impl Story {
    /// fencegate, its guard, and the command's process group.
    fn signal(&self, signal: Signal) {
        let guard = Pid::from_raw(parent_of(self.group.as_raw()));
        kill(self.process.pid(), signal).unwrap();
        kill(guard, signal).unwrap();
        killpg(self.group, signal).unwrap();
        if signal == Signal::SIGSTOP {
            [self.process.pid(), guard, self.group].into_iter().for_each(wait_stopped);
        }
    }

    /// The successor acquires, writes one key and deletes another.
    fn succeed(&self) -> usize {
        let args = ["lease", "acquire", "wal/main", "--wait", "30s", "--drain", "--ttl", "60s"];
        let token = crate::support::clients::stdout_of(&self.gate.cli(&args));
        let token: u64 = token.parse().unwrap();
        assert!(token > self.token);
        let before = self.store.applied().len();
        let url = format!("{}/wal/x", self.gate.url());
        assert_eq!(Curl::put(&url).token(token).body(b"b").send().status, 200);
        let url = format!("{}/wal/y", self.gate.url());
        assert!(Curl::delete(&url).token(token).send().status < 300);
        before
    }

    /// Of the first holder nothing was applied since `before`, and its command has ended.
    fn check(&self, before: usize) {
        assert_eq!(self.process.wait_exit(DEADLINE).code(), Some(124), "{}", self.process.tail());
        self.process.wait_line("why", |line| line.contains("lease lost on wal/main"));
        let applied = self.store.applied();
        let names: Vec<_> = applied[before..].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PUT /wal/x", "DELETE /wal/y"]);
        assert_eq!(self.store.object("/wal/x").as_deref(), Some(&b"b"[..]));
    }

    fn wait_ttl(&self) {
        let begin = Instant::now();
        wait_for("a TTL", DEADLINE, || begin.elapsed() > TTL + Duration::from_secs(1));
    }
}

#[test]
fn a_group_that_slept_past_its_lease_writes_nothing_more() {
    let story = start();
    story.signal(Signal::SIGSTOP);
    let before = story.succeed();
    story.signal(Signal::SIGCONT);
    story.check(before);
}

#[test]
fn a_proxy_that_slept_refuses_what_waited_in_its_buffers() {
    let story = start();
    story.gate.pause();
    let mut waiting = RawClient::connect(story.gate.address());
    let header = format!("Fencing-Token: {}", story.token);
    waiting.send(&request("PUT", "/wal/x", "localhost", &[&header], b"buffered"));
    // Its renewals are not answered: the command is ended while the proxy sleeps.
    assert_eq!(story.process.wait_exit(DEADLINE).code(), Some(124), "{}", story.process.tail());
    story.wait_ttl();
    story.gate.resume();
    let refused = waiting.answer();
    assert_eq!((refused.status, refused.code().as_deref()), (412, Some("LeaseExpired")));
    let before = story.succeed();
    story.check(before);
}

#[test]
fn a_machine_that_slept_as_a_whole_writes_nothing_more() {
    let story = start();
    story.signal(Signal::SIGSTOP);
    story.gate.pause();
    story.wait_ttl();
    story.gate.resume();
    let before = story.succeed();
    story.signal(Signal::SIGCONT);
    story.check(before);
}
