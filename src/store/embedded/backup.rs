//! Backup of the running database, and restore with the server stopped.
//!
//! A backup says of itself that it is one. Whatever starts on it revokes everything first: leases
//! were granted and tokens used after it was made, of which it knows nothing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, WriteTransaction};

use super::error::StoreError;
use super::lock::LockFile;
use super::open::{open_redb, random, read_meta, resolve};
use super::schema::{self, Meta};
use super::{Store, beside, lock_mutex, make_private, sync_dir};
use crate::store::clock::{Clock, SystemClock};

/// What the name of a copy on its way to a download has behind that of the database.
const DOWNLOAD: &str = ".backup-";

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The database that will be used from now on.
    pub path: PathBuf,
    /// Where the one before is kept, if there was one.
    pub kept: Option<PathBuf>,
}

// === impl Store ===

impl Store {
    /// Writes a consistent copy of the running database to the new file `to`, durably. Writes go on
    /// meanwhile. Blocks: call it off the runtime.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if `to` exists; [`StoreError::Closed`].
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let io = |cause| StoreError::io("write the backup", to, cause);
        if to.try_exists().map_err(io)? {
            return Err(io(std::io::ErrorKind::AlreadyExists.into()));
        }
        let part = beside(to, ".part");
        self.copy(&part).inspect_err(|_| drop(std::fs::remove_file(&part)))?;
        std::fs::rename(&part, to).map_err(io)?;
        sync_dir(to).map_err(io)
    }

    /// A consistent copy of the running database as an open file that has no name any more: it is
    /// gone when it is closed. For a download. Blocks: call it off the runtime.
    ///
    /// # Errors
    /// As [`backup`](Store::backup).
    pub fn backup_file(&self) -> Result<File, StoreError> {
        let id = random(self.path())?;
        let part = beside(self.path(), &format!("{DOWNLOAD}{id:032x}"));
        let copied = self.copy(&part).and_then(|()| {
            File::open(&part).map_err(|cause| StoreError::io("read the backup", &part, cause))
        });
        let _ = std::fs::remove_file(&part);
        copied
    }

    fn copy(&self, to: &Path) -> Result<(), StoreError> {
        self.alive()?;
        let opened = lock_mutex(&self.0.opened).clone().ok_or_else(|| self.closed())?;
        let now_ms = self.0.clock.wall_us() / 1_000;
        let copy = || -> Result<(), redb::Error> {
            // A leftover of an earlier, interrupted backup is in the way at most.
            let _ = std::fs::remove_file(to);
            let from = opened.db.begin_read()?;
            let target = redb::Database::create(to)?;
            make_private(to).map_err(redb::Error::Io)?;
            let txn = target.begin_write()?;
            copy_tables(&from, &txn)?;
            marked(Meta::read(&from)?, now_ms).write(&txn)?;
            txn.commit()?;
            target.close()?;
            Ok(())
        };
        copy().map_err(|cause| StoreError::io("write the backup", to, cause))
    }
}

/// Removes the copies that a killed process was about to send. Its lock is ours by now.
pub(super) fn remove_leftovers(path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return };
    let start = format!("{}{DOWNLOAD}", name.to_string_lossy());
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(&start));
        if id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            // It takes up space, and does no other harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn marked(meta: Meta, now_ms: u64) -> Meta {
    // Zero would say "no backup".
    Meta { backup_ms: now_ms.max(1), inode: 0, birth_ns: 0, ..meta }
}

fn copy_tables(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), redb::Error> {
    macro_rules! copy {
        ($($table:ident),*) => {$({
            let mut target = to.open_table(schema::$table)?;
            for entry in from.open_table(schema::$table)?.iter()? {
                let (key, value) = entry?;
                target.insert(key.value(), value.value())?;
            }
        })*};
    }
    copy!(LEASES, MARKS, PERMITS);
    Ok(())
}

/// Puts a copy of the database file `from` in the place of the database `to`. Nothing may have `to`
/// open. The next start on it ends all leases and makes every token of before stale, and says so.
/// The database that was there is kept beside it.
///
/// # Errors
/// [`StoreError::Locked`] if a server runs on `to`; [`StoreError::Corrupt`] or
/// [`StoreError::TooNew`] if `from` cannot be used: then nothing has changed. [`StoreError::Io`].
pub fn restore(from: &Path, to: &Path) -> Result<Restored, StoreError> {
    let to = resolve(to)?;
    let _lock = LockFile::take(&to, Duration::ZERO)?;
    // Somebody may have removed the lock file under a running server; redb's own lock tells. Whatever
    // else is wrong with the database there is why it is replaced.
    if let Err(locked @ StoreError::Locked { .. }) = open_redb(&to, Duration::ZERO) {
        return Err(locked);
    }
    let part = beside(&to, ".restoring");
    prepare(from, &part).inspect_err(|_| drop(std::fs::remove_file(&part)))?;

    let io = |cause| StoreError::io("replace the database", &to, cause);
    let now_ms = SystemClock.wall_us() / 1_000;
    let kept = beside(&to, &format!(".before-restore-{now_ms}"));
    // A second name first, where the file system has such: then the new file takes the first one's place
    // at once, and a crash in between leaves the old.
    let keep = std::fs::hard_link(&to, &kept).or_else(|_| std::fs::rename(&to, &kept));
    let kept = match keep {
        Ok(()) => Some(kept),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => None,
        Err(cause) => return Err(io(cause)),
    };
    std::fs::rename(&part, &to).map_err(io)?;
    sync_dir(&to).map_err(io)?;
    Ok(Restored { path: to, kept })
}

/// Copies and checks; a file that a crashed server left behind is repaired on the way.
fn prepare(from: &Path, part: &Path) -> Result<(), StoreError> {
    let io = |cause| StoreError::io("copy the backup", from, cause);
    std::fs::copy(from, part).map_err(io)?;
    make_private(part).map_err(io)?;
    let blame = |error| match error {
        StoreError::Corrupt { cause, .. } => StoreError::Corrupt { path: from.into(), cause },
        StoreError::TooNew { found, known, .. } => {
            StoreError::TooNew { path: from.into(), found, known }
        }
        other => other,
    };
    let db = open_redb(part, Duration::ZERO).map_err(blame)?;
    let meta = read_meta(part, &db).map_err(blame)?;
    let mark = || -> Result<(), redb::Error> {
        let txn = db.begin_write()?;
        marked(meta, SystemClock.wall_us() / 1_000).write(&txn)?;
        txn.commit()?;
        Ok(())
    };
    mark().map_err(|cause| StoreError::io("mark the backup", part, cause))?;
    db.close().map_err(|cause| StoreError::io("close the backup", part, cause))
}
