//! Exchanges: the commit point and the settlement. One critical section orders cut, count and give-back.

use std::time::Duration;

use super::permit::State;
use super::{Commit, ExchangeId, Gate, Outcome, PermitId, Stage, Taint};
use crate::core::Millis;

// === impl Gate ===

impl Gate {
    /// The exchange's body is complete but for its tail: may the tail leave?
    ///
    /// * `validated` — when the validation that it relies on was *sent*.
    /// * `revalidate_after` — the oldest validation that may be relied on.
    pub fn commit(
        &mut self,
        now: Millis,
        exchange: ExchangeId,
        validated: Millis,
        revalidate_after: Duration,
    ) -> Commit {
        let mark = self.mark;
        let Some(entry) = self.exchanges.get_mut(&exchange) else { return Commit::Cut };
        let Some(permit) = self.permits.get(&entry.permit) else { return Commit::Cut };
        if self.guards.commit_check {
            let overtaken = entry.stage != Stage::Open || mark != Some(permit.token);
            if overtaken || permit.state != State::Held || self.closed {
                return Commit::Cut;
            }
            if validated + revalidate_after < now {
                return Commit::Revalidate;
            }
        }
        entry.stage = Stage::Counted;
        Commit::Go
    }

    /// The exchange is over. Repeating it changes nothing. Returns what it leaves behind: a taint if its
    /// outcome is unknown, for as long as the rule says that it was admitted with.
    ///
    /// * `now` — for an unknown outcome: when its connection was abandoned. The quarantine is counted
    ///   from here, never from the start of the request.
    pub fn settle(
        &mut self,
        now: Millis,
        exchange: ExchangeId,
        outcome: Outcome,
        fresh: PermitId,
    ) -> Taint {
        let Some(entry) = self.exchanges.remove(&exchange) else { return Taint::Clear };
        let taint = match outcome {
            Outcome::Unknown if self.guards.unknown_taints => Taint::from(now, entry.settle_after),
            _ => Taint::Clear,
        };
        if let Some(permit) = self.permits.get_mut(&entry.permit) {
            permit.exchanges -= 1;
            permit.idle_since = now;
            permit.taint = permit.taint.max(taint);
            self.give_back_what_is_done(now);
            self.drive(now, fresh);
        }
        taint
    }

    /// Whether the exchange was cut before its commit point.
    pub fn is_cut(&self, exchange: ExchangeId) -> bool {
        self.exchanges.get(&exchange).is_none_or(|entry| entry.stage == Stage::Cut)
    }
}
