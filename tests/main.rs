//! Integration tests; one topic per module.
