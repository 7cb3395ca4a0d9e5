//! The embedded database: leases, marks and permits of one process in one redb file.
//!
//! Reads are answered from memory. Changes go through one thread, which commits everything that has
//! arrived with one fsync, then publishes it to memory, then answers: what nobody was answered may be
//! lost, what somebody was answered or could read is on disk. Renewals stay in memory, because after
//! a restart every lease counts as live for its full TTL anyway.

mod backup;
mod batch;
mod error;
mod identity;
mod lock;
mod look;
mod open;
mod rows;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::core::gate::{Incarnation, PermitId};
use crate::core::lease::{Asked, Record, Renewed, Validation, Verdict};
use crate::core::{Holder, Millis, Resource, Token};
use crate::store::clock::{Clock, SystemClock};

pub use backup::{Restored, restore};
pub use error::{SharedCause, StoreError};
pub use identity::Reason;
pub use look::{Place, look};
pub use rows::Permit;
pub use writer::{LeaseChange, Observer};

pub(crate) use writer::{Acquired, Want};

use rows::Rows;
use writer::{Command, Reply};

/// Exit code of a process whose database could not be written: EX_IOERR of sysexits.h.
pub const EXIT_STORE_FAILED: i32 = 74;

/// How long a failed process lives on, so that the errors it answered with reach their callers. It
/// acknowledges and admits nothing any more meanwhile.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How to open the database.
#[derive(Clone)]
pub struct Options {
    /// The file; made if it does not exist.
    pub path: PathBuf,
    /// Longest wait for another process to close it.
    pub open_wait: Duration,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Called once when a commit has failed and every caller was told. Ends the process with
    /// [`EXIT_STORE_FAILED`] unless a test puts something else here.
    pub on_fatal: Arc<dyn Fn(&StoreError) + Send + Sync>,
}

/// That everything was revoked, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Revocation {
    /// Why.
    pub reason: Reason,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Whether it was this start that found it, rather than an earlier one.
    pub this_start: bool,
}

/// An open database. Cheap to clone; every clone is the same one.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    incarnation: Incarnation,
    id: u128,
    floor: Option<Token>,
    revoked: Option<Revocation>,
    mapping: u128,
    doubt: bool,
    rows: Arc<Rows>,
    observers: writer::Observers,
    /// Why nothing is answered any more.
    ended: Arc<OnceLock<StoreError>>,
    commands: mpsc::Sender<Command>,
    opened: Mutex<Option<Arc<Opened>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// The open files. Fields are dropped in this order: the lock goes last.
pub(crate) struct Opened {
    db: redb::Database,
    _lock: lock::LockFile,
}

// === impl Options ===

impl Options {
    /// The defaults for this file: 10 s of `open_wait`, the kernel's clocks, the process ends when
    /// a commit fails.
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options {
            path: path.into(),
            open_wait: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
            on_fatal: Arc::new(|_| {
                std::thread::sleep(LAST_WORDS);
                std::process::exit(EXIT_STORE_FAILED)
            }),
        }
    }
}

// === impl Store ===

impl Store {
    /// Opens the database, makes it if it does not exist, revokes everything if it is a copy or was
    /// put back to an earlier state. Blocks: call it before the runtime starts, or off it.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Corrupt`], [`StoreError::TooNew`], [`StoreError::Io`].
    pub fn open(options: &Options) -> Result<Store, StoreError> {
        open::open(options)
    }

