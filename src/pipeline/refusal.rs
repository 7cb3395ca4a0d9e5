//! Every reason to refuse a request, and the only place that picks a status for it.
//!
//! What a client sees is the status, the code and the text of a refusal; `docs/reference/refusals.md` lists
//! them. Addresses and causes go to the log only.

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

/// Every code that [`Refusal::rank`] gives.
pub const CODES: &[&str] = &[
    "AmbiguousKey",
    "BadGateway",
    "EntityTooLarge",
    "GatewayTimeout",
    "InternalError",
    "InvalidFencingToken",
    "InvalidRequest",
    "LeaseExpired",
    "LeaseReleased",
    "MisdirectedRequest",
    "MissingFencingToken",
    "MultipleResources",
    "NoFenceRule",
    "NotImplemented",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "StaleFencingToken",
    "UnknownFencingToken",
];

// === impl Refusal ===

impl Refusal {
    /// Status and code.
    ///
    /// * `conditional` — the request itself is conditional: its client expects a 412 of its own and would
    ///   misread ours, so what is 412 becomes 403.
    pub fn rank(&self, conditional: bool) -> Rank {
        let fenced =
            if conditional { StatusCode::FORBIDDEN } else { StatusCode::PRECONDITION_FAILED };
        let (status, code, rest) = match self {
            Refusal::StaleToken { .. } => (fenced, "StaleFencingToken", "stale-fencing-token"),
            Refusal::LeaseReleased { .. } => (fenced, "LeaseReleased", "lease-released"),
            Refusal::LeaseExpired { .. } => (fenced, "LeaseExpired", "lease-expired"),
            Refusal::MissingToken { .. } => {
                (StatusCode::PRECONDITION_REQUIRED, "MissingFencingToken", "missing-fencing-token")
            }
            Refusal::InvalidToken { .. } => {
                (StatusCode::BAD_REQUEST, "InvalidFencingToken", "invalid-fencing-token")
            }
            Refusal::UnknownToken { .. } => {
                (StatusCode::FORBIDDEN, "UnknownFencingToken", "unknown-fencing-token")
            }
            Refusal::NoRule { .. } => (StatusCode::FORBIDDEN, "NoFenceRule", "no-fence-rule"),
            Refusal::MultipleResources { .. } => {
                (StatusCode::BAD_REQUEST, "MultipleResources", "multiple-resources")
            }
            Refusal::AmbiguousKey { .. } => {
                (StatusCode::BAD_REQUEST, "AmbiguousKey", "ambiguous-key")
            }
            Refusal::InvalidRequest { .. } => {
                (StatusCode::BAD_REQUEST, "InvalidRequest", "invalid-request")
            }
            Refusal::UnknownOperation { .. } => {
                (StatusCode::NOT_IMPLEMENTED, "NotImplemented", "not-implemented")
            }
            Refusal::Misdirected { .. } => {
                (StatusCode::MISDIRECTED_REQUEST, "MisdirectedRequest", "misdirected")
            }
            Refusal::TooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "EntityTooLarge", "too-large")
            }
            Refusal::BodyTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "RequestTimeout", "request-timeout")
            }
            Refusal::Draining { .. } | Refusal::Busy { .. } | Refusal::ShuttingDown => {
                (StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "draining")
            }
            Refusal::FenceUnavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "fence-unavailable")
            }
            Refusal::UpstreamFailed { .. } => {
                (StatusCode::BAD_GATEWAY, "BadGateway", "bad-gateway")
            }
            Refusal::UpstreamTimeout { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "GatewayTimeout", "gateway-timeout")
            }
            Refusal::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "internal"),
        };
        Rank { status, code, rest }
    }

    /// What happened, to which resource, and what to do next: for the client.
    pub fn text(&self) -> String {
        match self {
            Refusal::StaleToken { resource, presented } => format!(
                "fencing token {presented} for {resource} is stale: a newer one was issued. This writer has lost its lease: stop it. A new lease begins a new term; never take one only to repeat this write."
            ),
            Refusal::LeaseReleased { resource, presented } => format!(
                "the lease on {resource} with fencing token {presented} was released by its holder, or ended by an operator. Acquire a new lease before writing again."
            ),
            Refusal::LeaseExpired { resource, presented } => format!(
                "the lease on {resource} with fencing token {presented} has expired and this request needs a running one. Acquire a new lease before writing again."
            ),
            Refusal::MissingToken { resource } => format!(
                "this request concerns {resource}, which is fenced, and carries no Fencing-Token header. Acquire a lease (`fencegate lease acquire {resource}`) and send its token."
            ),
            Refusal::InvalidToken { fault } => match fault {
                TokenFault::Malformed(fault) => {
                    format!("the Fencing-Token header is not a token: {fault}.")
                }
                TokenFault::Repeated => {
                    "there is more than one Fencing-Token header; send exactly one.".to_owned()
                }
                TokenFault::Contradicting => {
                    "two carriers bring different fencing tokens; send exactly one.".to_owned()
                }
            },
            Refusal::UnknownToken { resource, presented } => format!(
                "fencing token {presented} was never issued for {resource}. Check that the lease was acquired for this very resource; `fencegate explain` tells which resource a request concerns."
            ),
            Refusal::NoRule { key } => format!(
                "no rule covers a write of {key:?}. Add a [[rule]] that matches it, with a resource or with fence = \"none\"."
            ),
            Refusal::MultipleResources { first, second } => format!(
                "one request may write one resource only, but {:?} belongs to {} and {:?} to {}. Split it into one request per resource.",
                first.0, first.1, second.0, second.1
            ),
            Refusal::AmbiguousKey { key, why } => {
                format!("the key {key:?} is refused on a write: {why}.")
            }
            Refusal::InvalidRequest { why } => format!("{why}."),
            Refusal::UnknownOperation { what } => {
                format!("no known operation: {what}. It is not forwarded, since nothing is known of its effect.")
            }
            Refusal::Misdirected { host } => format!(
                "the host {host:?} is not one that this proxy answers for. Use one of `proxy.hosts`, or add it there."
            ),
            Refusal::TooLarge { what, limit, key } => format!(
                "{what} is larger than {limit} bytes, the most that can be held back until it is checked. Send less at a time, or raise `{key}`."
            ),
            Refusal::BodyTimeout => {
                "the request body did not arrive in time, and its end was not sent to the store. Send it again."
                    .to_owned()
            }
            Refusal::Draining { resource, why, .. } => format!(
                "this request on {resource} waits for older writes: {why}. Nothing was forwarded; try again after the time in Retry-After."
            ),
            Refusal::Busy { what, .. } => format!(
                "{what} is full; nothing was forwarded, try again after the time in Retry-After."
            ),
            Refusal::FenceUnavailable { resource, why } => {
                format!("the fence of {resource} cannot be checked: {why}.")
            }
            Refusal::ShuttingDown => {
                "the proxy is shutting down; nothing was forwarded, try again elsewhere.".to_owned()
            }
            Refusal::UpstreamFailed { unknown, why } => {
                format!("the store gave no usable answer: {why}. {}", fate(*unknown))
            }
            Refusal::UpstreamTimeout { unknown } => {
                format!("the store did not answer in time. {}", fate(*unknown))
            }
            Refusal::Internal => {
                "the proxy failed inside; see its log for this request id.".to_owned()
            }
        }
    }

    /// For `Retry-After`: when to ask again, at least one second.
    pub fn retry_after(&self) -> Option<Duration> {
        let second = Duration::from_secs(1);
        match self {
            Refusal::Draining { retry_after, .. } | Refusal::Busy { retry_after, .. } => {
                Some((*retry_after).max(second))
            }
            Refusal::FenceUnavailable { .. } | Refusal::ShuttingDown => Some(second),
            _ => None,
        }
    }

    /// The resource, for the log and for clients that carried a well-formed token.
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Refusal::StaleToken { resource, .. }
            | Refusal::LeaseReleased { resource, .. }
            | Refusal::LeaseExpired { resource, .. }
            | Refusal::MissingToken { resource }
            | Refusal::UnknownToken { resource, .. }
            | Refusal::Draining { resource, .. }
            | Refusal::FenceUnavailable { resource, .. } => Some(resource),
            _ => None,
        }
    }
}

