//! The gate: what a write costs whose token was admitted before; and reading its token.

use divan::{Bencher, black_box};
use fencegate::core::gate::{
    Action, Admitted, Commit, Entering, Entry, Gate, Guards, Incarnation, Kind, Outcome, PermitId,
    Quarantine, Ticket,
};
use fencegate::core::{Millis, Token};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn id(serial: u64) -> PermitId {
    PermitId { incarnation: Incarnation(1), serial }
}

fn entering(token: Token) -> Entering {
    Entering {
        ticket: Ticket(0),
        token,
        kind: Kind::Write,
        deadline: Millis(25_000),
        max_waiting: 1_000,
        settle_after: Quarantine::For(60 * SECOND),
    }
}

/// A gate that has admitted `token` before.
fn admitted(token: Token) -> Gate {
    let mut gate = Gate::new(Guards::ALL);
    let now = Millis(0);
    assert_eq!(gate.enter(now, entering(token), id(1)), Entry::Waiting);
    gate.raised(now, Some(token), id(2));
    gate.looked(now, token, Some(&[]), id(3));
    gate.taken(now, id(3), Some(true), id(4));
    for action in gate.take_actions() {
        if let Action::Admit { admitted: Admitted::Write(exchange), .. } = action {
            gate.settle(now, exchange, Outcome::NotSent, id(5));
        }
    }
    gate
}

/// Enter, pass the commit point, settle: the whole of what the fence adds to a write of a steady holder.
#[divan::bench]
fn one_write(bencher: Bencher) {
    let token = Token::new(1_796_138_036_389_650).expect("in range");
    let mut gate = admitted(token);
    bencher.bench_local(move || {
        let now = black_box(Millis(1));
        let Entry::Admitted(Admitted::Write(exchange)) = gate.enter(now, entering(token), id(9))
        else {
            unreachable!("admitted before")
        };
        assert_eq!(gate.commit(now, exchange, now, SECOND), Commit::Go);
        gate.settle(now, exchange, Outcome::Answered { applied: true }, id(9));
        gate.take_actions().len()
    });
}

/// Reading the token from its header's bytes.
#[divan::bench]
fn token_header() -> Token {
    Token::parse(black_box(b"1796138036389650")).expect("well formed")
}
