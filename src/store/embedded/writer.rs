//! The one thread that changes the file: takes all that has arrived, commits once, publishes, answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Opened;
use super::batch::{Batch, Lazy};
use super::error::StoreError;
use super::identity::{Seen, Witness};
use super::rows::{Permit, Rows};
use crate::core::gate::PermitId;
use crate::core::lease::Record;
use crate::core::{Holder, Millis, Resource, Token};
use crate::store::clock::Clock;
use crate::telemetry::log::chain;

/// Most commands in one commit: bounds how long the first one waits for the last.
const BATCH: usize = 4_096;
/// Longest sleep while a lease runs. The kernel's timers stand still during a suspend that
/// CLOCK_BOOTTIME counts, so a long sleep could oversleep an expiry by as much.
const NAP: Duration = Duration::from_secs(1);
/// How long a change that nobody waits for may stay in memory only.
const LAZY: Duration = Duration::from_millis(200);

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;
pub(super) type Observers = Arc<Mutex<Vec<Arc<dyn Observer>>>>;

/// What happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// Granted to a new holder.
    Granted,
    /// Its holder gave it back.
    Released,
    /// It ran out.
    Expired,
    /// An operator ended it.
    Revoked,
}

/// Is told of every change of a lease, in order, after it is durable and can be read.
pub trait Observer: Send + Sync + 'static {
    /// Called from the writer's thread: must not block, nor call the store and wait.
    fn changed(&self, change: LeaseChange, resource: &Resource, holder: &Holder);
}

/// What an acquire asks for.
pub(crate) struct Want {
    pub name: Resource,
    pub holder: Holder,
    pub ttl_ms: u32,
    pub request_id: Option<Box<str>>,
}

/// What an acquire came to.
pub(crate) enum Acquired {
    /// Granted.
    Granted(Claim),
    /// Granted to this very ask before; the record and the time.
    Replayed(Record, Millis),
    /// Somebody has it; the record and the time.
    Held(Record, Millis),
    /// No token is left.
    Exhausted,
}

/// A grant on its way to whoever asked. Dropped on the way, it releases the lease again, unless the
/// ask had a request id: then the asker can still fetch it by asking again.
pub(crate) struct Claim {
    pub name: Resource,
    pub token: Token,
    commands: Option<Sender<Command>>,
}

pub(super) enum Command {
    Acquire { want: Want, reply: Reply<Acquired> },
    Extend { name: Resource, token: Token, ttl_ms: u32, reply: Reply<Option<(Record, Millis)>> },
    Release { name: Resource, token: Token, reply: Reply<bool> },
    Bump { name: Resource, above: Option<Token>, reply: Reply<Option<Token>> },
    Raise { name: Resource, token: Token, reply: Reply<Token> },
    Take { name: Resource, permit: Permit, reply: Reply<bool> },
    GiveBack { name: Resource, id: PermitId, reply: Reply<()> },
    Mapping { mapping: u128, reply: Reply<()> },
    Tick { reply: Reply<()> },
    Close { reply: Reply<()> },
}

/// All that a writer works with.
pub(super) struct Parts {
    pub path: PathBuf,
    pub opened: Arc<Opened>,
    pub rows: Arc<Rows>,
    pub clock: Arc<dyn Clock>,
    pub on_fatal: Arc<dyn Fn(&StoreError) + Send + Sync>,
    pub observers: Observers,
    pub ended: Arc<OnceLock<StoreError>>,
    pub commands: Sender<Command>,
    pub witness: Witness,
    pub seen: Seen,
    pub floor: Option<Token>,
    /// When which lease runs out, at the earliest: renewals move the row's deadline, not this one.
    pub deadlines: BTreeSet<(Millis, Resource)>,
}

pub(super) struct Writer {
    parts: Parts,
    lazy: Vec<Lazy>,
    lazy_since: Option<Instant>,
}

// === impl Claim ===

impl Claim {
    pub(super) fn new(want: &Want, token: Token, commands: Sender<Command>) -> Claim {
        Claim {
            name: want.name.clone(),
            token,
            commands: want.request_id.is_none().then_some(commands),
        }
    }

    /// It has arrived.
    pub fn keep(&mut self) {
        self.commands = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(commands) = self.commands.take() {
            let (reply, _) = oneshot::channel();
            let (name, token) = (self.name.clone(), self.token);
            // A closed store has no leases to give back.
            let _ = commands.send(Command::Release { name, token, reply });
        }
    }
}

// === impl Writer ===

impl Writer {
    pub fn new(parts: Parts) -> Writer {
        Writer { parts, lazy: Vec::new(), lazy_since: None }
    }

    /// [`run`](Writer::run); a panic ends the process as a failed commit does.
    pub fn run_guarded(self, inbox: &Receiver<Command>) {
        let Parts { path, ended, on_fatal, .. } = &self.parts;
        let (path, ended, on_fatal) = (path.clone(), ended.clone(), on_fatal.clone());
        let run = std::panic::AssertUnwindSafe(|| self.run(inbox));
        if std::panic::catch_unwind(run).is_err() {
            let cause = Arc::new(std::io::Error::other("its writer panicked"));
            let error = StoreError::Failed { path, cause };
            let _ = ended.set(error.clone());
            tracing::error!(error = %chain(&error), "the process ends");
            on_fatal(&error);
        }
    }

