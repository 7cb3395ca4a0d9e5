//! `fencegate run`: statuses told apart, signals passed on, one lease for one run, nothing left behind.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::gate::{Gate, program};
use crate::support::link::{Link, Mode};
use crate::support::process::Process;
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

fn gate() -> (RawStore, Gate) {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    (store, gate)
}

/// `fencegate run wal/main -- sh -c SCRIPT`, to its end.
fn run(gate: &Gate, script: &str) -> Output {
    gate.cli(&["run", "wal/main", "--", "sh", "-c", script])
}

/// The number in the line `NAME=NUMBER` of a process's output.
pub fn number(process: &Process, name: &str) -> i32 {
    let prefix = format!("{name}=");
    let line = process.wait_line(&prefix, |line| line.starts_with(&prefix));
    line[prefix.len()..].parse().expect("a number")
}

/// Whether a process of this number exists.
pub fn exists(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// The parent of a process: of a command, its guard.
pub fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = &stat[stat.rfind(')').unwrap() + 1..];
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_commands_status_is_passed_on() {
    let (_store, gate) = gate();
    let cases: [(&[&str], i32); 7] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 124"], 124),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "kill -HUP $$"], 129),
        (&["/etc"], 126),
        (&["/nonexistent/command"], 127),
    ];
    for (command, want) in cases {
        let output = gate.cli(&[&["run", "wal/main", "--"], command].concat());
        assert_eq!(output.status.code(), Some(want), "{command:?}: {}", text(&output.stderr));
    }
}

#[test]
fn its_own_codes_tell_what_went_wrong() {
    let (_store, gate) = gate();
    let _held = gate.acquire("wal/main", "other", "60s");
    let held = gate.cli(&["run", "wal/main", "--", "true"]);
    assert_eq!(held.status.code(), Some(123));
    assert!(text(&held.stderr).contains("held by other"), "{}", text(&held.stderr));
    let cases: [(&str, &[&str]); 6] = [
        ("no server", &["run", "r", "--server", "http://127.0.0.1:1", "--", "true"]),
        ("no command", &["run", "r"]),
        ("a ttl out of range", &["run", "r", "--ttl", "1ms", "--", "true"]),
        ("not on loopback", &["run", "r", "--listen", "0.0.0.0:0", "--", "true"]),
        ("no such proxy", &["run", "r", "--proxy", "ftp://x", "--", "true"]),
        ("no pair", &["run", "r", "--env", "x", "--", "true"]),
    ];
    for (case, args) in cases {
        let output = gate.cli(args);
        assert_eq!(output.status.code(), Some(125), "{case}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{case}");
    }
    assert_eq!(gate.cli(&["run", "--help"]).status.code(), Some(0));
}

#[test]
fn the_command_sees_its_token_resource_and_sidecar() {
    let (_store, gate) = gate();
    let script = "echo $FENCING_TOKEN $FENCING_RESOURCE $FENCEGATE_PROXY $URL; test -t 0 || cat";
    let mut command = gate.cli_command(&["run", "wal/main", "--env", "URL={proxy}/b?{token}{x}"]);
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    let said = text(&output.stdout);
    let words: Vec<_> = said.split_whitespace().collect();
    let [token, resource, proxy, url] = words[..] else { panic!("{said}") };
    assert!(token.parse::<u64>().is_ok() && resource == "wal/main", "{said}");
    assert!(proxy.starts_with("http://127.0.0.1:") && proxy != gate.url(), "{said}");
    assert_eq!(url, format!("{proxy}/b?{token}{{x}}"));
}

#[test]
fn the_command_starts_as_from_a_shell() {
    let (_store, gate) = gate();
    // Signals, descriptors: neither more nor less than without fencegate.
    let script = "grep ^Sig[BIC] /proc/self/status; ls /proc/self/fd | wc -l; pwd";
    let plain = gate.cli_command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(plain.get_current_dir().unwrap()).stdin(Stdio::null());
    let want = shell.output().unwrap();
    let mut under = gate.cli_command(&["run", "r", "--", "sh", "-c", script]);
    let got = under.stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&got.stdout), text(&want.stdout), "{}", text(&got.stderr));
}

#[test]
fn the_shortest_lease_is_kept() {
    let (_store, gate) = gate();
    let script = "echo up=1; while [ ! -e enough ]; do sleep 0.05; done; exit 4";
    let args = ["run", "r", "--ttl", "1s", "--", "sh", "-c", script];
    let process = gate.spawn(&args, |_| {});
    number(&process, "up");
    wait_for("ten renewals", DEADLINE, || {
        gate.log().iter().filter(|line| line.contains("lease.renew")).count() >= 10
    });
    std::fs::write(gate.dir().join("enough"), "").unwrap();
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(4), "{}", process.tail());
}

