//! `fencegate hold`: keeps a lease for a term, and its token in a file.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nix::sys::signal::Signal;

use super::client::{Client, ClientError, ServerArgs};
use super::exit::Exit;
use super::notify::notify;
use super::signals::Signals;
use super::term::{Term, TermArgs, say};
use crate::core::keeper::{Lost, Why};

/// Hold a lease for a whole term and keep its token in a file, for `fencegate with`.
///
/// Acquires, waits until every older write has settled, writes the token file, and renews every third of the
/// TTL. When the lease is lost: empties the file, runs --on-lost, exits with 1. SIGTERM and the like end the term
/// in order: the file is emptied and the lease given back. Tells systemd (Type=notify) when it holds.
#[derive(Args, Debug)]
pub struct Hold {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    term: TermArgs,
    /// Where the token goes: replaced as a whole, readable by its owner alone, empty without a lease.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Run by `sh -c` when the lease is lost, with FENCING_RESOURCE and FENCING_TOKEN set.
    #[arg(long, value_name = "CMD")]
    on_lost: Option<String>,
    /// Do not wait for older writes: they may still land after the file is written.
    #[arg(long)]
    no_barrier: bool,
}

/// How a term ended.
enum Ended {
    Lost(Lost),
    Signalled(Signal),
}

// === impl Hold ===

impl Hold {
    /// Runs the command.
    pub fn run(self) -> Exit {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                say(&format!("no runtime: {error}; check the limit of open files"));
                return Exit::Unreachable;
            }
        };
        runtime.block_on(self.execute()).unwrap_or_else(|error| error.report())
    }

    async fn execute(self) -> Result<Exit, ClientError> {
        let mut signals = Signals::new().map_err(|cause| self.fault("catching signals", cause))?;
        // What an earlier term left must not be taken for this one's.
        self.write("")?;
        let client = Client::new(&self.server)?;
        let resource = self.term.resource.clone();
        let term = tokio::select! {
            term = self.term.clone().acquire(client) => term?,
            signal = terminating(&mut signals) => return Ok(stopped(signal)),
        };
        let ended = tokio::select! {
            held = self.hold(&term) => match held {
                Ok(never) => match never {},
                Err(error) => {
                    let _ = self.write("");
                    term.release().await;
                    return Err(error);
                }
            },
            lost = term.lost() => Ended::Lost(lost),
            signal = terminating(&mut signals) => Ended::Signalled(signal),
        };
        notify("STOPPING=1");
        // First of all, whatever happens next.
        let emptied = self.write("");
        match ended {
            Ended::Signalled(signal) => {
                term.release().await;
                emptied.map(|()| stopped(signal))
            }
            Ended::Lost(lost) => {
                let why = match lost.why {
                    Why::Refused => "the server refused to renew it",
                    Why::Unrenewed => "it could not be renewed in time",
                };
                say(&format!("lease lost on {resource}: {why}"));
                self.run_on_lost(&resource, &term);
                emptied.map(|()| Exit::Refused)
            }
        }
    }

    /// Waits for older writes, writes the file, and holds on.
    async fn hold(&self, term: &Term) -> Result<std::convert::Infallible, ClientError> {
        if !self.no_barrier {
            term.barrier().await?;
        }
        self.write(&format!("{}\n", term.token))?;
        say(&format!("holding {} with token {}", self.term.resource, term.token));
        notify(&format!("READY=1\nSTATUS=holding {}", self.term.resource));
        std::future::pending().await
    }

    fn run_on_lost(&self, resource: &str, term: &Term) {
        let Some(command) = &self.on_lost else { return };
        let status = Command::new("sh")
            .args(["-c", command])
            .env("FENCING_RESOURCE", resource)
            .env("FENCING_TOKEN", term.token.to_string())
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => say(&format!("--on-lost ended with {status}")),
            Err(error) => say(&format!("--on-lost cannot be run: {error}")),
        }
    }

    /// Replaces the token file as a whole: no reader ever sees half a token.
    fn write(&self, text: &str) -> Result<(), ClientError> {
        replace(&self.token_file, text).map_err(|cause| self.fault("writing the token", cause))
    }

    fn fault(&self, what: &'static str, cause: io::Error) -> ClientError {
        ClientError::File { what, path: self.token_file.clone(), cause }
    }
}

/// USR1 and USR2 mean nothing here and must not end a term.
async fn terminating(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            Signal::SIGUSR1 | Signal::SIGUSR2 => {}
            signal => return signal,
        }
    }
}

fn stopped(signal: Signal) -> Exit {
    say(&format!("ended by {signal}"));
    Exit::Done
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    let written = (|| {
        // A stale one of a process with our number.
        let _ = std::fs::remove_file(&new);
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
