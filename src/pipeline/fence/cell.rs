//! One resource's gate with the requests that wait for it, and the shard it lives in.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::oneshot;

use super::admission::CutSignal;
use super::reload::{Cargo, Manifest};
use super::{Turned, Verdict};
use crate::core::gate::{Action, Admitted, ExchangeId, Gate, Outcome, PermitId, Ticket};
use crate::core::{Millis, Resource, Token};
use crate::telemetry::metrics::Level;

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
    /// How long a takeover takes.
    pub takeover: Takeover,
    /// Waiting requests and tainted permits, as far as the metrics know of them.
    shown: [i64; 2],
}

/// Times a takeover: from the first request above the mark to the first that is admitted.
#[derive(Default)]
pub(super) struct Takeover {
    pending: Option<(Token, Millis)>,
    finished: Option<Duration>,
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
            takeover: Takeover::default(),
            shown: [0; 2],
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
                        self.takeover.admitted(now, self.gate.mark());
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

    /// What changed in the metrics since the last call.
    pub fn gauge(&mut self, now: Millis) -> [(Level, i64); 2] {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let waiting = if self.gate.is_draining() { self.gate.waiting() } else { 0 };
        let shown = [count(waiting), count(self.gate.tainted(now))];
        let before = std::mem::replace(&mut self.shown, shown);
        [
            (Level::DrainsWaiting, shown[0] - before[0]),
            (Level::TaintedPermits, shown[1] - before[1]),
        ]
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

// === impl Takeover ===

impl Takeover {
    /// A request above the mark has begun to wait.
    pub fn begin(&mut self, now: Millis, token: Token, mark: Option<Token>) {
        let known = self.pending.is_some_and(|(pending, _)| pending >= token);
        if !known && mark.is_none_or(|mark| mark < token) {
            self.pending = Some((token, now));
        }
    }

    /// A waiting request was admitted; its token is the mark.
    fn admitted(&mut self, now: Millis, mark: Option<Token>) {
        if let Some((token, began)) = self.pending
            && mark >= Some(token)
        {
            self.finished = Some(began.until(now));
            self.pending = None;
        }
    }

    /// How long it took, once, when it is over.
    pub fn take_finished(&mut self) -> Option<Duration> {
        self.finished.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_lasts_from_the_first_request_above_the_mark_to_the_first_admitted() {
        let token = |n| Token::new(n).unwrap();
        let mut takeover = Takeover::default();
        takeover.begin(Millis(10), token(2), Some(token(1)));
        takeover.begin(Millis(20), token(2), Some(token(1)));
        takeover.admitted(Millis(30), Some(token(1)));
        assert_eq!(takeover.take_finished(), None, "admitted under the old token");
        takeover.admitted(Millis(40), Some(token(2)));
        assert_eq!(takeover.take_finished(), Some(Duration::from_millis(30)));
        takeover.admitted(Millis(50), Some(token(2)));
        assert_eq!(takeover.take_finished(), None, "only the first counts");
        takeover.begin(Millis(60), token(2), Some(token(2)));
        takeover.admitted(Millis(70), Some(token(2)));
        assert_eq!(takeover.take_finished(), None, "the mark was there already");
    }
}
