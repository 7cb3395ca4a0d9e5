//! Metrics: counters that threads do not share, and their Prometheus text.
//!
//! Labels come from the configuration and from fixed lists, never from a request: a client must not
//! be able to make series. Names and units: `docs/reference/metrics.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What is counted without a label of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request head that could not be parsed.
    ParseError,
    /// A connection to a store was made.
    UpstreamMade,
    /// A connection to a store was used again.
    UpstreamReused,
    /// A kept-alive connection to a store was given up before use: closed, or bytes on it.
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

/// How a request ended, seen from its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Forwarded without a fence.
    Unfenced,
    /// Admitted with a token and forwarded.
    Admitted,
    /// Refused.
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

/// All metrics of one process. Shared by all threads; adding is one relaxed add on a cell that
/// other threads rarely touch.
pub struct Metrics {
    events: Bank<6>,
    levels: Bank<4>,
    settled: Bank<3>,
    lanes: usize,
    rules: RwLock<BTreeMap<String, Arc<RuleCounters>>>,
    refusals: RwLock<BTreeMap<&'static str, Arc<Bank<1>>>>,
}

/// The counters of one rule; the rule set keeps them, so that no request looks them up.
pub struct RuleCounters(Bank<3>);

/// `N` cells for each of some lanes; a thread always adds in the same lane.
struct Bank<const N: usize>(Box<[Lane<N>]>);

/// 128: two cache lines, for processors fetch them in pairs.
#[repr(align(128))]
struct Lane<const N: usize>([AtomicU64; N]);

// === impl Bank ===

/// Which lane this thread adds in: threads are numbered as they first count something.
fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}

impl<const N: usize> Bank<N> {
    fn new(lanes: usize) -> Bank<N> {
        Bank((0..lanes).map(|_| Lane(std::array::from_fn(|_| AtomicU64::new(0)))).collect())
    }

    /// Adds; a negative number wraps, and the sum wraps back.
    fn add(&self, cell: usize, by: u64) {
        let lanes = self.0.len();
        self.0[lane() % lanes].0[cell].fetch_add(by, Ordering::Relaxed);
    }

