//! How the program ends: one documented code for each way.

use std::process::ExitCode;

/// The exit codes of every command but `run` and `with`, which return their child's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what was asked.
    Done = 0,
    /// The answer is no: refused, held by another, or lost.
    Refused = 1,
    /// The command line or a value on it is wrong.
    Usage = 2,
    /// The server or the lease backend gave no answer.
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
