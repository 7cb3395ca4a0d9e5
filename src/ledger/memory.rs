//! Ledger in memory, for tests and simulations: durable as long as the process lives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Ledger, LedgerError, PermitId, PermitRecord};
use crate::core::{Resource, Token};

/// Marks and permits in memory. Clones share them, as replicas share a ledger.
#[derive(Clone, Default)]
pub struct MemoryLedger {
    rows: Arc<Mutex<BTreeMap<Resource, Row>>>,
}

#[derive(Default)]
struct Row {
    mark: Option<Token>,
    permits: BTreeMap<PermitId, Token>,
}

// === impl MemoryLedger ===

impl MemoryLedger {
    /// An empty one.
    pub fn new() -> MemoryLedger {
        MemoryLedger::default()
    }

    // Every change under the lock is one assignment: a panic elsewhere leaves sound rows.
    fn rows(&self) -> MutexGuard<'_, BTreeMap<Resource, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permits_below(&self, resource: &Resource, below: Option<Token>) -> Vec<PermitRecord> {
        let rows = self.rows();
        let permits = rows.get(resource).into_iter().flat_map(|row| &row.permits);
        permits
            .filter(|(_, token)| below.is_none_or(|below| **token < below))
            .map(|(id, token)| PermitRecord { id: *id, token: *token })
            .collect()
    }
}

impl Ledger for MemoryLedger {
    async fn raise(&self, resource: &Resource, token: Token) -> Result<Token, LedgerError> {
        let mut rows = self.rows();
        let row = rows.entry(resource.clone()).or_default();
        let mark = row.mark.map_or(token, |mark| mark.max(token));
        row.mark = Some(mark);
        Ok(mark)
    }

    async fn look(
        &self,
        resource: &Resource,
        token: Token,
    ) -> Result<Vec<PermitRecord>, LedgerError> {
        Ok(self.permits_below(resource, Some(token)))
    }

    async fn take(
        &self,
        resource: &Resource,
        id: PermitId,
        token: Token,
    ) -> Result<bool, LedgerError> {
        let mut rows = self.rows();
        let Some(row) = rows.get_mut(resource).filter(|row| row.mark == Some(token)) else {
            return Ok(false);
        };
        row.permits.insert(id, token);
        Ok(true)
    }

    async fn give_back(&self, resource: &Resource, id: PermitId) -> Result<(), LedgerError> {
        if let Some(row) = self.rows().get_mut(resource) {
            row.permits.remove(&id);
        }
        Ok(())
    }

    async fn mark(&self, resource: &Resource) -> Result<Option<Token>, LedgerError> {
        Ok(self.rows().get(resource).and_then(|row| row.mark))
    }

    async fn permits(&self, resource: &Resource) -> Result<Vec<PermitRecord>, LedgerError> {
        Ok(self.permits_below(resource, None))
    }
}
