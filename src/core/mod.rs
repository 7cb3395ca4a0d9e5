//! L0: the protocol itself. No I/O, no clock, no async, no chance: time, ids and outcomes come in as values.
//!
//! The same code runs in production, in the model checker and under simulated networks, so its
//! types are plain data (`Clone`, `Eq`, `Hash`) and its maps have a fixed order.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod gate;
pub mod keeper;
pub mod lease;
pub mod pattern;
pub mod resource;
pub mod rules;
pub mod template;
pub mod time;
pub mod token;
pub mod units;

pub use resource::{Holder, Resource};
pub use time::Millis;
pub use token::Token;
