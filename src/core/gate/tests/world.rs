//! A small world: one or two replicas' gates, one ledger, one store; every message may be late or lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::core::gate::*;
use crate::core::{Millis, Token};

pub const OLD: u64 = 1;
pub const NEW: u64 = 2;
const QUARANTINE: Duration = Duration::from_secs(60);

pub fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// How a world is set up; the same for all its states.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub guards: Guards,
    /// 1: both holders write through the same replica.
    pub replicas: usize,
    /// How often each holder may ask to begin.
    pub asks: [u8; 2],
    /// How many ledger answers may be lost.
    pub losses: u8,
    /// Whether replica 0 may die and come back as another incarnation.
    pub crashes: bool,
    /// Whether time may pass the quarantine. Assumption U6: only when nothing abandoned is on its way.
    pub time: bool,
    /// What the new holder does.
    pub kind: Kind,
}

pub const SAFE: Setup = Setup {
    guards: Guards::ALL,
    replicas: 1,
    asks: [2, 1],
    losses: 1,
    crashes: false,
    time: false,
    kind: Kind::Write,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    replica: usize,
    incarnation: u128,
    step: LedgerStep,
    /// Its answer will reach the replica.
    heard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum LedgerStep {
    Raise(Token),
    Look(Token),
    Take(PermitId, Token),
    GiveBack(PermitId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Write {
    replica: usize,
    incarnation: u128,
    exchange: ExchangeId,
    token: u64,
    abandoned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    guards: Guards,
    now: Millis,
    gates: Vec<Gate>,
    incarnations: Vec<u128>,
    /// When the replica's present incarnation began.
    since: Vec<Millis>,
    serial: u64,
    tickets: BTreeMap<(usize, u64), u64>,
    next_ticket: u64,
    asked: [u8; 2],
    lost: u8,
    crashed: bool,
    open: BTreeMap<(usize, ExchangeId), u64>,
    mark: Option<Token>,
    permits: BTreeMap<PermitId, Token>,
    calls: BTreeSet<Call>,
    net: BTreeSet<Write>,
    /// The new holder's operation has begun to be forwarded.
    pub new_began: bool,
    /// A write of the old token took effect after that: the promise is broken.
    pub broken: bool,
}

impl World {
    pub fn new(setup: &Setup) -> World {
        World {
            guards: setup.guards,
            now: Millis(0),
            gates: vec![Gate::new(setup.guards); setup.replicas],
            incarnations: (1..=setup.replicas as u128).collect(),
            since: vec![Millis(0); setup.replicas],
            serial: 0,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            asked: [0, 0],
            lost: 0,
            crashed: false,
            open: BTreeMap::new(),
            mark: None,
            permits: BTreeMap::new(),
            calls: BTreeSet::new(),
            net: BTreeSet::new(),
            new_began: false,
            broken: false,
        }
    }

    fn fresh(&mut self, replica: usize) -> PermitId {
        self.serial += 1;
        PermitId { incarnation: Incarnation(self.incarnations[replica]), serial: self.serial }
    }

    /// Every state that one more step can lead to.
    pub fn next(&self, setup: &Setup) -> Vec<World> {
        let mut out = Vec::new();
        for (who, number) in [(0, OLD), (1, NEW)] {
            if self.asked[who] < setup.asks[who] {
                let mut world = self.clone();
                world.asked[who] += 1;
                world.ask(
                    who.min(setup.replicas - 1),
                    number,
                    if who == 1 { setup.kind } else { Kind::Write },
                );
                out.push(world);
            }
        }
        for call in &self.calls {
            let mut done = self.clone();
            done.calls.remove(call);
            done.serve(call);
            out.push(done);
            if call.heard && self.lost < setup.losses {
                // The replica gives up waiting; the ledger may still carry it out, later.
                let mut deaf = self.clone();
                deaf.lost += 1;
                deaf.calls.remove(call);
                deaf.calls.insert(Call { heard: false, ..call.clone() });
                deaf.answer(call, None);
                out.push(deaf);
            }
        }
        for (&(replica, exchange), &number) in &self.open {
            let mut world = self.clone();
            world.try_commit(replica, exchange, number);
            out.push(world);
        }
        for write in &self.net {
            let mut answered = self.clone();
            answered.net.remove(write);
            answered.apply(write);
            if !write.abandoned {
                answered.settle(write, Outcome::Answered { applied: true });
            }
            out.push(answered);
            if !write.abandoned {
                let mut abandoned = self.clone();
                abandoned.net.remove(write);
                abandoned.net.insert(Write { abandoned: true, ..write.clone() });
                abandoned.settle(write, Outcome::Unknown);
                out.push(abandoned);
            }
            let mut lost = self.clone();
            lost.net.remove(write);
            if !write.abandoned {
                lost.settle(write, Outcome::Unknown);
            }
            out.push(lost);
        }
        if setup.crashes && !self.crashed {
            let mut world = self.clone();
            world.crash(setup);
            out.push(world);
        }
        // U6: what was abandoned has landed or is gone before the quarantine ends.
        if setup.time && !self.is_late() && self.net.iter().all(|write| !write.abandoned) {
            let mut world = self.clone();
            world.now = self.now + QUARANTINE;
            for replica in 0..world.gates.len() {
                let fresh = world.fresh(replica);
                world.gates[replica].tick(world.now, fresh);
                world.carry_out(replica);
            }
            out.push(world);
        }
        out
    }

    /// Whether the world's time is up: it ends after a few quarantines, so that it is finite.
    pub fn is_late(&self) -> bool {
        self.now >= Millis(240_000)
    }

    fn ask(&mut self, replica: usize, number: u64, kind: Kind) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let fresh = self.fresh(replica);
        let entering = Entering {
            ticket,
            token: token(number),
            kind,
            deadline: Millis::NEVER,
            max_waiting: 10,
            settle_after: Quarantine::For(QUARANTINE),
        };
        match self.gates[replica].enter(self.now, entering, fresh) {
            Entry::Admitted(admitted) => self.begin(replica, number, admitted),
            Entry::Waiting => {
                self.tickets.insert((replica, ticket.0), number);
            }
            Entry::Denied(_) => {}
        }
        self.carry_out(replica);
    }

    fn begin(&mut self, replica: usize, number: u64, admitted: Admitted) {
        // From the first byte on: a streamed body leaves before its commit point.
        self.new_began |= number == NEW;
        let Admitted::Write(exchange) = admitted else { return };
        if self.guards.commit_check {
            self.open.insert((replica, exchange), number);
        } else {
            self.send(replica, exchange, number);
        }
    }

    fn send(&mut self, replica: usize, exchange: ExchangeId, number: u64) {
        let incarnation = self.incarnations[replica];
        self.net.insert(Write { replica, incarnation, exchange, token: number, abandoned: false });
    }

    fn try_commit(&mut self, replica: usize, exchange: ExchangeId, number: u64) {
        match self.gates[replica].commit(self.now, exchange, self.now, Duration::from_secs(1)) {
            Commit::Go => {
                self.open.remove(&(replica, exchange));
                let incarnation = self.incarnations[replica];
                self.net.insert(Write {
                    replica,
                    incarnation,
                    exchange,
                    token: number,
                    abandoned: false,
                });
            }
            Commit::Cut => self.drop_open(replica, exchange),
            Commit::Revalidate => unreachable!("validated at this very instant"),
        }
        self.carry_out(replica);
    }

    fn drop_open(&mut self, replica: usize, exchange: ExchangeId) {
        if self.open.remove(&(replica, exchange)).is_some() {
            let fresh = self.fresh(replica);
            self.gates[replica].settle(self.now, exchange, Outcome::NotSent, fresh);
        }
    }

    fn apply(&mut self, write: &Write) {
        self.broken |= write.token == OLD && self.new_began;
    }

    fn settle(&mut self, write: &Write, outcome: Outcome) {
        if self.incarnations[write.replica] == write.incarnation {
            let fresh = self.fresh(write.replica);
            self.gates[write.replica].settle(self.now, write.exchange, outcome, fresh);
            self.carry_out(write.replica);
        }
    }

    fn carry_out(&mut self, replica: usize) {
        loop {
            let actions = self.gates[replica].take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let step = match action {
                    Action::Raise { token } => LedgerStep::Raise(token),
                    Action::Look { token } => LedgerStep::Look(token),
                    Action::Take { id, token } => LedgerStep::Take(id, token),
                    Action::GiveBack { id } => LedgerStep::GiveBack(id),
                    Action::Admit { ticket, admitted } => {
                        let number = self.tickets.remove(&(replica, ticket.0)).unwrap();
                        self.begin(replica, number, admitted);
                        continue;
                    }
                    Action::Refuse { ticket, .. } => {
                        self.tickets.remove(&(replica, ticket.0));
                        continue;
                    }
                    Action::Cut { exchange } => {
                        self.cut(replica, exchange);
                        continue;
                    }
                };
                let incarnation = self.incarnations[replica];
                self.calls.insert(Call { replica, incarnation, step, heard: true });
            }
        }
    }

    /// The driver's part of a cut: an open exchange never sends its tail; one past its commit point
    /// would have to be called "not applied", which is what the guard forbids.
    fn cut(&mut self, replica: usize, exchange: ExchangeId) {
        self.drop_open(replica, exchange);
        let fresh = self.fresh(replica);
        self.gates[replica].settle(self.now, exchange, Outcome::NotSent, fresh);
    }

    fn serve(&mut self, call: &Call) {
        match &call.step {
            LedgerStep::Raise(token) => self.mark = self.mark.max(Some(*token)),
            LedgerStep::Take(id, token) if self.mark == Some(*token) => {
                self.permits.insert(*id, *token);
            }
            LedgerStep::Take(..) => {
                if call.heard {
                    self.answer(call, Some(false));
                }
                return;
            }
            LedgerStep::GiveBack(id) => {
                self.permits.remove(id);
            }
            LedgerStep::Look(_) => {}
        }
        if call.heard {
            self.answer(call, Some(true));
        }
    }

    fn answer(&mut self, call: &Call, answer: Option<bool>) {
        if self.incarnations[call.replica] != call.incarnation {
            return;
        }
        let fresh = self.fresh(call.replica);
        let now = self.now;
        let since = self.since[call.replica];
        let dead = |id: &PermitId| !self.incarnations.contains(&id.incarnation.0);
        let sightings = |token: Token| -> Vec<Sighting> {
            let lower = self.permits.iter().filter(|(_, held)| **held < token);
            lower
                .map(|(id, held)| {
                    // Proof of death: a later incarnation runs in its place.
                    let taint =
                        if dead(id) { Taint::Until(since + QUARANTINE) } else { Taint::Forever };
                    Sighting { id: *id, token: *held, taint }
                })
                .collect()
        };
        match &call.step {
            LedgerStep::Raise(_) => {
                let mark = answer.and(self.mark);
                self.gates[call.replica].raised(now, mark, fresh);
            }
            LedgerStep::Look(token) => {
                let found = answer.map(|_| sightings(*token));
                self.gates[call.replica].looked(now, *token, found.as_deref(), fresh);
            }
            LedgerStep::Take(id, _) => self.gates[call.replica].taken(now, *id, answer, fresh),
            LedgerStep::GiveBack(id) => {
                self.gates[call.replica].given_back(now, *id, answer.is_some(), fresh)
            }
        }
        self.carry_out(call.replica);
    }

    /// Replica 0 dies: its memory is gone, its messages are abandoned, its permits stay in the ledger.
    fn crash(&mut self, setup: &Setup) {
        self.crashed = true;
        self.incarnations[0] += 100;
        self.since[0] = self.now;
        self.gates[0] = Gate::new(setup.guards);
        self.open.retain(|(replica, _), _| *replica != 0);
        self.tickets.retain(|(replica, _), _| *replica != 0);
        let net = std::mem::take(&mut self.net);
        self.net = net
            .into_iter()
            .map(|write| Write { abandoned: write.abandoned || write.replica == 0, ..write })
            .collect();
    }
}
