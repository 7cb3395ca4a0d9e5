//! What can go wrong with the database file, and what to do about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A cause that several callers are told.
pub type SharedCause = Arc<dyn std::error::Error + Send + Sync>;

/// Why the database cannot be opened, or a call on it failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has it open.
    #[error(
        "the database {} is in use by {holder}{}",
        path.display(), after(*waited)
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// Who has it, as far as can be told.
        holder: String,
        /// How long the lock was waited for.
        waited: Duration,
    },
    /// Its content makes no sense.
    #[error(
        "the database {} is damaged; restore the latest backup with `fencegate fence restore` (every lease ends, every writer needs a new token). Without a backup move the file away: all leases, marks and permits are lost, and writes in flight are waited for no longer",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: SharedCause,
    },
    /// A later version wrote it.
    #[error(
        "the database {} has schema {found}, and this version knows only {known}; run the version that wrote it, or a later one",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
        /// The greatest schema this version knows.
        known: u64,
    },
    /// The file system refused something.
    #[error("cannot {doing} {}; {}", path.display(), remedy(cause))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The refusal.
        #[source]
        cause: SharedCause,
    },
    /// A commit failed. The process ends: what is on disk is no longer known for sure.
    #[error(
        "the database {} could not be written; free space or repair the disk, then start again",
        path.display()
    )]
    Failed {
        /// The file.
        path: PathBuf,
        /// Why the commit failed.
        #[source]
        cause: SharedCause,
    },
    /// It has been closed.
    #[error("the database {} is closed: the server is shutting down", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
}

/// What to do about a file in use, of a server that waited for it or of a command that did not.
fn after(waited: Duration) -> String {
    if waited.is_zero() {
        return "; stop that process first".to_owned();
    }
    format!(" after waiting {waited:?}; stop that process, or give this one its own `lease.path`")
}

/// What to do about a refusal of the file system.
fn remedy(cause: &SharedCause) -> &'static str {
    let cause: &(dyn std::error::Error + 'static) = &**cause;
    let redb = cause.downcast_ref::<redb::Error>();
    let io = match redb {
        Some(redb::Error::Io(io)) => Some(io),
        _ => cause.downcast_ref::<std::io::Error>(),
    };
    use std::io::ErrorKind::*;
    match io.map(std::io::Error::kind) {
        Some(NotFound) => "make its directory, or name another path",
        Some(PermissionDenied | ReadOnlyFilesystem) => {
            "let this user write to the file, its directory, and the files beside it"
        }
        Some(StorageFull | QuotaExceeded | FileTooLarge) => "free space, then start again",
        Some(AlreadyExists) => "name another path, or move what is there away",
        Some(IsADirectory | NotADirectory | InvalidInput) => "name a file",
        _ => "see the cause",
    }
}

// === impl StoreError ===

impl StoreError {
    pub(super) fn io(
        doing: &'static str,
        path: &std::path::Path,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> StoreError {
        StoreError::Io { doing, path: path.to_owned(), cause: Arc::new(cause) }
    }
}