    fn sum(&self, cell: usize) -> u64 {
        self.0
            .iter()
            .fold(0, |sum: u64, lane| sum.wrapping_add(lane.0[cell].load(Ordering::Relaxed)))
    }
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Metrics {
    /// Metrics for about `threads` threads that count at once; more may, and share cells.
    pub fn new(threads: usize) -> Metrics {
        let lanes = threads.clamp(1, 256);
        Metrics {
            events: Bank::new(lanes),
            levels: Bank::new(lanes),
            settled: Bank::new(lanes),
            lanes,
            rules: RwLock::default(),
            refusals: RwLock::default(),
        }
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        self.events.add(event as usize, 1);
    }

    /// Raises a level by one. Whoever does lowers it again.
    pub fn raise(&self, level: Level) {
        self.levels.add(level as usize, 1);
    }

    /// Lowers a level by one.
    pub fn lower(&self, level: Level) {
        self.levels.add(level as usize, u64::MAX);
    }

    /// Counts a settled exchange.
    pub fn settle(&self, outcome: Settled) {
        self.settled.add(outcome as usize, 1);
    }

    /// Counts a refusal under its stable code. Codes are a fixed list of the program.
    pub fn refuse(&self, code: &'static str) {
        let known = self.refusals.read().unwrap_or_else(PoisonError::into_inner).get(code).cloned();
        let bank = known.unwrap_or_else(|| {
            let mut refusals = self.refusals.write().unwrap_or_else(PoisonError::into_inner);
            refusals.entry(code).or_insert_with(|| Arc::new(Bank::new(self.lanes))).clone()
        });
        bank.add(0, 1);
    }

    /// The counters of the rule with this label (its place in the file, or its first pattern).
    /// A rule that keeps its label over a reload keeps its counts.
    pub fn rule(&self, label: &str) -> Arc<RuleCounters> {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = rules.get(label) {
            return counters.clone();
        }
        let counters = Arc::new(RuleCounters(Bank::new(self.lanes)));
        rules.insert(label.to_owned(), counters.clone());
        counters
    }

    /// What an event came to.
    pub fn total(&self, event: Event) -> u64 {
        self.events.sum(event as usize)
    }

    /// What a level is.
    pub fn level(&self, level: Level) -> i64 {
        // Lanes are read one after the other, so a level can be seen below zero for a moment.
        self.levels.sum(level as usize).cast_signed().max(0)
    }

    /// Everything, in the Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(4_096);
        self.render_rules(&mut out);
        family(&mut out, "refusals_total", "counter", "Requests refused, by code.");
        for (code, bank) in self.refusals.read().unwrap_or_else(PoisonError::into_inner).iter() {
            line(&mut out, "refusals_total", &[("code", code)], bank.sum(0));
        }
        family(
            &mut out,
            "exchanges_settled_total",
            "counter",
            "Upstream exchanges settled, by outcome.",
        );
        for (outcome, name) in [
            (Settled::NotSent, "not_sent"),
            (Settled::Answered, "answered"),
            (Settled::Unknown, "unknown"),
        ] {
            let sum = self.settled.sum(outcome as usize);
            line(&mut out, "exchanges_settled_total", &[("outcome", name)], sum);
        }
        family(
            &mut out,
            "upstream_connections_total",
            "counter",
            "Connections to stores: made, reused, discarded.",
        );
        for (event, name) in [
            (Event::UpstreamMade, "made"),
            (Event::UpstreamReused, "reused"),
            (Event::UpstreamDiscarded, "discarded"),
        ] {
            line(&mut out, "upstream_connections_total", &[("event", name)], self.total(event));
        }
        for (event, name, help) in [
            (Event::ParseError, "parse_errors_total", "Request heads that could not be parsed."),
            (Event::LeaseGranted, "lease_grants_total", "Leases granted."),
            (Event::Tainted, "taints_total", "Unknown outcomes that tainted a permit."),
        ] {
            family(&mut out, name, "counter", help);
            line(&mut out, name, &[], self.total(event));
        }
        for (level, name, help) in [
            (
                Level::InFlight,
                "exchanges_in_flight",
                "Exchanges past their commit point, not yet settled.",
            ),
            (
                Level::DrainsWaiting,
                "drains_waiting",
                "Requests that wait for older writes to settle.",
            ),
            (Level::TaintedPermits, "tainted_permits", "Permits with an unknown outcome."),
            (Level::Connections, "connections", "Client connections."),
        ] {
            family(&mut out, name, "gauge", help);
            line(&mut out, name, &[], self.level(level).unsigned_abs());
        }
        out
    }

    fn render_rules(&self, out: &mut String) {
        family(
            out,
            "requests_total",
            "counter",
            "Requests, by rule and by how they were answered.",
        );
        for (rule, counters) in self.rules.read().unwrap_or_else(PoisonError::into_inner).iter() {
            for (answer, name) in [
                (Answer::Unfenced, "unfenced"),
                (Answer::Admitted, "admitted"),
                (Answer::Refused, "refused"),
            ] {
                let sum = counters.0.sum(answer as usize);
                line(out, "requests_total", &[("rule", rule), ("answer", name)], sum);
            }
        }
    }
}

// === impl RuleCounters ===

impl RuleCounters {
    /// Counts a request.
    pub fn count(&self, answer: Answer) {
        self.0.add(answer as usize, 1);
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP fencegate_{name} {help}\n# TYPE fencegate_{name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    let _ = write!(out, "fencegate_{name}");
    for (i, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
    }
    let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_add_up() {
        let metrics = Metrics::new(2);
        let rule = metrics.rule("0");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        metrics.count(Event::LeaseGranted);
                        metrics.refuse("StaleFencingToken");
                        rule.count(Answer::Refused);
                    }
                });
            }
        });
        let text = metrics.render();
        for line in [
            "fencegate_lease_grants_total 4000\n",
            "fencegate_refusals_total{code=\"StaleFencingToken\"} 4000\n",
            "fencegate_requests_total{rule=\"0\",answer=\"refused\"} 4000\n",
            "fencegate_requests_total{rule=\"0\",answer=\"admitted\"} 0\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
    }

    #[test]
    fn a_level_raised_on_one_thread_and_lowered_on_another_is_zero() {
        let metrics = Metrics::new(8);
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
        let metrics = Metrics::new(1);
        metrics.rule("a\"b\\").count(Answer::Unfenced);
        metrics.rule("a\"b\\").count(Answer::Unfenced);
        let want = "fencegate_requests_total{rule=\"a\\\"b\\\\\",answer=\"unfenced\"} 2\n";
        assert!(metrics.render().contains(want), "{}", metrics.render());
    }
}
