//! Step 7: what became of an exchange. An outcome is a thing of its own: in doubt, the write may exist.

use http::StatusCode;

use super::classify::answer::BodyVerdict;
use crate::core::gate::Outcome;

/// Where the exchange stood when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its tail had not been handed over.
    Before {
        /// Nothing remains of what had left: no byte of the body had, or the store discards torn uploads.
        clean: bool,
    },
    /// Its tail had been handed over.
    After,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, or nothing that can be read: no connection, reset, end, time-out, cut.
    None,
    /// An answer whose body did not come to its end.
    Torn(StatusCode),
    /// A complete answer.
    Complete(StatusCode, BodyVerdict),
    /// A complete answer with more bytes behind it, or one that can be read in two ways.
    Garbled,
}

/// The outcome, and whether the store did what it must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// For the fence.
    pub outcome: Outcome,
    /// The store said that it had done a write whose last byte it had not got.
    pub alarm: bool,
}

/// The settle table of the design.
pub fn settle(stage: Stage, answer: &Answer) -> Settlement {
    let unsent = match stage {
        Stage::Before { clean: true } => Outcome::NotSent,
        Stage::Before { clean: false } | Stage::After => Outcome::Unknown,
    };
    let before = matches!(stage, Stage::Before { .. });
    let (outcome, alarm) = match answer {
        Answer::None => (unsent, false),
        Answer::Garbled => (Outcome::Unknown, false),
        Answer::Torn(status) | Answer::Complete(status, _) if status.is_informational() => {
            (Outcome::Unknown, false)
        }
        // Said to be done before it was sent: the store commits torn bodies.
        Answer::Torn(status) | Answer::Complete(status, _) if status.is_success() && before => {
            (Outcome::Unknown, true)
        }
        Answer::Torn(status) if before && !status.is_success() => (Outcome::NotSent, false),
        Answer::Torn(_) => (Outcome::Unknown, false),
        Answer::Complete(status, verdict) => (complete(*status, verdict, before), false),
    };
    Settlement { outcome, alarm }
}

fn complete(status: StatusCode, verdict: &BodyVerdict, before: bool) -> Outcome {
    match status.as_u16() {
        200 | 201 | 204 => match verdict {
            BodyVerdict::Success => Outcome::Answered { applied: true },
            BodyVerdict::HidesError { client_fault: true, .. } => {
                Outcome::Answered { applied: false }
            }
            BodyVerdict::PerKeyFailures { all_client_fault: true } => {
                Outcome::Answered { applied: true }
            }
            BodyVerdict::HidesError { .. }
            | BodyVerdict::PerKeyFailures { .. }
            | BodyVerdict::Unreadable => Outcome::Unknown,
        },
        // 202 and its like promise something for later.
        202..=299 => Outcome::Unknown,
        _ if before => Outcome::NotSent,
        408 => Outcome::Unknown,
        300..=499 => Outcome::Answered { applied: false },
        _ => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: Stage = Stage::Before { clean: true };
    const TORN: Stage = Stage::Before { clean: false };

    fn complete(status: u16) -> Answer {
        Answer::Complete(StatusCode::from_u16(status).unwrap(), BodyVerdict::Success)
    }

    fn hides(client_fault: bool) -> Answer {
        Answer::Complete(StatusCode::OK, BodyVerdict::HidesError { code: "X".into(), client_fault })
    }

    #[test]
    fn outcomes_are_those_of_the_table() {
        use Outcome::{NotSent, Unknown};
        let applied = Outcome::Answered { applied: true };
        let refused = Outcome::Answered { applied: false };
        let torn = |status| Answer::Torn(StatusCode::from_u16(status).unwrap());
        let some = |all_client_fault| {
            Answer::Complete(StatusCode::OK, BodyVerdict::PerKeyFailures { all_client_fault })
        };
        let unreadable = Answer::Complete(StatusCode::OK, BodyVerdict::Unreadable);
        let rows = [
            ("nothing came back", Answer::None, NotSent, Unknown, Unknown),
            ("200", complete(200), Unknown, Unknown, applied),
            ("201", complete(201), Unknown, Unknown, applied),
            ("204", complete(204), Unknown, Unknown, applied),
            ("202", complete(202), Unknown, Unknown, Unknown),
            ("206", complete(206), Unknown, Unknown, Unknown),
            ("302", complete(302), NotSent, NotSent, refused),
            ("403", complete(403), NotSent, NotSent, refused),
            ("412", complete(412), NotSent, NotSent, refused),
            ("408", complete(408), NotSent, NotSent, Unknown),
            ("500", complete(500), NotSent, NotSent, Unknown),
            ("503", complete(503), NotSent, NotSent, Unknown),
            ("101", complete(101), Unknown, Unknown, Unknown),
            ("torn 200", torn(200), Unknown, Unknown, Unknown),
            ("torn 403", torn(403), NotSent, NotSent, Unknown),
            ("a client's error in a 200", hides(true), Unknown, Unknown, refused),
            ("a server's error in a 200", hides(false), Unknown, Unknown, Unknown),
            ("some keys denied", some(true), Unknown, Unknown, applied),
            ("some keys failed", some(false), Unknown, Unknown, Unknown),
            ("a 200 that nobody can read", unreadable, Unknown, Unknown, Unknown),
            ("surplus bytes", Answer::Garbled, Unknown, Unknown, Unknown),
        ];
        for (name, answer, clean, torn, after) in rows {
            assert_eq!(settle(CLEAN, &answer).outcome, clean, "{name}, before the tail, clean");
            assert_eq!(settle(TORN, &answer).outcome, torn, "{name}, before the tail, torn");
            assert_eq!(settle(Stage::After, &answer).outcome, after, "{name}, after the tail");
        }
    }

    #[test]
    fn a_store_that_says_done_before_the_tail_left_raises_the_alarm() {
        assert!(settle(CLEAN, &complete(200)).alarm);
        assert!(!settle(CLEAN, &complete(403)).alarm);
        assert!(!settle(Stage::After, &complete(200)).alarm);
    }
}
