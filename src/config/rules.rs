//! Checks the rules, and makes the table and the levels of them.

use super::level::RuleLevel;
use super::read::Raw;
use super::source::{Source, quoted};
use super::verify;
use crate::core::pattern::{Pattern, Segment};
use crate::core::rules::{Rule, RuleFault, RuleTable};
use crate::core::template::Template;
use crate::pipeline::settings::{
    Patterns, PipelineSettings, RuleSettings, StoreKind, Unmatched, UpstreamSettings,
};

/// The compiled rules and, beside each, its level; `None` for those without a fence.
pub(super) struct Rules {
    pub(super) table: RuleTable,
    pub(super) levels: Vec<Option<RuleLevel>>,
}

/// Methods that change something by their definition, so that no file may call them reads.
const WRITING: [&str; 8] =
    ["PUT", "DELETE", "PATCH", "COPY", "MOVE", "MKCOL", "PROPPATCH", "UNLOCK"];

/// Notes every fault; `None` if there is one in a rule.
pub(super) fn all(source: &mut Source<'_>, raw: &Raw) -> Option<Rules> {
    let settings = &raw.pipeline;
    let mut compiled = Vec::new();
    let mut levels = Vec::new();
    for (place, rule) in settings.rules.iter().enumerate() {
        let path = format!("rule.{place}");
        let upstream = upstream(source, &path, rule, settings);
        compiled.push(compile(source, &path, rule));
        methods(source, &path, rule);
        fence(source, &path, rule);
        let Some((table, upstream)) = upstream else { continue };
        rest_only(source, &path, rule, upstream);
        let level = RuleLevel::of(rule, settings, upstream, &table);
        if let Some(level) = &level {
            least_level(source, place, rule, settings, level);
        }
        levels.push(level);
    }
    let compiled: Option<Vec<Rule>> = compiled.into_iter().collect();
    let table = RuleTable::new(compiled?);
    warnings(source, settings, &table);
    (levels.len() == settings.rules.len()).then_some(Rules { table, levels })
}

/// The rule's store and the name of its table.
fn upstream<'s>(
    source: &mut Source<'_>,
    path: &str,
    rule: &RuleSettings,
    settings: &'s PipelineSettings,
) -> Option<(String, &'s UpstreamSettings)> {
    let Some(name) = &rule.upstream else {
        return Some(("upstream".into(), &settings.upstream));
    };
    let table = format!("upstreams.{name}");
    let found = settings.upstreams.get(name);
    // If its table is there but wrong, that is noted already.
    if found.is_none() && !source.has(&table) {
        let names = settings.upstreams.keys().map(String::as_str);
        let remedy = match super::fault::closest(name, names) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write [{table}] with its `kind` and `url`, or drop `upstream`"),
        };
        source.fault(
            &format!("{path}.upstream"),
            format!("there is no store named {}", quoted(name)),
            remedy,
        );
    }
    found.map(|found| (table, found))
}

fn compile(source: &mut Source<'_>, path: &str, rule: &RuleSettings) -> Option<Rule> {
    let one = matches!(rule.patterns, Patterns::One(_));
    let mut parsed = Vec::new();
    for (index, text) in rule.patterns.as_slice().iter().enumerate() {
        let place = if one { format!("{path}.match") } else { format!("{path}.match.{index}") };
        match Pattern::parse(text) {
            Ok(pattern) => parsed.push(pattern),
            Err(error) => {
                let (what, remedy) = halves(&error.to_string());
                source.fault_in(
                    &place,
                    text,
                    error.at,
                    format!("pattern {text:?}: {what}"),
                    remedy,
                );
            }
        }
    }
    let key = format!("{path}.resource");
    let template = match (&rule.resource, rule.fence) {
        (Some(_), Some(_)) => {
            let remedy = "drop `fence` to have a fence, or drop `resource` to have none";
            source.fault(
                &format!("{path}.fence"),
                "the rule has both `resource` and fence = \"none\"",
                remedy,
            );
            return None;
        }
        // A fence of another value has its fault already.
        (None, None) => {
            if !source.has(&format!("{path}.fence")) && !source.has(&key) {
                let remedy =
                    "write resource = \"…\" to have a fence, or fence = \"none\" to have none";
                source.fault(path, "the rule has neither `resource` nor `fence`", remedy);
            }
            return None;
        }
        (None, Some(_)) => None,
        (Some(text), None) => match Template::parse(text) {
            Ok(template) => Some(template),
            Err(error) => {
                let (what, remedy) = halves(&error.to_string());
                source.fault_in(&key, text, error.at, format!("resource {text:?}: {what}"), remedy);
                return None;
            }
        },
    };
    if parsed.is_empty() || parsed.len() < rule.patterns.as_slice().len() {
        return None;
    }
    match Rule::new(parsed, template.as_ref(), rule.methods.as_deref()) {
        Ok(rule) => Some(rule),
        Err(fault) => {
            let (what, remedy) = halves(&fault.to_string());
            match &fault {
                RuleFault::NotCaptured { at, .. } => {
                    let text = rule.resource.as_deref().unwrap_or("");
                    source.fault_in(&key, text, *at, what, remedy);
                }
                RuleFault::NoMethod => source.fault(&format!("{path}.methods"), what, remedy),
                RuleFault::BadName(_) => source.fault(&key, format!("`resource`: {what}"), remedy),
                RuleFault::NoPattern => source.fault(&format!("{path}.match"), what, remedy),
            }
            None
        }
    }
}

