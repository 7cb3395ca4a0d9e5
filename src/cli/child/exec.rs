//! `fencegate __exec`: the last step between the guard and the command.
//!
//! It runs in the command's own process, where it may set what a process can set for itself only, and then
//! becomes the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

use super::take_terminal;

/// The command was found and cannot be run.
const CANNOT_RUN: u8 = 126;

/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Become a command that dies with its parent.
#[derive(Args, Debug)]
pub struct Exec {
    /// The parent.
    #[arg(long)]
    parent: i32,
    /// Take the terminal first.
    #[arg(long)]
    terminal: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

// === impl Exec ===

impl Exec {
    /// Runs the command; returns only if that fails.
    pub fn run(self) -> ExitCode {
        // Kept across execve, except of a program that changes its user.
        if let Err(error) = prctl::set_pdeathsig(Signal::SIGKILL) {
            eprintln!("fencegate: the command cannot be tied to its guard: {error}");
            return ExitCode::from(CANNOT_RUN);
        }
        // The parent may have died just before that.
        if getppid() != Pid::from_raw(self.parent) {
            return ExitCode::from(CANNOT_RUN);
        }
        if self.terminal {
            take_terminal(getpid());
        }
        let (program, args) = self.command.split_first().expect("clap requires one word");
        let error = Command::new(program).args(args).exec();
        let not_found = error.kind() == io::ErrorKind::NotFound;
        eprintln!("fencegate: {} cannot be run: {error}", program.display());
        ExitCode::from(if not_found { NOT_FOUND } else { CANNOT_RUN })
    }
}
