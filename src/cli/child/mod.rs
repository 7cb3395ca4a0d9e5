//! A command that does not outlive this program, whatever way that ends.
//!
//! ```text
//! fencegate run ──control──▶ fencegate __guard ──▶ the command and everything it starts
//!               ◀─reports───
//! ```
//!
//! The guard is the command's parent, in a process group of its own. It kills everything below it when the
//! control pipe closes, which is what happens when this program dies, and when the deadline passes that it
//! was last told, which is what happens when this program is stopped. See
//! `docs/decisions/0003-guard-process.md`.

mod exec;
mod guard;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, pipe2, tcgetpgrp, tcsetpgrp};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

pub use exec::Exec;
pub use guard::Guard;

use crate::core::Millis;
use tree::Reaped;

/// This very program, also if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// As which `ps` shows it.
const NAME: &str = "fencegate";

/// A running command behind its guard.
pub struct Child {
    control: File,
    reports: Lines<BufReader<pipe::Receiver>>,
    /// Our process group, if it had the terminal.
    terminal: Option<Pid>,
    gone: bool,
}

/// What becomes of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It ended, with this code: its own, or 128 and the signal. What it started may still run.
    Exited(u8),
    /// The guard is killing it: its deadline has passed.
    Overdue,
    /// Nothing that it started is left.
    Gone,
    /// The guard was killed; everything below it was killed, too, and nothing is left.
    Unguarded,
}

// === impl Child ===

impl Child {
    /// Starts `command` with these variables added to the environment.
    ///
    /// * `gone_by` — CLOCK_BOOTTIME; without another word by then, everything is killed.
    ///
    /// # Errors
    /// If the guard cannot be started. A command that cannot be run is no error here: it exits with 126 or 127,
    /// as from a shell.
    pub fn start(
        command: &[OsString],
        env: &[(OsString, OsString)],
        gone_by: Millis,
    ) -> io::Result<Child> {
        // Should the guard be killed, what it watched over becomes our child, not init's.
        prctl::set_child_subreaper(true)?;
        // Inherited by the guard, which closes them before it starts anything.
        let (their_control, control) = pipe2(OFlag::empty())?;
        let (reports, their_reports) = pipe2(OFlag::empty())?;
        keep_to_ourselves(&control)?;
        keep_to_ourselves(&reports)?;
        fcntl(&control, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let terminal = tcgetpgrp(io::stdin()).ok().filter(|group| *group == nix::unistd::getpgrp());
        Command::new(SELF)
            .arg0(NAME)
            .args(["__guard", "--control", &their_control.as_raw_fd().to_string()])
            .args(["--reports", &their_reports.as_raw_fd().to_string()])
            .args(["--gone-by", &gone_by.0.to_string(), "--"])
            .args(command)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .spawn()?;
        Ok(Child {
            control: File::from(control),
            reports: BufReader::new(pipe::Receiver::from_owned_fd(reports)?).lines(),
            terminal,
            gone: false,
        })
    }

    /// Moves the deadline.
    pub fn gone_by(&self, at: Millis) {
        self.tell(&format!("until {}\n", at.0));
    }

    /// Sends a signal to the command's process group.
    pub fn signal(&self, signal: Signal) {
        self.tell(&format!("signal {}\n", signal as i32));
    }

    /// Tells everything that the command started to end (SIGTERM).
    pub fn end(&self) {
        self.tell("end\n");
    }

    /// What comes next.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Report {
        loop {
            match self.reports.next_line().await {
                Ok(Some(line)) => match line.split_once(' ') {
                    Some(("exited", code)) => return Report::Exited(code.parse().unwrap_or(255)),
                    _ if line == "overdue" => return Report::Overdue,
                    _ if line == "gone" => {
                        self.gone = true;
                        return Report::Gone;
                    }
                    _ => {}
                },
                Ok(None) | Err(_) => {
                    self.kill_all().await;
                    self.gone = true;
                    return Report::Unguarded;
                }
            }
        }
    }

    /// Kills the guard with everything below it; for a guard that was stopped itself.
    ///
    /// # Cancel safety
    /// Cancel safe; to be called again.
    pub async fn kill_all(&self) {
        loop {
            tree::kill_below(Pid::this());
            match tree::reap() {
                Reaped::NoneLeft => return,
                Reaped::Exited(..) => {}
                Reaped::None => tokio::time::sleep(tree::AGAIN).await,
            }
        }
    }

    fn tell(&self, line: &str) {
        // Never blocks: a guard that is stopped must not stop us. Short and rare, so the pipe is never full but
        // then; and a guard that is gone needs no telling.
        let _ = (&self.control).write_all(line.as_bytes());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(group) = self.terminal.take().filter(|_| self.gone) {
            take_terminal(group);
        }
    }
}

fn keep_to_ourselves(end: &OwnedFd) -> nix::Result<()> {
    fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map(drop)
}

/// Makes a process group the terminal's foreground: what reads from a terminal must be in it.
fn take_terminal(group: Pid) {
    // Whoever asks from the background is stopped by SIGTTOU unless it blocks that.
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(Signal::SIGTTOU);
    if set.thread_block().is_ok() {
        let _ = tcsetpgrp(io::stdin(), group);
        let _ = set.thread_unblock();
    }
}
