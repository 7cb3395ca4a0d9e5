//! One version of the rules, as requests use them: compiled, with every default filled in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fence::{Policy, Quarantines};
use super::settings::{
    FenceSettings, Limits, PipelineSettings, Reads, RuleSettings, SettleAfter, StoreKind,
    Unmatched, UpstreamSettings,
};
use super::upstream::{ConnectError, Endpoint};
use crate::core::gate::Quarantine;
use crate::core::rules::RuleTable;
use crate::core::template::Template;
use crate::telemetry::metrics::{Metrics, RuleCounters};

/// One version of the rules. Exchanges belong to the version they were admitted with.
pub struct RuleSet {
    /// Grows by one with each version of this process.
    pub generation: u64,
    /// Which key falls under which rule.
    pub table: RuleTable,
    /// The rest of each rule, in the table's order.
    pub rules: Vec<Rule>,
    /// Where requests go that no rule sends elsewhere.
    pub default: Arc<Upstream>,
    /// The stores under `[upstreams]`, by name.
    named: BTreeMap<String, Arc<Upstream>>,
    /// Whether a rule decides how a request is classified, so that it must be known first.
    pub rule_first: bool,
    /// `[proxy] hosts`, lower case.
    pub hosts: Vec<String>,
    /// `[proxy] virtual_hosts`.
    pub virtual_hosts: bool,
    /// `[proxy.limits]`.
    pub limits: Limits,
    /// What happens to a write that no rule covers.
    pub unmatched: Unmatched,
    /// For operations that name a resource and no rule.
    pub policy: Policy,
    /// Counts requests that no rule covers.
    uncovered: Arc<RuleCounters>,
    /// What each rule says, to see what a reload changes.
    written: Vec<RuleSettings>,
}

/// What a rule says beside its patterns.
pub struct Rule {
    /// How its resources are fenced.
    pub policy: Policy,
    /// Who must show a token to read.
    pub reads: Reads,
    /// Where its requests go.
    pub upstream: Arc<Upstream>,
    /// Further methods that only read.
    pub read_methods: Vec<String>,
    /// Taken off the front of the path.
    pub strip_prefix: Option<String>,
    /// Put in front of it, afterwards.
    pub add_prefix: Option<String>,
    /// Counts its requests.
    pub counters: Arc<RuleCounters>,
}

/// A store.
pub struct Upstream {
    /// Unique in this process; a reload that changes the store makes a new one.
    pub id: u64,
    /// What it speaks.
    pub kind: StoreKind,
    /// Where it is.
    pub endpoint: Endpoint,
    /// U3: nothing remains of an upload that was cut.
    pub discards_torn: bool,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for an answer.
    pub answer_timeout: Duration,
    /// Oldest idle connection that is used again.
    pub idle_timeout: Duration,
    written: UpstreamSettings,
}

/// Why a rule set cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleSetError {
    /// A store's address.
    #[error("the store {name:?} cannot be used")]
    Upstream {
        /// Its name under `[upstreams]`; `upstream` for the default.
        name: String,
        /// Why.
        #[source]
        cause: ConnectError,
    },
    /// A rule names a store that does not exist.
    #[error("rule {} names the store {name:?}, which is not under [upstreams]", rule + 1)]
    NoUpstream {
        /// The rule, from 0.
        rule: usize,
        /// The name.
        name: String,
    },
}

// === impl RuleSet ===

impl RuleSet {
    /// Compiles settings that were checked before.
    ///
    /// * `table` — their patterns.
    /// * `discards_torn` — U3 of a store, from its declaration or profile.
    /// * `before` — the version that this one replaces; stores that did not change keep their connections.
    /// * `metrics` — where requests are counted, by rule.
    ///
    /// # Errors
    /// [`RuleSetError`].
    pub fn new(
        settings: &PipelineSettings,
        table: RuleTable,
        discards_torn: impl Fn(&UpstreamSettings) -> bool,
        before: Option<&RuleSet>,
        metrics: &Metrics,
    ) -> Result<RuleSet, RuleSetError> {
        let store = |name: &str, written: &UpstreamSettings| {
            let discards = discards_torn(written);
            let kept =
                before.into_iter().flat_map(RuleSet::upstreams).find(|old| old.written == *written);
            match kept {
                Some(old) => Ok(Arc::clone(old)),
                None => Upstream::new(written, discards)
                    .map(Arc::new)
                    .map_err(|cause| RuleSetError::Upstream { name: name.to_owned(), cause }),
            }
        };
        let default = store("upstream", &settings.upstream)?;
        let mut named = BTreeMap::new();
        for (name, written) in &settings.upstreams {
            named.insert(name.clone(), store(name, written)?);
        }
        let mut rules = Vec::with_capacity(settings.rules.len());
        for (at, rule) in settings.rules.iter().enumerate() {
            let upstream = match &rule.upstream {
                None => &default,
                Some(name) => named
                    .get(name.as_str())
                    .ok_or_else(|| RuleSetError::NoUpstream { rule: at, name: name.clone() })?,
            };
            let counters = metrics.rule(at + 1, rule.resource.as_deref().unwrap_or_default());
            rules.push(Rule::new(rule, &settings.fence, Arc::clone(upstream), counters));
        }
        let rule_first = rules
            .iter()
            .any(|rule: &Rule| rule.upstream.kind != default.kind || !rule.read_methods.is_empty());
        Ok(RuleSet {
            generation: before.map_or(1, |before| before.generation + 1),
            table,
            rules,
            default,
            named,
            rule_first,
            hosts: settings.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            virtual_hosts: settings.virtual_hosts,
            limits: settings.limits.clone(),
            unmatched: settings.fence.unmatched_writes,
            policy: policy(&settings.fence, None),
            uncovered: metrics.rule(0, ""),
            written: settings.rules.clone(),
        })
    }

