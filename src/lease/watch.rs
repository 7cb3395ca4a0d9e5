//! The stream of lease changes: a ring of the latest ones, and a broadcast of those to come.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::broadcast;

use super::LeaseEvent;

/// How many events a late subscriber can still be told.
pub const RING: usize = 1_024;

/// Numbers the events, keeps the latest, tells the subscribers.
pub struct Watch {
    state: Mutex<State>,
    sender: broadcast::Sender<LeaseEvent>,
}

struct State {
    ring: VecDeque<LeaseEvent>,
    last_id: u64,
}

/// Events from one point on, of one prefix.
pub struct Subscription {
    /// Events that happened before the subscription and after the point asked for.
    pub backlog: Vec<LeaseEvent>,
    /// Whether events between the point asked for and the backlog are lost: list the leases again.
    pub gap: bool,
    prefix: String,
    receiver: broadcast::Receiver<LeaseEvent>,
}

/// What a subscriber hears next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A lease changed.
    Event(LeaseEvent),
    /// This subscriber was too slow and missed some: list the leases again.
    Gap,
}

// === impl Watch ===

impl Watch {
    /// Event ids start above `first_id`: the clock, so that the id of an earlier process is known
    /// to be one.
    pub fn new(first_id: u64) -> Watch {
        let state = State { ring: VecDeque::new(), last_id: first_id };
        Watch { state: Mutex::new(state), sender: broadcast::channel(RING).0 }
    }

    /// Tells everybody, with the next id.
    pub fn tell(&self, event: impl FnOnce(u64) -> LeaseEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_id += 1;
        let event = event(state.last_id);
        if state.ring.len() == RING {
            state.ring.pop_front();
        }
        state.ring.push_back(event.clone());
        // Sent under the lock, so that a subscriber's backlog and stream meet without gap or overlap.
        // No subscriber is no fault.
        let _ = self.sender.send(event);
    }

    /// Subscribes to events of resources that start with `prefix`, after the event `after`, or from
    /// now on.
    pub fn subscribe(&self, prefix: &str, after: Option<u64>) -> Subscription {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = state.last_id + 1 - state.ring.len() as u64;
        let after_or_now = after.unwrap_or(state.last_id);
        Subscription {
            backlog: state
                .ring
                .iter()
                .filter(|event| event.id > after_or_now)
                .filter(|event| event.resource.as_str().starts_with(prefix))
                .cloned()
                .collect(),
            gap: after_or_now + 1 < oldest || after_or_now > state.last_id,
            prefix: prefix.to_owned(),
            receiver: self.sender.subscribe(),
        }
    }
}

// === impl Subscription ===

impl Subscription {
    /// The backlog, whether there is a gap before it, and the source of what follows: of every prefix, so
    /// filter it once more.
    pub fn into_parts(self) -> (Vec<LeaseEvent>, bool, broadcast::Receiver<LeaseEvent>) {
        (self.backlog, self.gap, self.receiver)
    }

    /// The next event, or that some were missed; `None` when the backend is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost by dropping the call.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if event.resource.as_str().starts_with(&self.prefix) => {
                    return Some(Heard::Event(event));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Heard::Gap),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Holder, Resource};
    use crate::lease::Change;

    fn tell(watch: &Watch, resource: &str) {
        watch.tell(|id| LeaseEvent {
            id,
            change: Change::Acquired,
            resource: Resource::new(resource).unwrap(),
            holder: Holder::new("h").unwrap(),
        });
    }

    fn ids(subscription: &Subscription) -> Vec<u64> {
        subscription.backlog.iter().map(|event| event.id).collect()
    }

    #[test]
    fn a_subscriber_resumes_after_the_event_it_names() {
        let watch = Watch::new(100);
        ["a/1", "b/1", "a/2"].into_iter().for_each(|name| tell(&watch, name));
        let cases = [
            ("from now on", "", None, vec![], false),
            ("after the first", "", Some(101), vec![102, 103], false),
            ("after the first, one prefix", "a/", Some(101), vec![103], false),
            ("all of this process", "", Some(100), vec![101, 102, 103], false),
            ("an id of an earlier process", "", Some(50), vec![101, 102, 103], true),
            ("an id of a later process", "", Some(104), vec![], true),
        ];
        for (case, prefix, after, want, gap) in cases {
            let subscription = watch.subscribe(prefix, after);
            assert_eq!((ids(&subscription), subscription.gap), (want, gap), "{case}");
        }
    }

    #[test]
    fn events_older_than_the_ring_are_a_gap() {
        let watch = Watch::new(0);
        (0..RING + 10).for_each(|_| tell(&watch, "a"));
        let late = watch.subscribe("", Some(9));
        assert!(late.gap);
        assert_eq!(late.backlog.len(), RING);
        assert!(!watch.subscribe("", Some(10)).gap);
    }

    #[tokio::test]
    async fn a_slow_subscriber_hears_of_the_gap_and_then_goes_on() {
        let watch = Watch::new(0);
        let mut slow = watch.subscribe("", None);
        (0..RING + 1).for_each(|_| tell(&watch, "a"));
        assert_eq!(slow.next().await, Some(Heard::Gap));
        assert!(matches!(slow.next().await, Some(Heard::Event(event)) if event.id == 2));
    }
}
