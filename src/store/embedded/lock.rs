//! The lock file beside the database: one process at a time, and the others learn which.
//!
//! redb locks the database file itself as well. This lock covers what that one cannot: the witness,
//! the moment of creation, and a restore, which puts another file in the database's place.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::StoreError;

/// How often a lock that somebody else has is tried again.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// Held as long as it lives. The file stays: removing it would let two processes lock two files.
pub(crate) struct LockFile {
    _file: File,
}

// === impl LockFile ===

impl LockFile {
    /// Takes the lock of the database at `path`, waiting up to `wait` for another process to end.
    pub fn take(path: &Path, wait: Duration) -> Result<LockFile, StoreError> {
        let lock_path = super::beside(path, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|cause| StoreError::io("open the lock file", &lock_path, cause))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if begun.elapsed() < wait => {
                    std::thread::sleep(POLL.min(wait));
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = named_in(&mut file).unwrap_or_else(|| holder_of(path));
                    return Err(StoreError::Locked { path: path.into(), holder, waited: wait });
                }
                Err(TryLockError::Error(cause)) => {
                    return Err(StoreError::io("lock", &lock_path, cause));
                }
            }
        }
        let host = nix::unistd::gethostname().unwrap_or_default();
        let name = format!("process {} on {}\n", std::process::id(), host.display());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(name.as_bytes()))
            .map_err(|cause| StoreError::io("write the lock file", &lock_path, cause))?;
        Ok(LockFile { _file: file })
    }
}

pub(super) fn named_in(file: &mut File) -> Option<String> {
    let mut name = String::new();
    file.rewind().ok()?;
    file.take(1_024).read_to_string(&mut name).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Who has a kernel lock on the file at `path`, from `/proc/locks`.
pub(super) fn holder_of(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let unknown = || "a process that /proc/locks does not name".to_owned();
    let (Ok(metadata), Ok(locks)) =
        (std::fs::metadata(path), std::fs::read_to_string("/proc/locks"))
    else {
        return unknown();
    };
    let inode = format!(":{}", metadata.ino());
    locks
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip_while(|field| !field.contains("WRITE"));
            let (_, pid, file) = (fields.next()?, fields.next()?, fields.next()?);
            (file.ends_with(&inode) && pid != "-1").then(|| format!("process {pid}"))
        })
        .next()
        .unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_lock_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.redb");
        let first = LockFile::take(&path, Duration::ZERO).unwrap();
        let Err(StoreError::Locked { holder, .. }) = LockFile::take(&path, Duration::ZERO) else {
            panic!("locked twice");
        };
        assert!(holder.starts_with(&format!("process {} on ", std::process::id())), "{holder}");
        drop(first);
        LockFile::take(&path, Duration::ZERO).unwrap();
    }
}