    /// Commits what is still in memory only, stops the writer, closes the file and frees its lock.
    /// Later calls fail with [`StoreError::Closed`]. Blocks until done; repeating it is no error.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the last commit failed.
    pub fn close(&self) -> Result<(), StoreError> {
        self.0.shut();
        match self.0.ended.get() {
            Some(failed @ StoreError::Failed { .. }) => Err(failed.clone()),
            _ => Ok(()),
        }
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// This start of this replica.
    pub fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    /// The random id of the database; another one after every revocation.
    pub fn id(&self) -> u128 {
        self.0.id
    }

    /// The last time everything was revoked because the file was a copy or restored, if ever.
    pub fn revoked(&self) -> Option<Revocation> {
        self.0.revoked
    }

    /// The clocks it was opened with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Tells `observer` of every change of a lease from now on, from the writer's thread.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// Looks for leases that ran out now, not only at the next wake-up (at most a second later).
    ///
    /// # Errors
    /// [`StoreError::Closed`], [`StoreError::Failed`].
    /// # Cancel safety
    /// Cancel safe.
    pub async fn tick(&self) -> Result<(), StoreError> {
        self.ask(|reply| Command::Tick { reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.commands.send(command(reply)).map_err(|_| self.closed())?;
        answer.await.unwrap_or_else(|_| Err(self.closed()))
    }

    fn closed(&self) -> StoreError {
        match self.0.ended.get() {
            Some(error) => error.clone(),
            None => StoreError::Closed { path: self.0.path.clone() },
        }
    }

    fn alive(&self) -> Result<(), StoreError> {
        self.0.ended.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

// === leases ===

impl Store {
    /// What an ask would come to now, with the record that decides it. Touches nothing.
    pub(crate) fn asked(
        &self,
        name: &Resource,
        holder: &Holder,
        request_id: Option<&str>,
    ) -> Result<(Asked, Option<(Record, Millis)>), StoreError> {
        self.alive()?;
        Ok(self.0.rows.read(name, |row| {
            let Some(record) = row.and_then(|row| row.lease.as_ref()) else {
                return (Asked::Free, None);
            };
            let now = self.0.clock.boottime();
            (record.asked(holder, request_id, now), Some((record.clone(), now)))
        }))
    }

    pub(crate) async fn acquire(&self, want: Want) -> Result<Acquired, StoreError> {
        self.ask(|reply| Command::Acquire { want, reply }).await
    }

    /// Renews in memory; through the writer only if a restart would otherwise assume too little.
    /// `None`: lost.
    pub(crate) async fn renew(
        &self,
        name: &Resource,
        token: Token,
        ttl_ms: Option<u32>,
    ) -> Result<Option<(Record, Millis)>, StoreError> {
        self.alive()?;
        let (renewed, record) = self.0.rows.change(name, |row| {
            let Some(record) = row.and_then(|row| row.lease.as_mut()) else {
                return (Renewed::Lost, None);
            };
            // Read under the lock: the writer judges "over" under it too, so of a renewal and a
            // successor's acquire only one can find the lease on its side.
            let now = self.0.clock.boottime();
            let ttl_ms = ttl_ms.unwrap_or(record.ttl_ms);
            (record.renew(token, ttl_ms, now), Some((record.clone(), now)))
        });
        match (renewed, ttl_ms) {
            (Renewed::Yes, _) => Ok(record),
            (Renewed::Longer, Some(ttl_ms)) => {
                let name = name.clone();
                self.ask(|reply| Command::Extend { name, token, ttl_ms, reply }).await
            }
            (Renewed::Longer, None) | (Renewed::Lost, _) => Ok(None),
        }
    }

    /// `false`: lost.
    pub(crate) async fn release(&self, name: &Resource, token: Token) -> Result<bool, StoreError> {
        let name = name.clone();
        self.ask(|reply| Command::Release { name, token, reply }).await
    }

    /// `None`: no token is left.
    pub(crate) async fn bump(
        &self,
        name: &Resource,
        above: Option<Token>,
    ) -> Result<Option<Token>, StoreError> {
        let name = name.clone();
        self.ask(|reply| Command::Bump { name, above, reply }).await
    }

    pub(crate) fn validate(&self, name: &Resource, token: Token) -> Result<Validation, StoreError> {
        self.alive()?;
        Ok(self.0.rows.read(name, |row| match row.and_then(|row| row.lease.as_ref()) {
            Some(record) => Validation {
                verdict: record.verdict(token, self.0.clock.boottime()),
                latest: Some(record.token),
            },
            // The records of a restored file may lack resources that had leases; their tokens are
            // all at or below the floor.
            None if Some(token) <= self.0.floor => {
                Validation { verdict: Verdict::Stale, latest: self.0.floor }
            }
            None => Validation { verdict: Verdict::NeverIssued, latest: None },
        }))
    }

    pub(crate) fn record(&self, name: &Resource) -> Result<Option<(Record, Millis)>, StoreError> {
        self.alive()?;
        Ok(self.0.rows.read(name, |row| {
            row.and_then(|row| row.lease.clone()).map(|record| (record, self.0.clock.boottime()))
        }))
    }

    /// Names that have a lease record, in order. Reads the file: call it off the runtime.
    pub(crate) fn names(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Resource>, StoreError> {
        self.alive()?;
        let opened = lock_mutex(&self.0.opened).clone().ok_or_else(|| self.closed())?;
        open::names(&opened.db, prefix, after, limit)
            .map_err(|cause| StoreError::io("read the leases of", &self.0.path, cause))
    }
}

// === marks and permits ===

impl Store {
    /// Raises the mark to at least `token`; returns it.
    pub(crate) async fn raise(&self, name: &Resource, token: Token) -> Result<Token, StoreError> {
        match self.mark(name)? {
            // What memory shows is durable already.
            Some(mark) if mark >= token => Ok(mark),
            _ => {
                let name = name.clone();
                self.ask(|reply| Command::Raise { name, token, reply }).await
            }
        }
    }

    pub(crate) async fn take(
        &self,
        name: &Resource,
        id: PermitId,
        token: Token,
    ) -> Result<bool, StoreError> {
        let name = name.clone();
        self.ask(|reply| Command::Take { name, permit: Permit { id, token }, reply }).await
    }

    pub(crate) async fn give_back(&self, name: &Resource, id: PermitId) -> Result<(), StoreError> {
        let name = name.clone();
        self.ask(|reply| Command::GiveBack { name, id, reply }).await
    }

    pub(crate) fn mark(&self, name: &Resource) -> Result<Option<Token>, StoreError> {
        self.alive()?;
        Ok(self.0.rows.read(name, |row| row.and_then(|row| row.mark)).max(self.0.floor))
    }

    pub(crate) fn permits(&self, name: &Resource) -> Result<Vec<Permit>, StoreError> {
        self.alive()?;
        Ok(self.0.rows.permits(name))
    }

    /// Every resource with a permit for which `which` holds, in no particular order.
    pub(crate) fn with_permits(&self, which: impl Fn(PermitId) -> bool) -> Vec<Resource> {
        self.0.rows.with_permits(|permit| which(permit.id))
    }

    /// What [`set_mapping`](Store::set_mapping) had said when it was opened: the rules, as a hash, under
    /// which every permit in it was taken; `None` if they differ or are not known.
    pub(crate) fn mapping_at_open(&self) -> Option<u128> {
        Some(self.0.mapping).filter(|mapping| *mapping != 0)
    }

    /// Whether permits may have been missing when it was opened: it was put back to an earlier state or
    /// lost, and no mapping was set since.
    pub(crate) fn in_doubt_at_open(&self) -> bool {
        self.0.doubt
    }

    /// Says durably that every permit was taken under these rules, or that nobody can say (`None`).
    pub(crate) async fn set_mapping(&self, mapping: Option<u128>) -> Result<(), StoreError> {
        let mapping = mapping.unwrap_or(0);
        self.ask(|reply| Command::Mapping { mapping, reply }).await
    }
}

// === impl Inner ===

impl Inner {
    /// Ends the writer after its last commit, then closes the file. Whoever comes second waits.
    fn shut(&self) {
        let mut thread = lock_mutex(&self.thread);
        let (reply, _) = oneshot::channel();
        // A writer that has ended already does not listen, and that is fine.
        let _ = self.commands.send(Command::Close { reply });
        if let Some(thread) = thread.take() {
            // Its panics are caught and end up in `ended`.
            let _ = thread.join();
        }
        drop(lock_mutex(&self.opened).take());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shut();
    }
}

// The values behind these locks are replaced whole, so a panic elsewhere leaves them sound.
fn lock_mutex<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `path` with `suffix` added to its file name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Keeps the file from other users: it has tokens in it.
pub(crate) fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Makes renames and creations in the directory of `path` durable.
pub(crate) fn sync_dir(path: &Path) -> std::io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    std::fs::File::open(dir)?.sync_all()
}
