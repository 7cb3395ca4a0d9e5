//! Metrics: counters that threads do not share, and their Prometheus text.
//!
//! Labels come from the configuration and from fixed lists, never from a request: a client must not
//! be able to make series. Every series is there from the start, at zero. Names and units:
//! `docs/reference/metrics.md`.

mod bank;
mod histogram;
mod render;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::clock::Started;
use bank::Bank;
use histogram::Histogram;

/// What is counted without a label of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request head that could not be parsed.
    ParseError,
    /// A connection to a store was made.
    UpstreamMade,
    /// A connection to a store was used again.
    UpstreamReused,
    /// A kept-alive connection to a store was given up before use: closed, too old, or bytes on it.
    UpstreamDiscarded,
    /// A lease was granted.
    LeaseGranted,
    /// An outcome was unknown and tainted a permit.
    Tainted,
}

/// What is up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Exchanges past their commit point and not yet settled.
    InFlight,
    /// Requests that wait for older writes of their resource.
    DrainsWaiting,
    /// Permits with an unknown outcome.
    TaintedPermits,
    /// Connections of clients.
    Connections,
}

/// How a request ended, seen from its rule. Each request is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Answered by the store, without a fence.
    Unfenced,
    /// Answered by the store, admitted with a token.
    Admitted,
    /// Answered with a refusal.
    Refused,
}

/// How an exchange was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It did not happen.
    NotSent,
    /// The store said what happened.
    Answered,
    /// It may have happened.
    Unknown,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Validate and enter, waits included.
    Fence,
    /// From handing over the last bytes to the head of the store's answer.
    Upstream,
    /// From a request's head to the head of its answer.
    Request,
    /// From a raise that overtakes a lower mark to the first operation admitted under the new one.
    Takeover,
}

/// All metrics of one process. Shared by all threads; adding is one relaxed add on a cell that
/// other threads rarely touch.
pub struct Metrics {
    lanes: usize,
    events: Bank,
    levels: Bank,
    /// In the order of [`Step`].
    steps: [Histogram; 4],
    codes: &'static [&'static str],
    refusals: Bank,
    rules: RwLock<BTreeMap<RuleLabel, Arc<RuleCounters>>>,
}

/// A rule's place in the file, from 1 (0: no rule), and its `resource` as written.
type RuleLabel = (usize, String);

/// The counters of one rule; the rule set keeps them, so that no request looks them up.
pub struct RuleCounters(Bank);

/// Cells of [`RuleCounters`]: answers, then outcomes.
const ANSWERS: usize = 3;
const OUTCOMES: usize = 3;

// === impl Metrics ===

impl Metrics {
    /// Metrics for about `threads` threads that count at once; more may, and share cells.
    ///
    /// * `codes` — every code that [`refuse`](Metrics::refuse) may be given.
    pub fn new(threads: usize, codes: &'static [&'static str]) -> Metrics {
        let lanes = threads.clamp(1, 256);
        Metrics {
            lanes,
            events: Bank::new(lanes, 6),
            levels: Bank::new(lanes, 4),
            steps: std::array::from_fn(|_| Histogram::new(lanes)),
            codes,
            refusals: Bank::new(lanes, codes.len().max(1)),
            rules: RwLock::default(),
        }
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        self.events.add(event as usize, 1);
    }

    /// Raises a level by one. Whoever does lowers it again.
    pub fn raise(&self, level: Level) {
        self.shift(level, 1);
    }

    /// Lowers a level by one.
    pub fn lower(&self, level: Level) {
        self.shift(level, -1);
    }

    /// Moves a level up or down.
    pub fn shift(&self, level: Level, by: i64) {
        self.levels.add(level as usize, by.cast_unsigned());
    }

    /// Times a step that ends now.
    pub fn time(&self, step: Step, started: Started) {
        self.record(step, started.elapsed());
    }

    /// Counts how long a step took.
    pub fn record(&self, step: Step, took: Duration) {
        self.steps[step as usize].record(took);
    }

    /// Counts a refusal under its stable code, one of those given at the start.
    pub fn refuse(&self, code: &'static str) {
        let known = self.codes.iter().position(|known| *known == code);
        debug_assert!(known.is_some(), "{code} is no code of a refusal");
        if let Some(cell) = known {
            self.refusals.add(cell, 1);
        }
    }

    /// The counters of a rule.
    ///
    /// * `place` — its place in the file, from 1; 0 for requests that no rule covers.
    /// * `resource` — its `resource`, as written; empty if it has none.
    ///
    /// A rule that keeps both over a reload keeps its counts. One that is gone stays, with what it had.
    pub fn rule(&self, place: usize, resource: &str) -> Arc<RuleCounters> {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(RuleCounters(Bank::new(self.lanes, ANSWERS + OUTCOMES)));
        Arc::clone(rules.entry((place, resource.to_owned())).or_insert_with(new))
    }

    /// What an event came to.
    pub fn total(&self, event: Event) -> u64 {
        self.events.sum(event as usize)
    }

    /// What a level is.
    pub fn level(&self, level: Level) -> u64 {
        // Lanes are read one after the other, so a level can be seen below zero for a moment.
        self.levels.sum(level as usize).cast_signed().max(0).cast_unsigned()
    }

    fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.codes.iter().enumerate().map(|(cell, code)| (*code, self.refusals.sum(cell)))
    }
}

