//! Long random runs of one gate over a perfect ledger, against a reference that fits on a screen.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::world::token;
use crate::core::gate::*;
use crate::core::{Millis, Token};

#[derive(Clone, Debug)]
enum Op {
    Enter { number: u64, write: bool },
    Commit(usize),
    Settle(usize, Outcome),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let outcome = prop_oneof![
        Just(Outcome::NotSent),
        Just(Outcome::Answered { applied: true }),
        Just(Outcome::Answered { applied: false }),
        Just(Outcome::Unknown),
    ];
    prop_oneof![
        4 => (1..6u64, any::<bool>()).prop_map(|(number, write)| Op::Enter { number, write }),
        3 => (0..8usize).prop_map(Op::Commit),
        3 => ((0..8usize), outcome).prop_map(|(at, outcome)| Op::Settle(at, outcome)),
        1 => (0..20_000u64).prop_map(Op::Pass),
    ]
}

/// The whole promise: a token begins when it is not below the highest that asked, and nothing that may
/// still land is below it.
#[derive(Default)]
struct Reference {
    highest: u64,
    counted: BTreeMap<ExchangeId, u64>,
    tainted: Vec<(u64, Millis)>,
}

impl Reference {
    fn may_begin(&self, now: Millis, number: u64) -> bool {
        number == self.highest
            && self.counted.values().all(|counted| *counted >= number)
            && self.tainted.iter().all(|(tainted, ends)| *tainted >= number || *ends <= now)
    }
}

struct Run {
    gate: Gate,
    now: Millis,
    mark: Option<Token>,
    permits: BTreeMap<PermitId, Token>,
    serial: u64,
    waiting: BTreeMap<Ticket, u64>,
    open: BTreeMap<ExchangeId, u64>,
    reference: Reference,
}

const QUARANTINE: Duration = Duration::from_secs(5);

impl Run {
    fn fresh(&mut self) -> PermitId {
        self.serial += 1;
        PermitId { incarnation: Incarnation(7), serial: self.serial }
    }

    fn admitted(&mut self, number: u64, admitted: Admitted) {
        assert!(self.reference.may_begin(self.now, number), "token {number} began too early");
        if let Admitted::Write(exchange) = admitted {
            self.open.insert(exchange, number);
        }
    }

