//! Permits: ours on their way in and out, and those of other incarnations.

use std::time::Duration;

use super::{Action, Gate, Incarnation, PermitId, Stage, Taint};
use crate::core::{Millis, Token};

/// An unused permit is given back after this long, so that a crash delays a successor only where
/// something was in flight. Long enough that a steady writer does not take one for every write.
const IDLE_LINGER: Duration = Duration::from_secs(2);

/// What the ledger did not confirm is asked for again after this long.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// A permit of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Permit {
    pub token: Token,
    pub state: State,
    /// Exchanges under it that are not settled.
    pub exchanges: usize,
    pub taint: Taint,
    /// Since when nothing was under it.
    pub idle_since: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Asked for, not confirmed: nothing may be counted under it.
    Asking,
    /// Confirmed.
    Held,
    /// Being given back: nothing may be counted under it any more.
    Leaving,
}

/// A permit of another incarnation, below the mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Foreign {
    pub token: Token,
    pub taint: Taint,
    /// The ledger was asked to drop it.
    pub leaving: bool,
}

// === impl Foreign ===

impl Foreign {
    /// Whether only its owner or an operator ends it, which the ledger will tell.
    pub fn is_unbounded(&self) -> bool {
        !self.leaving && self.taint == Taint::Forever
    }

    pub fn leaves_at(&self) -> Option<Millis> {
        if self.leaving { None } else { self.taint.ends().filter(|ends| *ends != Millis::NEVER) }
    }
}

// === impl Permit ===

impl Permit {
    /// Held, with nothing under it and no doubt about anything that was.
    pub fn is_unused(&self) -> bool {
        self.state == State::Held && self.exchanges == 0 && self.taint == Taint::Clear
    }

    /// Nothing may be counted under it any more.
    pub fn leave(&mut self) {
        self.state = State::Leaving;
    }

    /// When it can be given back, if nothing more happens.
    pub fn leaves_at(&self, current: bool) -> Option<Millis> {
        if self.state != State::Held || self.exchanges > 0 {
            return None;
        }
        let taint = self.taint.ends().unwrap_or_default();
        let idle = if current { self.idle_since + IDLE_LINGER } else { self.idle_since };
        Some(taint.max(idle)).filter(|at| *at != Millis::NEVER)
    }
}

// === impl Gate ===

impl Gate {
    /// Gives back what is not needed: unused for a while, or of a token that was overtaken. Never
    /// while an exchange under it is unsettled or in quarantine.
    pub(super) fn give_back_what_is_done(&mut self, now: Millis) {
        let mark = self.mark;
        let counted_blocks = self.guards.drain;
        for (id, permit) in &mut self.permits {
            let current = mark == Some(permit.token);
            let due = permit.leaves_at(current).is_some_and(|at| at <= now)
                || (!counted_blocks && !current && permit.state == State::Held);
            if due {
                permit.state = State::Leaving;
                self.actions.push(Action::GiveBack { id: *id });
            }
        }
        for (id, foreign) in &mut self.foreign {
            if foreign.leaves_at().is_some_and(|at| at <= now) {
                foreign.leaving = true;
                self.actions.push(Action::GiveBack { id: *id });
            }
        }
    }

    /// Asks the ledger again to drop permits that it may still have of ours.
    pub(super) fn sweep_lost(&mut self) {
        self.actions.extend(self.lost.iter().map(|id| Action::GiveBack { id: *id }));
    }

    /// The ledger confirmed that a permit is gone (`true`), or did not (`false`).
    pub fn given_back(&mut self, now: Millis, id: PermitId, confirmed: bool, fresh: PermitId) {
        if confirmed {
            self.permits.remove(&id);
            self.foreign.remove(&id);
            self.lost.remove(&id);
        } else {
            // Remembered until the ledger confirms it gone: a lost answer must not block a
            // successor for ever, and an id is never used again.
            if self.permits.remove(&id).is_some() {
                self.lost.insert(id);
            }
            if let Some(foreign) = self.foreign.get_mut(&id) {
                foreign.leaving = false;
            }
            self.retry_at = Some(now + RETRY);
        }
        self.drive(now, fresh);
    }

    /// The mark rose: exchanges of lower tokens that are not counted are cut, and their permits leave.
    pub(super) fn overtake(&mut self, now: Millis, mark: Token) {
        for (id, exchange) in &mut self.exchanges {
            let overtaken =
                self.permits.get(&exchange.permit).is_some_and(|permit| permit.token < mark);
            let cuttable = exchange.stage == Stage::Open
                || (exchange.stage == Stage::Counted && !self.guards.counted_stays);
            if overtaken && cuttable {
                exchange.stage = Stage::Cut;
                self.actions.push(Action::Cut { exchange: *id });
            }
        }
        self.give_back_what_is_done(now);
    }

    /// Whether a permit found by a look is one of ours that we know of.
    pub(super) fn knows(&self, id: PermitId) -> bool {
        self.permits.contains_key(&id)
    }

    /// A look found a permit of this incarnation that no state here accounts for.
    pub(super) fn disown(&mut self, id: PermitId) {
        if self.lost.insert(id) {
            self.actions.push(Action::GiveBack { id });
        }
    }

    /// Whether `id` was taken by the incarnation that `fresh` belongs to.
    pub(super) fn is_ours(id: PermitId, fresh: PermitId) -> bool {
        let Incarnation(ours) = fresh.incarnation;
        id.incarnation.0 == ours
    }
}
