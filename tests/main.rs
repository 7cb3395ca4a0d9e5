//! Integration tests; one topic per module.

// What every lease backend and every ledger promises, and what the embedded database adds to it.
mod contract;
