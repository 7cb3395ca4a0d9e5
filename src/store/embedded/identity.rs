//! Tells the file from its copies, and from itself put back to an earlier state.
//!
//! Three things must agree. The *inode and birth time* that the file had when its random id was made:
//! a copy has others. The *witness*, a small file beside it with the id and the number of the last
//! commit: a file that was overwritten in place with an older copy of itself has a smaller number
//! than its witness. The *backup mark*, set in everything that the backup command writes.
//!
//! The witness is written after each commit and not synced, so it may lag behind the database after
//! a crash, and never be ahead of it. Device numbers and machine ids change on healthy reboots and
//! moves of a volume: they are no part of the identity.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::schema::Meta;

/// What `stat` says of a file that no copy of it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub inode: u64,
    /// Nanoseconds since 1970; 0 if the file system has no birth times.
    pub birth_ns: u128,
}

/// Why every lease and token of before was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The file is a backup.
    Restored,
    /// The file is a copy of the one that its records are about: inode or birth time differ.
    Copied,
    /// The file was put back to an earlier state: the witness saw later commits.
    RolledBack,
    /// The witness belongs to another database.
    ForeignWitness,
    /// There is no readable witness, so nothing shows that the file is in its latest state.
    WitnessMissing,
    /// The witness was there and the database gone.
    DatabaseMissing,
}

/// The content of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Id of the database.
    pub id: u128,
    /// Number of its last commit.
    pub seq: u64,
    /// Highest token or mark it ever held.
    pub high: u64,
}

/// The file beside the database that remembers how far it had come.
pub(crate) struct Witness {
    file: File,
    /// Which of the two slots is written next: a torn write leaves the other.
    slot: u64,
}

// === impl FileId ===

impl FileId {
    /// Whether both are of the same file. A birth time that is not known proves nothing: file systems
    /// learn to tell it with an upgrade of the kernel.
    fn is(self, other: FileId) -> bool {
        let known = self.birth_ns != 0 && other.birth_ns != 0;
        self.inode == other.inode && (!known || self.birth_ns == other.birth_ns)
    }

    pub fn of(path: &Path) -> io::Result<FileId> {
        let metadata = std::fs::metadata(path)?;
        let birth_ns = metadata
            .created()
            .ok()
            .and_then(|birth| birth.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |age| age.as_nanos());
        Ok(FileId { inode: metadata.ino(), birth_ns })
    }
}

// === impl Reason ===

impl Reason {
    /// Whether the file that opened as `file`, with `witness` beside it, is the one that `meta`
    /// describes, in its latest state. `None` if it is.
    pub(super) fn of(meta: &Meta, file: FileId, witness: Option<Seen>) -> Option<Reason> {
        if meta.backup_ms != 0 {
            return Some(Reason::Restored);
        }
        if !file.is(FileId { inode: meta.inode, birth_ns: meta.birth_ns }) {
            return Some(Reason::Copied);
        }
        match witness {
            None => Some(Reason::WitnessMissing),
            Some(seen) if seen.id != meta.id => Some(Reason::ForeignWitness),
            Some(seen) if seen.seq > meta.seq => Some(Reason::RolledBack),
            Some(_) => None,
        }
    }

    pub(super) fn number(self) -> u64 {
        match self {
            Reason::Restored => 1,
            Reason::Copied => 2,
            Reason::RolledBack => 3,
            Reason::ForeignWitness => 4,
            Reason::WitnessMissing => 5,
            Reason::DatabaseMissing => 6,
        }
    }

    pub(super) fn from_number(number: u64) -> Option<Reason> {
        use Reason::*;
        [Restored, Copied, RolledBack, ForeignWitness, WitnessMissing, DatabaseMissing]
            .into_iter()
            .find(|reason| reason.number() == number)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::Restored => "the database was restored from a backup",
            Reason::Copied => "the database file is a copy",
            Reason::RolledBack => "the database file was put back to an earlier state",
            Reason::ForeignWitness => "the witness file belongs to another database",
            Reason::WitnessMissing => "the witness file is missing or unreadable",
            Reason::DatabaseMissing => "the database file was gone",
        })
    }
}

// === impl Witness ===

const SLOT_BYTES: usize = 48;
/// The slots are in different sectors.
const SLOT_STRIDE: u64 = 4_096;
const MAGIC: &[u8; 8] = b"fgwitn01";

impl Witness {
    /// Where the witness of the database at `path` is.
    pub fn path(path: &Path) -> PathBuf {
        super::beside(path, ".witness")
    }