/// What a message says and what it advises.
fn halves(message: &str) -> (String, String) {
    match message.rsplit_once("; ") {
        Some((what, remedy)) => (what.into(), remedy.into()),
        None => (message.into(), "see docs/reference/rules.md".into()),
    }
}

fn methods(source: &mut Source<'_>, path: &str, rule: &RuleSettings) {
    let lists =
        [("methods", rule.methods.as_deref().unwrap_or(&[])), ("read_methods", &rule.read_methods)];
    for (key, methods) in lists {
        for (index, method) in methods.iter().enumerate() {
            let place = format!("{path}.{key}.{index}");
            let upper = method.bytes().all(|byte| !byte.is_ascii_lowercase());
            if !upper || http::Method::from_bytes(method.as_bytes()).is_err() {
                let remedy = "write it in capitals, as \"POST\"; methods are compared exactly";
                source.fault(&place, format!("`{key}` has {method:?}, which is no method"), remedy);
            } else if key == "read_methods" && WRITING.contains(&method.as_str()) {
                let remedy = "drop it; only methods of your own and POST can be declared to read";
                source.fault(&place, format!("`read_methods` has {method}, which writes"), remedy);
            }
        }
    }
}

/// The keys of `[fence]` inside a rule.
fn fence(source: &mut Source<'_>, path: &str, rule: &RuleSettings) {
    const KEYS: [&str; 9] = [
        "reads",
        "validate",
        "require_live",
        "drain_wait",
        "settle_after",
        "revalidate_after",
        "watch_lag",
        "level",
        "max_waiting",
    ];
    if rule.fence.is_some() && rule.resource.is_none() {
        for key in KEYS {
            let key_path = format!("{path}.{key}");
            if source.has(&key_path) {
                let remedy = "drop it, or write `resource` instead of `fence` to have a fence";
                source.fault(
                    &key_path,
                    format!("`{key}` says nothing in a rule with fence = \"none\""),
                    remedy,
                );
            }
        }
    }
    verify::settle_after(source, &format!("{path}.settle_after"), rule.settle_after);
    for (key, span) in [("revalidate_after", rule.revalidate_after), ("watch_lag", rule.watch_lag)]
    {
        if span.is_some_and(|span| span.0.is_zero()) {
            let remedy = "write a duration above zero, such as \"1s\"";
            source.fault(&format!("{path}.{key}"), format!("`{key}` is zero"), remedy);
        }
    }
}

/// The keys that only rules of REST stores have.
fn rest_only(
    source: &mut Source<'_>,
    path: &str,
    rule: &RuleSettings,
    upstream: &UpstreamSettings,
) {
    let given = [
        ("read_methods", !rule.read_methods.is_empty()),
        ("strip_prefix", rule.strip_prefix.is_some()),
        ("add_prefix", rule.add_prefix.is_some()),
    ];
    if upstream.kind == StoreKind::S3 {
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            let remedy = "drop it; S3 paths are signed and go upstream as they are";
            source.fault(
                &format!("{path}.{key}"),
                format!("`{key}` is for stores of kind rest"),
                remedy,
            );
        }
        return;
    }
    for (key, prefix) in [("strip_prefix", &rule.strip_prefix), ("add_prefix", &rule.add_prefix)] {
        let Some(prefix) = prefix else { continue };
        let plain = |c: char| c.is_ascii_graphic() && !"?#%\\".contains(c);
        let segments = || prefix.split('/').skip(1);
        let whole = prefix.starts_with('/')
            && prefix.chars().all(plain)
            && segments().all(|segment| !matches!(segment, "" | "." | ".."));
        if !whole {
            let remedy = "write whole segments, with `/` in front and none behind, as \"/state\"";
            source.fault(
                &format!("{path}.{key}"),
                format!("`{key}` is {prefix:?}, which is no path prefix"),
                remedy,
            );
        } else if key == "strip_prefix" {
            strip(source, path, rule, prefix);
        }
    }
}

