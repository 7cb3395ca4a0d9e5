//! Which rung of the guarantee ladder a rule reaches, and why. See `docs/concepts/levels.md`.

use std::fmt;

use serde::Serialize;

use super::profile::profile;
use crate::pipeline::settings::{
    Level, PipelineSettings, RuleSettings, SettleAfter, TornUploads, UpstreamSettings,
};

/// A named assumption of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Assumption {
    /// All writes to the resource's keys go through this deployment.
    U1,
    /// Nothing of a write happens after its complete answer, and no hop repeats or hedges a request.
    U2,
    /// Torn uploads leave nothing.
    U3,
    /// One key is linearizable.
    U4,
    /// One rule set everywhere.
    U5,
    /// An abandoned write takes effect within `settle_after` or never.
    U6,
}

/// How it is known that an assumption holds, or that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The file says so.
    Declared,
    /// The profile of the store says so.
    Profile,
    /// It follows from how this process works.
    Given,
    /// Nobody said anything.
    Missing,
    /// The file or the profile says that it does not hold.
    Denied,
}

/// One assumption of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which one.
    pub assumption: Assumption,
    /// Whether and how it is known.
    pub basis: Basis,
    /// The reason in words; where it does not hold, with the key to set.
    pub reason: String,
}

/// What a fenced rule may rely on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleLevel {
    /// The rung.
    pub level: Level,
    /// U1 to U6, in this order.
    pub findings: Vec<Finding>,
}

// === impl Assumption ===

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

// === impl Basis ===

impl Basis {
    /// Whether the assumption may be relied on.
    pub fn holds(self) -> bool {
        matches!(self, Basis::Declared | Basis::Profile | Basis::Given)
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Basis::Declared => "declared",
            Basis::Profile => "profile",
            Basis::Given => "given",
            Basis::Missing => "missing",
            Basis::Denied => "denied",
        })
    }
}

// === impl RuleLevel ===

impl RuleLevel {
    /// Judges one rule; `None` if it has no fence, and so no level.
    ///
    /// `upstream` is the rule's store, and `table` its name in the file (`upstream`, `upstreams.state`).
    pub fn of(
        rule: &RuleSettings,
        settings: &PipelineSettings,
        upstream: &UpstreamSettings,
        table: &str,
    ) -> Option<RuleLevel> {
        if rule.fence.is_some() {
            return None;
        }
        let settle_after = rule.settle_after.unwrap_or(settings.fence.settle_after);
        let findings = vec![
            declared(
                Assumption::U1,
                upstream.sole_path,
                &format!("{table}.sole_path"),
                "nothing else writes to this store",
            ),
            declared(
                Assumption::U2,
                upstream.final_answers,
                &format!("{table}.final_answers"),
                "an answer is final, and no hop behind fencegate repeats requests",
            ),
            torn_uploads(upstream, table),
            declared(
                Assumption::U4,
                upstream.linearizable,
                &format!("{table}.linearizable"),
                "a read sees every finished write of its key",
            ),
            Finding {
                assumption: Assumption::U5,
                basis: Basis::Given,
                reason: "one replica: its embedded ledger can be opened by one process only".into(),
            },
            abandoned(settle_after),
        ];
        let level = match findings.iter().all(|finding| finding.basis.holds()) {
            true => Level::Drained,
            false => Level::Advisory,
        };
        Some(RuleLevel { level, findings })
    }

    /// What keeps the rule from the next rung.
    pub fn lacking(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.basis.holds())
    }
}

/// A fact that only the operator can know.
fn declared(assumption: Assumption, said: Option<bool>, key: &str, fact: &str) -> Finding {
    let (basis, reason) = match said {
        Some(true) => (Basis::Declared, format!("{key} = true: {fact}")),
        Some(false) => (Basis::Denied, format!("{key} = false; true would say that {fact}")),
        None => (Basis::Missing, format!("set {key} = true if {fact}")),
    };
    Finding { assumption, basis, reason }
}

fn torn_uploads(upstream: &UpstreamSettings, table: &str) -> Finding {
    let key = format!("{table}.torn_uploads");
    let known = upstream.profile.as_deref().and_then(profile);
    let (basis, reason) = match (upstream.torn_uploads, known) {
        (Some(TornUploads::Discarded), _) => (
            Basis::Declared,
            format!("{key} = \"discarded\": an upload that ends early leaves nothing"),
        ),
        (Some(TornUploads::Kept), _) => (
            Basis::Denied,
            format!("{key} = \"kept\"; use a store that discards uploads that end early"),
        ),
        (None, Some(known)) if known.torn_uploads == TornUploads::Discarded => (
            Basis::Profile,
            format!("{} {} discards uploads that end early", known.name, known.seen_on),
        ),
        (None, Some(known)) => (
            Basis::Denied,
            format!(
                "{} {} keeps the half of an upload that ends early; use another store",
                known.name, known.seen_on
            ),
        ),
        (None, None) => (
            Basis::Missing,
            format!(
                "set {key} = \"discarded\" if an upload that ends early leaves nothing, or {table}.profile"
            ),
        ),
    };
    Finding { assumption: Assumption::U3, basis, reason }
}

fn abandoned(settle_after: SettleAfter) -> Finding {
    let (basis, reason) = match settle_after {
        SettleAfter::After(span) => (
            Basis::Declared,
            format!(
                "settle_after = \"{span}\": an abandoned write takes effect within it or never"
            ),
        ),
        SettleAfter::Never => (
            Basis::Given,
            "settle_after = \"never\": a successor waits for a definite answer, or for an operator"
                .to_owned(),
        ),
    };
    Finding { assumption: Assumption::U6, basis, reason }
}
