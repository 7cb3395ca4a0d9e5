//! Entering: raise, look, take; and waiting while an older operation has not settled.

use super::permit::{Foreign, Permit, RETRY, State};
use super::{
    Action, Admitted, Denied, Entering, Entry, Exchange, ExchangeId, Gate, Kind, PermitId,
    Sighting, Stage, Taint, Ticket, Waiter,
};
use crate::core::{Millis, Token};

// === impl Gate ===

impl Gate {
    /// A request whose token was found valid asks to begin.
    pub fn enter(&mut self, now: Millis, request: Entering, fresh: PermitId) -> Entry {
        if self.closed {
            return Entry::Denied(Denied::Closed);
        }
        if self.mark.is_some_and(|mark| request.token < mark) {
            return Entry::Denied(Denied::Stale);
        }
        let waiter = Waiter {
            ticket: request.ticket,
            token: request.token,
            kind: request.kind,
            deadline: request.deadline,
            settle_after: request.settle_after,
        };
        if let Some(admitted) = self.admit(&waiter) {
            return Entry::Admitted(admitted);
        }
        // Those of lower tokens are about to be refused: they do not keep a newer holder out.
        let before = self.waiting.iter().filter(|waiter| waiter.token >= request.token).count();
        if before >= request.max_waiting {
            return Entry::Denied(Denied::Full);
        }
        self.waiting.push_back(waiter);
        self.drive(now, fresh);
        Entry::Waiting
    }

