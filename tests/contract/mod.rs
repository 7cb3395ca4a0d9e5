//! Contract suites, run against every backend; rule numbers are those of `lease-contract.md`.

#[cfg(feature = "embedded")]
mod lease;
mod ledger;

#[cfg(feature = "embedded")]
mod embedded;