    /// What decides which resource a write to a key of a store belongs to, as a hash: the patterns, their
    /// resources, what they are limited to, and where they lead. Never 0.
    ///
    /// It is kept in files: a change of what goes into it makes every next start wait once, if writes of
    /// before were left open.
    pub fn mapping(&self) -> u128 {
        let store =
            |upstream: &Upstream| serde_json::json!([upstream.written.kind, upstream.written.url]);
        let rules = self.written.iter().zip(&self.rules).map(|(written, rule)| {
            serde_json::json!([
                written.patterns,
                written.resource,
                written.fence,
                written.methods,
                written.read_methods,
                written.strip_prefix,
                written.add_prefix,
                store(&rule.upstream),
            ])
        });
        let rules: Vec<_> = rules.collect();
        let text = serde_json::json!([store(&self.default), rules]).to_string();
        // FNV-1a of 128 bits: tells configurations apart, which nobody forges.
        let hash =
            text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |sum, byte| {
                (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            });
        hash.max(1)
    }

    /// The longest that an unknown outcome of any resource blocks its successors.
    pub fn longest_quarantine(&self) -> Quarantine {
        let rules = self.rules.iter().map(|rule| rule.policy.settle_after);
        rules.max().unwrap_or(self.policy.settle_after).max(self.policy.settle_after)
    }

    /// How long what an earlier process left behind blocks a resource.
    pub fn quarantines(&self) -> Quarantines {
        let rules = self.written.iter().zip(&self.rules).filter_map(|(written, rule)| {
            let template = Template::parse(written.resource.as_deref()?).ok()?;
            Some((template, rule.policy.settle_after))
        });
        Quarantines::new(self.policy.settle_after, rules.collect())
    }

    /// What counts the requests of a rule, by its place; `None`: of no rule.
    pub fn counters(&self, rule: Option<usize>) -> &Arc<RuleCounters> {
        rule.map_or(&self.uncovered, |rule| &self.rules[rule].counters)
    }

    /// Every store with its name; the default one's is `upstream`.
    pub fn stores(&self) -> impl Iterator<Item = (&str, &Arc<Upstream>)> {
        let named = self.named.iter().map(|(name, store)| (name.as_str(), store));
        std::iter::once(("upstream", &self.default)).chain(named)
    }

    fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        std::iter::once(&self.default).chain(self.rules.iter().map(|rule| &rule.upstream))
    }
}

// === impl Rule ===

impl Rule {
    fn new(
        written: &RuleSettings,
        fence: &FenceSettings,
        upstream: Arc<Upstream>,
        counters: Arc<RuleCounters>,
    ) -> Rule {
        Rule {
            policy: policy(fence, Some(written)),
            reads: written.reads.unwrap_or(fence.reads),
            upstream,
            read_methods: written.read_methods.clone(),
            strip_prefix: written.strip_prefix.clone(),
            add_prefix: written.add_prefix.clone(),
            counters,
        }
    }
}

fn policy(fence: &FenceSettings, rule: Option<&RuleSettings>) -> Policy {
    let settle_after = rule.and_then(|rule| rule.settle_after).unwrap_or(fence.settle_after);
    Policy {
        require_live: rule.and_then(|rule| rule.require_live).unwrap_or(fence.require_live),
        drain_wait: rule.and_then(|rule| rule.drain_wait).unwrap_or(fence.drain_wait).0,
        settle_after: match settle_after {
            SettleAfter::After(span) => Quarantine::For(span.0),
            SettleAfter::Never => Quarantine::Never,
        },
        revalidate_after: rule
            .and_then(|rule| rule.revalidate_after)
            .unwrap_or(fence.revalidate_after)
            .0,
        max_waiting: rule.and_then(|rule| rule.max_waiting).unwrap_or(fence.max_waiting),
    }
}

// === impl Upstream ===

impl Upstream {
    /// Its address, as written.
    pub fn url(&self) -> &str {
        &self.written.url
    }

    fn new(written: &UpstreamSettings, discards_torn: bool) -> Result<Upstream, ConnectError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Upstream {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            kind: written.kind,
            endpoint: Endpoint::parse(&written.url)?,
            discards_torn,
            connect_timeout: written.connect_timeout.0,
            answer_timeout: written.answer_timeout.0,
            idle_timeout: written.idle_timeout.0,
            written: written.clone(),
        })
    }
}
