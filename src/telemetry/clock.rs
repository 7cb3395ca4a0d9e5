//! The clock of everything but leases: CLOCK_MONOTONIC, read through libc so that tests can fake it.

use nix::time::{ClockId, clock_gettime};

use crate::core::Millis;

/// CLOCK_MONOTONIC in milliseconds: it never steps, and stands still while the machine is suspended. A
/// quarantine has to be counted on it: a suspended kernel flushes no socket.
pub fn monotonic() -> Millis {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
    Millis(now.tv_sec() as u64 * 1_000 + now.tv_nsec() as u64 / 1_000_000)
}
