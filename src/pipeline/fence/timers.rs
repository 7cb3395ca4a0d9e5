//! Wakes gates when their time is up, and forgets the ones that hold nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use super::{Fences, Inner, lock};
use crate::core::{Millis, Resource};
use crate::telemetry::clock;

#[derive(Default)]
pub(super) struct Timers {
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

    /// The next resource that is due, or when to ask again.
    fn pop(&self, now: Millis) -> Result<Resource, Option<Millis>> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        match due.peek() {
            Some(Reverse((at, _))) if *at <= now => {
                let Reverse((_, resource)) = due.pop().expect("peeked");
                Ok(resource)
            }
            next => Err(next.map(|Reverse((at, _))| *at)),
        }
    }
}

/// Runs until the fences are dropped.
pub(super) async fn run(fences: Weak<Inner>) {
    loop {
        let Some(inner) = fences.upgrade() else { return };
        let fences = Fences(inner);
        match fences.0.timers.pop(clock::monotonic()) {
            Ok(resource) => fences.wake(&resource),
            Err(None) => fences.0.timers.earlier.notified().await,
            Err(Some(at)) => {
                let sleep = tokio::time::sleep(clock::monotonic().until(at));
                tokio::select! {
                    () = sleep => {}
                    () = fences.0.timers.earlier.notified() => {}
                }
            }
        }
    }
}

// === impl Fences ===

impl Fences {
    fn wake(&self, resource: &Resource) {
        if !lock(self.shard(resource)).cells.contains_key(resource) {
            return;
        }
        self.with(resource, |cell, now, fresh| {
            cell.wake_at = None;
            cell.gate.tick(now, fresh);
        });
        let mut shard = lock(self.shard(resource));
        // What an idle gate knows, the ledger knows too.
        let idle = shard.cells.get(resource).is_some_and(|cell| {
            cell.gate.is_idle()
                && cell.gate.next_deadline().is_none()
                && cell.waiting.is_empty()
                && cell.manifest.is_empty(clock::monotonic())
        });
        if idle {
            shard.cells.remove(resource);
        }
    }
}