// === impl RuleCounters ===

impl RuleCounters {
    /// Counts a request.
    pub fn count(&self, answer: Answer) {
        self.0.add(answer as usize, 1);
    }

    /// Counts a settled exchange.
    pub fn settle(&self, outcome: Settled) {
        self.0.add(ANSWERS + outcome as usize, 1);
    }

    fn answered(&self, answer: Answer) -> u64 {
        self.0.sum(answer as usize)
    }

    fn settled(&self, outcome: Settled) -> u64 {
        self.0.sum(ANSWERS + outcome as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: &[&str] = &["StaleFencingToken", "NoFenceRule"];

    #[test]
    fn counts_of_all_threads_add_up() {
        let metrics = Metrics::new(2, CODES);
        let rule = metrics.rule(1, "wal/{x}");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        metrics.count(Event::LeaseGranted);
                        metrics.refuse("StaleFencingToken");
                        metrics.record(Step::Fence, Duration::from_millis(1));
                        rule.count(Answer::Refused);
                        rule.settle(Settled::Unknown);
                    }
                });
            }
        });
        let text = metrics.render();
        for line in [
            "fencegate_lease_grants_total 4000\n",
            "fencegate_refusals_total{code=\"StaleFencingToken\"} 4000\n",
            "fencegate_refusals_total{code=\"NoFenceRule\"} 0\n",
            "fencegate_requests_total{rule=\"1\",resource=\"wal/{x}\",answer=\"refused\"} 4000\n",
            "fencegate_requests_total{rule=\"1\",resource=\"wal/{x}\",answer=\"admitted\"} 0\n",
            "fencegate_exchanges_settled_total{rule=\"1\",resource=\"wal/{x}\",outcome=\"unknown\"} 4000\n",
            "fencegate_step_seconds_bucket{step=\"fence\",le=\"0.0005\"} 0\n",
            "fencegate_step_seconds_bucket{step=\"fence\",le=\"0.001\"} 4000\n",
            "fencegate_step_seconds_bucket{step=\"fence\",le=\"+Inf\"} 4000\n",
            "fencegate_step_seconds_sum{step=\"fence\"} 4\n",
            "fencegate_step_seconds_count{step=\"fence\"} 4000\n",
            "fencegate_takeover_seconds_bucket{le=\"120\"} 0\n",
            "fencegate_takeover_seconds_count 0\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
    }

    #[test]
    fn a_level_raised_on_one_thread_and_lowered_on_another_is_zero() {
        let metrics = Metrics::new(8, CODES);
        metrics.raise(Level::InFlight);
        metrics.raise(Level::InFlight);
        assert_eq!(metrics.level(Level::InFlight), 2);
        std::thread::scope(|scope| {
            scope.spawn(|| metrics.lower(Level::InFlight));
            scope.spawn(|| metrics.lower(Level::InFlight));
        });
        assert_eq!(metrics.level(Level::InFlight), 0);
        assert!(metrics.render().contains("\nfencegate_exchanges_in_flight 0\n"));
    }

    #[test]
    fn a_rule_keeps_its_counts_over_a_reload_and_its_label_is_escaped() {
        let metrics = Metrics::new(1, CODES);
        metrics.rule(0, "a\"b\\").count(Answer::Unfenced);
        metrics.rule(0, "a\"b\\").count(Answer::Unfenced);
        let want = "fencegate_requests_total{rule=\"none\",resource=\"a\\\"b\\\\\",answer=\"unfenced\"} 2\n";
        assert!(metrics.render().contains(want), "{}", metrics.render());
    }
}
