//! The tables of the database file and their rows.

use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::rows::Permit;
use crate::core::gate::{Incarnation, PermitId};
use crate::core::lease::{Phase, Record};
use crate::core::{Holder, Millis, Resource, Token};

/// The schema this version writes, and the greatest it reads.
pub(crate) const SCHEMA: u64 = 1;

/// Numbers about the file; names in [`Meta`].
pub(super) const META: TableDefinition<&str, u128> = TableDefinition::new("meta");
/// Resource → token, TTL granted, longest TTL, phase, holder, request id ("" for none).
pub(super) const LEASES: TableDefinition<&str, LeaseRow> = TableDefinition::new("leases");
/// Resource → mark.
pub(super) const MARKS: TableDefinition<&str, u64> = TableDefinition::new("marks");
/// Resource, incarnation, serial → token.
pub(super) const PERMITS: TableDefinition<PermitKey, u64> = TableDefinition::new("permits");

pub(super) type LeaseRow = (u64, u32, u32, u8, &'static str, &'static str);
pub(super) type PermitKey = (&'static str, u128, u64);

/// What the file says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Version of the layout.
    pub schema: u64,
    /// Random id of this lineage; a new one after every revocation.
    pub id: u128,
    /// Grows by one with every commit.
    pub seq: u64,
    /// No token up to here is valid; 0 if nothing was ever revoked as a whole.
    pub floor: u64,
    /// Inode that the file had when the id was made.
    pub inode: u64,
    /// Its birth time then, in nanoseconds since 1970; 0 if the file system has none.
    pub birth_ns: u128,
    /// When this file was made as a backup, in milliseconds since 1970; 0 if it was not.
    pub backup_ms: u64,
    /// Why everything was last revoked; 0 if it never was.
    pub revoked_why: u64,
    /// When, in milliseconds since 1970.
    pub revoked_ms: u64,
    /// The rules under which every permit in it was taken, as a hash; 0 if they differ or are not known.
    pub mapping: u128,
    /// Not 0: permits may be missing, since the file was put back to an earlier state or lost.
    pub doubt: u64,
}

/// A row that no version of this program writes.
#[derive(Debug, thiserror::Error)]
#[error("table {table}: the row of {key:?} makes no sense")]
pub(crate) struct BadRow {
    table: &'static str,
    key: String,
}

// === impl Meta ===

impl Meta {
    pub fn read(txn: &ReadTransaction) -> Result<Meta, redb::Error> {
        let table = txn.open_table(META)?;
        let wide = |name: &str| -> Result<u128, redb::Error> {
            Ok(table.get(name)?.map_or(0, |value| value.value()))
        };
        let number = |name: &str| Ok::<u64, redb::Error>(wide(name)? as u64);
        Ok(Meta {
            schema: number("schema")?,
            id: wide("id")?,
            seq: number("seq")?,
            floor: number("floor")?,
            inode: number("inode")?,
            birth_ns: wide("birth_ns")?,
            backup_ms: number("backup_ms")?,
            revoked_why: number("revoked_why")?,
            revoked_ms: number("revoked_ms")?,
            mapping: wide("mapping")?,
            doubt: number("doubt")?,
        })
    }

    pub fn write(&self, txn: &WriteTransaction) -> Result<(), redb::Error> {
        let mut table = txn.open_table(META)?;
        table.insert("schema", u128::from(self.schema))?;
        table.insert("id", self.id)?;
        table.insert("seq", u128::from(self.seq))?;
        table.insert("floor", u128::from(self.floor))?;
        table.insert("inode", u128::from(self.inode))?;
        table.insert("birth_ns", self.birth_ns)?;
        table.insert("backup_ms", u128::from(self.backup_ms))?;
        table.insert("revoked_why", u128::from(self.revoked_why))?;
        table.insert("revoked_ms", u128::from(self.revoked_ms))?;
        table.insert("mapping", self.mapping)?;
        table.insert("doubt", u128::from(self.doubt))?;
        Ok(())
    }

    /// Writes what commits change: the sequence number, and the mapping if it is another. A mapping that
    /// is known ends the doubt: its writer has waited for what might be missing.
    pub fn write_commit(
        txn: &WriteTransaction,
        seq: u64,
        mapping: Option<u128>,
    ) -> Result<(), redb::Error> {
        let mut table = txn.open_table(META)?;
        table.insert("seq", u128::from(seq))?;
        if let Some(mapping) = mapping {
            table.insert("mapping", mapping)?;
            if mapping != 0 {
                table.insert("doubt", 0)?;
            }
        }
        Ok(())
    }
}