fn fate(unknown: bool) -> &'static str {
    if unknown {
        "The write may have been done, or may still be: read before writing again."
    } else {
        "The write was not done."
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn one_of_each() -> Vec<Refusal> {
        let (resource, presented) = (Resource::new("r").unwrap(), Token::MIN);
        let (second, text) = (Duration::from_secs(1), String::new);
        let pair = || (text(), text());
        vec![
            Refusal::StaleToken { resource: resource.clone(), presented },
            Refusal::LeaseReleased { resource: resource.clone(), presented },
            Refusal::LeaseExpired { resource: resource.clone(), presented },
            Refusal::MissingToken { resource: resource.clone() },
            Refusal::InvalidToken { fault: TokenFault::Repeated },
            Refusal::UnknownToken { resource: resource.clone(), presented },
            Refusal::NoRule { key: text() },
            Refusal::MultipleResources { first: pair(), second: pair() },
            Refusal::AmbiguousKey { key: text(), why: text() },
            Refusal::InvalidRequest { why: text() },
            Refusal::UnknownOperation { what: text() },
            Refusal::Misdirected { host: text() },
            Refusal::TooLarge { what: "it", limit: 1, key: "k" },
            Refusal::BodyTimeout,
            Refusal::Draining { resource: resource.clone(), retry_after: second, why: text() },
            Refusal::Busy { what: "it", retry_after: second },
            Refusal::FenceUnavailable { resource, why: text() },
            Refusal::ShuttingDown,
            Refusal::UpstreamFailed { unknown: true, why: text() },
            Refusal::UpstreamTimeout { unknown: true },
            Refusal::Internal,
        ]
    }

    #[test]
    fn every_code_is_in_the_list_and_each_of_the_list_is_some_code() {
        let given: BTreeSet<_> = one_of_each().iter().map(|one| one.rank(false).code).collect();
        assert_eq!(given, CODES.iter().copied().collect());
        assert_eq!(given.len(), CODES.len());
    }
}
