//! The two clocks that leases need, behind one trait so that tests can move them.

use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};

use crate::core::Millis;

/// Reads the clocks.
pub trait Clock: Send + Sync + 'static {
    /// CLOCK_BOOTTIME: monotonic, and runs on while the machine is suspended. Lease deadlines.
    fn boottime(&self) -> Millis;

    /// Microseconds since 1970, as the wall clock has it; may step. Tokens and display only.
    fn wall_us(&self) -> u64;
}

/// The kernel's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Clocks that stand still until they are moved.
#[derive(Debug)]
pub struct ManualClock {
    boottime_ms: AtomicU64,
    wall_us: AtomicU64,
}

// === impl SystemClock ===

impl Clock for SystemClock {
    fn boottime(&self) -> Millis {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
        Millis(now.tv_sec() as u64 * 1_000 + now.tv_nsec() as u64 / 1_000_000)
    }

    fn wall_us(&self) -> u64 {
        let now = clock_gettime(ClockId::CLOCK_REALTIME).expect("Linux has CLOCK_REALTIME");
        u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000 + now.tv_nsec() as u64 / 1_000
    }
}

// === impl ManualClock ===

impl ManualClock {
    /// Clocks that show these values.
    pub fn new(boottime: Millis, wall_us: u64) -> ManualClock {
        ManualClock { boottime_ms: AtomicU64::new(boottime.0), wall_us: AtomicU64::new(wall_us) }
    }

    /// Lets time pass on both.
    pub fn advance(&self, by: std::time::Duration) {
        self.boottime_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        self.wall_us.fetch_add(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Steps the wall clock alone, in either direction.
    pub fn step_wall(&self, wall_us: u64) {
        self.wall_us.store(wall_us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn boottime(&self) -> Millis {
        Millis(self.boottime_ms.load(Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        self.wall_us.load(Ordering::SeqCst)
    }
}