    /// A waiting request gave up by itself.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.retain(|waiter| waiter.ticket != ticket);
    }

    /// The ledger answered a raise: the mark as it is now, or `None` if it confirmed nothing.
    pub fn raised(&mut self, now: Millis, mark: Option<Token>, fresh: PermitId) {
        self.raising = None;
        match mark {
            Some(mark) => self.learn_mark(now, mark),
            None => self.ledger_failed(now),
        }
        self.drive(now, fresh);
    }

    /// The ledger answered a look for permits lower than `token`, or did not (`None`).
    pub fn looked(
        &mut self,
        now: Millis,
        token: Token,
        found: Option<&[Sighting]>,
        fresh: PermitId,
    ) {
        self.looking = None;
        if let Some(found) = found {
            // Their owners gave the others back, or an operator did.
            let seen = |id: &PermitId| found.iter().any(|sighting| sighting.id == *id);
            self.foreign.retain(|id, foreign| foreign.leaving || seen(id));
        }
        match found {
            // The mark rose while it was on its way: it was a look for another token.
            Some(_) if self.mark != Some(token) && self.guards.raise_first => {}
            // A reload may have put something in the way meanwhile.
            Some([]) if !self.holds.is_empty() => {}
            Some([]) => self.cleared = Some(token),
            Some(found) => {
                for sighting in found {
                    self.sight(*sighting, fresh);
                }
                self.give_back_what_is_done(now);
                // Found what memory no longer knows of, and nothing is on its way out: look again later.
                self.retry_at.get_or_insert(now + RETRY);
            }
            None => self.ledger_failed(now),
        }
        self.drive(now, fresh);
    }

    fn sight(&mut self, sighting: Sighting, fresh: PermitId) {
        if Gate::is_ours(sighting.id, fresh) {
            if !self.knows(sighting.id) {
                self.disown(sighting.id);
            }
            return;
        }
        let seen = self.foreign.entry(sighting.id);
        let Sighting { token, taint, .. } = sighting;
        seen.or_insert(Foreign { token, taint, leaving: false }).taint = taint;
    }

    /// The ledger answered a take: `Some(true)` recorded, `Some(false)` the mark is another, `None` not
    /// confirmed.
    pub fn taken(&mut self, now: Millis, id: PermitId, granted: Option<bool>, fresh: PermitId) {
        match granted {
            Some(true) => {
                if let Some(permit) = self.permits.get_mut(&id) {
                    permit.state = State::Held;
                    permit.idle_since = now;
                }
                // It may have been overtaken while it was on its way.
                self.give_back_what_is_done(now);
            }
            Some(false) => {
                self.permits.remove(&id);
                // Somebody raised the mark: learn how far, which refuses what it made stale.
                self.cleared = None;
                if let Some(token) = self.target() {
                    self.ask_raise(token);
                }
            }
            None => {
                self.permits.remove(&id);
                self.lost.insert(id);
                self.ledger_failed(now);
            }
        }
        self.drive(now, fresh);
    }

    /// Moves waiting requests on as far as is known; asks the ledger for the next step.
    pub(super) fn drive(&mut self, now: Millis, fresh: PermitId) {
        let Some(target) = self.target() else { return };
        if self.raising.is_some() {
            return;
        }
        let may_raise = self.guards.raise_first || self.cleared == Some(target);
        if may_raise && self.mark.is_none_or(|mark| mark < target) {
            return self.ask_raise(target);
        }
        if self.cleared != Some(target) {
            if self.guards.look {
                return self.ask_look(target);
            }
            self.cleared = Some(target);
        }
        self.admit_waiting();
        if self.waiting.iter().any(|waiter| waiter.kind == Kind::Write) && !self.has_permit(target)
        {
            self.ask_take(now, target, fresh);
        }
    }

    /// The highest token that waits: lower ones are stale as soon as the mark is raised to it.
    fn target(&self) -> Option<Token> {
        self.waiting.iter().map(|waiter| waiter.token).max()
    }

    fn ask_raise(&mut self, token: Token) {
        if self.raising.is_none() {
            self.raising = Some(token);
            self.actions.push(Action::Raise { token });
        }
    }

    fn ask_look(&mut self, token: Token) {
        // While something we know of blocks, the ledger would only say so again.
        let ours = self.permits.values().any(|permit| permit.token < token);
        let foreign = match self.retry_at {
            Some(_) => !self.foreign.is_empty(),
            None => !self.foreign.values().all(Foreign::is_unbounded),
        };
        let known = ours || foreign || !self.holds.is_empty() || !self.lost.is_empty();
        if self.looking.is_none() && !known {
            self.looking = Some(token);
            self.actions.push(Action::Look { token });
        }
    }

    /// Whether something older is known that has to be over before an operation of `token`.
    fn is_known_to_block(&self, token: Token) -> bool {
        self.permits.values().any(|permit| permit.token < token)
            || !self.foreign.is_empty()
            || !self.holds.is_empty()
            || !self.lost.is_empty()
    }

    /// Whether requests wait for something older to be over, rather than for the ledger's answer.
    pub fn is_draining(&self) -> bool {
        self.target().is_some_and(|token| self.is_known_to_block(token))
    }

    fn ask_take(&mut self, now: Millis, token: Token, fresh: PermitId) {
        let state = if self.guards.take_first { State::Asking } else { State::Held };
        let permit = Permit { token, state, exchanges: 0, taint: Taint::Clear, idle_since: now };
        self.permits.insert(fresh, permit);
        self.actions.push(Action::Take { id: fresh, token });
        if !self.guards.take_first {
            self.admit_waiting();
        }
    }

    fn learn_mark(&mut self, now: Millis, mark: Token) {
        if self.mark.is_some_and(|known| known >= mark) {
            return;
        }
        self.mark = Some(mark);
        self.foreign.clear();
        self.refuse_waiting(|waiter| (waiter.token < mark).then_some(Denied::Stale));
        self.overtake(now, mark);
    }

    fn ledger_failed(&mut self, now: Millis) {
        self.retry_at = Some(now + RETRY);
        self.refuse_waiting(|_| Some(Denied::Ledger));
    }

    fn has_permit(&self, token: Token) -> bool {
        self.permits.values().any(|permit| permit.token == token)
    }

    /// Admits from memory, if raise, look and take have been done for this very token.
    fn admit(&mut self, waiter: &Waiter) -> Option<Admitted> {
        let Waiter { token, kind, settle_after, .. } = *waiter;
        if self.mark != Some(token) || self.cleared != Some(token) {
            return None;
        }
        if kind == Kind::Pass {
            return Some(Admitted::Pass);
        }
        let held = self
            .permits
            .iter_mut()
            .find(|(_, permit)| permit.token == token && permit.state == State::Held);
        let (id, permit) = held?;
        permit.exchanges += 1;
        let exchange = ExchangeId(self.next_exchange);
        self.next_exchange += 1;
        let entry = Exchange { permit: *id, stage: Stage::Open, settle_after };
        self.exchanges.insert(exchange, entry);
        Some(Admitted::Write(exchange))
    }

    fn admit_waiting(&mut self) {
        for waiter in std::mem::take(&mut self.waiting) {
            match self.admit(&waiter) {
                Some(admitted) => {
                    self.actions.push(Action::Admit { ticket: waiter.ticket, admitted })
                }
                None => self.waiting.push_back(waiter),
            }
        }
    }

    pub(super) fn end_waits(&mut self, now: Millis) {
        let ours = self
            .permits
            .values()
            .filter(|permit| !self.is_current(permit))
            .map(|permit| permit.taint);
        let foreign = self.foreign.values().map(|foreign| foreign.taint);
        let holds = self.holds.values().copied();
        let worst = ours.chain(foreign).chain(holds).max().unwrap_or(Taint::Clear);
        let ends = worst.ends().filter(|ends| *ends != Millis::NEVER);
        let why = Denied::Drain { ends, unknown: worst != Taint::Clear };
        self.refuse_waiting(|waiter| (waiter.deadline <= now).then_some(why));
    }
}
