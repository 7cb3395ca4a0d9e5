//! Integration tests; one topic per module.

mod config;
