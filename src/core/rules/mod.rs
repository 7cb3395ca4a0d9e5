//! The ordered rule table: which rule and which resource a key falls under. First match wins.
//!
//! A table never changes; a reload makes another. Looking a key up walks an index of segments, so its
//! cost follows the key's length, not the number of rules.

mod index;

use super::Resource;
use super::pattern::{Key, Pattern, PatternError};
use super::resource::NameError;
use super::template::{Recipe, Template};
use index::{Entry, Index};

/// One rule: its patterns, and what they make of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    patterns: Vec<Pattern>,
    methods: Option<Vec<Box<str>>>,
    naming: Naming,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Naming {
    /// `fence = "none"`.
    Unfenced,
    /// The same resource for every key.
    Fixed(Resource),
    /// Made from what was captured; one recipe per pattern.
    Captured(Vec<Recipe>),
}

/// The rules in order, with their index.
#[derive(Clone, Debug)]
pub struct RuleTable {
    rules: Vec<Rule>,
    index: Index,
}

/// What a key falls under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// The rule, by its place in the table; the first is 0.
    pub rule: usize,
    /// The resource; `None` under a rule with `fence = "none"`.
    pub resource: Option<Resource>,
}

/// A rule that can never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The rule without effect.
    pub rule: usize,
    /// The rules before it take all its keys; one of them.
    pub by: usize,
}

/// The key makes a name that no resource can have. The request is malformed; it never passes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {} makes no resource of this key: {fault}; rename the object or change the rule", rule + 1)]
pub struct BadResource {
    /// The rule, by its place in the table; the first is 0 (and is shown as 1).
    pub rule: usize,
    /// What is wrong with the name.
    pub fault: NameError,
}

/// Why patterns and a resource make no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// No pattern.
    #[error("the rule has no pattern; write at least one, or drop the rule")]
    NoPattern,
    /// A method list without a method.
    #[error("the rule names no method and so never matches; drop `methods` for all methods")]
    NoMethod,
    /// The resource uses a name that a pattern does not capture.
    #[error(
        "the resource uses {{{name}}}, which {pattern:?} does not capture; put {{{name}}} into every pattern of the rule, or split the rule"
    )]
    NotCaptured {
        /// Which name.
        name: String,
        /// Its offset in the resource, in bytes.
        at: usize,
        /// The pattern without it.
        pattern: String,
    },
    /// A resource without names that is no resource.
    #[error("{0}; a resource is 1 to 1,024 bytes without control characters")]
    BadName(NameError),
}

/// Why the texts of a rule make none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleTextFault {
    /// A pattern is none.
    #[error("pattern {text:?}: {error}")]
    Pattern {
        /// The pattern.
        text: String,
        /// What is wrong with it.
        error: PatternError,
    },
    /// The resource is no template.
    #[error("resource {text:?}: {error}")]
    Resource {
        /// The resource.
        text: String,
        /// What is wrong with it.
        error: PatternError,
    },
    /// Each part is good, and they do not fit each other.
    #[error("{0}")]
    Parts(RuleFault),
}

// === impl Rule ===

impl Rule {
    /// Reads a rule from its texts; as [`new`](Self::new).
    ///
    /// # Errors
    /// [`RuleTextFault`] with the first thing that is wrong.
    pub fn parse(
        patterns: &[String],
        resource: Option<&str>,
        methods: Option<&[String]>,
    ) -> Result<Rule, RuleTextFault> {
        let pattern = |text: &String| {
            Pattern::parse(text)
                .map_err(|error| RuleTextFault::Pattern { text: text.clone(), error })
        };
        let patterns = patterns.iter().map(pattern).collect::<Result<_, _>>()?;
        let template = resource.map(|text| {
            Template::parse(text)
                .map_err(|error| RuleTextFault::Resource { text: text.into(), error })
        });
        let template = template.transpose()?;
        Rule::new(patterns, template.as_ref(), methods).map_err(RuleTextFault::Parts)
    }

    /// Puts a rule together.
    ///
    /// * `resource`: `None` for `fence = "none"`.
    /// * `methods`: only requests with one of these; `None` for all.
    ///
    /// # Errors
    /// [`RuleFault`] if a part is missing or the parts do not fit each other.
    pub fn new(
        patterns: Vec<Pattern>,
        resource: Option<&Template>,
        methods: Option<&[String]>,
    ) -> Result<Rule, RuleFault> {
        if patterns.is_empty() {
            return Err(RuleFault::NoPattern);
        }
        if methods.is_some_and(<[_]>::is_empty) {
            return Err(RuleFault::NoMethod);
        }
        let naming = match resource {
            None => Naming::Unfenced,
            Some(template) if template.names().next().is_none() => {
                Naming::Fixed(Resource::new(template.as_str()).map_err(RuleFault::BadName)?)
            }
            Some(template) => {
                let tied = patterns.iter().map(|pattern| Rule::tie(template, pattern));
                Naming::Captured(tied.collect::<Result<_, _>>()?)
            }
        };
        let methods = methods.map(|all| all.iter().map(|method| method.as_str().into()).collect());
        Ok(Rule { patterns, methods, naming })
    }

