//! A look at a database's place that opens nothing and changes nothing.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::error::StoreError;
use super::lock::{holder_of, named_in};

/// What stands where a database should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing: it will be made.
    Absent,
    /// A file that nobody has open.
    Free,
    /// A file that a process has open.
    InUse {
        /// Which one.
        holder: String,
    },
}

/// Looks at the place of a database.
///
/// # Errors
/// [`StoreError::Io`] if it could not be opened or made there.
pub fn look(path: &Path) -> Result<Place, StoreError> {
    let may = |what: &'static str, at: &Path, flags| {
        access(at, flags).map_err(|errno| StoreError::io(what, at, io::Error::from(errno)))
    };
    if !path.exists() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        may("make a file in", parent, AccessFlags::W_OK | AccessFlags::X_OK)?;
        return Ok(Place::Absent);
    }
    may("open", path, AccessFlags::R_OK | AccessFlags::W_OK)?;
    let Ok(mut lock) = File::open(super::beside(path, ".lock")) else { return Ok(Place::Free) };
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let holder = named_in(&mut lock).unwrap_or_else(|| holder_of(path));
            Ok(Place::InUse { holder })
        }
        // Given back as the file is closed.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Place::Free),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::{Options, Store};

    #[test]
    fn a_place_is_absent_then_in_use_then_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.redb");
        assert_eq!(look(&path).unwrap(), Place::Absent);
        let store = Store::open(&Options::new(&path)).unwrap();
        let Place::InUse { holder } = look(&path).unwrap() else { panic!("it is open") };
        assert!(holder.starts_with(&format!("process {} on ", std::process::id())), "{holder}");
        store.close().unwrap();
        assert_eq!(look(&path).unwrap(), Place::Free);
        assert!(look(&dir.path().join("missing/f.redb")).is_err());
    }
}
