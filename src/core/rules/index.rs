//! The index of a rule table: a tree of segments, shared by all patterns with the same beginning.
//!
//! A node's children are found by the segment's text, or by the literal text around its wildcard. Patterns
//! with a `**` leave the tree there and hang on the node, by their last segment if that is literal. So ten
//! thousand rules cost little more than ten, unless thousands share their beginning up to a `**` and
//! differ only in the middle.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Rule;
use crate::core::pattern::{Key, Pattern, Segment};

/// One pattern of one rule. Lower is earlier in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entry {
    pub(super) rule: usize,
    pub(super) pattern: usize,
}

/// The tree.
#[derive(Clone, Debug)]
pub(super) struct Index {
    root: Node,
}

/// Children by the text before a wildcard, then by the text after it.
type Around = BTreeMap<Box<str>, BTreeMap<Box<str>, Node>>;

/// The patterns that begin alike.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Patterns that end here, in order.
    ends: Vec<Entry>,
    /// Patterns that go on with a `Many`: by their last segment, if it is literal.
    many_to: BTreeMap<Box<str>, Vec<Entry>>,
    /// The other ones.
    many: Vec<Entry>,
    /// Patterns that go on with this text.
    literals: BTreeMap<Box<str>, Node>,
    /// Patterns that go on with a wildcard, by the lengths of the text around it.
    ones: BTreeMap<(usize, usize), Around>,
    /// The earliest pattern that goes on here or hangs here, but does not end here.
    first_below: Option<Entry>,
}

/// Whether a rule may be found at all: for its methods, or for its place.
type Admits<'a> = &'a dyn Fn(usize) -> bool;

fn earlier(a: Option<Entry>, b: Option<Entry>) -> Option<Entry> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

// === impl Index ===

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Index {
        let mut root = Node::default();
        for (rule, spec) in rules.iter().enumerate() {
            for (pattern, parsed) in spec.patterns.iter().enumerate() {
                root.insert(parsed.segments(), Entry { rule, pattern });
            }
        }
        Index { root }
    }

    /// The earliest pattern of an admitted rule that matches the key.
    pub(super) fn first(&self, rules: &[Rule], key: &Key<'_>, admits: Admits<'_>) -> Option<Entry> {
        let mut best = None;
        self.root.search(0, rules, key, admits, &mut best);
        best
    }

    /// The earliest pattern that may match a key below this prefix.
    pub(super) fn first_below(&self, prefix: &Key<'_>) -> Option<Entry> {
        self.root.below(0, prefix)
    }

    /// A rule, of the admitted ones, that takes every key of the pattern, if that is certain.
    pub(super) fn covering(
        &self,
        rules: &[Rule],
        pattern: &Pattern,
        admits: Admits<'_>,
    ) -> Option<usize> {
        self.root.covering(pattern.segments(), rules, pattern, admits)
    }
}

// === impl Node ===

impl Node {
    fn insert(&mut self, segments: &[Segment], entry: Entry) {
        let Some((first, rest)) = segments.split_first() else {
            self.ends.push(entry);
            return;
        };
        // Entries come in order, so the first one to pass is the earliest.
        self.first_below.get_or_insert(entry);
        match first {
            Segment::Literal(text) => {
                self.literals.entry(text.clone()).or_default().insert(rest, entry);
            }
            Segment::One { prefix, suffix, .. } => {
                let group = self.ones.entry((prefix.len(), suffix.len())).or_default();
                let group = group.entry(prefix.clone()).or_default();
                group.entry(suffix.clone()).or_default().insert(rest, entry);
            }
            Segment::Many { .. } => match segments.last() {
                Some(Segment::Literal(last)) => {
                    self.many_to.entry(last.clone()).or_default().push(entry);
                }
                _ => self.many.push(entry),
            },
        }
    }

    /// The children that match this segment.
    fn next<'n>(&'n self, segment: &'n str) -> impl Iterator<Item = &'n Node> {
        let ones = self.ones.iter().filter_map(move |(&(before, after), group)| {
            let split = segment.len().checked_sub(after).filter(|split| before < *split)?;
            if split - before > crate::core::pattern::MAX_ONE_BYTES {
                return None;
            }
            // `get` is `None` where a length would cut a character in two.
            group.get(segment.get(..before)?)?.get(segment.get(split..)?)
        });
        self.literals.get(segment).into_iter().chain(ones)
    }

