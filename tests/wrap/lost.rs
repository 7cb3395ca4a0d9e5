//! A lease that is lost while a command runs under it, and fencegate killed: the command is gone in time.
//!
//! The same fault in others: hashicorp/consul#18271, hashicorp/consul#1843 (a partitioned holder that noticed
//! nothing for minutes), kubernetes/kubernetes#23731, kubernetes/kubernetes#67651, cilium/cilium#42920 (a leader
//! that went on after it had lost), restic/restic#3126 (a machine that slept past its lock's life).

use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::run::{exists, number, parent_of};
use crate::support::gate::Gate;
use crate::support::link::{Link, Mode};
use crate::support::process::Process;
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

const TTL: Duration = Duration::from_secs(3);

/// Deaf to SIGTERM; writes the time again and again, as does what it started: in its group, and in a session of
/// its own, orphaned.
const DEAF: &str = r#"
trap 'echo termed' TERM
beat() { trap 'echo termed' TERM; while :; do date +%s%N >> "$1.beat"; sleep 0.05; done; }
beat child & echo child=$!
setsid -f sh -c 'trap "" TERM; echo escaped=$$; while :; do date +%s%N >> escaped.beat; sleep 0.05; done'
echo main=$$
beat main
"#;

struct Deaf {
    process: Process,
    pids: Vec<i32>,
}

fn start_deaf(gate: &Gate, server: &str) -> Deaf {
    let args = ["run", "wal/main", "--ttl", "3s", "--server", server, "--", "sh", "-c", DEAF];
    let process = gate.spawn(&args, |_| {});
    let pids = ["child", "escaped", "main"].map(|name| number(&process, name)).to_vec();
    Deaf { process, pids }
}

// === impl Deaf ===

impl Deaf {
    fn wait_gone(&self) {
        wait_for("everything is gone", DEADLINE, || !self.pids.iter().any(|pid| exists(*pid)));
    }

    /// The last sign of life of any of them.
    fn last_beat(&self, gate: &Gate) -> SystemTime {
        let beats = ["child", "escaped", "main"].map(|name| {
            let text = std::fs::read_to_string(gate.dir().join(format!("{name}.beat"))).unwrap();
            let nanos = text.lines().last().expect("it beat").parse().expect("a time");
            SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
        });
        beats.into_iter().max().expect("three of them")
    }
}

fn gate() -> (RawStore, Gate) {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    (store, gate)
}

/// R09: however renewals fail, all of a command that ignores SIGTERM is dead a TTL after the last renewal that
/// succeeded was sent.
fn dead_in_time(break_it: impl FnOnce(&Gate, &Link)) {
    let (_store, gate) = gate();
    let link = Link::start(gate.admin_address());
    let deaf = start_deaf(&gate, &link.url());
    wait_for("a renewal", DEADLINE, || !link.renewed().is_empty());
    break_it(&gate, &link);
    assert_eq!(deaf.process.wait_exit(DEADLINE).code(), Some(124), "{}", deaf.process.tail());
    deaf.wait_gone();
    let said = deaf.process.lines().join("\n");
    assert!(said.contains("lease lost on wal/main") && said.contains("termed"), "{said}");
    let last = *link.renewed().last().expect("waited for above");
    assert!(deaf.last_beat(&gate) < last + TTL, "it lived past its lease");
}

#[test]
fn a_stopped_server_costs_the_lease_in_time() {
    dead_in_time(|gate, _| gate.pause());
}

#[test]
fn a_silent_network_costs_the_lease_in_time() {
    dead_in_time(|_, link| link.set(Mode::Silent));
}

#[test]
fn a_server_that_answers_503_costs_the_lease_in_time() {
    dead_in_time(|_, link| link.set(Mode::Unavailable));
}

#[test]
fn a_server_that_hangs_up_costs_the_lease_in_time() {
    dead_in_time(|_, link| link.set(Mode::Close));
}

