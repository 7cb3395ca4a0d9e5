//! Real stores and real clients behind a gate.

/// Batch deletes and how they are written.
mod batches;
/// What goes through unharmed: answers, bodies, signatures.
mod fidelity;
/// Buckets named by Host.
mod hosts;
/// Keys, byte for byte, and every other spelling of them.
mod keys;
/// The memory that large objects take.
mod memory;
/// Operations that a fence could overlook.
mod operations;
/// Who may write after a takeover: puts, deletes, batches, uploads in parts, copies.
mod takeover;
/// Uploads that the lease overtakes.
pub mod uploads;

use crate::support::clients::{Answer, Curl};
use crate::support::gate::{Builder, Gate};
use crate::support::stores::Store;

/// A bucket of a real store behind a gate. `public/` is open, `other/` belongs to `other/main`, everything
/// else to `wal/main`.
struct Site {
    store: &'static Store,
    bucket: String,
    gate: Gate,
}

// === impl Site ===

impl Site {
    fn new(store: &'static Store) -> Site {
        Site::with(store, |gate| gate)
    }

    fn with(store: &'static Store, change: impl FnOnce(Builder) -> Builder) -> Site {
        let bucket = store.bucket("site");
        let rules = format!(
            r#"
            [[rule]]
            match = "{bucket}/public/**"
            fence = "none"
            [[rule]]
            match = "{bucket}/other/**"
            resource = "other/main"
            [[rule]]
            match = "{bucket}/**"
            resource = "wal/main"
            "#
        );
        let gate = change(Gate::builder(&store.url).rules(&rules)).start();
        Site { store, bucket, gate }
    }

    /// The address of a key at the gate.
    fn url(&self, key: &str) -> String {
        format!("{}/{}/{key}", self.gate.url(), self.bucket)
    }

    /// Puts at the gate by curl.
    fn put(&self, key: &str, token: u64, body: &[u8]) -> Answer {
        Curl::put(&self.url(key)).token(token).body(body).send()
    }

    /// What is stored, asked of the store itself.
    fn stored(&self, key: &str) -> Option<Vec<u8>> {
        self.store.object(&self.bucket, key)
    }

    /// `wal/main` as held by a writer that has lost it, and by its successor.
    fn taken_over(&self) -> (u64, u64) {
        let a = self.gate.acquire("wal/main", "a", "60s");
        (a, self.gate.hand_over("wal/main", a, "b"))
    }
}
