//! The enum that dispatches to a ledger without boxing.

#[cfg(feature = "embedded")]
use super::embedded::EmbeddedLedger;
use super::memory::MemoryLedger;
use super::{Ledger, LedgerError, PermitId, PermitRecord};
use crate::core::{Resource, Token};

/// One of the ledgers. Cheap to clone.
#[derive(Clone)]
pub enum AnyLedger {
    /// In the embedded database.
    #[cfg(feature = "embedded")]
    Embedded(EmbeddedLedger),
    /// In memory: tests and simulations.
    Memory(MemoryLedger),
}

macro_rules! each {
    ($any:expr, $ledger:ident => $call:expr) => {
        match $any {
            #[cfg(feature = "embedded")]
            AnyLedger::Embedded($ledger) => $call,
            AnyLedger::Memory($ledger) => $call,
        }
    };
}

impl Ledger for AnyLedger {
    async fn raise(&self, resource: &Resource, token: Token) -> Result<Token, LedgerError> {
        each!(self, ledger => ledger.raise(resource, token).await)
    }

    async fn look(
        &self,
        resource: &Resource,
        token: Token,
    ) -> Result<Vec<PermitRecord>, LedgerError> {
        each!(self, ledger => ledger.look(resource, token).await)
    }

    async fn take(
        &self,
        resource: &Resource,
        id: PermitId,
        token: Token,
    ) -> Result<bool, LedgerError> {
        each!(self, ledger => ledger.take(resource, id, token).await)
    }

    async fn give_back(&self, resource: &Resource, id: PermitId) -> Result<(), LedgerError> {
        each!(self, ledger => ledger.give_back(resource, id).await)
    }

    async fn mark(&self, resource: &Resource) -> Result<Option<Token>, LedgerError> {
        each!(self, ledger => ledger.mark(resource).await)
    }

    async fn permits(&self, resource: &Resource) -> Result<Vec<PermitRecord>, LedgerError> {
        each!(self, ledger => ledger.permits(resource).await)
    }
}
