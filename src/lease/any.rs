//! `[lease]`: which backend, and the enum that dispatches to it without boxing.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::units::Span;

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

/// One of the compiled-in backends.
pub enum AnyLease {}
