//! One lease as its holder sees it: when to renew, when to stop, when to be gone.
//!
//! Every deadline counts from when the last successful call was *sent*: the server may have started the
//! lease at any point after that. All instants are CLOCK_BOOTTIME.

use std::time::Duration;

use super::Millis;

/// The lease of one holder. Its driver calls [`poll`](Keeper::poll) whenever it wakes, and does what it says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    ttl: Duration,
    /// When the last call that granted or renewed the lease was sent.
    base: Millis,
    /// When the renewal under way was sent.
    under_way: Option<Millis>,
    /// When the next renewal is due.
    next: Millis,
    lost: Option<Lost>,
}

/// What the driver has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Send a renewal and call [`Keeper::sent`] just before.
    Renew,
    /// Wait for the answer under way, or until then; then poll again.
    Wait {
        /// At the latest then.
        until: Millis,
    },
    /// The renewal under way is given up: whatever it still brings is too late to wait for.
    GiveUp,
    /// The lease is lost; nothing brings it back.
    Lost(Lost),
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The lease runs on.
    Kept,
    /// The server says that the token does not hold it.
    Refused,
    /// No answer, or none that says either. To be tried again.
    Unknown,
}

/// How a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lost {
    /// Why.
    pub why: Why,
    /// By then nothing of the holder may be left.
    pub gone_by: Millis,
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The server refused to renew it.
    Refused,
    /// No renewal succeeded in time.
    Unrenewed,
}

/// The instants that follow from the last successful call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadlines {
    /// Without a renewal until then the holder is told to stop.
    pub stop_at: Millis,
    /// By then nothing of it may be left.
    pub gone_by: Millis,
    /// From then on the lease may be somebody else's.
    pub ends_at: Millis,
}

// === impl Keeper ===

impl Keeper {
    /// A lease that was granted, or confirmed by a renewal, by a call sent at `sent`.
    pub fn new(ttl: Duration, sent: Millis) -> Keeper {
        Keeper { ttl, base: sent, under_way: None, next: sent + ttl / 3, lost: None }
    }

    /// What to do at `boot_now`.
    pub fn poll(&mut self, boot_now: Millis) -> Step {
        if let Some(lost) = self.lost {
            return Step::Lost(lost);
        }
        let Deadlines { stop_at, gone_by, .. } = self.deadlines();
        if boot_now >= stop_at {
            return self.lose(Why::Unrenewed, gone_by);
        }
        match self.under_way {
            Some(sent) if boot_now >= sent + self.patience() => {
                self.answered(Renewal::Unknown, boot_now);
                Step::GiveUp
            }
            Some(sent) => Step::Wait { until: stop_at.min(sent + self.patience()) },
            None if boot_now >= self.next => Step::Renew,
            None => Step::Wait { until: stop_at.min(self.next) },
        }
    }

    /// A renewal leaves at `boot_now`.
    pub fn sent(&mut self, boot_now: Millis) {
        self.under_way = Some(boot_now);
    }

    /// The renewal under way came to this. Without one under way nothing changes.
    pub fn answered(&mut self, renewal: Renewal, boot_now: Millis) {
        let Some(sent) = self.under_way.take() else { return };
        if self.lost.is_some() {
            return;
        }
        match renewal {
            Renewal::Kept => {
                self.base = sent;
                self.next = sent + self.ttl / 3;
            }
            Renewal::Refused => {
                let gone_by = self.deadlines().gone_by.min(boot_now + self.grace());
                self.lose(Why::Refused, gone_by);
            }
            Renewal::Unknown => self.next = boot_now + self.ttl / 12,
        }
    }

    /// The instants that follow from the last successful call.
    pub fn deadlines(&self) -> Deadlines {
        let stop_at = self.base + self.ttl * 2 / 3;
        Deadlines { stop_at, gone_by: stop_at + self.grace(), ends_at: self.base + self.ttl }
    }

    /// Longest wait for one answer: two attempts fit before the holder must stop.
    pub fn patience(&self) -> Duration {
        self.ttl / 6
    }

    /// Between being told to stop and being gone. The tenth of the TTL that is left after it is for the
    /// kernel to take down what was killed.
    fn grace(&self) -> Duration {
        self.ttl * 7 / 30
    }

    fn lose(&mut self, why: Why, gone_by: Millis) -> Step {
        let lost = Lost { why, gone_by };
        self.lost = Some(lost);
        Step::Lost(lost)
    }
}

#[cfg(test)]
mod tests;
