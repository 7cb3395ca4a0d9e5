//! `fencegate with`: one command under a token that somebody else keeps.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::carry::CarryArgs;
use super::child::{Child, Report};
use super::client::{Client, ClientError, ServerArgs};
use super::lease::token_from;
use super::run::{FAILED, LOST};
use super::signals::Signals;
use super::term::say;
use crate::core::{Millis, Token};
use crate::telemetry::log::chain;

/// Run one command under an existing token: no acquire, no renewal, no release.
///
/// For commands that somebody starts again and again within one term, such as PostgreSQL's archive_command;
/// `fencegate hold` keeps the lease and the token file. The command's status is passed on. Own exit codes:
/// 124 the token file is empty or missing (the lease is lost), 125 fencegate failed, 126 or 127 the command
/// cannot be run.
#[derive(Args, Debug)]
pub struct With {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    carry: CarryArgs,
    /// File with the token, as `fencegate hold` writes it (default: the variable FENCING_TOKEN).
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The token itself.
    #[arg(long, value_name = "N")]
    token: Option<Token>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

// === impl With ===

impl With {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let code = match runtime {
            Ok(runtime) => runtime.block_on(self.execute()),
            Err(error) => Err(failed(&error)),
        };
        ExitCode::from(code.unwrap_or_else(|code| code))
    }

    async fn execute(self) -> Result<u8, u8> {
        let mut signals = Signals::new().map_err(|error| failed(&error))?;
        let token = self.token().map_err(|error| lost_or_failed(&error))?;
        let client = Client::new(&self.server).map_err(|error| failed(&error))?;
        let ready = tokio::select! {
            ready = self.carry.ready(&client) => ready.map_err(|error| failed(&error))?,
            signal = signals.next() => return Err(128 + signal as u8),
        };
        let (_, env) = ready.start(token, None, Millis::NEVER).map_err(|error| failed(&error))?;
        let mut child =
            Child::start(&self.command, &env, Millis::NEVER).map_err(|error| failed(&error))?;
        let mut status = None;
        loop {
            tokio::select! {
                report = child.next() => match (report, status) {
                    (Report::Exited(code), _) => status = Some(code),
                    (Report::Overdue, _) => {}
                    (_, Some(status)) => return Ok(status),
                    (_, None) => {
                        say("the command's guard was killed, and the command with it");
                        return Err(FAILED);
                    }
                },
                signal = signals.next() => child.signal(signal),
            }
        }
    }

    fn token(&self) -> Result<Token, ClientError> {
        token_from(self.token, self.token_file.as_deref())
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> u8 {
    say(&chain(error));
    FAILED
}

/// An empty file is what `hold` leaves when it has lost the lease; a missing one, what is there before its
/// first term.
fn lost_or_failed(error: &ClientError) -> u8 {
    match error {
        ClientError::Refused { .. } => {
            say(&chain(error));
            LOST
        }
        ClientError::File { path, cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
            say(&format!(
                "{} is missing: no lease is held here; does `fencegate hold` run?",
                path.display()
            ));
            LOST
        }
        error => failed(error),
    }
}
