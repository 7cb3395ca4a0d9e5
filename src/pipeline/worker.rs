//! What one thread of the data path owns: its pools of connections and its reaper.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use super::reaper::Reaper;
use super::rules::Upstream;
use super::upstream::Pool;

/// A pool of this thread.
pub type PoolRef = Rc<Pool>;

/// One thread's share of the data path. Lives in its `LocalSet`.
#[derive(Default)]
pub struct Worker {
    pools: RefCell<HashMap<u64, (PoolRef, Duration)>>,
    /// Finishes exchanges whose clients have gone.
    pub reaper: Reaper,
}

// === impl Worker ===

impl Worker {
    /// A worker without connections.
    pub fn new() -> Rc<Worker> {
        Rc::default()
    }

    /// This thread's pool for a store.
    pub fn pool(&self, upstream: &Upstream) -> PoolRef {
        let mut pools = self.pools.borrow_mut();
        Rc::clone(
            &pools
                .entry(upstream.id)
                .or_insert_with(|| (PoolRef::default(), upstream.idle_timeout))
                .0,
        )
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