#[test]
fn each_run_has_a_lease_of_its_own_and_gives_it_back() {
    let (_store, gate) = gate();
    let token = |output: Output| text(&output.stdout).trim().parse::<u64>().unwrap();
    let first = token(run(&gate, "echo $FENCING_TOKEN"));
    // Without a wait: the first one was given back.
    let second = token(run(&gate, "echo $FENCING_TOKEN"));
    assert!(second > first);
    let lease = gate.get("/v1/lease?resource=wal/main").text();
    assert!(lease.contains(r#""released":true"#), "{lease}");
}

#[test]
fn a_second_run_waits_for_the_first_and_gets_a_higher_token() {
    let (_store, gate) = gate();
    let hold = "echo t=$FENCING_TOKEN; read -r _ < fifo";
    nix::unistd::mkfifo(&gate.dir().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let first = gate.spawn(&["run", "wal/main", "--ttl", "2s", "--", "sh", "-c", hold], |_| {});
    let line = first.wait_line("t=", |line| line.starts_with("t="));
    let low: u64 = line[2..].parse().unwrap();
    let second = ["run", "wal/main", "--wait", "60s", "--", "sh", "-c", "echo t=$FENCING_TOKEN"];
    let second = gate.spawn(&second, |_| {});
    // Longer than the TTL: the first one renews, the second one waits.
    wait_for("two renewals", DEADLINE, || {
        gate.log().iter().filter(|line| line.contains("lease.renew")).count() >= 4
    });
    assert!(second.lines().is_empty(), "{:?}", second.lines());
    std::fs::write(gate.dir().join("fifo"), "go\n").unwrap();
    assert!(first.wait_exit(DEADLINE).success() && second.wait_exit(DEADLINE).success());
    let line = second.wait_line("t=", |line| line.starts_with("t="));
    assert!(line[2..].parse::<u64>().unwrap() > low);
}

#[test]
fn every_signal_reaches_the_command_and_its_status_comes_back() {
    let (_store, gate) = gate();
    let cases = [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
    ];
    for (signal, name) in cases {
        let resource = format!("r/{name}");
        let script = format!(
            "trap 'echo got {name}; exit 9' {name}; echo up=1; while :; do sleep 0.05; done"
        );
        let trapped = gate.spawn(&["run", &resource, "--", "sh", "-c", &script], |_| {});
        number(&trapped, "up");
        trapped.signal(signal);
        trapped.wait_line("got", |line| line == format!("got {name}"));
        assert_eq!(trapped.wait_exit(DEADLINE).code(), Some(9), "{name}");
        let script = "echo up=$$; exec sleep 600";
        let plain = gate.spawn(&["run", &resource, "--", "sh", "-c", script], |_| {});
        let pid = number(&plain, "up");
        plain.signal(signal);
        assert_eq!(plain.wait_exit(DEADLINE).code(), Some(128 + signal as i32), "{name}");
        assert!(!exists(pid), "{name}");
    }
}

#[test]
fn a_signal_before_the_command_starts_ends_the_wait() {
    let (_store, gate) = gate();
    let link = Link::start(gate.admin_address());
    link.set(Mode::Silent);
    let args = ["run", "wal/main", "--proxy", &gate.url(), "--server", &link.url()];
    let waiting = gate.spawn(&[&args[..], &["--", "touch", "started"]].concat(), |_| {});
    wait_for("an acquire", DEADLINE, || link.silenced() == 1);
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.wait_exit(DEADLINE).code(), Some(143));
    assert!(!gate.dir().join("started").exists());
}

#[test]
fn the_lease_is_given_back_only_when_nothing_of_the_group_is_left() {
    let (_store, gate) = gate();
    // In the background, deaf to SIGTERM: ended by SIGKILL seconds after the command itself.
    let leaves = "(trap '' TERM; echo left=$(exec sh -c 'echo $PPID'); while :; do sleep 0.1; done) & sleep 0.3";
    let first = gate.spawn(&["run", "wal/main", "--", "sh", "-c", leaves], |_| {});
    let left = number(&first, "left");
    let script = format!("if kill -0 {left} 2>/dev/null; then echo overlap; else echo alone; fi");
    let second =
        gate.spawn(&["run", "wal/main", "--wait", "60s", "--", "sh", "-c", &script], |_| {});
    second.wait_line("a verdict", |line| line == "alone");
    assert_eq!(first.wait_exit(DEADLINE).code(), Some(0));
    assert!(
        first.lines().iter().any(|line| line.contains("has ended and left")),
        "{}",
        first.tail()
    );
}

#[test]
fn the_barrier_comes_before_the_command() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    store.next("/wal/slow", crate::support::raw_store::script::late());
    let mut writer = crate::support::raw_client::RawClient::connect(gate.address());
    let header = format!("Fencing-Token: {token}");
    writer.send(&crate::support::raw_client::request(
        "PUT",
        "/wal/slow",
        "localhost",
        &[&header],
        b"old",
    ));
    store.wait_complete("/wal/slow");
    gate.release("wal/main", token);
    let next = gate.spawn(&["run", "wal/main", "--", "sh", "-c", "echo started=1"], |_| {});
    wait_for("the barrier waits", DEADLINE, || {
        gate.get("/v1/fence?resource=wal/main").text().contains(r#""waiting":1"#)
    });
    assert!(next.lines().is_empty(), "{:?}", next.lines());
    store.release("/wal/slow");
    assert_eq!(writer.answer().status, 200);
    number(&next, "started");
    assert!(store.object("/wal/slow").is_some());
    assert!(next.wait_exit(DEADLINE).success());
}

#[test]
fn what_was_ignored_from_the_start_stays_ignored() {
    let (_store, gate) = gate();
    // As `nohup` does it.
    let script = "trap 'echo asked; exit 9' USR1; echo up=1; while :; do sleep 0.05; done";
    let run = format!("trap '' HUP; exec {} run r -- sh -c \"$0\"", program());
    let process = Process::start("nohup", "sh", &["-c", &run, script], |command| {
        command.env("FENCEGATE_SERVER", gate.admin());
    });
    number(&process, "up");
    process.signal(Signal::SIGHUP);
    process.signal(Signal::SIGUSR1);
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(9), "{}", process.tail());
}

#[test]
fn at_a_terminal_the_command_has_the_foreground_and_the_shell_gets_it_back() {
    let (_store, gate) = gate();
    let inner = "read -r x </dev/tty; echo command-$x";
    let shell =
        format!("{} run r -- sh -c '{inner}'; read -r y </dev/tty; echo shell-$y", program());
    let mut script = gate.cli_command(&[]);
    let mut terminal = Command::new("timeout");
    terminal.args(["60", "script", "-qec", &shell, "/dev/null"]).env("SHELL", "/bin/sh");
    terminal.envs(script.current_dir(gate.dir()).get_envs().filter_map(|(k, v)| Some((k, v?))));
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("command-one") && said.contains("shell-two"), "{said}");
}

