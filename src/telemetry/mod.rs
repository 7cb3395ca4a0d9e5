//! L1: what can be seen of a running server: logs and metrics.

pub mod log;
pub mod metrics;
