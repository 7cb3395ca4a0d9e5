//! L1: the ledger of marks and permits, durable before it is relied on.
//!
//! A *mark* is the highest token a fenced operation was admitted with; it is never lowered and never
//! forgotten. A *permit* says that one replica may have exchanges of one token past their commit
//! point. Entering is three steps in this order: raise, look, take.

pub mod any;
pub mod config;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod memory;

use std::fmt;
use std::future::Future;

use crate::core::{Resource, Token};

pub use crate::core::gate::{Incarnation, PermitId};
pub use any::AnyLedger;
pub use config::{Config, LedgerKind};

/// A permit as the ledger shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PermitRecord {
    /// Which permit, by which replica.
    pub id: PermitId,
    /// For which token.
    pub token: Token,
}

/// Why a ledger call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// No answer: the step may or may not have taken effect.
    #[error("the ledger did not confirm {step} for {resource}; the write waits until it does")]
    Unknown {
        /// Which step.
        step: Step,
        /// For which resource.
        resource: Resource,
    },
    /// The ledger failed. For the embedded one this ends the process.
    #[error("the ledger failed in {step} for {resource}; see the cause in the log")]
    Failed {
        /// Which step.
        step: Step,
        /// For which resource.
        resource: Resource,
        /// Its fault.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The steps a ledger takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the mark at least this token.
    Raise,
    /// See which permits of lower tokens there are.
    Look,
    /// Record a permit, if the mark is its token.
    Take,
    /// Remove a permit.
    GiveBack,
    /// Read a mark.
    Read,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Raise => "raise",
            Step::Look => "look",
            Step::Take => "take",
            Step::GiveBack => "give back",
            Step::Read => "read",
        })
    }
}

/// Keeps marks and permits. Suite: `tests/contract/ledger.rs`.
pub trait Ledger: Send + Sync + 'static {
    /// Makes the mark of `resource` at least `token`. Returns the mark, which is greater than `token`
    /// if somebody raised it further. Durable before it returns.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`]: the mark may have risen, so ask again before relying on either.
    fn raise(
        &self,
        resource: &Resource,
        token: Token,
    ) -> impl Future<Output = Result<Token, LedgerError>> + Send;

    /// Every permit of `resource` whose token is below `token`, of any replica, by a linearizable read.
    ///
    /// # Errors
    /// Any error means "there may be some".
    fn look(
        &self,
        resource: &Resource,
        token: Token,
    ) -> impl Future<Output = Result<Vec<PermitRecord>, LedgerError>> + Send;

    /// Records a permit, guarded by mark = `token`. `Ok(false)` if the mark is another: nothing was
    /// recorded. Durable before it returns. `id` is fresh and never used again.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`]: the permit may exist, so give it back until that is confirmed.
    fn take(
        &self,
        resource: &Resource,
        id: PermitId,
        token: Token,
    ) -> impl Future<Output = Result<bool, LedgerError>> + Send;

    /// Removes a permit; no error if there is none. Need not be durable before it returns: a permit
    /// that comes back after a crash only makes a successor wait.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`]: repeat it until confirmed.
    fn give_back(
        &self,
        resource: &Resource,
        id: PermitId,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send;

    /// The mark of a resource; `None` if no fenced operation was ever admitted.
    ///
    /// # Errors
    /// [`LedgerError`] if it could not be read.
    fn mark(
        &self,
        resource: &Resource,
    ) -> impl Future<Output = Result<Option<Token>, LedgerError>> + Send;

    /// All permits of a resource.
    ///
    /// # Errors
    /// [`LedgerError`] if they could not be read.
    fn permits(
        &self,
        resource: &Resource,
    ) -> impl Future<Output = Result<Vec<PermitRecord>, LedgerError>> + Send;
}
