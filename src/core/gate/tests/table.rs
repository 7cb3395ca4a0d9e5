//! Single steps whose answers are fixed by the design.

use std::time::Duration;

use super::world::token;
use crate::core::gate::*;
use crate::core::{Millis, Token};

const fn id(serial: u64) -> PermitId {
    PermitId { incarnation: Incarnation(1), serial }
}

fn entering(ticket: u64, number: u64) -> Entering {
    Entering {
        ticket: Ticket(ticket),
        token: token(number),
        kind: Kind::Write,
        deadline: Millis(25_000),
        max_waiting: 2,
        settle_after: Quarantine::For(Duration::from_secs(60)),
    }
}

/// A gate whose holder of `number` is admitted, with one open exchange.
fn admitted(number: u64) -> (Gate, ExchangeId) {
    let mut gate = Gate::new(Guards::ALL);
    let now = Millis(0);
    assert_eq!(gate.enter(now, entering(0, number), id(1)), Entry::Waiting);
    assert_eq!(gate.take_actions(), [Action::Raise { token: token(number) }]);
    gate.raised(now, Some(token(number)), id(2));
    assert_eq!(gate.take_actions(), [Action::Look { token: token(number) }]);
    gate.looked(now, token(number), Some(&[]), id(3));
    assert_eq!(gate.take_actions(), [Action::Take { id: id(3), token: token(number) }]);
    gate.taken(now, id(3), Some(true), id(4));
    let actions = gate.take_actions();
    let [Action::Admit { ticket: Ticket(0), admitted: Admitted::Write(exchange) }] = actions[..]
    else {
        panic!("{actions:?}")
    };
    (gate, exchange)
}

#[test]
fn a_second_write_of_the_same_token_needs_no_ledger() {
    let (mut gate, _) = admitted(7);
    assert!(matches!(
        gate.enter(Millis(1), entering(1, 7), id(9)),
        Entry::Admitted(Admitted::Write(_))
    ));
    assert_eq!(gate.take_actions(), []);
}

#[test]
fn a_lower_token_is_stale_and_changes_nothing() {
    let (mut gate, exchange) = admitted(7);
    assert_eq!(gate.enter(Millis(1), entering(1, 6), id(9)), Entry::Denied(Denied::Stale));
    assert_eq!(gate.commit(Millis(1), exchange, Millis(1), Duration::ZERO), Commit::Go);
}

#[test]
fn a_newer_token_cuts_what_is_open_and_waits_for_what_is_counted() {
    let (mut gate, counted) = admitted(7);
    let Entry::Admitted(Admitted::Write(open)) = gate.enter(Millis(1), entering(1, 7), id(9))
    else {
        panic!()
    };
    assert_eq!(gate.commit(Millis(1), counted, Millis(1), Duration::ZERO), Commit::Go);
    assert_eq!(gate.enter(Millis(2), entering(2, 8), id(9)), Entry::Waiting);
    gate.take_actions();
    gate.raised(Millis(2), Some(token(8)), id(9));
    assert_eq!(gate.take_actions(), [Action::Cut { exchange: open }]);
    assert_eq!(gate.commit(Millis(3), open, Millis(3), Duration::ZERO), Commit::Cut);
    gate.settle(Millis(3), open, Outcome::NotSent, id(9));
    assert_eq!(gate.take_actions(), [], "the counted one still holds the permit");
    gate.settle(Millis(4), counted, Outcome::Answered { applied: true }, id(9));
    assert_eq!(gate.take_actions(), [Action::GiveBack { id: id(3) }]);
    gate.given_back(Millis(4), id(3), true, id(9));
    assert_eq!(gate.take_actions(), [Action::Look { token: token(8) }]);
}

#[test]
fn an_old_validation_is_repeated_before_the_commit_point() {
    let (mut gate, exchange) = admitted(7);
    let second = Duration::from_secs(1);
    assert_eq!(gate.commit(Millis(1_001), exchange, Millis(0), second), Commit::Revalidate);
    assert_eq!(gate.commit(Millis(1_001), exchange, Millis(1), second), Commit::Go);
}