    /// Reads the witness of the database at `path`; `None` if there is none that makes sense.
    pub fn read(path: &Path) -> io::Result<Option<Seen>> {
        let file = match File::open(Witness::path(path)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let slot = |number: u64| -> io::Result<Option<Seen>> {
            let mut bytes = [0; SLOT_BYTES];
            match file.read_exact_at(&mut bytes, number * SLOT_STRIDE) {
                Ok(()) => Ok(decode(&bytes)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
                Err(error) => Err(error),
            }
        };
        Ok([slot(0)?, slot(1)?].into_iter().flatten().max_by_key(|seen| seen.seq))
    }

    /// Puts a new witness with `seen` in both slots in the place of any older one, durably.
    pub fn replace(path: &Path, seen: Seen) -> io::Result<Witness> {
        let target = Witness::path(path);
        let fresh = super::beside(path, ".witness.new");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&fresh)?;
        let mut witness = Witness { file, slot: 0 };
        witness.write(seen)?;
        witness.write(seen)?;
        witness.file.sync_all()?;
        std::fs::rename(&fresh, &target)?;
        super::sync_dir(path)?;
        Ok(witness)
    }

    /// Opens the witness that [`read`](Witness::read) has found good.
    pub fn open(path: &Path) -> io::Result<Witness> {
        let file = OpenOptions::new().read(true).write(true).open(Witness::path(path))?;
        Ok(Witness { file, slot: 0 })
    }

    /// Notes a commit that is durable already. Not synced: see the module's page.
    pub fn write(&mut self, seen: Seen) -> io::Result<()> {
        self.file.write_all_at(&encode(seen), self.slot * SLOT_STRIDE)?;
        self.slot = 1 - self.slot;
        Ok(())
    }
}

fn encode(seen: Seen) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(&seen.id.to_le_bytes());
    bytes[24..32].copy_from_slice(&seen.seq.to_le_bytes());
    bytes[32..40].copy_from_slice(&seen.high.to_le_bytes());
    let sum = checksum(&bytes[..40]);
    bytes[40..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Seen> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    if &bytes[..8] != MAGIC || number(40) != checksum(&bytes[..40]) {
        return None;
    }
    let id = u128::from_le_bytes(bytes[8..24].try_into().expect("16 bytes"));
    Some(Seen { id, seq: number(24), high: number(32) })
}

/// FNV-1a: finds torn writes, which is all it has to do.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { inode: 5, birth_ns: 6 };

    fn meta() -> Meta {
        Meta { schema: 1, id: 9, seq: 40, inode: 5, birth_ns: 6, ..Meta::default() }
    }

    fn seen(id: u128, seq: u64) -> Option<Seen> {
        Some(Seen { id, seq, high: 0 })
    }

    #[test]
    fn only_the_same_file_with_no_later_witness_is_itself() {
        let elsewhere = FileId { inode: 7, ..FILE };
        let reborn = FileId { birth_ns: 7, ..FILE };
        let timeless = FileId { birth_ns: 0, ..FILE };
        let cases = [
            ("clean stop", meta(), FILE, seen(9, 40), None),
            ("killed before the witness was written", meta(), FILE, seen(9, 39), None),
            ("power lost with the witness far behind", meta(), FILE, seen(9, 1), None),
            ("overwritten in place", meta(), FILE, seen(9, 41), Some(Reason::RolledBack)),
            ("copied elsewhere", meta(), elsewhere, seen(9, 40), Some(Reason::Copied)),
            ("inode used again", meta(), reborn, seen(9, 40), Some(Reason::Copied)),
            ("birth times no longer told", meta(), timeless, seen(9, 40), None),
            (
                "told since the kernel's upgrade",
                Meta { birth_ns: 0, ..meta() },
                FILE,
                seen(9, 40),
                None,
            ),
            ("another's witness", meta(), FILE, seen(8, 40), Some(Reason::ForeignWitness)),
            ("no witness", meta(), FILE, None, Some(Reason::WitnessMissing)),
            (
                "a backup in its place",
                Meta { backup_ms: 1, ..meta() },
                FILE,
                seen(9, 40),
                Some(Reason::Restored),
            ),
        ];
        for (case, meta, file, witness, want) in cases {
            assert_eq!(Reason::of(&meta, file, witness), want, "{case}");
        }
    }

    #[test]
    fn a_torn_witness_falls_back_to_the_slot_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.redb");
        let at = |seq| Seen { id: 1, seq, high: 3 };
        let mut witness = Witness::replace(&path, at(1)).unwrap();
        witness.write(at(2)).unwrap();
        witness.write(at(3)).unwrap();
        assert_eq!(Witness::read(&path).unwrap(), Some(at(3)));
        let file = OpenOptions::new().write(true).open(Witness::path(&path)).unwrap();
        file.write_all_at(b"torn", SLOT_STRIDE + 20).unwrap();
        assert_eq!(Witness::read(&path).unwrap(), Some(at(2)));
        file.write_all_at(b"torn", 20).unwrap();
        assert_eq!(Witness::read(&path).unwrap(), None);
    }

    #[test]
    fn every_reason_survives_being_stored() {
        for number in 1..=6 {
            assert_eq!(Reason::from_number(number).map(Reason::number), Some(number));
        }
        assert_eq!(Reason::from_number(0), None);
    }
}
