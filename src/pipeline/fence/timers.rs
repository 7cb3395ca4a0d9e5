//! Wakes gates when their time is up, and forgets the ones that hold nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use super::{Fences, Inner, lock};
use crate::core::{Millis, Resource};
use crate::telemetry::clock;

#[derive(Default)]
pub(super) struct Timers {
    /// A cell's `wake_at` names the one entry of its resource that counts; the others are left overs of
    /// later plans, and pass without effect.
    due: Mutex<BinaryHeap<Reverse<(Millis, Resource)>>>,
    earlier: Notify,
}

// === impl Timers ===

impl Timers {
    pub fn push(&self, at: Millis, resource: &Resource) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let first = due.peek().is_none_or(|Reverse((first, _))| at < *first);
        due.push(Reverse((at, resource.clone())));
        drop(due);
        if first {
            self.earlier.notify_one();
        }
    }

    /// Ends [`run`], if the fences are gone.
    pub fn stop(&self) {
        self.earlier.notify_one();
    }

    /// How many entries there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.due.lock().unwrap().len()
    }

    /// The next resource that is due and when it was, or when to ask again.
    fn pop(&self, now: Millis) -> Result<(Millis, Resource), Option<Millis>> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        match due.peek() {
            Some(Reverse((at, _))) if *at <= now => {
                let Reverse(next) = due.pop().expect("peeked");
                Ok(next)
            }
            next => Err(next.map(|Reverse((at, _))| *at)),
        }
    }
}

/// Runs until the fences are dropped.
pub(super) async fn run(fences: Weak<Inner>, timers: Arc<Timers>) {
    loop {
        // Not held while it waits: that would keep the ledger open for ever.
        let wait = {
            let Some(inner) = fences.upgrade() else { return };
            match timers.pop(clock::monotonic()) {
                Ok((at, resource)) => {
                    Fences(inner).wake(&resource, at);
                    continue;
                }
                Err(wait) => wait,
            }
        };
        match wait {
            None => timers.earlier.notified().await,
            Some(at) => {
                let sleep = tokio::time::sleep(clock::monotonic().until(at));
                tokio::select! {
                    () = sleep => {}
                    () = timers.earlier.notified() => {}
                }
            }
        }
    }
}

// === impl Fences ===

impl Fences {
    fn wake(&self, resource: &Resource, at: Millis) {
        let now = clock::monotonic();
        let mut shard = lock(self.shard(resource));
        let Some(cell) = shard.cells.get_mut(resource).filter(|cell| cell.wake_at == Some(at))
        else {
            return;
        };
        cell.wake_at = None;
        cell.gate.tick(now, self.fresh());
        // What an idle gate knows, the ledger knows too.
        if cell.is_spent(now) {
            shard.cells.remove(resource);
            return;
        }
        let (todo, wake) = cell.drain(now, || self.fresh());
        drop(shard);
        self.follow(resource, todo, wake);
    }
}