// === rows ===

/// Makes every table, so that readers find them in an empty database too.
pub(super) fn create_tables(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(LEASES)?;
    txn.open_table(MARKS)?;
    txn.open_table(PERMITS)?;
    Ok(())
}

pub(super) fn put_lease(
    table: &mut Table<'_, &'static str, LeaseRow>,
    name: &Resource,
    record: &Record,
) -> Result<(), redb::StorageError> {
    let row = (
        record.token.get(),
        record.ttl_ms,
        record.longest_ms,
        phase_number(record.phase),
        record.holder.as_str(),
        record.request_id.as_deref().unwrap_or(""),
    );
    table.insert(name.as_str(), row)?;
    Ok(())
}

fn phase_number(phase: Phase) -> u8 {
    match phase {
        Phase::Granted => 1,
        Phase::Expired => 2,
        Phase::Released => 3,
        Phase::Revoked => 4,
    }
}

fn phase(number: u8) -> Option<Phase> {
    match number {
        1 => Some(Phase::Granted),
        2 => Some(Phase::Expired),
        3 => Some(Phase::Released),
        4 => Some(Phase::Revoked),
        _ => None,
    }
}

/// Tells `each` every lease, by name. The deadline is the longest TTL from `boot_now`: what was
/// left of it when the last process ended is not known.
pub(super) fn each_lease(
    txn: &ReadTransaction,
    boot_now: Millis,
    mut each: impl FnMut(Resource, Record),
) -> Result<(), LoadError> {
    let mut last_holder: Option<Holder> = None;
    for entry in txn.open_table(LEASES)?.iter()? {
        let (key, value) = entry?;
        let (token, ttl_ms, longest_ms, number, holder, request_id) = value.value();
        let bad = || BadRow { table: "leases", key: key.value().to_owned() };
        // Many resources often share a holder; they then share its name in memory.
        let holder = match last_holder.take().filter(|last| last.as_str() == holder) {
            Some(last) => last,
            None => Holder::new(holder).map_err(|_| bad())?,
        };
        last_holder = Some(holder.clone());
        let longest = std::time::Duration::from_millis(longest_ms.into());
        let record = Record {
            token: Token::new(token).ok_or_else(bad)?,
            holder,
            request_id: Some(request_id).filter(|id| !id.is_empty()).map(Box::from),
            until: boot_now + longest,
            ttl_ms,
            longest_ms,
            phase: phase(number).ok_or_else(bad)?,
        };
        each(Resource::new(key.value()).map_err(|_| bad())?, record);
    }
    Ok(())
}

/// Tells `each` every mark, by name.
pub(super) fn each_mark(
    txn: &ReadTransaction,
    mut each: impl FnMut(Resource, Token),
) -> Result<(), LoadError> {
    for entry in txn.open_table(MARKS)?.iter()? {
        let (key, value) = entry?;
        let bad = || BadRow { table: "marks", key: key.value().to_owned() };
        let token = Token::new(value.value()).ok_or_else(bad)?;
        each(Resource::new(key.value()).map_err(|_| bad())?, token);
    }
    Ok(())
}

/// Tells `each` every permit, by name.
pub(super) fn each_permit(
    txn: &ReadTransaction,
    mut each: impl FnMut(Resource, Permit),
) -> Result<(), LoadError> {
    for entry in txn.open_table(PERMITS)?.iter()? {
        let (key, value) = entry?;
        let (name, incarnation, serial) = key.value();
        let bad = || BadRow { table: "permits", key: name.to_owned() };
        let token = Token::new(value.value()).ok_or_else(bad)?;
        let id = PermitId { incarnation: Incarnation(incarnation), serial };
        each(Resource::new(name).map_err(|_| bad())?, Permit { id, token });
    }
    Ok(())
}

/// Why the content could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Row(#[from] BadRow),
    #[error(transparent)]
    Database(#[from] redb::Error),
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for LoadError {
            fn from(error: redb::$error) -> LoadError {
                LoadError::Database(error.into())
            }
        }
    )*};
}

from_redb!(StorageError, TableError, TransactionError, CommitError, DatabaseError);
