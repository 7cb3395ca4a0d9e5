//! One resource's gate with the requests that wait for it, and the shard it lives in.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::oneshot;

use super::admission::CutSignal;
use super::reload::{Cargo, Manifest};
use super::{Turned, Verdict};
use crate::core::gate::{Action, Admitted, ExchangeId, Gate, Outcome, PermitId, Ticket};
use crate::core::{Millis, Resource};

/// A gate that holds nothing is kept this long for the next request, which then need not ask the ledger.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Shard {
    pub cells: HashMap<Resource, Cell>,
}

pub(super) struct Cell {
    pub gate: Gate,
    pub waiting: HashMap<Ticket, oneshot::Sender<Verdict>>,
    /// What those that wait will write.
    pub cargo: HashMap<Ticket, Cargo>,
    /// What those that were admitted write.
    pub manifest: Manifest,
    /// Streaming exchanges that want to be told when they are cut.
    pub cuts: HashMap<ExchangeId, Arc<CutSignal>>,
    /// When the timers will wake this gate next; they may wake it earlier than needed, never later. None
    /// only while an answer of the ledger or a settlement is to come, which plans anew.
    pub wake_at: Option<Millis>,
}

// === impl Shard ===

impl Shard {
    pub fn cell(&mut self, resource: &Resource, gate: impl FnOnce() -> Gate) -> &mut Cell {
        self.cells.entry_ref(resource).or_insert_with(|| Cell {
            gate: gate(),
            waiting: HashMap::new(),
            cargo: HashMap::new(),
            manifest: Manifest::default(),
            cuts: HashMap::new(),
            wake_at: None,
        })
    }
}

// === impl Cell ===

impl Cell {
    /// Does what can be done at once: admit, refuse, cut. Returns what the ledger has to be asked, and
    /// when to wake the gate if that is earlier than was planned.
    pub fn drain(
        &mut self,
        now: Millis,
        fresh: impl Fn() -> PermitId,
    ) -> (Vec<Action>, Option<Millis>) {
        let mut todo = Vec::new();
        loop {
            let actions = self.gate.take_actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    Action::Admit { ticket, admitted } => {
                        self.tell(now, ticket, Ok(admitted), &fresh)
                    }
                    Action::Refuse { ticket, why } => {
                        self.tell(now, ticket, Err(Turned::Denied(why)), &fresh)
                    }
                    Action::Cut { exchange } => {
                        if let Some(signal) = self.cuts.get(&exchange) {
                            signal.cut();
                        }
                    }
                    ask => todo.push(ask),
                }
            }
        }
        let idle = || self.gate.is_idle().then(|| now + LINGER);
        let next = self.gate.next_deadline().or_else(idle);
        let wake = next.filter(|next| self.wake_at.is_none_or(|planned| *next < planned));
        if wake.is_some() {
            self.wake_at = wake;
        }
        (todo, wake)
    }

    /// Whether forgetting this cell loses nothing.
    pub fn is_spent(&self, now: Millis) -> bool {
        self.gate.is_idle()
            && self.gate.next_deadline().is_none()
            && self.waiting.is_empty()
            && self.manifest.is_empty(now)
    }

    /// A request waits no longer.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.cargo.remove(&ticket);
        self.gate.leave(ticket);
    }

    fn tell(
        &mut self,
        now: Millis,
        ticket: Ticket,
        verdict: Verdict,
        fresh: impl Fn() -> PermitId,
    ) {
        let cargo = self.cargo.remove(&ticket).unwrap_or_default();
        let unheard = match self.waiting.remove(&ticket) {
            Some(sender) => sender.send(verdict.clone()).is_err(),
            None => true,
        };
        if let Ok(Admitted::Write(exchange)) = verdict {
            if unheard {
                // Admitted too late: whoever asked is gone, and nothing of it has been sent.
                self.gate.settle(now, exchange, Outcome::NotSent, fresh());
            } else {
                self.manifest.add(exchange, cargo);
            }
        }
    }
}