/// A prefix can only be taken off if every key of the rule has it.
fn strip(source: &mut Source<'_>, path: &str, rule: &RuleSettings, prefix: &str) {
    for text in rule.patterns.as_slice() {
        let Ok(pattern) = Pattern::parse(text) else { continue };
        let mut segments = pattern.segments().iter();
        let has = prefix
            .split('/')
            .skip(1)
            .all(|want| matches!(segments.next(), Some(Segment::Literal(text)) if **text == *want));
        if !has || segments.next().is_none() {
            let what = format!(
                "`strip_prefix` is {prefix:?}, and keys of {text:?} need not start with it"
            );
            let remedy = "start every pattern of the rule with the prefix and one segment more";
            source.fault(&format!("{path}.strip_prefix"), what, remedy);
        }
    }
}

/// The level that was asked for, against the one that is reached.
fn least_level(
    source: &mut Source<'_>,
    place: usize,
    rule: &RuleSettings,
    settings: &PipelineSettings,
    level: &RuleLevel,
) {
    let (key, asked) = match (rule.level, settings.fence.level) {
        (Some(asked), _) => (format!("rule.{place}.level"), asked),
        (None, Some(asked)) => ("fence.level".to_owned(), asked),
        (None, None) => return,
    };
    if level.level < asked {
        let name = rule.patterns.as_slice().first().map_or("", String::as_str);
        let lacking: Vec<_> = level.lacking().map(|f| f.assumption.to_string()).collect();
        let what = format!(
            "rule {} ({name}) reaches `{}` only, not `{}`, for want of {}",
            place + 1,
            super::name_of(level.level),
            super::name_of(asked),
            lacking.join(", ")
        );
        let reasons: Vec<_> = level.lacking().map(|finding| finding.reason.as_str()).collect();
        source.fault(&key, what, format!("{}, or ask for less", reasons.join(", ")));
    }
}

fn warnings(source: &mut Source<'_>, settings: &PipelineSettings, table: &RuleTable) {
    if settings.rules.is_empty() && settings.fence.unmatched_writes == Unmatched::Refuse {
        let remedy = "write [[rule]] with `match` and `resource`";
        source.warn("rule", "there is no rule, so every write is refused", remedy);
    }
    for shadow in table.shadowed() {
        let what = format!(
            "rule {} never matches: rule {} takes all its keys",
            shadow.rule + 1,
            shadow.by + 1
        );
        source.warn(&format!("rule.{}", shadow.rule), what, "move it up, or drop it");
    }
    let mut rewriting: Vec<(usize, &RuleSettings)> = Vec::new();
    for (place, rule) in settings.rules.iter().enumerate() {
        if rule.methods.is_some()
            && rule.fence.is_none()
            && settings.fence.unmatched_writes == Unmatched::Pass
        {
            let what = format!(
                "writes with other methods than those of rule {} pass without a token",
                place + 1
            );
            source.warn(
                &format!("rule.{place}.methods"),
                what,
                "drop `methods`, or write unmatched_writes = \"refuse\"",
            );
        }
        if rule.strip_prefix.is_some() || rule.add_prefix.is_some() {
            rewriting.push((place, rule));
        }
    }
    for (place, rule) in rewriting {
        let other = settings.rules.iter().enumerate().find(|(other, with)| {
            *other != place
                && with.upstream == rule.upstream
                && (&with.strip_prefix, &with.add_prefix) != (&rule.strip_prefix, &rule.add_prefix)
        });
        if let Some((other, _)) = other {
            let what = format!(
                "rules {} and {} change paths of one store in different ways",
                place + 1,
                other + 1
            );
            let remedy = "make sure that no path of the store can be reached under both, or its fence has a hole";
            source.warn(&format!("rule.{place}"), what, remedy);
        }
    }
}