#[test]
fn an_outage_shorter_than_the_lease_costs_nothing() {
    let (_store, gate) = gate();
    let link = Link::start(gate.admin_address());
    let script = "echo up=1; read -r _ < fifo; exit 5";
    nix::unistd::mkfifo(&gate.dir().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let args =
        ["run", "wal/main", "--ttl", "6s", "--server", &link.url(), "--", "sh", "-c", script];
    let process = gate.spawn(&args, |_| {});
    number(&process, "up");
    link.set(Mode::Unavailable);
    process.wait_line("a failed renewal", |line| line.contains("was not renewed, trying again"));
    link.set(Mode::Pass);
    wait_for("two renewals", DEADLINE, || link.renewed().len() >= 2);
    std::fs::write(gate.dir().join("fifo"), "go\n").unwrap();
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(5));
}

#[test]
fn a_lease_that_an_operator_ends_ends_the_command() {
    let (_store, gate) = gate();
    let deaf = start_deaf(&gate, &gate.admin());
    gate.cli(&["fence", "bump", "wal/main"]);
    assert_eq!(deaf.process.wait_exit(DEADLINE).code(), Some(124));
    deaf.wait_gone();
    deaf.process.wait_line("the reason", |line| line.contains("the server refused to renew it"));
}

#[test]
fn a_killed_fencegate_leaves_nothing_of_its_command() {
    let (_store, gate) = gate();
    let deaf = start_deaf(&gate, &gate.admin());
    deaf.process.signal(Signal::SIGKILL);
    deaf.wait_gone();
}

#[test]
fn a_killed_guard_leaves_nothing_of_its_command() {
    let (_store, gate) = gate();
    let deaf = start_deaf(&gate, &gate.admin());
    let guard = parent_of(deaf.pids[2]);
    assert_ne!(guard, deaf.process.pid().as_raw());
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    assert_eq!(deaf.process.wait_exit(DEADLINE).code(), Some(125), "{}", deaf.process.tail());
    assert!(!deaf.pids.iter().any(|pid| exists(*pid)));
    // And the lease was given back, after that.
    let next = gate.cli(&["run", "wal/main", "--", "true"]);
    assert!(next.status.success());
}

/// R39: only fencegate itself is stopped. Its command must not outlive the lease meanwhile.
#[test]
fn a_stopped_fencegate_does_not_keep_its_command_alive() {
    let (_store, gate) = gate();
    let link = Link::start(gate.admin_address());
    let deaf = start_deaf(&gate, &link.url());
    wait_for("a renewal", DEADLINE, || !link.renewed().is_empty());
    deaf.process.signal(Signal::SIGSTOP);
    deaf.wait_gone();
    let last = *link.renewed().last().expect("waited for above");
    assert!(deaf.last_beat(&gate) < last + TTL, "it lived past its lease");
    gate.cli(&["lease", "acquire", "wal/main", "--wait", "10s"]);
    deaf.process.signal(Signal::SIGCONT);
    assert_eq!(deaf.process.wait_exit(DEADLINE).code(), Some(124));
}

#[test]
fn a_stopped_guard_does_not_keep_its_command_alive() {
    let (_store, gate) = gate();
    let deaf = start_deaf(&gate, &gate.admin());
    let guard = parent_of(deaf.pids[2]);
    kill(Pid::from_raw(guard), Signal::SIGSTOP).unwrap();
    gate.cli(&["fence", "bump", "wal/main"]);
    assert_eq!(deaf.process.wait_exit(DEADLINE).code(), Some(124), "{}", deaf.process.tail());
    assert!(!deaf.pids.iter().any(|pid| exists(*pid)) && !exists(guard));
}

#[test]
fn a_stopped_command_is_woken_to_end() {
    let (_store, gate) = gate();
    let script = "trap 'echo told; exit 0' TERM; echo main=$$; while :; do sleep 0.05; done";
    let args = ["run", "wal/main", "--ttl", "3s", "--", "sh", "-c", script];
    let process = gate.spawn(&args, |_| {});
    let pid = number(&process, "main");
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    gate.cli(&["fence", "bump", "wal/main"]);
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(124));
    process.wait_line("told", |line| line == "told");
}
