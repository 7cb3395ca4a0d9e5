//! `[ledger]`, and the enum that dispatches to a ledger without boxing.

/// One of the ledgers.
pub enum AnyLedger {}
