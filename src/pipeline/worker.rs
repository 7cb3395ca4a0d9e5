//! What one thread of the data path owns: its pools of connections and its reaper.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::reaper::Reaper;
use super::rules::Upstream;
use super::upstream::Pool;
use crate::telemetry::metrics::Metrics;

/// Most bytes of a refused upload that are read and thrown away. Clients that write all of a body before
/// they read get their answer up to this size; those that read meanwhile stop by themselves.
const DISCARD_BYTES: usize = 96 << 20;

/// Longest time for that.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// A pool of this thread.
pub type PoolRef = Rc<Pool>;

/// One thread's share of the data path. Lives in its `LocalSet`.
pub struct Worker {
    pools: RefCell<HashMap<u64, (PoolRef, Duration)>>,
    /// Finishes exchanges whose clients have gone.
    pub reaper: Reaper,
    /// Counts for the whole process.
    pub metrics: Arc<Metrics>,
}

// === impl Worker ===

impl Worker {
    /// A worker without connections.
    pub fn new(metrics: Arc<Metrics>) -> Rc<Worker> {
        Rc::new(Worker { pools: RefCell::default(), reaper: Reaper::default(), metrics })
    }

    /// This thread's pool for a store.
    pub fn pool(&self, upstream: &Upstream) -> PoolRef {
        let mut pools = self.pools.borrow_mut();
        Rc::clone(
            &pools
                .entry(upstream.id)
                .or_insert_with(|| {
                    (Rc::new(Pool::new(Arc::clone(&self.metrics))), upstream.idle_timeout)
                })
                .0,
        )
    }

    /// Reads what is left of a refused upload and throws it away, so that its client can read the answer
    /// before the connection closes. Bounded in bytes and time: then the connection is closed on it.
    pub fn discard(&self, unread: Option<Incoming>) {
        let Some(mut unread) = unread.filter(|unread| !unread.is_end_stream()) else { return };
        self.reaper.adopt(async move {
            let deadline = tokio::time::Instant::now() + DISCARD_TIME;
            let mut left = DISCARD_BYTES;
            while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(deadline, unread.frame()).await
            {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        });
    }

    /// Closes idle connections that are too old to be used; call it now and then.
    pub fn prune(&self) {
        self.pools.borrow_mut().retain(|_, (pool, idle_timeout)| {
            pool.prune(*idle_timeout);
            // A pool of a store that a reload took away empties itself and goes.
            !pool.is_empty() || Rc::strong_count(pool) > 1
        });
    }
}
