//! L3: the running server.

pub mod admin;
pub mod settings;