#[test]
fn an_unknown_outcome_blocks_a_successor_from_when_it_was_abandoned() {
    let (mut gate, exchange) = admitted(7);
    assert_eq!(gate.commit(Millis(1), exchange, Millis(1), Duration::ZERO), Commit::Go);
    gate.settle(Millis(30_000), exchange, Outcome::Unknown, id(9));
    assert_eq!(
        gate.enter(Millis(30_001), Entering { deadline: Millis(55_000), ..entering(2, 8) }, id(9)),
        Entry::Waiting
    );
    gate.take_actions();
    gate.raised(Millis(30_001), Some(token(8)), id(9));
    assert_eq!(gate.next_deadline(), Some(Millis(55_000)));
    gate.tick(Millis(55_000), id(9));
    let why = Denied::Drain { ends: Some(Millis(90_000)), unknown: true };
    assert_eq!(gate.take_actions(), [Action::Refuse { ticket: Ticket(2), why }]);
    gate.tick(Millis(89_999), id(9));
    assert_eq!(gate.take_actions(), []);
    gate.tick(Millis(90_000), id(9));
    assert_eq!(gate.take_actions(), [Action::GiveBack { id: id(3) }]);
}

#[test]
fn an_unknown_outcome_without_a_bound_waits_for_an_operator() {
    let (mut gate, first) = admitted(7);
    let never = Entering { settle_after: Quarantine::Never, ..entering(1, 7) };
    let Entry::Admitted(Admitted::Write(second)) = gate.enter(Millis(1), never, id(9)) else {
        panic!()
    };
    gate.settle(Millis(1), first, Outcome::NotSent, id(9));
    assert_eq!(gate.commit(Millis(1), second, Millis(1), Duration::ZERO), Commit::Go);
    assert_eq!(gate.settle(Millis(2), second, Outcome::Unknown, id(9)), Taint::Forever);
    gate.tick(Millis(u64::MAX - 1), id(9));
    assert_eq!(gate.take_actions(), []);
    assert_eq!(gate.tainted_until(), Some(Millis::NEVER));
    assert_eq!(gate.settle_all(Millis(u64::MAX - 1), id(9)), 1);
    assert_eq!(gate.take_actions(), [Action::GiveBack { id: id(3) }]);
}

#[test]
fn a_later_request_does_not_shorten_the_quarantine_of_one_admitted_before() {
    let (mut gate, exchange) = admitted(7);
    let short = Entering {
        kind: Kind::Pass,
        settle_after: Quarantine::For(Duration::from_secs(1)),
        ..entering(1, 7)
    };
    assert_eq!(gate.enter(Millis(1), short, id(9)), Entry::Admitted(Admitted::Pass));
    assert_eq!(gate.commit(Millis(1), exchange, Millis(1), Duration::ZERO), Commit::Go);
    gate.settle(Millis(2), exchange, Outcome::Unknown, id(9));
    assert_eq!(gate.tainted_until(), Some(Millis(60_002)));
}

#[test]
fn a_take_that_was_never_confirmed_is_swept_until_it_is_gone() {
    let mut gate = Gate::new(Guards::ALL);
    gate.enter(Millis(0), entering(0, 7), id(1));
    gate.raised(Millis(0), Some(token(7)), id(2));
    gate.looked(Millis(0), token(7), Some(&[]), id(3));
    gate.take_actions();
    gate.taken(Millis(0), id(3), None, id(4));
    assert_eq!(gate.take_actions(), [Action::Refuse { ticket: Ticket(0), why: Denied::Ledger }]);
    for round in 1..4 {
        gate.tick(Millis(round * 1_000), id(5));
        assert_eq!(gate.take_actions(), [Action::GiveBack { id: id(3) }]);
        gate.given_back(Millis(round * 1_000), id(3), false, id(6));
    }
    gate.tick(Millis(5_000), id(7));
    gate.given_back(Millis(5_000), id(3), true, id(8));
    gate.take_actions();
    assert!(gate.is_idle());
}

#[test]
fn a_permit_of_a_dead_incarnation_blocks_until_its_quarantine_ends_and_is_then_removed() {
    let foreign = PermitId { incarnation: Incarnation(9), serial: 1 };
    let mut gate = Gate::new(Guards::ALL);
    gate.enter(Millis(0), Entering { deadline: Millis(70_000), ..entering(0, 8) }, id(1));
    gate.raised(Millis(0), Some(token(8)), id(2));
    gate.take_actions();
    let seen = Sighting { id: foreign, token: token(7), taint: Taint::Until(Millis(60_000)) };
    gate.looked(Millis(0), token(8), Some(&[seen]), id(3));
    gate.tick(Millis(59_999), id(4));
    assert_eq!(gate.take_actions(), []);
    gate.tick(Millis(60_000), id(5));
    assert_eq!(gate.take_actions(), [Action::GiveBack { id: foreign }]);
    gate.given_back(Millis(60_000), foreign, true, id(6));
    assert_eq!(gate.take_actions(), [Action::Look { token: token(8) }]);
}

