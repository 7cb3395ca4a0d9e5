//! `fencegate __guard`: the command's parent, which leaves nothing of it behind.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, close, getpgid, getppid, tcgetpgrp};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::tree::{self, Reaped};
use super::{NAME, SELF};
use crate::cli::signals::{FORWARDED, is_ignored};
use crate::core::Millis;
use crate::store::clock::{Clock, SystemClock};

/// What the command leaves behind when it ends has this long after SIGTERM.
const LEFT_BEHIND: Duration = Duration::from_secs(5);

/// Longest time without reading the clock: timers stand still while the machine sleeps.
const LOOK: Duration = Duration::from_millis(250);

/// Run a command and leave nothing of it behind.
#[derive(Args, Debug)]
pub struct Guard {
    /// Descriptor of the pipe that orders come from.
    #[arg(long)]
    control: i32,
    /// Descriptor of the pipe that reports go to.
    #[arg(long)]
    reports: i32,
    /// CLOCK_BOOTTIME in milliseconds by which nothing may be left.
    #[arg(long)]
    gone_by: u64,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The command's life, as its parent knows it.
struct Watch {
    child: Pid,
    exited: bool,
    overdue: bool,
    gone_by: Millis,
    reports: File,
}

// === impl Guard ===

impl Guard {
    /// Runs the command to the end of everything it starts.
    pub fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime.and_then(|runtime| runtime.block_on(self.guard())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("fencegate: the guard failed: {error}");
                ExitCode::from(super::super::run::FAILED)
            }
        }
    }

    async fn guard(self) -> io::Result<()> {
        // Opened anew, as ours alone; then the inherited ones are closed, so that the command does not get them.
        let control =
            pipe::OpenOptions::new().open_receiver(format!("/proc/self/fd/{}", self.control))?;
        let reports =
            OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", self.reports))?;
        close(self.control)?;
        close(self.reports)?;
        prctl::set_child_subreaper(true)?;
        // What ends others is not for us: we end with the command, or with what runs us. A handler is not
        // inherited; what is ignored stays ignored for the command, too.
        let mut caught = Vec::new();
        for number in FORWARDED {
            if !is_ignored(number) {
                caught.push(signal(SignalKind::from_raw(number as i32))?);
            }
        }
        let mut ended = signal(SignalKind::child())?;
        let mut orders = BufReader::new(control).lines();
        let mut watch = Watch {
            child: self.spawn()?,
            exited: false,
            overdue: false,
            gone_by: Millis(self.gone_by),
            reports,
        };
        loop {
            if watch.reap() {
                return Ok(());
            }
            let nap = watch.look();
            tokio::select! {
                order = orders.next_line() => match order {
                    Ok(Some(order)) => watch.obey(&order),
                    // Whoever ran us is gone.
                    Ok(None) | Err(_) => {
                        watch.gone_by = Millis(0);
                        orders = BufReader::new(silent()?).lines();
                    }
                },
                _ = ended.recv() => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    fn spawn(&self) -> io::Result<Pid> {
        let group_of_parent = getpgid(Some(getppid())).ok();
        let foreground = tcgetpgrp(io::stdin()).ok();
        let mut command = Command::new(SELF);
        command.arg0(NAME).args(["__exec", "--parent", &Pid::this().to_string()]);
        if foreground.is_some() && foreground == group_of_parent {
            command.arg("--terminal");
        }
        let child = command.arg("--").args(&self.command).process_group(0).spawn()?;
        Ok(Pid::from_raw(child.id().try_into().expect("a process id fits")))
    }
}

/// A pipe on which nothing ever comes.
fn silent() -> io::Result<pipe::Receiver> {
    let (sender, receiver) = pipe::pipe()?;
    // Its other end has to stay open.
    std::mem::forget(sender);
    Ok(receiver)
}

// === impl Watch ===

impl Watch {
    fn obey(&mut self, order: &str) {
        match order.split_once(' ') {
            Some(("until", at)) => {
                let at = at.parse().map(Millis).unwrap_or(Millis(0));
                // What the command left behind has its own deadline, which no renewal moves.
                self.gone_by = if self.exited { self.gone_by.min(at) } else { at };
            }
            Some(("signal", number)) if !self.exited => {
                let signal = number.parse().ok().and_then(|number: i32| number.try_into().ok());
                if let Some(signal) = signal {
                    // Not waited for, so the number is still its own.
                    let _ = killpg(self.child, Option::<Signal>::Some(signal));
                }
            }
            _ if order == "end" => {
                self.end();
            }
            _ => {}
        }
    }

    /// Tells everything to end. What is stopped is woken: it could not hear it.
    fn end(&self) -> usize {
        let mut told = 0;
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            let group = (!self.exited).then_some(self.child);
            if let Some(group) = group {
                let _ = killpg(group, signal);
            }
            told = tree::signal_below(Pid::this(), signal, group);
        }
        told
    }

    /// Takes what has ended. `true` once nothing is left.
    fn reap(&mut self) -> bool {
        loop {
            match tree::reap() {
                Reaped::Exited(pid, code) if pid == self.child => {
                    self.report(&format!("exited {code}\n"));
                    self.exited = true;
                    self.gone_by = self.gone_by.min(SystemClock.boottime() + LEFT_BEHIND);
                    let left = self.end();
                    if left > 0 {
                        eprintln!(
                            "fencegate: the command has ended and left {left} process(es); ending them"
                        );
                    }
                }
                Reaped::Exited(..) => {}
                Reaped::None => return false,
                Reaped::NoneLeft => {
                    self.report("gone\n");
                    return true;
                }
            }
        }
    }

    /// Kills what is overdue; how long to wait before the next look.
    fn look(&mut self) -> Duration {
        let now = SystemClock.boottime();
        if now < self.gone_by {
            return now.until(self.gone_by).min(LOOK);
        }
        if !self.exited && !self.overdue {
            self.overdue = true;
            // Before it shows in a status.
            self.report("overdue\n");
        }
        tree::kill_below(Pid::this());
        tree::AGAIN
    }

    fn report(&mut self, line: &str) {
        // Without a reader there is nobody to tell.
        let _ = self.reports.write_all(line.as_bytes());
    }
}
