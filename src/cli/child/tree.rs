//! Everything below one process, also what left its process group or was orphaned.
//!
//! A subreaper gets the orphans of all its descendants as children. So what was once started below it stays
//! below it, and once it has no child left, nothing of it is left.

use std::collections::HashMap;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Between two rounds of killing: what forked meanwhile is found in the next one.
pub(super) const AGAIN: Duration = Duration::from_millis(20);

/// What one look at the children came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaped {
    /// This one ended, with this code.
    Exited(Pid, u8),
    /// None has ended since; some are left.
    None,
    /// There are no children.
    NoneLeft,
}

/// One line of /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: Pid,
    parent: Pid,
    group: Pid,
    zombie: bool,
}

/// Takes the status of one child that has ended.
pub(super) fn reap() -> Reaped {
    loop {
        return match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => Reaped::Exited(pid, code as u8),
            // A shell's way to tell that a signal ended it.
            Ok(WaitStatus::Signaled(pid, signal, _)) => Reaped::Exited(pid, 128 + signal as u8),
            Ok(_) => Reaped::None,
            Err(Errno::EINTR) => continue,
            Err(_) => Reaped::NoneLeft,
        };
    }
}

/// Kills everything below `root`, once; to be repeated until nothing is left.
pub(super) fn kill_below(root: Pid) {
    signal_below(root, Signal::SIGKILL, None);
}

/// Signals everything below `root` that is not in the process group `but`. Returns how many there were.
pub(super) fn signal_below(root: Pid, signal: Signal, but: Option<Pid>) -> usize {
    let found = below(root, &processes());
    let found: Vec<_> = found.iter().filter(|process| Some(process.group) != but).collect();
    for process in &found {
        // Its parent, which is us or below us, has not waited for it: the number is not another's yet, or
        // it has just ended, and then the parent is below us still.
        let _ = kill(process.pid, signal);
    }
    found.len()
}

fn below(root: Pid, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = Vec::new();
    let mut left = vec![root];
    while let Some(parent) = left.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            left.push(process.pid);
            if !process.zombie {
                found.push(process);
            }
        }
    }
    found
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| parse(&std::fs::read(entry.path().join("stat")).ok()?))
        .collect()
}

/// Reads /proc/PID/stat: `pid (name) state ppid pgrp …`. The name may contain anything.
///
/// # Reference
/// proc(5).
fn parse(stat: &[u8]) -> Option<Process> {
    let stat = String::from_utf8_lossy(stat);
    let (pid, rest) = stat.split_once(' ')?;
    let mut rest = rest[rest.rfind(')')? + 1..].split_ascii_whitespace();
    let state = rest.next()?;
    let mut number = || rest.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group) = (number()?, number()?);
    let pid = Pid::from_raw(pid.parse().ok()?);
    Some(Process { pid, parent, group, zombie: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        let [pid, parent] = [pid, parent].map(Pid::from_raw);
        Process { pid, parent, group: pid, zombie: false }
    }

    #[test]
    fn a_process_may_call_itself_anything() {
        let cases: [(&[u8], Option<Process>); 4] = [
            (b"12 (sh) S 7 12 12 0 -1", Some(process(12, 7))),
            (b"12 (a) R 1 1) S 7 12 12", Some(process(12, 7))),
            (b"12 (sh) Z 7 12", Some(Process { zombie: true, ..process(12, 7) })),
            (b"12 (sh", None),
        ];
        for (stat, want) in cases {
            assert_eq!(parse(stat), want, "{}", String::from_utf8_lossy(stat));
        }
    }

    #[test]
    fn everything_below_is_found_and_nothing_else() {
        let all = [(1, 0), (5, 1), (6, 5), (7, 6), (8, 1), (9, 7)].map(|(a, b)| process(a, b));
        let mut found: Vec<_> =
            below(Pid::from_raw(5), &all).iter().map(|process| process.pid.as_raw()).collect();
        found.sort_unstable();
        assert_eq!(found, [6, 7, 9]);
    }

    #[test]
    fn this_process_is_below_its_parent() {
        let found = below(nix::unistd::getppid(), &processes());
        assert!(found.iter().any(|process| process.pid == Pid::this()));
    }
}
