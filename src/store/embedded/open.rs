//! Opening: take the lock, make or read the file, decide whether it is itself, start the writer.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, ReadableDatabase};

use super::error::StoreError;
use super::identity::{FileId, Reason, Seen, Witness};
use super::lock::{LockFile, POLL, holder_of};
use super::rows::Rows;
use super::schema::{self, LoadError, Meta, SCHEMA};
use super::writer::Writer;
use super::{Inner, Opened, Options, Revocation, Store, beside, make_private, sync_dir};
use crate::core::gate::Incarnation;
use crate::core::lease::Phase;
use crate::core::{Millis, Resource, Token};
use crate::store::clock::Clock;

/// Enough for the pages that a commit touches; reads of the service come from our own memory.
const CACHE_BYTES: usize = 16 << 20;

pub(super) fn open(options: &Options) -> Result<Store, StoreError> {
    let path = resolve(&options.path)?;
    let lock = LockFile::take(&path, options.open_wait)?;
    super::backup::remove_leftovers(&path);
    let clock = &*options.clock;
    let made = make_if_missing(&path, clock)?;
    let db = open_redb(&path, options.open_wait)?;
    let meta = read_meta(&path, &db)?;
    let loaded = guarded(&path, || load(&db, clock.boottime()))?;
    let (meta, witness, found) = identify(&path, &db, meta, loaded.high, clock)?;

    let floor = Token::new(meta.floor);
    let Loaded { rows, deadlines, high } = loaded;
    if let Some(floor) = floor {
        lift(&rows, floor);
    }
    let revoked = Reason::from_number(meta.revoked_why).map(|reason| Revocation {
        reason,
        at_ms: meta.revoked_ms,
        this_start: found.is_some() || made == Made::Again,
    });
    if let Some(Revocation { reason, this_start: true, .. }) = revoked {
        tracing::warn!(
            path = %path.display(), %reason, floor = meta.floor,
            "everything is revoked: all leases have ended and every token of before is stale; \
             writers have to acquire again"
        );
    }

    let (commands, inbox) = mpsc::channel();
    let opened = Arc::new(Opened { db, _lock: lock });
    let ended = Arc::new(OnceLock::new());
    let rows = Arc::new(rows);
    let observers = super::writer::Observers::default();
    let (id, revoked_floor) = (meta.id, floor);
    let (mapping, doubt) = (meta.mapping, meta.doubt != 0);
    let writer = Writer::new(super::writer::Parts {
        path: path.clone(),
        opened: opened.clone(),
        rows: rows.clone(),
        clock: options.clock.clone(),
        on_fatal: options.on_fatal.clone(),
        observers: observers.clone(),
        ended: ended.clone(),
        commands: commands.clone(),
        witness,
        seen: Seen { id: meta.id, seq: meta.seq, high: high.max(meta.floor) },
        floor,
        deadlines,
    });
    let thread = std::thread::Builder::new()
        .name("fencegate-store".into())
        .spawn(move || writer.run_guarded(&inbox))
        .map_err(|cause| StoreError::io("start the writer of", &path, cause))?;
    Ok(Store(Arc::new(Inner {
        path,
        clock: options.clock.clone(),
        incarnation: Incarnation(random(&options.path)?),
        id,
        floor: revoked_floor,
        revoked,
        mapping,
        doubt,
        rows,
        observers,
        ended,
        commands,
        opened: Mutex::new(Some(opened)),
        thread: Mutex::new(Some(thread)),
    })))
}

pub(super) fn random(path: &Path) -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|cause| {
        StoreError::io("draw a random id for", path, std::io::Error::other(cause))
    })?;
    Ok(u128::from_le_bytes(bytes))
}

/// The file behind symbolic links, so that lock and witness are beside the file itself.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let io = |cause| StoreError::io("find the directory of", path, cause);
    let name = path.file_name().ok_or_else(|| io(std::io::ErrorKind::InvalidInput.into()))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    Ok(dir.canonicalize().map_err(io)?.join(name))
}

// === make ===

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// It existed.
    No,
    /// For the first time.
    First,
    /// A witness remembered an earlier one.
    Again,
}

