//! Each safety scenario, run against a program with one guard switched off: there it must fail.
//!
//! Only the `must-fail` build reads `FENCEGATE_BREAK`; `make test` builds and runs it second. To add
//! a scenario: write it as `pub fn story(gate: Builder) -> Verdict` beside its ordinary test, and
//! here one test of the form
//!
//! ```ignore
//! #[test]
//! fn without_the_drain_the_old_write_lands_on_top() {
//!     let store = RawStore::start();
//!     let gate = Gate::builder(&store.url());
//!     with_guard_off(Guard::Drain, gate, |gate| takeover::old_write_in_flight(gate, &store)).must_be_violated();
//! }
//! ```

use crate::fence::takeover;
use crate::stores::uploads::overtaken_uploads;
use crate::support::gate::Gate;
use crate::support::raw_store::RawStore;
use crate::support::relay::Relay;
use crate::support::scenario::{Guard, Verdict, with_guard_off};
use crate::support::signed::{SHAPES, Shape};
use crate::support::stores::{self, Store};

#[test]
fn must_fail_names_the_guard_to_the_program() {
    let cases = [(Guard::Drain, "drain"), (Guard::Look, "look"), (Guard::Tail, "tail")];
    for (guard, name) in cases {
        let seen = with_guard_off(guard, Gate::builder("http://127.0.0.1:1"), |gate| {
            let told = format!("{gate:?}").contains(&format!("(\"FENCEGATE_BREAK\", \"{name}\")"));
            Verdict::held_if(!told, || "told".to_owned())
        });
        seen.must_be_violated();
    }
}

#[test]
#[should_panic(expected = "it shows nothing")]
fn must_fail_rejects_a_scenario_that_passes_without_its_guard() {
    with_guard_off(Guard::Tail, Gate::builder("http://127.0.0.1:1"), |_| Verdict::Held)
        .must_be_violated();
}

#[test]
fn without_the_withheld_tail_an_overtaken_upload_is_stored_in_every_shape() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        for shape in SHAPES {
            without_the_tail(store, shape).must_be_violated();
        }
    }
}

fn without_the_tail(store: &Store, shape: Shape) -> Verdict {
    let relay = Relay::start(&store.url);
    let gate = Gate::builder(&relay.url());
    with_guard_off(Guard::Tail, gate, |gate| overtaken_uploads(store, &relay, &[shape], gate))
}

#[test]
fn without_the_drain_the_old_write_lands_on_top() {
    old_write_lands_without(Guard::Drain);
}

#[test]
fn without_the_look_the_old_write_lands_on_top() {
    old_write_lands_without(Guard::Look);
}

fn old_write_lands_without(guard: Guard) {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url());
    with_guard_off(guard, gate, |gate| takeover::old_write_in_flight(gate, &store))
        .must_be_violated();
}
