//! Every reason to refuse a request, and the only place that picks a status for it.

use std::time::Duration;

use http::StatusCode;

use crate::core::token::TokenError;
use crate::core::{Resource, Token};

/// Why a request was refused, before or instead of being forwarded.
///
/// A variant carries what the client may be told. Addresses and causes go to the log only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    // --- the token
    /// The token is lower than the latest one, or than the mark.
    StaleToken {
        /// Of which resource.
        resource: Resource,
        /// What was presented. The latest one is never echoed to the writer of a stale one.
        presented: Token,
    },
    /// The holder gave the lease back, and writes on.
    LeaseReleased {
        /// Of which resource.
        resource: Resource,
        /// Its token.
        presented: Token,
    },
    /// The lease ran out and the rule says `require_live`.
    LeaseExpired {
        /// Of which resource.
        resource: Resource,
        /// Its token.
        presented: Token,
    },
    /// A fenced write (or, under `reads = "fenced"`, a read) without a token.
    MissingToken {
        /// Of which resource.
        resource: Resource,
    },
    /// Not a token.
    InvalidToken {
        /// Which rule it breaks.
        fault: TokenFault,
    },
    /// Higher than any token issued for the resource.
    UnknownToken {
        /// Of which resource.
        resource: Resource,
        /// What was presented.
        presented: Token,
    },
    // --- the request
    /// A write that no rule covers.
    NoRule {
        /// Its key.
        key: String,
    },
    /// One request that writes keys of several resources.
    MultipleResources {
        /// One key and its resource.
        first: (String, String),
        /// Another key and its resource.
        second: (String, String),
    },
    /// A key that the store may read otherwise than we do.
    AmbiguousKey {
        /// The key as decoded.
        key: String,
        /// What is wrong with it, or which other reading falls elsewhere.
        why: String,
    },
    /// A shape that is not certainly one known operation.
    InvalidRequest {
        /// What is wrong and what to send instead.
        why: String,
    },
    /// An operation that is not known.
    UnknownOperation {
        /// Method and what made it unknown.
        what: String,
    },
    /// `Host` names somebody else.
    Misdirected {
        /// The Host, as sent.
        host: String,
    },
    /// A document or body larger than may be held back.
    TooLarge {
        /// What it was.
        what: &'static str,
        /// The limit in bytes and the key of the configuration that raises it.
        limit: u64,
        /// The key of the configuration.
        key: &'static str,
    },
    /// The head of the request is too large.
    HeadTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    // --- the fence
    /// Waited for older writes of the resource to settle.
    Draining {
        /// Of which resource.
        resource: Resource,
        /// When to ask again, at least one second.
        retry_after: Duration,
        /// What is waited for.
        why: String,
    },
    /// Too many requests wait for the resource, or too much is held back already.
    Busy {
        /// What is full.
        what: &'static str,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The lease backend or the ledger gave no sure answer; or the resource fails closed.
    FenceUnavailable {
        /// Of which resource.
        resource: Resource,
        /// What happened and what to do.
        why: String,
    },
    /// The process is shutting down.
    ShuttingDown,
    // --- the store
    /// No connection to the store, or no usable answer.
    UpstreamFailed {
        /// Whether the write may have happened.
        unknown: bool,
        /// What happened, without addresses.
        why: String,
    },
    /// The store did not answer in time.
    UpstreamTimeout {
        /// Whether the write may have happened.
        unknown: bool,
    },
    /// A step of the proxy panicked; the request got no further.
    Internal,
}

/// What is wrong with how a token was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Its text.
    Malformed(TokenError),
    /// More than one.
    Repeated,
    /// Two carriers with different tokens.
    Contradicting,
}

/// Status and stable code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The status.
    pub status: StatusCode,
    /// The S3 code, in CamelCase; the REST type is the same in kebab-case unless `rest` says otherwise.
    pub code: &'static str,
    /// The last part of the REST problem type `/errors/…`.
    pub rest: &'static str,
}