/// Makes an empty database if there is none. The file gets its name last, so that a crash on the
/// way leaves nothing that looks like a database.
fn make_if_missing(path: &Path, clock: &dyn Clock) -> Result<Made, StoreError> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
        return Ok(Made::No);
    }
    let io = |doing| move |cause| StoreError::io(doing, path, cause);
    let before = Witness::read(path).map_err(io("read the witness of"))?;
    // Number 0 is what this function itself writes before there is a first commit.
    let again = before.is_some_and(|seen| seen.seq > 0 || seen.high > 0);
    let high = before.map_or(0, |seen| seen.high);

    let fresh = beside(path, ".new");
    let _ = std::fs::remove_file(&fresh);
    let created = |cause: redb::Error| StoreError::io("create", path, cause);
    let db = builder().create(&fresh).map_err(|cause| created(cause.into()))?;
    make_private(&fresh).map_err(io("create"))?;
    let file = FileId::of(&fresh).map_err(io("stat"))?;
    let now_us = clock.wall_us();
    let mut meta = Meta {
        schema: SCHEMA,
        id: random(path)?,
        seq: 1,
        inode: file.inode,
        birth_ns: file.birth_ns,
        ..Meta::default()
    };
    if again {
        meta.floor = floor(now_us, high);
        meta.revoked_why = Reason::DatabaseMissing.number();
        meta.revoked_ms = now_us / 1_000;
        meta.doubt = 1;
    }
    commit_meta(&db, &meta, true).map_err(created)?;
    db.close().map_err(|cause| created(cause.into()))?;
    let seen = Seen { id: meta.id, seq: 0, high };
    Witness::replace(path, seen).map_err(io("write the witness of"))?;
    std::fs::rename(&fresh, path).map_err(io("create"))?;
    sync_dir(path).map_err(io("sync the directory of"))?;
    Ok(if again { Made::Again } else { Made::First })
}

fn commit_meta(db: &Database, meta: &Meta, tables: bool) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    if tables {
        schema::create_tables(&txn)?;
    }
    meta.write(&txn)?;
    txn.commit()?;
    Ok(())
}

/// Above every token and mark that is known to have existed, and not below the clock, for those
/// that the file has lost.
fn floor(wall_us: u64, high: u64) -> u64 {
    wall_us.max(high.saturating_add(1)).min(Token::MAX.get())
}

// === read ===

fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Opens the file and checks all of it. Panics of redb on a file that no redb wrote count as
/// damage, too.
pub(super) fn open_redb(path: &Path, wait: Duration) -> Result<Database, StoreError> {
    let begun = Instant::now();
    let mut builder = builder();
    builder.set_check_integrity_on_open(true);
    loop {
        let opened = catch_unwind(AssertUnwindSafe(|| builder.open(path)));
        let cause = match opened {
            Ok(Ok(db)) => return Ok(db),
            Ok(Err(cause)) => cause,
            Err(_) => return Err(damaged(path, std::io::Error::other("redb panicked on it"))),
        };
        match cause {
            DatabaseError::DatabaseAlreadyOpen if begun.elapsed() < wait => {
                std::thread::sleep(POLL.min(wait));
            }
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
                let holder = holder_of(path);
                return Err(StoreError::Locked { path: path.into(), holder, waited: wait });
            }
            DatabaseError::Storage(redb::StorageError::Io(cause))
                if cause.kind() != std::io::ErrorKind::InvalidData
                    && cause.kind() != std::io::ErrorKind::UnexpectedEof =>
            {
                return Err(StoreError::io("open the database", path, cause));
            }
            cause => return Err(damaged(path, cause)),
        }
    }
}

fn damaged(path: &Path, cause: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Corrupt { path: path.into(), cause: Arc::new(cause) }
}

fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, LoadError>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(cause)) => Err(damaged(path, cause)),
        Err(_) => Err(damaged(path, std::io::Error::other("redb panicked on it"))),
    }
}

