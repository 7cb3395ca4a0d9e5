//! `[lease]`: which backend, and the enum that dispatches to it without boxing.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "embedded")]
use super::embedded::EmbeddedLease;
use super::watch::Subscription;
use super::{Ask, Grade, Grant, LeaseBackend, LeaseError, LeaseView};
use crate::core::lease::Validation;
use crate::core::units::Span;
use crate::core::{Resource, Token};

/// `[lease]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which service keeps the leases.
    pub backend: BackendKind,
    /// The embedded database, created if it does not exist. Relative to the configuration file.
    pub path: PathBuf,
    /// Longest wait for the file's lock at start-up.
    pub open_wait: Span,
    /// Longest wait for one backend call.
    pub timeout: Span,
}

/// The backends of this build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A redb file beside the proxy; durable on its disk.
    #[default]
    Embedded,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: BackendKind::Embedded,
            path: PathBuf::from("fencegate.redb"),
            open_wait: Span(Duration::from_secs(10)),
            timeout: Span(Duration::from_secs(2)),
        }
    }
}

/// One of the compiled-in backends. Cheap to clone.
#[derive(Clone)]
pub enum AnyLease {
    /// The embedded database.
    #[cfg(feature = "embedded")]
    Embedded(EmbeddedLease),
}

// `*$any`: a reference to an enum without variants cannot be matched away, the enum itself can.
macro_rules! each {
    ($any:expr, $lease:ident => $call:expr) => {
        match *$any {
            #[cfg(feature = "embedded")]
            AnyLease::Embedded(ref $lease) => $call,
        }
    };
}

// === impl AnyLease ===

#[cfg_attr(not(feature = "embedded"), allow(unused_variables))]
impl AnyLease {
    /// Changes of leases whose resource starts with `prefix`: those after the event with the id
    /// `after` that are still remembered (the last 1,024), and all to come. Without `after` from now on.
    pub fn subscribe(&self, prefix: &str, after: Option<u64>) -> Subscription {
        each!(self, lease => lease.subscribe(prefix, after))
    }
}

// Without any backend compiled in nobody can make one, and no argument is used.
#[cfg_attr(not(feature = "embedded"), allow(unused_variables))]
impl LeaseBackend for AnyLease {
    async fn acquire(&self, ask: Ask) -> Result<Grant, LeaseError> {
        each!(self, lease => lease.acquire(ask).await)
    }

    async fn renew(
        &self,
        resource: &Resource,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Grant, LeaseError> {
        each!(self, lease => lease.renew(resource, token, ttl).await)
    }

    async fn release(&self, resource: &Resource, token: Token) -> Result<(), LeaseError> {
        each!(self, lease => lease.release(resource, token).await)
    }

    async fn validate(&self, resource: &Resource, token: Token) -> Result<Validation, LeaseError> {
        each!(self, lease => lease.validate(resource, token).await)
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseView>, LeaseError> {
        each!(self, lease => lease.inspect(resource).await)
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LeaseView>, LeaseError> {
        each!(self, lease => lease.list(prefix, after, limit).await)
    }

    async fn bump(&self, resource: &Resource, above: Option<Token>) -> Result<Token, LeaseError> {
        each!(self, lease => lease.bump(resource, above).await)
    }

    fn grade(&self) -> Grade {
        each!(self, lease => lease.grade())
    }

    fn is_local(&self) -> bool {
        each!(self, lease => lease.is_local())
    }
}
