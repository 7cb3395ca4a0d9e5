//! Steps 2 and 3 for a head alone: what it does, where it goes, what fences it.

use std::sync::Arc;

use http::{HeaderMap, Method};

use super::classify::keys::read as read_key;
use super::classify::{Effect, Head, Operation, classify, host};
use super::frame::Framed;
use super::refusal::Refusal;
use super::route::{self, Routed};
use super::rules::{RuleSet, Upstream};
use super::settings::StoreKind;

/// What is known of a request before its fence: what it does, where it goes, what fences it.
#[derive(Clone)]
pub struct Plan {
    /// What it does.
    pub operation: Operation,
    /// Which rule and resource; known only with the body if its keys are there.
    pub routed: Option<Routed>,
    /// Where it goes.
    pub upstream: Arc<Upstream>,
}

/// Steps 2 and 3 for a head: pure, so that `fencegate explain` can show them.
///
/// # Errors
/// The refusal, and the dialect to write it in.
pub fn plan(
    set: &RuleSet,
    framed: &Framed,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Plan, (StoreKind, Refusal)> {
    let path = framed.target.path();
    let key = || read_key(path.strip_prefix('/').unwrap_or(path));
    let first = set
        .rule_first
        .then(|| set.table.lookup(method.as_str(), &key()).ok().flatten())
        .flatten()
        .map(|found| &set.rules[found.rule]);
    let upstream = first.map_or(&set.default, |rule| &rule.upstream);
    let kind = upstream.kind;
    let plan = || -> Result<Plan, Refusal> {
        let host_bucket = match kind {
            StoreKind::S3 => host::host_bucket(&framed.host, &set.hosts, set.virtual_hosts)?,
            StoreKind::Rest => host::accept_host(&framed.host, &set.hosts).map(|()| None)?,
        };
        if framed.absolute && set.hosts.iter().all(|own| !same_host(own, &framed.host)) {
            return Err(Refusal::Misdirected { host: framed.host.clone() });
        }
        let head = Head {
            method,
            path,
            query: framed.target.query(),
            host_bucket: host_bucket.as_deref(),
            headers,
        };
        let operation = classify(kind, &head, first.map_or(&[], |rule| &rule.read_methods))?;
        one_place(set, method, &operation)?;
        let routed = match operation.effect {
            Effect::Read => Some(route::read(set, method.as_str(), &operation)),
            Effect::Write => match route::keys_of_head(&operation) {
                [] => None,
                keys => Some(route::write(set, kind, method.as_str(), keys)?),
            },
        };
        let upstream = match &routed {
            Some(routed) => store_of(set, upstream, operation.effect, routed)?,
            // Its keys are in its body.
            None => Arc::clone(upstream),
        };
        Ok(Plan { operation, routed, upstream })
    };
    plan().map_err(|refusal| (kind, refusal))
}

/// Where a request goes: to the store of its rule. It was classified for a store of this kind.
///
/// * `classified` — the store that its path alone led to.
///
/// # Errors
/// [`Refusal::InvalidRequest`] if that is a store of another kind.
pub fn store_of(
    set: &RuleSet,
    classified: &Arc<Upstream>,
    effect: Effect,
    routed: &Routed,
) -> Result<Arc<Upstream>, Refusal> {
    let store = match (routed.rule, effect) {
        (Some(rule), _) => &set.rules[rule].upstream,
        (None, Effect::Write) => &set.default,
        (None, Effect::Read) => classified,
    };
    if store.kind != classified.kind {
        let why = "the path and the keys of this request belong to different stores".to_owned();
        return Err(Refusal::InvalidRequest { why });
    }
    Ok(Arc::clone(store))
}

/// A copy or move names its second path in `Destination`, which goes on as it is and to the same store. So
/// both must be paths of one store, and no rule may change either on its way.
fn one_place(set: &RuleSet, method: &Method, operation: &Operation) -> Result<(), Refusal> {
    if !matches!(operation.name, "COPY" | "MOVE") {
        return Ok(());
    }
    let mut store = None;
    for key in route::keys_of_head(operation).iter().chain(&operation.source) {
        let found = set.table.lookup(method.as_str(), key).ok().flatten();
        let rule = found.map(|found| &set.rules[found.rule]);
        if rule.is_some_and(|rule| rule.strip_prefix.is_some() || rule.add_prefix.is_some()) {
            let why = format!(
                "the rule of {key:?} changes the path on its way, and Destination would not follow; \
                 read it and write it instead"
            );
            return Err(Refusal::InvalidRequest { why });
        }
        let here = rule.map_or(&set.default, |rule| &rule.upstream);
        if !Arc::ptr_eq(store.get_or_insert(here), here) {
            let why = format!("{key:?} belongs to another store; read it and write it instead");
            return Err(Refusal::InvalidRequest { why });
        }
    }
    Ok(())
}

fn same_host(own: &str, host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    own.eq_ignore_ascii_case(name) || own.eq_ignore_ascii_case(host)
}
