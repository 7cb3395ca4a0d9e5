//! The database's content in memory: what every read is answered from, without disk or waiting.
//!
//! A resource costs one allocation for its row, one for its name, one for its holder and a pointer
//! in a hash table; permits, which few resources have at a time, are kept apart.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashTable;

use crate::core::gate::PermitId;
use crate::core::lease::Record;
use crate::core::{Millis, Resource, Token};

const SHARDS: usize = 64;

/// A permit as the database has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Whose, and which.
    pub id: PermitId,
    /// For which token.
    pub token: Token,
}

/// What is known of one resource.
#[derive(Debug)]
pub(crate) struct Row {
    pub name: Resource,
    pub lease: Option<Record>,
    pub mark: Option<Token>,
    /// Under which deadline the writer's expiry index has it; `NEVER` if it is not there.
    pub indexed: Millis,
}

#[derive(Default)]
struct Shard {
    rows: HashTable<Box<Row>>,
    permits: HashMap<Resource, Vec<Permit>>,
}

/// All rows, in shards. Only the writer thread adds rows or changes what is durable; renewals
/// change deadlines from any thread.
pub(crate) struct Rows {
    hasher: RandomState,
    shards: Box<[RwLock<Shard>]>,
}

// === impl Rows ===

impl Rows {
    pub fn new() -> Rows {
        Rows {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
        }
    }

    fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    // The table uses the low and the topmost bits of the hash, so the shard takes some between.
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    // A panic under one of these locks leaves whole values behind: every change is one assignment.
    fn reading(&self, hash: u64) -> RwLockReadGuard<'_, Shard> {
        self.shard(hash).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self, hash: u64) -> RwLockWriteGuard<'_, Shard> {
        self.shard(hash).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `look` the row of a resource.
    pub fn read<T>(&self, name: &Resource, look: impl FnOnce(Option<&Row>) -> T) -> T {
        let hash = self.hash(name.as_str());
        let shard = self.reading(hash);
        look(shard.rows.find(hash, |row| row.name == *name).map(|row| &**row))
    }

    /// Lets `change` change the row of a resource, if it has one.
    pub fn change<T>(&self, name: &Resource, change: impl FnOnce(Option<&mut Row>) -> T) -> T {
        let hash = self.hash(name.as_str());
        let mut shard = self.writing(hash);
        change(shard.rows.find_mut(hash, |row| row.name == *name).map(|row| &mut **row))
    }

    /// Lets `change` change the row of a resource, which is made if it has none.
    pub fn upsert<T>(&self, name: &Resource, change: impl FnOnce(&mut Row) -> T) -> T {
        let hash = self.hash(name.as_str());
        let mut shard = self.writing(hash);
        let fresh = || {
            Box::new(Row { name: name.clone(), lease: None, mark: None, indexed: Millis::NEVER })
        };
        let mut entry = shard
            .rows
            .entry(hash, |row| row.name == *name, |row| self.hash(row.name.as_str()))
            .or_insert_with(fresh);
        change(entry.get_mut())
    }

    /// Lets `change` change every row, in no particular order.
    pub fn each(&self, mut change: impl FnMut(&mut Row)) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.rows.iter_mut().for_each(|row| change(row));
        }
    }

    /// The permits of a resource.
    pub fn permits(&self, name: &Resource) -> Vec<Permit> {
        self.reading(self.hash(name.as_str())).permits.get(name).cloned().unwrap_or_default()
    }

    /// Every resource with a permit for which `which` holds, in no particular order.
    pub fn with_permits(&self, which: impl Fn(&Permit) -> bool) -> Vec<Resource> {
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let such = shard.permits.iter().filter(|(_, permits)| permits.iter().any(&which));
            names.extend(such.map(|(name, _)| name.clone()));
        }
        names
    }

    /// Replaces the permits of a resource.
    pub fn set_permits(&self, name: &Resource, permits: Vec<Permit>) {
        let mut shard = self.writing(self.hash(name.as_str()));
        match permits.is_empty() {
            true => drop(shard.permits.remove(name)),
            false => drop(shard.permits.insert(name.clone(), permits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stays_within_its_share_of_300_bytes_per_resource() {
        // Row 96 + allocator 16, name and holder 48 each, table slot up to 21, index up to 40.
        assert!(size_of::<Row>() <= 96, "{}", size_of::<Row>());
    }
}
