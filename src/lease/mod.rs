//! L1: leases. One contract, one file per service that keeps them.
//!
//! A lease belongs to a term (a promotion, a leadership, one run of a job), never to one command
//! of it. What a backend must promise is in [`LeaseBackend`]; `tests/contract/lease.rs` checks it.

pub mod any;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod keeper;
pub mod watch;

use std::future::Future;
use std::time::Duration;

use crate::core::lease::Validation;
use crate::core::{Holder, Resource, Token};

pub use any::{AnyLease, Config};

/// What a caller asks for with an acquire.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What to lease.
    pub resource: Resource,
    /// The label of the asker.
    pub holder: Holder,
    /// How long the lease runs without a renewal: 1 s to 24 h.
    pub ttl: Duration,
    /// How long to wait for another holder to finish; zero asks once. At most 60 s.
    pub wait: Duration,
    /// A random id of this ask. The same id asked again gets the same grant, but only while that
    /// grant is the latest and unexpired. 1 to 128 printable ASCII characters.
    pub request_id: Option<String>,
}

/// A lease that was granted or renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What is leased.
    pub resource: Resource,
    /// To whom.
    pub holder: Holder,
    /// The fencing token.
    pub token: Token,
    /// The TTL granted.
    pub ttl: Duration,
    /// What is left of it as the backend answers. The holder counts from when it *sent* its call.
    pub expires_in: Duration,
}

/// One resource's lease as anyone may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// What is leased.
    pub resource: Resource,
    /// The latest holder.
    pub holder: Holder,
    /// The latest token issued.
    pub token: Token,
    /// Whether the lease is running.
    pub live: bool,
    /// Whether its holder gave it back.
    pub released: bool,
    /// What is left of it; zero if it is over.
    pub expires_in: Duration,
}

/// What happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Granted to a new holder.
    Acquired,
    /// Given back by its holder.
    Released,
    /// Ran out. Told no earlier than the end, and possibly later.
    Expired,
    /// Ended by an operator or because the database was restored.
    Revoked,
}

/// An entry of the watch stream. It carries no token, on purpose: a paused ex-holder that reads the
/// stream must not be handed its successor's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseEvent {
    /// Grows by one with every event of this process.
    pub id: u64,
    /// What changed.
    pub change: Change,
    /// Whose lease.
    pub resource: Resource,
    /// The holder it was granted to, or lost by.
    pub holder: Holder,
}

/// How far a backend's promises reach when its own servers fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// A majority of several servers agrees on every step.
    Consensus,
    /// One server or file; durable on it before it answers.
    SingleNodeDurable,
    /// Tokens may be lost or issued twice by a failure of the service.
    EfficiencyOnly,
}

/// Why a lease call failed: what happened, to which resource, what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Another holder has the lease. Expected in normal running.
    #[error(
        "the lease on {resource} is held by {holder}; try again in {retry_after:?} or ask it to release"
    )]
    Held {
        /// Which lease.
        resource: Resource,
        /// Who has it.
        holder: Holder,
        /// When it ends unless renewed.
        retry_after: Duration,
    },
    /// The token is not that of the running lease: it ended, or somebody else has it now.
    #[error(
        "the lease on {resource} is lost: token {token} no longer holds it; stop writing and acquire again"
    )]
    Lost {
        /// Which lease.
        resource: Resource,
        /// The token that was presented.
        token: Token,
    },
    /// The resource has no lease and never had one.
    #[error("no lease on {resource} was ever granted; check the name")]
    NeverLeased {
        /// Which name.
        resource: Resource,
    },
    /// A value outside its range.
    #[error("{what}")]
    Invalid {
        /// What is wrong and what is allowed.
        what: String,
    },
    /// Too many callers wait for this lease already.
    #[error("{waiting} callers wait for the lease on {resource} already; try again later")]
    TooManyWaiters {
        /// Which lease.
        resource: Resource,
        /// How many wait.
        waiting: usize,
    },
    /// No more tokens: the counter of the resource is at 2^63 - 1.
    #[error("the tokens of {resource} are used up; lease another resource name")]
    Exhausted {
        /// Which resource.
        resource: Resource,
    },
    /// No answer in time: the call may or may not have taken effect.
    #[error(
        "{backend} did not answer for {resource} within {waited:?}; see `fencegate check --live`"
    )]
    Unknown {
        /// Which backend.
        backend: &'static str,
        /// For which resource.
        resource: Resource,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The backend answered with a fault of its own.
    #[error(
        "the {backend} lease backend failed for {resource}; see the cause in the log and `fencegate check --live`"
    )]
    Backend {
        /// Which backend.
        backend: &'static str,
        /// For which resource.
        resource: Resource,
        /// Its fault.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A service that grants each resource to one holder at a time.
pub trait LeaseBackend: Send + Sync + 'static {
    /// Asks for a lease; waits in arrival order up to `ask.wait` while another holder has it.
    ///
    /// The token of the grant is greater than every token granted for the resource before: across
    /// release, expiry, restart. The latest token is durable before this returns.
    ///
    /// # Errors
    /// [`LeaseError::Held`] after the wait, also when the asker's own name holds it: a name is a
    /// label, not a credential. [`LeaseError::Unknown`]: the grant may exist; ask again with the same
    /// `request_id`, or wait one TTL.
    /// # Cancel safety
    /// A dropped wait leaves the queue and holds nothing. A dropped call past the wait may leave a
    /// grant behind until its TTL ends.
    fn acquire(&self, ask: Ask) -> impl Future<Output = Result<Grant, LeaseError>> + Send;

    /// Extends the lease by `ttl` (default: the TTL it was granted with), counted from now.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] unless `token` is that of the running lease.
    fn renew(
        &self,
        resource: &Resource,
        token: Token,
        ttl: Option<Duration>,
    ) -> impl Future<Output = Result<Grant, LeaseError>> + Send;

    /// Gives the lease back; durable before it returns. Repeating it is no error while the token is
    /// still the latest.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] unless `token` is the latest one issued; then nothing changes.
    fn release(
        &self,
        resource: &Resource,
        token: Token,
    ) -> impl Future<Output = Result<(), LeaseError>> + Send;

    /// Judges a token against the latest one, by a linearizable read.
    ///
    /// # Errors
    /// [`LeaseError::Unknown`] or [`LeaseError::Backend`]: never to be taken for a pass.
    fn validate(
        &self,
        resource: &Resource,
        token: Token,
    ) -> impl Future<Output = Result<Validation, LeaseError>> + Send;

    /// The lease of one resource; `None` if it never had one.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    fn inspect(
        &self,
        resource: &Resource,
    ) -> impl Future<Output = Result<Option<LeaseView>, LeaseError>> + Send;

    /// Leases whose name starts with `prefix` and sorts after `after`, by name, at most `limit`.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<LeaseView>, LeaseError>> + Send;

    /// Makes every token up to and including `above`, and every token issued so far, stale, and ends
    /// the running lease: the operator's way on after an incident. Returns the new latest token,
    /// which nobody holds. Durable before it returns.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and [`LeaseError::Exhausted`].
    fn bump(
        &self,
        resource: &Resource,
        above: Option<Token>,
    ) -> impl Future<Output = Result<Token, LeaseError>> + Send;

    /// How far its promises reach.
    fn grade(&self) -> Grade;

    /// Whether a validation is a look into this process's memory: then it is worth repeating at the
    /// last moment.
    fn is_local(&self) -> bool {
        false
    }
}
