//! L1: one open handle per service, shared by `ledger` and `lease`.

pub mod secret;
