//! Ledger in the embedded database: for one replica, which is the only one that writes the file.

use super::{Ledger, LedgerError, PermitId, PermitRecord, Step};
use crate::core::{Resource, Token};
use crate::store::embedded::{Permit, Store, StoreError};

/// The marks and permits of one database. Cheap to clone.
#[derive(Clone)]
pub struct EmbeddedLedger {
    store: Store,
}

// === impl EmbeddedLedger ===

impl EmbeddedLedger {
    /// The ledger of `store`.
    pub fn new(store: Store) -> EmbeddedLedger {
        EmbeddedLedger { store }
    }
}

fn failed(step: Step, resource: &Resource) -> impl FnOnce(StoreError) -> LedgerError {
    let resource = resource.clone();
    move |cause| LedgerError::Failed { step, resource, cause: Box::new(cause) }
}

fn shown(permit: Permit) -> PermitRecord {
    PermitRecord { id: permit.id, token: permit.token }
}

impl Ledger for EmbeddedLedger {
    async fn raise(&self, resource: &Resource, token: Token) -> Result<Token, LedgerError> {
        self.store.raise(resource, token).await.map_err(failed(Step::Raise, resource))
    }

    async fn look(
        &self,
        resource: &Resource,
        token: Token,
    ) -> Result<Vec<PermitRecord>, LedgerError> {
        let permits = self.store.permits(resource).map_err(failed(Step::Look, resource))?;
        Ok(permits.into_iter().filter(|permit| permit.token < token).map(shown).collect())
    }

    async fn take(
        &self,
        resource: &Resource,
        id: PermitId,
        token: Token,
    ) -> Result<bool, LedgerError> {
        self.store.take(resource, id, token).await.map_err(failed(Step::Take, resource))
    }

    async fn give_back(&self, resource: &Resource, id: PermitId) -> Result<(), LedgerError> {
        self.store.give_back(resource, id).await.map_err(failed(Step::GiveBack, resource))
    }

    async fn mark(&self, resource: &Resource) -> Result<Option<Token>, LedgerError> {
        self.store.mark(resource).map_err(failed(Step::Read, resource))
    }

    async fn permits(&self, resource: &Resource) -> Result<Vec<PermitRecord>, LedgerError> {
        let permits = self.store.permits(resource).map_err(failed(Step::Read, resource))?;
        Ok(permits.into_iter().map(shown).collect())
    }
}
