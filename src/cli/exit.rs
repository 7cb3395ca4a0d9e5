//! How the program ends.

use std::process::ExitCode;

/// The exit codes of every command that runs no other program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done as asked.
    Done = 0,
    /// Refused by the server, or lost: the lease is not ours.
    Refused = 1,
    /// A fault in the command line or in the configuration.
    Usage = 2,
    /// The server or the lease backend did not answer.
    Unreachable = 3,
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
