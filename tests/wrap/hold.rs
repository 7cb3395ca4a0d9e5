//! `fencegate hold` and `fencegate with`: a term that somebody keeps, and commands that use its token.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::run::{exists, number};
use crate::support::gate::Gate;
use crate::support::link::{Link, Mode};
use crate::support::process::Process;
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

fn gate() -> (RawStore, Gate) {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    (store, gate)
}

fn file(gate: &Gate) -> PathBuf {
    gate.dir().join("token")
}

fn hold(gate: &Gate, more: &[&str]) -> Process {
    let args = ["hold", "wal/main", "--ttl", "3s", "--token-file", "token"];
    gate.spawn(&[&args[..], more].concat(), |_| {})
}

/// The token in the file, once there is one.
fn token(gate: &Gate) -> u64 {
    let read = || std::fs::read_to_string(file(gate)).ok()?.trim().parse().ok();
    crate::support::wait::wait_for_some("a token in the file", DEADLINE, read)
}

fn with(gate: &Gate, args: &[&str]) -> Output {
    gate.cli(&[&["with"], args].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Uploads `body` as the command of `with`, through the sidecar.
const PUT: &str = "curl -sS --fail-with-body -X PUT --data-binary";

#[test]
fn a_held_token_is_in_the_file_for_its_owner_alone_and_kept_alive() {
    let (store, gate) = gate();
    std::fs::write(file(&gate), "7\n").unwrap();
    let holding = hold(&gate, &[]);
    holding.wait_line("holding", |line| line.contains("holding wal/main"));
    let held = token(&gate);
    let mode = std::fs::metadata(file(&gate)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    wait_for("two renewals", DEADLINE, || {
        gate.log().iter().filter(|line| line.contains("lease.renew")).count() >= 4
    });
    assert_eq!(token(&gate), held);
    let put =
        format!("{PUT} one $FENCEGATE_PROXY/wal/x; echo $FENCING_TOKEN ${{FENCING_RESOURCE-none}}");
    let output = with(&gate, &["--token-file", "token", "--", "sh", "-c", &put]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{held} none\n"));
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"one"[..]));
}

#[test]
fn a_term_that_is_ended_in_order_empties_the_file_and_gives_the_lease_back() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let (_store, gate) = gate();
        let holding = hold(&gate, &["--on-lost", "echo lost >> hook"]);
        token(&gate);
        holding.signal(signal);
        assert_eq!(holding.wait_exit(DEADLINE).code(), Some(0), "{signal}");
        assert_eq!(std::fs::read(file(&gate)).unwrap(), b"");
        gate.acquire("wal/main", "next", "60s");
        assert!(!gate.dir().join("hook").exists(), "that was no loss");
    }
}

#[test]
fn a_lost_lease_empties_the_file_runs_the_hook_once_and_exits_with_1() {
    for mode in [Mode::Silent, Mode::Unavailable, Mode::Pass] {
        let (_store, gate) = gate();
        let link = Link::start(gate.admin_address());
        let hook = "echo $FENCING_RESOURCE $FENCING_TOKEN $(wc -c < token) >> hook";
        let holding = hold(&gate, &["--server", &link.url(), "--on-lost", hook]);
        let held = token(&gate);
        link.set(mode);
        if mode == Mode::Pass {
            gate.cli(&["fence", "bump", "wal/main"]);
        }
        assert_eq!(holding.wait_exit(DEADLINE).code(), Some(1), "{mode:?}");
        assert_eq!(std::fs::read(file(&gate)).unwrap(), b"", "{mode:?}");
        let hook = std::fs::read_to_string(gate.dir().join("hook")).unwrap();
        assert_eq!(hook, format!("wal/main {held} 0\n"), "{mode:?}");
    }
}

/// kubernetes/kubernetes#23731: who was stopped past its lease does nothing as holder when it wakes.
#[test]
fn a_holder_that_was_stopped_past_its_lease_has_lost_it_when_it_wakes() {
    let (_store, gate) = gate();
    let holding = hold(&gate, &[]);
    let low = token(&gate);
    holding.signal(Signal::SIGSTOP);
    let high = gate.cli(&["lease", "acquire", "wal/main", "--wait", "30s"]);
    let high: u64 = text(&high.stdout).trim().parse().unwrap();
    assert!(high > low);
    holding.signal(Signal::SIGCONT);
    assert_eq!(holding.wait_exit(DEADLINE).code(), Some(1));
    assert_eq!(std::fs::read(file(&gate)).unwrap(), b"");
}

