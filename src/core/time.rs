//! Time as the core sees it: milliseconds of a clock that somebody else reads.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Milliseconds since an origin that the driver chose; always passed in, never read here.
///
/// Lease deadlines are on CLOCK_BOOTTIME, everything else on CLOCK_MONOTONIC. Mixing two clocks
/// is the one mistake this type cannot catch: a name says which one it holds (`boot_now`).
/// Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

// === impl Millis ===

impl Millis {
    /// Later than every other instant.
    pub const NEVER: Millis = Millis(u64::MAX);

    /// How long from `self` until `later`; zero if it has passed.
    pub fn until(self, later: Millis) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl Add<Duration> for Millis {
    type Output = Millis;

    fn add(self, rhs: Duration) -> Millis {
        Millis(self.0.saturating_add(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Millis {
    type Output = Millis;

    fn sub(self, rhs: Duration) -> Millis {
        Millis(self.0.saturating_sub(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