#[test]
fn an_acquire_whose_answer_is_lost_gets_the_same_grant_again() {
    let (_store, gate) = gate();
    let link = Link::start(gate.admin_address());
    link.set(Mode::LoseOne);
    let args = ["run", "wal/main", "--proxy", &gate.url(), "--server", &link.url()];
    let output = gate.cli(&[&args[..], &["--", "sh", "-c", "echo $FENCING_TOKEN"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let token = format!("token={}", text(&output.stdout).trim());
    let log = gate.log();
    let acquired: Vec<_> = log.iter().filter(|line| line.contains("lease.acquire")).collect();
    assert!(
        acquired.len() >= 2 && acquired.iter().all(|line| line.contains(&token)),
        "{acquired:#?}"
    );
    // Its age was not known, so it was renewed before anything else.
    assert_eq!(link.renewed().len(), 1);
}

#[test]
fn a_server_that_comes_back_in_time_costs_nothing() {
    let store = RawStore::start();
    let mut gate = Gate::builder(&store.url()).start();
    let script = "echo up=1; while [ ! -e enough ]; do sleep 0.05; done; curl -sf -X PUT --data-binary x $FENCEGATE_PROXY/wal/x";
    let args = ["run", "wal/main", "--ttl", "10s", "--", "sh", "-c", script];
    let process = gate.spawn(&args, |_| {});
    number(&process, "up");
    gate.restart();
    gate.wait_log(&["lease.renew", "wal/main"]);
    std::fs::write(gate.dir().join("enough"), "").unwrap();
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(0), "{}", process.tail());
    assert_eq!(store.object("/wal/x").as_deref(), Some(&b"x"[..]));
}
