//! fencegate: a fencing proxy for storage.
//!
//! It requires a fencing token on writes, checks it against the latest token of the lease on the
//! written resource, waits until older writes have settled, and only then forwards. Layers, each of
//! which uses only those below it:
//!
//! | layer | modules | what |
//! | --- | --- | --- |
//! | L0 | [`core`] | the protocol, pure |
//! | L1 | [`telemetry`], [`store`], [`ledger`], [`lease`] | what it is told and what is durable |
//! | L2 | [`pipeline`] | the path of one request |
//! | L3 | [`serve`] | listeners, threads, the admin side |
//! | L4 | [`config`] | the file |
//! | L5 | [`cli`] | the commands |
//!
//! Start reading at [`core::gate`], then [`pipeline`].

pub mod cli;
pub mod config;
pub mod core;
pub mod lease;
pub mod ledger;
pub mod pipeline;
pub mod serve;
pub mod store;
pub mod telemetry;
