//! Who waits for which lease, in arrival order. Only the first of a queue asks for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::core::Resource;

/// Most callers that may wait for one lease.
pub(super) const MAX_WAITING: usize = 1_000;

/// The queues of all resources that somebody waits for.
#[derive(Default)]
pub(super) struct Waiters {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    next_id: u64,
    by_resource: HashMap<Resource, VecDeque<Waiter>>,
}

struct Waiter {
    id: u64,
    turn: Arc<Notify>,
}

/// A place in a queue; dropping it leaves the queue, and the next one is woken if it was the first.
pub(super) struct Ticket {
    waiters: Arc<Waiters>,
    resource: Resource,
    id: u64,
    turn: Arc<Notify>,
}

// === impl Waiters ===

impl Waiters {
    // Each change under the lock is one push or removal: a panic elsewhere leaves sound queues.
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait for a resource.
    pub fn waiting(&self, resource: &Resource) -> usize {
        self.lock().by_resource.get(resource).map_or(0, VecDeque::len)
    }

    /// Joins the end of the queue; the number of waiters if there are too many.
    pub fn join(self: &Arc<Waiters>, resource: &Resource) -> Result<Ticket, usize> {
        let mut queues = self.lock();
        let waiting = queues.by_resource.get(resource).map_or(0, VecDeque::len);
        if waiting >= MAX_WAITING {
            return Err(waiting);
        }
        queues.next_id += 1;
        let (id, turn) = (queues.next_id, Arc::new(Notify::new()));
        let queue = queues.by_resource.entry(resource.clone()).or_default();
        queue.push_back(Waiter { id, turn: turn.clone() });
        if queue.len() == 1 {
            turn.notify_one();
        }
        Ok(Ticket { waiters: self.clone(), resource: resource.clone(), id, turn })
    }

    /// The lease of `resource` has ended: the first of its queue may try.
    pub fn wake(&self, resource: &Resource) {
        if let Some(first) = self.lock().by_resource.get(resource).and_then(VecDeque::front) {
            first.turn.notify_one();
        }
    }
}

// === impl Ticket ===

impl Ticket {
    /// Waits until it is worth asking: this ticket became the first, or the lease ended while it was.
    /// A wake-up that came before is not missed.
    pub async fn turn(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.waiters.lock();
        let Some(queue) = queues.by_resource.get_mut(&self.resource) else { return };
        let was_first = queue.front().is_some_and(|first| first.id == self.id);
        queue.retain(|waiter| waiter.id != self.id);
        match queue.front() {
            Some(first) if was_first => first.turn.notify_one(),
            Some(_) => {}
            None => drop(queues.by_resource.remove(&self.resource)),
        }
    }
}
