//! `[ledger]`: where marks and permits are kept.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[ledger]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where marks and permits are kept.
    pub kind: LedgerKind,
    /// Its file; the file of the embedded lease backend by default. Relative to the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// The ledgers of this build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerKind {
    /// A redb file that one replica has to itself.
    #[default]
    Embedded,
}