#[test]
fn nothing_is_held_without_a_lease() {
    let (_store, gate) = gate();
    std::fs::write(file(&gate), "7\n").unwrap();
    gate.acquire("wal/main", "other", "60s");
    let refused = hold(&gate, &[]);
    assert_eq!(refused.wait_exit(DEADLINE).code(), Some(1));
    assert_eq!(std::fs::read(file(&gate)).unwrap(), b"", "an old token was left in the file");
    let nobody = hold(&gate, &["--server", "http://127.0.0.1:1"]);
    assert_eq!(nobody.wait_exit(DEADLINE).code(), Some(3));
}

#[test]
fn systemd_is_told_when_the_lease_is_held_and_when_it_ends() {
    let (_store, gate) = gate();
    let path = gate.dir().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let args = ["hold", "wal/main", "--token-file", "token"];
    let holding = gate.spawn(&args, |command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    let mut buffer = [0; 256];
    let count = socket.recv(&mut buffer).unwrap();
    assert_eq!(text(&buffer[..count]), "READY=1\nSTATUS=holding wal/main");
    assert!(std::fs::metadata(file(&gate)).unwrap().len() > 0, "ready before the file was there");
    holding.signal(Signal::SIGTERM);
    let count = socket.recv(&mut buffer).unwrap();
    assert_eq!(text(&buffer[..count]), "STOPPING=1");
}

#[test]
fn a_command_without_a_token_is_not_started() {
    let (_store, gate) = gate();
    std::fs::write(gate.dir().join("empty"), "\n").unwrap();
    std::fs::write(gate.dir().join("bad"), "-3\n").unwrap();
    let cases: [(&str, &[&str], i32, &str); 5] = [
        ("missing", &["--token-file", "absent"], 124, "no lease is held here"),
        ("empty", &["--token-file", "empty"], 124, "the lease is lost"),
        ("malformed", &["--token-file", "bad"], 125, "is not one"),
        ("none", &[], 125, "no token"),
        (
            "no server",
            &["--token", "3", "--server", "http://127.0.0.1:1"],
            125,
            "cannot be reached",
        ),
    ];
    for (case, args, code, says) in cases {
        let output = with(&gate, &[args, &["--", "touch", "started"]].concat());
        assert_eq!(output.status.code(), Some(code), "{case}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{case}: {}", text(&output.stderr));
    }
    assert!(!gate.dir().join("started").exists());
}

#[test]
fn with_passes_status_and_signals_on_and_leaves_a_lease_alone() {
    let (_store, gate) = gate();
    let held = gate.acquire("wal/main", "a", "60s").to_string();
    let cases: [(&[&str], i32); 4] = [
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/etc"], 126),
        (&["/nonexistent/command"], 127),
    ];
    for (command, want) in cases {
        let output = with(&gate, &[&["--token", &held, "--"], command].concat());
        assert_eq!(output.status.code(), Some(want), "{command:?}: {}", text(&output.stderr));
    }
    let args = ["with", "--token", &held, "--", "sh", "-c", "echo main=$$; exec sleep 600"];
    let running = gate.spawn(&args, |_| {});
    let pid = number(&running, "main");
    running.signal(Signal::SIGINT);
    assert_eq!(running.wait_exit(DEADLINE).code(), Some(130));
    assert!(!exists(pid));
    let killed = gate.spawn(&args, |_| {});
    let pid = number(&killed, "main");
    killed.signal(Signal::SIGKILL);
    wait_for("the command is gone", DEADLINE, || !exists(pid));
    let lease = gate.get("/v1/lease?resource=wal/main").text();
    assert!(lease.contains(r#""live":true"#), "{lease}");
}

#[test]
fn a_stale_token_is_the_proxys_to_refuse() {
    let (store, gate) = gate();
    let old = gate.acquire("wal/main", "a", "60s");
    gate.hand_over("wal/main", old, "b");
    let put = format!("{PUT} stale $FENCEGATE_PROXY/wal/x");
    let output = with(&gate, &["--token", &old.to_string(), "--", "sh", "-c", &put]);
    assert_eq!(output.status.code(), Some(22), "curl's own");
    assert!(text(&output.stdout).contains("StaleFencingToken"), "{}", text(&output.stdout));
    assert!(store.seen().is_empty());
    // Also when it comes from the environment.
    let mut command = gate.cli_command(&["with", "--", "sh", "-c", &put]);
    let output = command.env("FENCING_TOKEN", old.to_string()).output().unwrap();
    assert!(text(&output.stdout).contains("StaleFencingToken"), "{}", text(&output.stdout));
}
