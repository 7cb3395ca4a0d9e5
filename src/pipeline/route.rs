//! Step 3: from the keys of an operation to the one rule and the one resource it concerns.

use super::classify::keys::{literal, readings};
use super::classify::{Effect, Keys, Operation};
use super::refusal::Refusal;
use super::rules::RuleSet;
use super::settings::{Reads, StoreKind, Unmatched};
use crate::core::Resource;
use crate::core::rules::Match;

/// Where a request goes and what fences it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// The rule, by its place; `None` if none covers it.
    pub rule: Option<usize>,
    /// The resource; `None`: no fence.
    pub resource: Option<Resource>,
    /// One key, for messages.
    pub key: String,
}

/// Routes a write by its keys: all of them, in all their readings, must fall under one rule and resource.
///
/// # Errors
/// [`Refusal::NoRule`], [`Refusal::AmbiguousKey`], [`Refusal::MultipleResources`], or
/// [`Refusal::InvalidRequest`] if a rule makes no resource of the key.
pub fn write(
    set: &RuleSet,
    kind: StoreKind,
    method: &str,
    keys: &[String],
) -> Result<Routed, Refusal> {
    let mut routed: Option<Routed> = None;
    for key in keys {
        let here = one_key(set, kind, method, key)?;
        match &routed {
            None => routed = Some(here),
            Some(first) if first.rule == here.rule && first.resource == here.resource => {}
            Some(first) => {
                return Err(Refusal::MultipleResources {
                    first: (first.key.clone(), name(first)),
                    second: (here.key.clone(), name(&here)),
                });
            }
        }
    }
    let routed = routed
        .ok_or_else(|| Refusal::InvalidRequest { why: "the request names no key".to_owned() })?;
    if routed.rule.is_none() && set.unmatched == Unmatched::Refuse {
        return Err(Refusal::NoRule { key: routed.key });
    }
    Ok(routed)
}

fn one_key(set: &RuleSet, kind: StoreKind, method: &str, key: &str) -> Result<Routed, Refusal> {
    let exact = lookup(set, method, key)?;
    for reading in &readings(kind, key).others {
        let other = lookup(set, method, reading)?;
        if other != exact {
            let why = format!(
                "a store may also read it as {reading:?}: that is {}, and this is {}; write it in one way only, or cover both by one pattern list",
                describe(other.as_ref()),
                describe(exact.as_ref()),
            );
            return Err(Refusal::AmbiguousKey { key: key.to_owned(), why });
        }
    }
    Ok(routed(exact, key))
}

fn lookup(set: &RuleSet, method: &str, key: &str) -> Result<Option<Match>, Refusal> {
    set.table.lookup(method, key).map_err(|bad| Refusal::InvalidRequest { why: bad.to_string() })
}

fn routed(found: Option<Match>, key: &str) -> Routed {
    let (rule, resource) = match found {
        Some(found) => (Some(found.rule), found.resource),
        None => (None, None),
    };
    Routed { rule, resource, key: key.to_owned() }
}

fn describe(found: Option<&Match>) -> String {
    match found {
        None => "under no rule".to_owned(),
        Some(Match { rule, resource: None }) => format!("unfenced by rule {}", rule + 1),
        Some(Match { rule, resource: Some(resource) }) => {
            format!("resource {resource} by rule {}", rule + 1)
        }
    }
}

fn name(routed: &Routed) -> String {
    routed.resource.as_ref().map_or_else(|| "no resource".to_owned(), ToString::to_string)
}

/// Routes a read by the key, or by everything below its prefix; a copy's source too. Never refuses by
/// itself: what is under no one resource passes unfenced.
pub fn read(set: &RuleSet, method: &str, operation: &Operation) -> Routed {
    let (found, key) = match &operation.keys {
        Keys::One(key) => (set.table.lookup(method, key).ok().flatten(), key.as_str()),
        Keys::Prefix(prefix) => (set.table.prefix_cover(prefix), prefix.as_str()),
        Keys::Several(_) | Keys::InBody { .. } | Keys::Nothing => (None, ""),
    };
    routed(found, key)
}

/// The source of a copy obeys the rules for keys; under `reads = "fenced"` it must belong to the resource
/// whose token the copy carries.
///
/// # Errors
/// [`Refusal::AmbiguousKey`], [`Refusal::MultipleResources`].
pub fn source(
    set: &RuleSet,
    kind: StoreKind,
    source: &str,
    destination: &Routed,
) -> Result<(), Refusal> {
    literal(source)?;
    let from = one_key(set, kind, "GET", source)?;
    let fenced = from.rule.is_some_and(|rule| set.rules[rule].reads == Reads::Fenced)
        && from.resource.is_some();
    if fenced && from.resource != destination.resource {
        return Err(Refusal::MultipleResources {
            first: (destination.key.clone(), name(destination)),
            second: (from.key.clone(), name(&from)),
        });
    }
    Ok(())
}

/// The keys that the head of a write names; empty if they are in its body.
pub fn keys_of_head(operation: &Operation) -> &[String] {
    debug_assert_eq!(operation.effect, Effect::Write);
    match &operation.keys {
        Keys::One(key) => std::slice::from_ref(key),
        Keys::Several(keys) => keys,
        Keys::Prefix(_) | Keys::InBody { .. } | Keys::Nothing => &[],
    }
}