    /// Carries out everything the gate asks for, at once and durably.
    fn carry_out(&mut self) {
        loop {
            let actions = self.gate.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let fresh = self.fresh();
                match action {
                    Action::Raise { token } => {
                        self.mark = self.mark.max(Some(token));
                        self.gate.raised(self.now, self.mark, fresh);
                    }
                    Action::Look { token } => {
                        let lower = self.permits.iter().filter(|(_, held)| **held < token);
                        let found: Vec<Sighting> = lower
                            .map(|(id, held)| Sighting {
                                id: *id,
                                token: *held,
                                taint: Taint::Forever,
                            })
                            .collect();
                        self.gate.looked(self.now, token, Some(&found), fresh);
                    }
                    Action::Take { id, token } => {
                        let granted = self.mark == Some(token);
                        if granted {
                            self.permits.insert(id, token);
                        }
                        self.gate.taken(self.now, id, Some(granted), fresh);
                    }
                    Action::GiveBack { id } => {
                        self.permits.remove(&id);
                        self.gate.given_back(self.now, id, true, fresh);
                    }
                    Action::Admit { ticket, admitted } => {
                        let number = self.waiting.remove(&ticket).unwrap();
                        self.admitted(number, admitted);
                    }
                    Action::Refuse { ticket, why } => {
                        let number = self.waiting.remove(&ticket).unwrap();
                        assert_eq!(why, Denied::Stale, "nothing else refuses here");
                        assert!(number < self.reference.highest);
                    }
                    Action::Cut { exchange } => {
                        let number =
                            self.open.remove(&exchange).expect("only an open exchange is cut");
                        assert!(number < self.reference.highest);
                        self.gate.settle(self.now, exchange, Outcome::NotSent, fresh);
                    }
                }
            }
        }
    }

    fn step(&mut self, op: Op, ticket: u64) {
        let fresh = self.fresh();
        match op {
            Op::Enter { number, write } => {
                let entering = Entering {
                    ticket: Ticket(ticket),
                    token: token(number),
                    kind: if write { Kind::Write } else { Kind::Pass },
                    deadline: Millis::NEVER,
                    max_waiting: 1_000,
                    settle_after: Quarantine::For(QUARANTINE),
                };
                let entry = self.gate.enter(self.now, entering, fresh);
                let stale = number < self.reference.highest;
                self.reference.highest = self.reference.highest.max(number);
                match entry {
                    Entry::Denied(why) => assert!(stale && why == Denied::Stale, "{why:?}"),
                    Entry::Admitted(admitted) => self.admitted(number, admitted),
                    Entry::Waiting => {
                        self.waiting.insert(Ticket(ticket), number);
                    }
                }
            }
            Op::Commit(at) => {
                let Some((&exchange, &number)) = self.open.iter().nth(at) else { return };
                let commit = self.gate.commit(self.now, exchange, self.now, Duration::ZERO);
                assert_eq!(commit, Commit::Go, "open exchanges are of the mark's token");
                self.open.remove(&exchange);
                self.reference.counted.insert(exchange, number);
            }
            Op::Settle(at, outcome) => {
                let Some((&exchange, &number)) = self.reference.counted.iter().nth(at) else {
                    return;
                };
                self.reference.counted.remove(&exchange);
                if outcome == Outcome::Unknown {
                    self.reference.tainted.push((number, self.now + QUARANTINE));
                }
                self.gate.settle(self.now, exchange, outcome, fresh);
            }
            Op::Pass(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                self.gate.tick(self.now, fresh);
            }
        }
        self.carry_out();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_gate_admits_exactly_what_the_reference_admits(ops in proptest::collection::vec(op(), 1..120)) {
        let mut run = Run {
            gate: Gate::new(Guards::ALL),
            now: Millis(1),
            mark: None,
            permits: BTreeMap::new(),
            serial: 0,
            waiting: BTreeMap::new(),
            open: BTreeMap::new(),
            reference: Reference::default(),
        };
        for (at, op) in ops.into_iter().enumerate() {
            run.step(op, at as u64);
            // Nothing waits that may begin, nothing that may not has begun (`admitted` checks that),
            // and the gate wakes itself up for everything that only needs time.
            for number in run.waiting.values() {
                let held_up_by_time = run.gate.next_deadline().is_some() || !run.reference.counted.is_empty();
                prop_assert!(!run.reference.may_begin(run.now, *number) || held_up_by_time, "token {} waits for nothing", number);
            }
            prop_assert_eq!(run.mark.map_or(0, Token::get), run.reference.highest);
        }
        // When everything has settled and time has passed, nothing is left.
        let left: Vec<_> = run.reference.counted.keys().copied().chain(run.open.keys().copied()).collect();
        for exchange in left {
            let fresh = run.fresh();
            run.gate.settle(run.now, exchange, Outcome::NotSent, fresh);
            run.reference.counted.remove(&exchange);
            run.open.remove(&exchange);
            run.carry_out();
        }
        for _ in 0..3 {
            run.step(Op::Pass(10_000), 0);
            for exchange in std::mem::take(&mut run.open).into_keys() {
                let fresh = run.fresh();
                run.gate.settle(run.now, exchange, Outcome::NotSent, fresh);
                run.carry_out();
            }
        }
        prop_assert!(run.waiting.is_empty());
        prop_assert!(run.permits.is_empty(), "{:?}", run.permits);
        prop_assert!(run.gate.is_idle(), "{:?}", run.gate);
    }
}
