//! One resource's whole protocol on one replica: enter, commit point, cut, settle, give back.
//!
//! Entering is three steps against the ledger, in this order: **raise** the mark to the token, durably;
//! **look** that no permit of a lower token is left; **take** a permit, guarded by mark = token, durable
//! before its first exchange passes its commit point. Once a replica has done them for a token, later
//! operations of the same token are admitted from memory: no lower permit can appear any more, since
//! taking one is guarded by the mark.
//!
//! A gate does nothing by itself. Its driver calls it with the time and with what the ledger answered,
//! and carries out the [`Action`]s that come back. `docs/concepts/fencing.md` tells a takeover step by
//! step; the order of the steps and each guard is there because the variant without it loses writes.

mod enter;
mod exchange;
mod permit;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use self::types::*;
use super::{Millis, Token};
use permit::{Foreign, Permit};

/// The protocol state of one resource on one replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    guards: Guards,
    /// Highest mark that the ledger has confirmed; `None` until it was asked.
    mark: Option<Token>,
    /// A raise that was asked for and not answered.
    raising: Option<Token>,
    /// A look that was asked for and not answered.
    looking: Option<Token>,
    /// The token for which a look *after* its raise found no lower permit.
    cleared: Option<Token>,
    /// Our permits: at most one of the mark's token, others of lower tokens on their way out.
    permits: BTreeMap<PermitId, Permit>,
    /// Permits of other incarnations that the last look found below the mark.
    foreign: BTreeMap<PermitId, Foreign>,
    /// What else has to be over before a newer operation may begin: exchanges of another resource whose
    /// key a reload gave to this one.
    holds: BTreeMap<HoldId, Taint>,
    /// Permits of ours that may be in the ledger though we hold them no more: an answer was lost.
    lost: BTreeSet<PermitId>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    next_exchange: u64,
    waiting: VecDeque<Waiter>,
    /// Why nothing is admitted any more, if so.
    closed: bool,
    /// When to ask the ledger again for what it did not confirm.
    retry_at: Option<Millis>,
    actions: Vec<Action>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    ticket: Ticket,
    token: Token,
    kind: Kind,
    deadline: Millis,
    settle_after: Quarantine,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Exchange {
    permit: PermitId,
    stage: Stage,
    /// How long its outcome blocks if it stays unknown, by the rule that it was admitted with.
    settle_after: Quarantine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Admitted; its tail is withheld.
    Open,
    /// The mark rose before its commit point: its tail will never leave.
    Cut,
    /// Past its commit point.
    Counted,
}

// === impl Gate ===

impl Gate {
    /// A gate that knows nothing yet: its first request asks the ledger.
    pub fn new(guards: Guards) -> Gate {
        Gate {
            guards,
            mark: None,
            raising: None,
            looking: None,
            cleared: None,
            permits: BTreeMap::new(),
            foreign: BTreeMap::new(),
            holds: BTreeMap::new(),
            lost: BTreeSet::new(),
            exchanges: BTreeMap::new(),
            next_exchange: 0,
            waiting: VecDeque::new(),
            closed: false,
            retry_at: None,
            actions: Vec::new(),
        }
    }

    /// The highest mark that the ledger has confirmed; `None` until it was asked.
    pub fn mark(&self) -> Option<Token> {
        self.mark
    }

    /// What the driver has to do now, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Whether forgetting this gate loses nothing that the ledger does not keep.
    pub fn is_idle(&self) -> bool {
        self.permits.is_empty()
            && self.foreign.is_empty()
            && self.holds.is_empty()
            && self.lost.is_empty()
            && self.exchanges.is_empty()
            && self.waiting.is_empty()
            && self.raising.is_none()
            && self.looking.is_none()
            && self.actions.is_empty()
            && !self.closed
    }

    /// When [`tick`](Gate::tick) has something to do without another event; `None`: never.
    pub fn next_deadline(&self) -> Option<Millis> {
        let waiters = self.waiting.iter().map(|waiter| waiter.deadline);
        let permits =
            self.permits.values().filter_map(|permit| permit.leaves_at(self.is_current(permit)));
        let foreign = self.foreign.values().filter_map(Foreign::leaves_at);
        let holds = self
            .holds
            .values()
            .filter_map(|taint| taint.ends())
            .filter(|ends| *ends != Millis::NEVER);
        waiters.chain(permits).chain(foreign).chain(holds).chain(self.retry_at).min()
    }