    /// Lowers `best` to the earliest match from segment `at` of the key on.
    fn search(
        &self,
        at: usize,
        rules: &[Rule],
        key: &Key<'_>,
        admits: Admits<'_>,
        best: &mut Option<Entry>,
    ) {
        let settle = |best: &mut Option<Entry>, found: Option<&Entry>| {
            *best = earlier(*best, found.copied());
        };
        let open = |best: &Option<Entry>, entry: &Entry| best.is_none_or(|best| *entry < best);
        if at == key.len() {
            settle(best, self.ends.iter().find(|entry| admits(entry.rule)));
            return;
        }
        if !self.first_below.is_some_and(|first| open(best, &first)) {
            return;
        }
        let last = key.segment(key.len() - 1);
        for hanging in [Some(&self.many), self.many_to.get(last)].into_iter().flatten() {
            let found = hanging.iter().take_while(|entry| open(best, entry)).find(|entry| {
                admits(entry.rule) && rules[entry.rule].patterns[entry.pattern].fit(key).is_some()
            });
            settle(best, found);
        }
        for child in self.next(key.segment(at)) {
            child.search(at + 1, rules, key, admits, best);
        }
    }

    /// The earliest entry that may match a key that begins with the prefix, of which segment `at` is next.
    fn below(&self, at: usize, prefix: &Key<'_>) -> Option<Entry> {
        let part = prefix.segment(at);
        let hanging = self
            .many
            .first()
            .into_iter()
            .chain(self.many_to.values().filter_map(|all| all.first()));
        let mut first = hanging.min().copied();
        if at + 1 < prefix.len() {
            return self
                .next(part)
                .fold(first, |first, child| earlier(first, child.below(at + 1, prefix)));
        }
        // The last segment of the prefix is only the beginning of one.
        if part.is_empty() && !self.literals.contains_key("") {
            return self.first_below;
        }
        let from = (Bound::Included(part), Bound::Unbounded);
        let starting = self.literals.range::<str, _>(from);
        let starting = starting.take_while(|(text, _)| text.starts_with(part));
        for (text, child) in starting {
            // `bucket/` is the bucket itself, which no list has in it.
            let bucket = at == 1 && part.is_empty() && text.is_empty();
            let own = child.ends.first().copied().filter(|_| !bucket);
            first = earlier(first, earlier(own, child.first_below));
        }
        for (before, suffixes) in self.ones.values().flatten() {
            if before.starts_with(part) || part.starts_with(&**before) {
                for child in suffixes.values() {
                    first = earlier(first, earlier(child.ends.first().copied(), child.first_below));
                }
            }
        }
        first
    }

    /// A rule whose pattern covers the one with these segments left.
    fn covering(
        &self,
        left: &[Segment],
        rules: &[Rule],
        whole: &Pattern,
        admits: Admits<'_>,
    ) -> Option<usize> {
        let Some((first, rest)) = left.split_first() else {
            return self.ends.iter().map(|entry| entry.rule).find(|rule| admits(*rule));
        };
        let depth = whole.segments().len() - left.len();
        // `…/**` takes all that is left, unless that may be one empty segment.
        let lone_slash =
            rest.is_empty() && matches!(first, Segment::Literal(text) if text.is_empty());
        let same = |entry: &Entry| {
            let other = rules[entry.rule].patterns[entry.pattern].segments();
            let takes_rest = other.len() == depth + 1 && !lone_slash;
            takes_rest
                || (other.len() == whole.segments().len()
                    && other[depth..].iter().zip(left).all(alike))
        };
        let hanging = self.many.iter().chain(self.many_to.values().flatten());
        let found = hanging.filter(|entry| admits(entry.rule)).find(|entry| same(entry));
        if let Some(entry) = found {
            return Some(entry.rule);
        }
        match first {
            Segment::Literal(text) => {
                self.next(text).find_map(|child| child.covering(rest, rules, whole, admits))
            }
            Segment::One { prefix, suffix, .. } => {
                let group = self.ones.get(&(prefix.len(), suffix.len()))?;
                let child = group.get(&**prefix)?.get(&**suffix)?;
                child.covering(rest, rules, whole, admits)
            }
            Segment::Many { .. } => None,
        }
    }
}

/// Whether two segments match the same, whatever their names are.
fn alike((a, b): (&Segment, &Segment)) -> bool {
    match (a, b) {
        (Segment::Literal(a), Segment::Literal(b)) => a == b,
        (Segment::One { prefix: a, suffix: x, .. }, Segment::One { prefix: b, suffix: y, .. }) => {
            a == b && x == y
        }
        (Segment::Many { .. }, Segment::Many { .. }) => true,
        _ => false,
    }
}
