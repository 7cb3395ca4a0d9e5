//! `fencegate run`: one command, one term.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;

use super::carry::{CarryArgs, Ready};
use super::child::{Child, Report};
use super::client::{Client, ClientError, ServerArgs};
use super::signals::Signals;
use super::term::{Term, TermArgs, say};
use crate::core::Resource;
use crate::core::keeper::{Lost, Why};
use crate::lease::keeper::Holding;
use crate::serve::sidecar::Until;
use crate::store::clock::{Clock, SystemClock};
use crate::telemetry::log::chain;

/// The lease was not acquired: another holder has it, or the server refused.
pub(super) const NOT_ACQUIRED: u8 = 123;

/// The lease was lost.
pub(super) const LOST: u8 = 124;

/// fencegate itself failed, or was called wrongly.
pub(super) const FAILED: u8 = 125;

/// A guard that has not reported by then is taken to be stopped. If it was only late, nothing is lost: what is
/// killed then had to be gone already.
const GUARD_LATE: Duration = Duration::from_millis(50);

/// Run a command under a lease: acquire, wait for older writes, run, renew, give back.
///
/// The command's whole process group is ended before the lease can be granted again, and nothing of it
/// survives fencegate. Its status is passed on. Own exit codes: 123 not acquired, 124 lease lost,
/// 125 fencegate failed, 126 or 127 the command cannot be run.
#[derive(Args, Debug)]
pub struct Run {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    term: TermArgs,
    #[command(flatten)]
    carry: CarryArgs,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// How a run ended before its command did.
enum Ended {
    /// A signal came before the command was started.
    Signalled(Signal),
    /// This went wrong.
    Failed(u8),
}

/// A command that runs under a lease, and what is told when the lease moves.
struct Running {
    child: Child,
    sidecar: Arc<Until>,
    lost: Option<Lost>,
    status: Option<u8>,
}

// === impl Run ===

impl Run {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                say(&format!("no runtime: {error}; check the limit of open files"));
                return ExitCode::from(FAILED);
            }
        };
        let code = match runtime.block_on(self.execute()) {
            Ok(code) | Err(Ended::Failed(code)) => code,
            Err(Ended::Signalled(signal)) => 128 + signal as u8,
        };
        ExitCode::from(code)
    }

    async fn execute(self) -> Result<u8, Ended> {
        let mut signals = Signals::new().map_err(failed)?;
        let resource = Resource::new(self.term.resource.as_str()).map_err(failed)?;
        let client = Client::new(&self.server).map_err(|error| refused(&error))?;
        let acquire = async {
            let ready = self.carry.ready(&client).await?;
            Ok((ready, self.term.acquire(client.clone()).await?))
        };
        let (ready, term) = tokio::select! {
            acquired = acquire => acquired.map_err(|error| refused(&error))?,
            signal = signals.next() => return Err(Ended::Signalled(signal)),
        };
        let started = tokio::select! {
            passed = term.barrier() => match passed {
                Ok(()) => start(ready, &term, &resource, &self.command),
                Err(error) => Err(refused(&error)),
            },
            lost = term.lost() => {
                say_lost(&resource, lost);
                return Err(Ended::Failed(LOST));
            }
            signal = signals.next() => Err(Ended::Signalled(signal)),
        };
        let (ended, lost) = match started {
            Ok(mut running) => {
                let code = running.watch(&term, &resource, &mut signals).await;
                (Ok(code), running.lost.is_some())
            }
            Err(ended) => (Err(ended), false),
        };
        // Only now: of the command nothing is left, or it was never started.
        if !lost {
            term.release().await;
        }
        ended
    }
}

fn start(
    ready: Ready,
    term: &Term,
    resource: &Resource,
    command: &[OsString],
) -> Result<Running, Ended> {
    let Holding::Held(deadlines) = *term.holding.borrow() else {
        return Err(Ended::Failed(LOST));
    };
    let (sidecar, env) =
        ready.start(term.token, Some(resource), deadlines.stop_at).map_err(failed)?;
    let child = Child::start(command, &env, deadlines.gone_by).map_err(failed)?;
    Ok(Running { child, sidecar, lost: None, status: None })
}

fn failed(error: impl std::error::Error) -> Ended {
    say(&chain(&error));
    Ended::Failed(FAILED)
}

/// What the server said no to was not acquired; everything else is a failure.
fn refused(error: &ClientError) -> Ended {
    error.report();
    Ended::Failed(match error {
        ClientError::Refused { status, .. } if status.is_client_error() && *status != 400 => {
            NOT_ACQUIRED
        }
        _ => FAILED,
    })
}

fn say_lost(resource: &Resource, lost: Lost) {
    let why = match lost.why {
        Why::Refused => "the server refused to renew it",
        Why::Unrenewed => "it could not be renewed in time",
    };
    say(&format!("lease lost on {resource}: {why}; ending the command"));
}

// === impl Running ===

impl Running {
    /// Watches over the command until nothing of it is left; the code to exit with.
    async fn watch(&mut self, term: &Term, resource: &Resource, signals: &mut Signals) -> u8 {
        let mut holding = term.holding.clone();
        holding.mark_changed();
        loop {
            let late =
                self.lost.map(|lost| SystemClock.boottime().until(lost.gone_by + GUARD_LATE));
            tokio::select! {
                report = self.child.next() => match report {
                    Report::Exited(code) => {
                        // Of a command that was told to end its status says nothing.
                        self.status = self.status.or(Some(code).filter(|_| self.lost.is_none()));
                    }
                    // We were stopped, and have not heard of it yet.
                    Report::Overdue if self.lost.is_none() => {
                        let gone_by = SystemClock.boottime();
                        self.lose(resource, Lost { why: Why::Unrenewed, gone_by });
                    }
                    Report::Overdue => {}
                    Report::Gone => break,
                    Report::Unguarded => {
                        if self.lost.is_none() && self.status.is_none() {
                            say("the command's guard was killed, and the command with it");
                            return FAILED;
                        }
                        break;
                    }
                },
                Ok(()) = holding.changed() => match *holding.borrow_and_update() {
                    Holding::Held(deadlines) => {
                        self.sidecar.set(deadlines.stop_at);
                        self.child.gone_by(deadlines.gone_by);
                    }
                    Holding::Lost(lost) if self.lost.is_none() => self.lose(resource, lost),
                    Holding::Lost(_) => {}
                },
                signal = signals.next() => self.child.signal(signal),
                () = sleep_for(late) => self.child.kill_all().await,
            }
        }
        self.status.unwrap_or(LOST)
    }

    fn lose(&mut self, resource: &Resource, lost: Lost) {
        self.lost = Some(lost);
        self.sidecar.set(crate::core::Millis(0));
        if self.status.is_none() {
            say_lost(resource, lost);
        }
        self.child.gone_by(lost.gone_by);
        self.child.end();
    }
}

async fn sleep_for(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
