//! L1: what can be seen of a running server: logs and metrics; and the clock they are timed by.

pub mod clock;
pub mod log;
pub mod metrics;
