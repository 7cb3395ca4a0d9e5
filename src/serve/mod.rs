//! L3: the running server.

pub mod settings;