pub(super) fn read_meta(path: &Path, db: &Database) -> Result<Meta, StoreError> {
    let meta = guarded(path, || Ok(Meta::read(&db.begin_read()?)?))?;
    match meta.schema {
        found if found > SCHEMA => {
            Err(StoreError::TooNew { path: path.into(), found, known: SCHEMA })
        }
        SCHEMA => Ok(meta),
        _ => Err(damaged(path, std::io::Error::other("it has no schema number"))),
    }
}

struct Loaded {
    rows: Rows,
    deadlines: BTreeSet<(Millis, Resource)>,
    /// The greatest token or mark in it.
    high: u64,
}

fn load(db: &Database, boot_now: Millis) -> Result<Loaded, LoadError> {
    let txn = db.begin_read()?;
    let rows = Rows::new();
    let mut deadlines = Vec::new();
    let mut high = 0;
    schema::each_lease(&txn, boot_now, |name, record| {
        high = high.max(record.token.get());
        rows.upsert(&name, |row| {
            if record.phase == Phase::Granted {
                row.indexed = record.until;
                deadlines.push((record.until, row.name.clone()));
            }
            row.lease = Some(record);
        });
    })?;
    schema::each_mark(&txn, |name, mark| {
        high = high.max(mark.get());
        rows.upsert(&name, |row| row.mark = Some(mark));
    })?;
    schema::each_permit(&txn, |name, permit| {
        let mut permits = rows.permits(&name);
        permits.push(permit);
        rows.set_permits(&name, permits);
    })?;
    Ok(Loaded { rows, deadlines: deadlines.into_iter().collect(), high })
}

/// Decides whether the file is itself. If it is not, makes it another: a new id, a floor above
/// everything. The floor alone revokes; no row has to be rewritten.
fn identify(
    path: &Path,
    db: &Database,
    mut meta: Meta,
    high: u64,
    clock: &dyn Clock,
) -> Result<(Meta, Witness, Option<Reason>), StoreError> {
    let io = |doing| move |cause| StoreError::io(doing, path, cause);
    let file = FileId::of(path).map_err(io("stat"))?;
    let before = Witness::read(path).map_err(io("read the witness of"))?;
    let Some(reason) = Reason::of(&meta, file, before) else {
        let witness = Witness::open(path).map_err(io("open the witness of"))?;
        return Ok((meta, witness, None));
    };
    let now_us = clock.wall_us();
    let high = high.max(before.map_or(0, |seen| seen.high)).max(meta.floor);
    meta = Meta {
        schema: SCHEMA,
        id: random(path)?,
        seq: meta.seq + 1,
        floor: floor(now_us, high),
        inode: file.inode,
        birth_ns: file.birth_ns,
        backup_ms: 0,
        revoked_why: reason.number(),
        revoked_ms: now_us / 1_000,
        mapping: meta.mapping,
        doubt: 1,
    };
    commit_meta(db, &meta, false)
        .map_err(|cause| StoreError::Failed { path: path.into(), cause: Arc::new(cause) })?;
    let seen = Seen { id: meta.id, seq: meta.seq, high: meta.floor };
    let witness = Witness::replace(path, seen).map_err(io("write the witness of"))?;
    Ok((meta, witness, Some(reason)))
}

/// Applies the floor to rows of before it: their leases are over, with a token that nobody holds,
/// and their marks refuse all that was ever issued.
fn lift(rows: &Rows, floor: Token) {
    rows.each(|row| {
        if let Some(record) = row.lease.as_mut().filter(|record| record.token <= floor) {
            record.revoke(floor);
        }
        row.mark = row.mark.map(|mark| mark.max(floor));
    });
}

/// Names in the lease table, in order.
pub(super) fn names(
    db: &Database,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Resource>, redb::Error> {
    let table = db.begin_read()?.open_table(schema::LEASES)?;
    let start = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let mut names = Vec::new();
    for entry in table.range::<&str>((start, Bound::Unbounded))? {
        let (key, _) = entry?;
        if names.len() >= limit || !key.value().starts_with(prefix) {
            break;
        }
        names.extend(Resource::new(key.value()));
    }
    Ok(names)
}