    fn tie(template: &Template, pattern: &Pattern) -> Result<Recipe, RuleFault> {
        template.tie(pattern).ok_or_else(|| {
            let lost = template.names().find(|(name, _)| pattern.captures(name).is_none());
            let (name, at) = lost.unwrap_or(("", 0));
            RuleFault::NotCaptured { name: name.into(), at, pattern: pattern.as_str().into() }
        })
    }

    /// Its patterns, in order.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    fn takes_method(&self, method: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.iter().any(|m| **m == *method))
    }

    /// Whether it takes every method that `other` takes.
    fn takes_methods_of(&self, other: &Rule) -> bool {
        match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => theirs.iter().all(|method| mine.contains(method)),
        }
    }

    /// The resource of a key that the pattern fits.
    fn resource(&self, pattern: usize, key: &Key<'_>) -> Result<Option<Resource>, NameError> {
        match &self.naming {
            Naming::Unfenced => Ok(None),
            Naming::Fixed(resource) => Ok(Some(resource.clone())),
            Naming::Captured(recipes) => {
                let fit = self.patterns[pattern].fit(key).expect("the index found that it fits");
                recipes[pattern].make(&self.patterns[pattern], fit, key).map(Some)
            }
        }
    }
}

// === impl RuleTable ===

impl RuleTable {
    /// Indexes the rules, in the order they are asked in.
    pub fn new(rules: Vec<Rule>) -> RuleTable {
        let index = Index::new(&rules);
        RuleTable { rules, index }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule for this method whose pattern matches the decoded key, and the key's resource;
    /// `None` if no rule covers it.
    ///
    /// # Errors
    /// [`BadResource`] if the rule makes an impossible name of the key.
    pub fn lookup(&self, method: &str, key: &str) -> Result<Option<Match>, BadResource> {
        let key = Key::new(key);
        let admits = |rule: usize| self.rules[rule].takes_method(method);
        let Some(Entry { rule, pattern }) = self.index.first(&self.rules, &key, &admits) else {
            return Ok(None);
        };
        match self.rules[rule].resource(pattern, &key) {
            Ok(resource) => Ok(Some(Match { rule, resource })),
            Err(fault) => Err(BadResource { rule, fault }),
        }
    }

    /// The one rule and resource of every key below `prefix`: of each that starts with it and is longer.
    ///
    /// `None` if there is no such rule, or if it is not certain; a rule with `methods` is never certain.
    /// If a rule covers the prefix itself, it must be the same one, as the marker of a folder may stand
    /// there; but a bucket's name and `/` is no key.
    pub fn prefix_cover(&self, prefix: &str) -> Option<Match> {
        let key = Key::new(prefix);
        let first = self.index.first_below(&key)?;
        let rule = &self.rules[first.rule];
        if rule.methods.is_some() {
            return None;
        }
        // What holds for a longer key with the same beginning holds for all, if the last segment of the
        // pattern is a `Many` that begins within or before the prefix's last segment: the segments before
        // it are whole in the prefix, and so the same for all keys.
        let sample = format!("{prefix}x");
        let sample = Key::new(&sample);
        let covers = |pattern: usize| -> Option<Match> {
            let parsed = &rule.patterns[pattern];
            let fit = parsed.fit(&sample)?;
            if !parsed.ends_in_many() {
                return None;
            }
            let resource = match &rule.naming {
                Naming::Captured(recipes) => {
                    let recipe = &recipes[pattern];
                    if recipe.uses(parsed.segments().len() - 1) {
                        return None;
                    }
                    Some(recipe.make(parsed, fit, &sample).ok()?)
                }
                Naming::Fixed(resource) => Some(resource.clone()),
                Naming::Unfenced => None,
            };
            Some(Match { rule: first.rule, resource })
        };
        let cover = match &rule.naming {
            // Which of its patterns takes a key makes no difference, so any may cover them.
            Naming::Fixed(_) | Naming::Unfenced => (0..rule.patterns.len()).find_map(covers),
            Naming::Captured(_) => covers(first.pattern),
        }?;
        let is_marker = key.len() > 2 && key.segment(key.len() - 1).is_empty();
        if is_marker && let Some(own) = self.index.first(&self.rules, &key, &|_| true) {
            let resource = self.rules[own.rule].resource(own.pattern, &key).ok()?;
            return (own.rule == cover.rule && resource == cover.resource).then_some(cover);
        }
        Some(cover)
    }

    /// The rules that can never match, as far as that is certain: every pattern is also that of an earlier
    /// rule for the same methods, or is covered by an earlier `…/**`.
    pub fn shadowed(&self) -> Vec<Shadow> {
        let mut shadows = Vec::new();
        for (place, rule) in self.rules.iter().enumerate() {
            let earlier = |by: usize| by < place && self.rules[by].takes_methods_of(rule);
            let mut by = None;
            let covered = rule.patterns.iter().all(|pattern| {
                by = self.index.covering(&self.rules, pattern, &earlier);
                by.is_some()
            });
            if let (true, Some(by)) = (covered, by) {
                shadows.push(Shadow { rule: place, by });
            }
        }
        shadows
    }
}

#[cfg(test)]
mod tests;
