//! Step 5: the fence. Drives one [`Gate`](crate::core::gate) per resource against the ledger.

use std::time::Duration;

use super::refusal::Refusal;
use crate::core::{Resource, Token};

/// One permit as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PermitView {
    /// Its id: incarnation and serial.
    pub id: String,
    /// Its token.
    pub token: Token,
    /// Whether this process took it.
    pub mine: bool,
    /// Exchanges past their commit point.
    pub counted: usize,
    /// Exchanges admitted, not past their commit point.
    pub streaming: usize,
    /// Whether an outcome under it is unknown.
    pub tainted: bool,
    /// When the taint ends by itself; absent if only an operator ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clears_in_ms: Option<u64>,
}

/// One resource's fence as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FenceView {
    /// Whose fence.
    pub resource: Resource,
    /// The highest token a fenced operation was admitted with.
    pub mark: Option<Token>,
    /// Every permit of the ledger.
    pub permits: Vec<PermitView>,
    /// Requests that wait for older writes to settle.
    pub waiting: usize,
    /// Why the resource fails closed, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

/// The fences of all resources of this replica. Cheap to clone; shared by all threads.
#[derive(Clone)]
pub struct Fences {}

// === impl Fences ===

impl Fences {
    /// The barrier: validates `token`, raises the mark to it and waits until every older write of the
    /// resource has settled, at most `wait`.
    ///
    /// # Errors
    /// The refusal that a write with this token would get.
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves the queue; the mark may stay raised.
    pub async fn barrier(
        &self,
        resource: &Resource,
        token: Token,
        wait: Duration,
    ) -> Result<(), Refusal> {
        let _ = (resource, token, wait);
        Err(Refusal::ShuttingDown)
    }

    /// What the fence of a resource looks like now.
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger cannot be read.
    pub async fn show(&self, resource: &Resource) -> Result<FenceView, Refusal> {
        let _ = resource;
        Err(Refusal::ShuttingDown)
    }

    /// The operator's override: declares every unknown outcome of the resource settled and every permit
    /// of an earlier incarnation gone. Returns how many permits that freed.
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger did not take it.
    pub async fn settle(&self, resource: &Resource) -> Result<usize, Refusal> {
        let _ = resource;
        Err(Refusal::ShuttingDown)
    }

    /// Every resource with a permit, a waiter or a reason to fail closed, by name, at most `limit`.
    pub fn busy(&self, limit: usize) -> Vec<FenceView> {
        let _ = limit;
        Vec::new()
    }
}