#[test]
fn a_permit_that_only_its_living_owner_ends_is_looked_for_again() {
    let foreign = PermitId { incarnation: Incarnation(9), serial: 1 };
    let mut gate = Gate::new(Guards::ALL);
    gate.enter(Millis(0), entering(0, 8), id(1));
    gate.raised(Millis(0), Some(token(8)), id(2));
    gate.take_actions();
    let seen = Sighting { id: foreign, token: token(7), taint: Taint::Forever };
    gate.looked(Millis(0), token(8), Some(&[seen]), id(3));
    assert_eq!(gate.take_actions(), [], "not at once again");
    gate.tick(Millis(1_000), id(4));
    assert_eq!(gate.take_actions(), [Action::Look { token: token(8) }]);
    gate.looked(Millis(1_000), token(8), Some(&[]), id(5));
    assert_eq!(gate.take_actions(), [Action::Take { id: id(5), token: token(8) }]);
}

#[test]
fn the_requests_of_an_older_token_do_not_fill_the_queue_for_a_newer_one() {
    let mut gate = Gate::new(Guards::ALL);
    for ticket in 0..2 {
        assert_eq!(gate.enter(Millis(0), entering(ticket, 7), id(1)), Entry::Waiting);
    }
    assert_eq!(gate.enter(Millis(0), entering(2, 8), id(1)), Entry::Waiting);
}

#[test]
fn an_operator_does_not_settle_what_a_reload_left_in_flight() {
    let (mut gate, _) = admitted(7);
    gate.hold(HoldId(1));
    gate.hold(HoldId(2));
    gate.release(Millis(1), HoldId(2), Taint::Forever, id(9));
    assert_eq!(gate.settle_all(Millis(2), id(9)), 1);
    assert!(gate.is_held_by(HoldId(1)) && !gate.is_held_by(HoldId(2)));
}

#[test]
fn no_more_than_the_limit_wait() {
    let mut gate = Gate::new(Guards::ALL);
    assert_eq!(gate.enter(Millis(0), entering(0, 7), id(1)), Entry::Waiting);
    assert_eq!(gate.enter(Millis(0), entering(1, 7), id(1)), Entry::Waiting);
    assert_eq!(gate.enter(Millis(0), entering(2, 7), id(1)), Entry::Denied(Denied::Full));
}

#[test]
fn a_mark_above_the_token_refuses_it_as_stale() {
    let mut gate = Gate::new(Guards::ALL);
    gate.enter(Millis(0), entering(0, 7), id(1));
    gate.take_actions();
    gate.raised(Millis(0), Some(token(8)), id(2));
    assert_eq!(gate.take_actions(), [Action::Refuse { ticket: Ticket(0), why: Denied::Stale }]);
    assert_eq!(gate.mark(), Token::new(8));
}

#[test]
fn a_closed_gate_admits_nothing_and_cuts_what_is_open() {
    let (mut gate, exchange) = admitted(7);
    gate.close();
    assert_eq!(gate.enter(Millis(1), entering(1, 7), id(9)), Entry::Denied(Denied::Closed));
    assert_eq!(gate.commit(Millis(1), exchange, Millis(1), Duration::ZERO), Commit::Cut);
}

#[test]
fn a_hold_stops_even_a_token_that_was_admitted_before_until_what_holds_is_settled() {
    let (mut gate, _) = admitted(7);
    gate.hold(HoldId(1));
    assert_eq!(gate.enter(Millis(1), entering(1, 7), id(9)), Entry::Waiting);
    assert_eq!(gate.take_actions(), []);
    gate.release(Millis(2), HoldId(1), Taint::Until(Millis(60_000)), id(9));
    gate.tick(Millis(24_000), id(9));
    assert_eq!(gate.take_actions(), [], "unknown: it goes on blocking");
    gate.tick(Millis(25_000), id(9));
    let why = Denied::Drain { ends: Some(Millis(60_000)), unknown: true };
    assert_eq!(gate.take_actions(), [Action::Refuse { ticket: Ticket(1), why }]);
    assert_eq!(
        gate.enter(Millis(59_000), Entering { deadline: Millis(70_000), ..entering(2, 7) }, id(9)),
        Entry::Waiting
    );
    gate.tick(Millis(60_000), id(9));
    assert_eq!(gate.take_actions(), [Action::Look { token: token(7) }]);
}
