//! What the integration tests stand on: real processes, scripted stores, clients, waiting.
//!
//! Every process dies with the test process, whatever way that ends (see [`process`]); every port
//! is free and on loopback; every wait has a deadline.
// Each topic uses its part of this; what only some builds use is not dead.
#![allow(dead_code)]

pub mod clients;
pub mod gate;
pub mod link;
pub mod process;
pub mod raw_client;
pub mod raw_store;
pub mod relay;
pub mod scenario;
pub mod signed;
pub mod stores;
pub mod wait;
