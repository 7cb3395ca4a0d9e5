//! Metrics as the Prometheus text format 0.0.4.

use std::fmt::Write;
use std::sync::PoisonError;

use super::histogram::{BOUNDS, Histogram};
use super::{Answer, Event, Level, Metrics, RuleCounters, Settled, Step};

/// The text, as it grows.
struct Page(String);

// === impl Metrics ===

impl Metrics {
    /// Everything, in the Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        let mut page = Page(String::with_capacity(16_384));
        self.render_rules(&mut page);
        page.family("refusals_total", "counter", "Requests refused, by code.");
        for (code, sum) in self.refused() {
            page.line("refusals_total", &[("code", code)], sum);
        }
        page.family(
            "upstream_connections_total",
            "counter",
            "Connections to stores: made, reused, discarded.",
        );
        for (event, name) in [
            (Event::UpstreamMade, "made"),
            (Event::UpstreamReused, "reused"),
            (Event::UpstreamDiscarded, "discarded"),
        ] {
            page.line("upstream_connections_total", &[("event", name)], self.total(event));
        }
        for (event, name, help) in [
            (Event::ParseError, "parse_errors_total", "Request heads that could not be parsed."),
            (Event::LeaseGranted, "lease_grants_total", "Leases granted."),
            (Event::Tainted, "taints_total", "Unknown outcomes that tainted a permit."),
        ] {
            page.family(name, "counter", help);
            page.line(name, &[], self.total(event));
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
            page.family(name, "gauge", help);
            page.line(name, &[], self.level(level));
        }
        page.family("step_seconds", "histogram", "How long the steps of a request took.");
        for (step, name) in
            [(Step::Fence, "fence"), (Step::Upstream, "upstream"), (Step::Request, "request")]
        {
            page.histogram("step_seconds", &[("step", name)], &self.steps[step as usize]);
        }
        page.family(
            "takeover_seconds",
            "histogram",
            "From raising the mark over a lower one to the first operation admitted.",
        );
        page.histogram("takeover_seconds", &[], &self.steps[Step::Takeover as usize]);
        page.0
    }

    fn render_rules(&self, page: &mut Page) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let mut each = |family: &str, help: &str, label: &str, values: [&str; 3], value: &Cells| {
            page.family(family, "counter", help);
            for ((place, resource), counters) in rules.iter() {
                let rule = if *place == 0 { "none".to_owned() } else { place.to_string() };
                for (nth, name) in values.into_iter().enumerate() {
                    let labels =
                        [("rule", rule.as_str()), ("resource", resource.as_str()), (label, name)];
                    page.line(family, &labels, value(counters, nth));
                }
            }
        };
        each(
            "requests_total",
            "Requests, by rule and by how they were answered.",
            "answer",
            ["unfenced", "admitted", "refused"],
            &|counters, nth| {
                counters.answered([Answer::Unfenced, Answer::Admitted, Answer::Refused][nth])
            },
        );
        each(
            "exchanges_settled_total",
            "Fenced writes to a store settled, by rule and outcome.",
            "outcome",
            ["not_sent", "answered", "unknown"],
            &|counters, nth| {
                counters.settled([Settled::NotSent, Settled::Answered, Settled::Unknown][nth])
            },
        );
    }
}

/// One of three numbers of a rule.
type Cells = dyn Fn(&RuleCounters, usize) -> u64;

// === impl Page ===

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP fencegate_{name} {help}\n# TYPE fencegate_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.0, "fencegate_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let counts = histogram.cumulated();
        let bounds = BOUNDS.iter().map(|micros| (*micros as f64 / 1e6).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&counts) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.line(&format!("{name}_bucket"), &labels, count);
        }
        self.line(&format!("{name}_sum"), labels, histogram.seconds());
        let all = counts.last().copied().unwrap_or_default();
        self.line(&format!("{name}_count"), labels, all);
    }
}