    /// Runs until it is told to close or a commit fails.
    fn run(mut self, inbox: &Receiver<Command>) {
        loop {
            let arrivals = self.arrivals(inbox);
            let mut told = self.sweep();
            let mut batch = Batch::new(&self.parts);
            let mut close = None;
            for command in arrivals {
                match command {
                    Command::Close { reply } => {
                        close = Some(reply);
                        break;
                    }
                    command => batch.stage(command, &self.parts),
                }
            }
            let due = self.lazy_since.is_some_and(|since| since.elapsed() >= LAZY);
            let last = close.is_some() && (!self.lazy.is_empty() || batch.changes_anything());
            // A mapping speaks of all permits, so what was given back must be gone on disk as well.
            let all = last || batch.sets_mapping();
            if (due || last || batch.must_commit())
                && let Err(cause) = self.commit(&batch, all)
            {
                return self.fail(batch, close, cause);
            }
            let Parts { deadlines, rows, clock, .. } = &mut self.parts;
            let (changes, lazy) = batch.publish(rows, &**clock, deadlines);
            self.put_off(lazy);
            told.extend(changes);
            self.tell(&told);
            batch.answer(Ok(()));
            if let Some(reply) = close {
                let path = self.parts.path.clone();
                let _ = self.parts.ended.set(StoreError::Closed { path });
                let _ = reply.send(Ok(()));
                return;
            }
        }
    }

    fn put_off(&mut self, lazy: Vec<Lazy>) {
        self.lazy.extend(lazy);
        if !self.lazy.is_empty() && self.lazy_since.is_none() {
            self.lazy_since = Some(Instant::now());
        }
    }

    /// Waits for a command, and takes what else has arrived; nothing if something else is due first.
    fn arrivals(&self, inbox: &Receiver<Command>) -> Vec<Command> {
        let expiry = self.parts.deadlines.first().map(|(deadline, _)| {
            self.parts.clock.boottime().until(*deadline).min(NAP).max(Duration::from_millis(1))
        });
        let lazy = self.lazy_since.map(|since| LAZY.saturating_sub(since.elapsed()));
        let first = match expiry.into_iter().chain(lazy).min() {
            Some(wait) => inbox.recv_timeout(wait),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        // The writer has a sender itself, so the channel cannot be disconnected.
        first.into_iter().chain(inbox.try_iter().take(BATCH)).collect()
    }

    /// Finds leases that have run out. That they have is durable with the next commit, so that a
    /// restart does not bring back what ended long ago.
    fn sweep(&mut self) -> Vec<Told> {
        let Parts { deadlines, rows, clock, .. } = &mut self.parts;
        let (mut changes, mut lazy) = (Vec::new(), Vec::new());
        let now = clock.boottime();
        // Bounded: after a long stop a million may be due, and commands wait meanwhile.
        for _ in 0..BATCH {
            if deadlines.first().is_none_or(|(deadline, _)| *deadline > now) {
                break;
            }
            let (deadline, name) = deadlines.pop_first().expect("there is a first one");
            let again = rows.change(&name, |row| {
                let row = row.filter(|row| row.indexed == deadline)?;
                row.indexed = Millis::NEVER;
                let record = row.lease.as_mut()?;
                if record.expire(clock.boottime()) {
                    changes.push((LeaseChange::Expired, name.clone(), record.holder.clone()));
                    lazy.push(Lazy::Expired(name.clone(), record.token));
                    return None;
                }
                let runs = record.runs(clock.boottime());
                row.indexed = if runs { record.until } else { Millis::NEVER };
                runs.then_some(record.until)
            });
            deadlines.extend(again.map(|until| (until, name)));
        }
        self.put_off(lazy);
        changes
    }

    /// Commits the batch with some of what was put off, or with `all` of it.
    fn commit(&mut self, batch: &Batch, all: bool) -> Result<(), redb::Error> {
        let seq = self.parts.seen.seq + 1;
        let high = batch.high().max(self.parts.seen.high);
        let lazy = if all { self.lazy.len() } else { self.lazy.len().min(BATCH) };
        batch.write(&self.parts.opened.db, &self.parts.rows, &self.lazy[..lazy], seq)?;
        self.parts.seen.seq = seq;
        self.parts.seen.high = high;
        self.lazy.drain(..lazy);
        self.lazy_since = (!self.lazy.is_empty()).then(Instant::now);
        // After the commit, never before: a witness ahead of its database means a rollback.
        if let Err(cause) = self.parts.witness.write(self.parts.seen) {
            // It lags behind now, which weakens the detection of a rollback and loses nothing.
            tracing::warn!(
                path = %self.parts.path.display(), error = %cause,
                "cannot write the witness file; an older copy put in the database's place may go unnoticed"
            );
        }
        Ok(())
    }

    fn tell(&self, changes: &[Told]) {
        if changes.is_empty() {
            return;
        }
        let observers = self.parts.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (change, name, holder) in changes {
            observers.iter().for_each(|observer| observer.changed(*change, name, holder));
        }
    }

    /// After a failed commit nobody knows what is on disk, and a second fsync may lie. Memory shows
    /// nothing of the batch. Everybody is told, then the process ends.
    fn fail(self, batch: Batch, close: Option<Reply<()>>, cause: redb::Error) {
        let path = self.parts.path.clone();
        let error = StoreError::Failed { path: path.clone(), cause: Arc::new(cause) };
        let _ = self.parts.ended.set(error.clone());
        tracing::error!(
            path = %path.display(), error = %chain(&error), exit_code = super::EXIT_STORE_FAILED,
            "the database could not be written; nothing that was acknowledged is lost; the process ends"
        );
        batch.answer(Err(&error));
        if let Some(reply) = close {
            let _ = reply.send(Err(error.clone()));
        }
        let on_fatal = self.parts.on_fatal.clone();
        on_fatal(&error);
    }
}

/// A change of a lease, as observers are told.
pub(super) type Told = (LeaseChange, Resource, Holder);
