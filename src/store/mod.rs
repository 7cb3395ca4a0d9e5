//! L1: one open handle per service, shared by `ledger` and `lease`.

pub mod clock;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod secret;
