//! A bound on what all requests together hold back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::pipeline::refusal::Refusal;

/// Bytes withheld by all requests. Cheap to clone.
#[derive(Clone, Default)]
pub struct Budget(Arc<AtomicU64>);

/// Bytes that one request holds; given back on drop.
pub struct Share {
    budget: Budget,
    bytes: u64,
}

// === impl Budget ===

impl Budget {
    /// A share of nothing yet.
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }

    /// Bytes withheld now.
    pub fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Share ===

impl Share {
    /// Takes more, if all of it together stays within `most`.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub fn grow(&mut self, bytes: usize, most: u64) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        let before = self.budget.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before + bytes > most {
            return Err(Refusal::Busy {
                what: "the memory for requests that are held back",
                retry_after: Duration::from_secs(1),
            });
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
