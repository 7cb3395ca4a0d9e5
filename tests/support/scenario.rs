//! Scenarios that know how they end: run once with all guards, and once with a guard switched off.
//!
//! A safety test that passes proves little until it has been seen to fail. So a safety story is a
//! function from a gate's [`Builder`] to a [`Verdict`]; the ordinary test says
//! `story(Gate::builder(..)).must_hold()`, and `must_fail.rs` runs the same function through
//! [`with_guard_off`] in a build of the program whose guards can be switched off.

use super::gate::Builder;

/// What a scenario saw. A scenario that could not be played at all panics instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise was kept.
    Held,
    /// It was broken, and how.
    Violated(String),
}

/// A guard that a `must-fail` build switches off by `FENCEGATE_BREAK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Waiting for permits of lower tokens.
    Drain,
    /// Looking for them after the mark was raised.
    Look,
    /// Withholding the tail of an upload.
    Tail,
}

// === impl Verdict ===

impl Verdict {
    /// Held if `fact` holds.
    pub fn held_if(fact: bool, otherwise: impl FnOnce() -> String) -> Verdict {
        if fact { Verdict::Held } else { Verdict::Violated(otherwise()) }
    }

    /// For the ordinary test.
    #[track_caller]
    pub fn must_hold(self) {
        if let Verdict::Violated(how) = self {
            panic!("the promise was broken: {how}");
        }
    }

    /// For the run with a guard off.
    #[track_caller]
    pub fn must_be_violated(self) {
        assert!(self != Verdict::Held, "the scenario passes without the guard: it shows nothing");
    }
}

/// Runs `scenario` with `guard` switched off.
pub fn with_guard_off(
    guard: Guard,
    gate: Builder,
    scenario: impl FnOnce(Builder) -> Verdict,
) -> Verdict {
    let name = match guard {
        Guard::Drain => "drain",
        Guard::Look => "look",
        Guard::Tail => "tail",
    };
    scenario(gate.env("FENCEGATE_BREAK", name))
}
