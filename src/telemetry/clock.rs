//! The clock of everything but leases: CLOCK_MONOTONIC, read through libc so that tests can fake it.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::core::Millis;

/// CLOCK_MONOTONIC in milliseconds: it never steps, and stands still while the machine is suspended. A
/// quarantine has to be counted on it: a suspended kernel flushes no socket.
pub fn monotonic() -> Millis {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
    Millis(now.tv_sec() as u64 * 1_000 + now.tv_nsec() as u64 / 1_000_000)
}

/// When a step began, to tell how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Started(Duration);

// === impl Started ===

impl Started {
    /// It begins now.
    pub fn now() -> Started {
        Started(precise())
    }

    /// How long ago it began, to the microsecond or better.
    pub fn elapsed(self) -> Duration {
        precise().saturating_sub(self.0)
    }
}

fn precise() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