    /// Lets time pass: ends waits, quarantines and idle permits that are due. `fresh` is an id that was
    /// never used; it names a permit if one has to be taken.
    pub fn tick(&mut self, now: Millis, fresh: PermitId) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.sweep_lost();
        }
        self.holds.retain(|_, taint| *taint == Taint::Clear || !taint.is_over(now));
        self.give_back_what_is_done(now);
        self.drive(now, fresh);
        self.end_waits(now);
    }

    /// A reload gave this resource a key on which an exchange of another resource is not settled: nothing
    /// begins here until [`release`](Gate::release), not even an operation of a token admitted before.
    pub fn hold(&mut self, hold: HoldId) {
        self.cleared = None;
        self.holds.insert(hold, Taint::Clear);
    }

    /// Whether this hold is in force.
    pub fn is_held_by(&self, hold: HoldId) -> bool {
        self.holds.contains_key(&hold)
    }

    /// The exchange behind a hold was settled; an unknown outcome goes on blocking for its quarantine.
    pub fn release(&mut self, now: Millis, hold: HoldId, taint: Taint, fresh: PermitId) {
        match (self.holds.get_mut(&hold), taint) {
            (None, _) => {}
            (Some(_), Taint::Clear) => {
                self.holds.remove(&hold);
                self.drive(now, fresh);
            }
            (Some(held), taint) => *held = taint,
        }
    }

    /// The process is ending: gives back at once what nothing needs any more.
    pub fn retire(&mut self) {
        for (id, permit) in &mut self.permits {
            if permit.is_unused() {
                permit.leave();
                self.actions.push(Action::GiveBack { id: *id });
            }
        }
    }

    /// Fails the resource closed: the lease backend answered with less than was durable when it was
    /// asked, so it lost or reverted its state. Waiting requests are refused.
    pub fn close(&mut self) {
        self.closed = true;
        self.refuse_waiting(|_| Some(Denied::Closed));
    }

    /// Opens a closed resource again, after an operator raised its tokens above the mark.
    pub fn reopen(&mut self) {
        self.closed = false;
    }

    /// Whether the resource fails closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// An operator's word that nothing unknown will land any more: ends every quarantine, and asks the
    /// ledger to drop the permits of other incarnations. What is in flight goes on blocking until it is
    /// answered. Returns how many permits and holds that concerns.
    pub fn settle_all(&mut self, now: Millis, fresh: PermitId) -> usize {
        let mut freed = 0;
        for permit in self.permits.values_mut().filter(|permit| permit.taint != Taint::Clear) {
            permit.taint = Taint::Clear;
            freed += 1;
        }
        let held = self.holds.len();
        self.holds.retain(|_, taint| *taint == Taint::Clear);
        freed += held - self.holds.len();
        for (id, foreign) in self.foreign.iter_mut().filter(|(_, foreign)| !foreign.leaving) {
            foreign.leaving = true;
            self.actions.push(Action::GiveBack { id: *id });
            freed += 1;
        }
        self.give_back_what_is_done(now);
        self.drive(now, fresh);
        freed
    }

    /// What an operator sees of our permits.
    pub fn permits(&self) -> impl Iterator<Item = PermitState> {
        self.permits.iter().map(|(id, permit)| {
            let under = |stage: Stage| {
                self.exchanges
                    .values()
                    .filter(|exchange| exchange.permit == *id && exchange.stage == stage)
                    .count()
            };
            PermitState {
                id: *id,
                token: permit.token,
                counted: under(Stage::Counted),
                open: under(Stage::Open) + under(Stage::Cut),
                taint: permit.taint,
            }
        })
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What an operator sees of permits of other incarnations, as far as a look found them.
    pub fn foreign(&self) -> impl Iterator<Item = PermitState> {
        self.foreign.iter().map(|(id, Foreign { token, taint, .. })| PermitState {
            id: *id,
            token: *token,
            counted: 0,
            open: 0,
            taint: *taint,
        })
    }

    /// Permits, ours and others' found by a look, under which an outcome is still unknown.
    pub fn tainted(&self, now: Millis) -> usize {
        let ours = self.permits.values().map(|permit| permit.taint);
        let foreign = self.foreign.values().map(|foreign| foreign.taint);
        ours.chain(foreign).filter(|taint| !taint.is_over(now)).count()
    }

    /// How many exchanges are not settled.
    pub fn unsettled(&self) -> usize {
        self.exchanges.len()
    }

    /// The instant until which an unknown outcome of ours blocks a successor: `Some(NEVER)` if only an
    /// operator ends it.
    pub fn tainted_until(&self) -> Option<Millis> {
        self.permits.values().filter_map(|permit| permit.taint.ends()).max()
    }

    fn is_current(&self, permit: &Permit) -> bool {
        self.mark == Some(permit.token)
    }

    fn refuse_waiting(&mut self, why: impl Fn(&Waiter) -> Option<Denied>) {
        let actions = &mut self.actions;
        self.waiting.retain(|waiter| match why(waiter) {
            Some(denied) => {
                actions.push(Action::Refuse { ticket: waiter.ticket, why: denied });
                false
            }
            None => true,
        });
    }
}
