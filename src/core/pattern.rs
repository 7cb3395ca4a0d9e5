//! Patterns of `match`: which keys a rule speaks of. The language is in `docs/reference/rules.md`.
//!
//! A pattern and a key are both split on `/`, and compared segment by segment, case-sensitively.
//! Empty segments are segments: `a//b` has three, and `b/` is `b` and an empty one.

/// A parsed pattern.
///
/// Two patterns are equal if they were written alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Box<str>,
    segments: Vec<Segment>,
    /// Where the `Many` segments are: none, one, or two of them.
    many: Vec<usize>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Exactly this text; empty for the part after a last `/`.
    Literal(Box<str>),
    /// `state-{env}.json` or `*`: literal text around 1 to 255 bytes without `/`.
    One {
        /// Text before.
        prefix: Box<str>,
        /// Text after.
        suffix: Box<str>,
        /// The name of what it matches, unless it is `*`.
        name: Option<Box<str>>,
    },
    /// `**` or `{name**}`: one or more whole segments, of one byte or more in all.
    Many {
        /// The name of what it matches, unless it is `**`.
        name: Option<Box<str>>,
    },
}

/// A key cut into segments.
#[derive(Clone, Debug)]
pub struct Key<'k> {
    text: &'k str,
    /// Where each segment ends, in bytes.
    ends: Vec<usize>,
}

/// How a pattern lies on a key: how many segments each of its `Many` took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    runs: [usize; 2],
}

/// Why a text is no pattern, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct PatternError {
    /// Offset in bytes of what is wrong.
    pub at: usize,
    /// What is wrong.
    pub fault: PatternFault,
}

/// What can be wrong with a pattern or a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// Nothing there.
    #[error("it is empty; write `**` for every key")]
    Empty,
    /// More bytes than any key has.
    #[error("it has {bytes} bytes; at most {MAX_BYTES} are allowed")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// Starts with `/`.
    #[error("it starts with `/`; a key starts with its bucket or first path segment, so drop it")]
    LeadingSlash,
    /// A control character.
    #[error("it has a control character; no such key passes, so drop it")]
    Control,
    /// `.` or `..` as a segment.
    #[error("the segment {0:?} matches nothing, as keys with it are refused; drop it")]
    Dots(Box<str>),
    /// A `{` without `}`.
    #[error("`{{` is not closed; write `{{name}}`")]
    Unclosed,
    /// A `}` without `{`.
    #[error("`}}` closes nothing; write `{{name}}`")]
    Unopened,
    /// Not a name.
    #[error(
        "{0:?} is no name; start with a letter or `_` and go on with letters, digits and `_`, as in `{{cluster}}` or `{{table**}}`"
    )]
    BadName(Box<str>),
    /// A name used twice.
    #[error("the name {0:?} stands there twice; rename one")]
    Repeated(Box<str>),
    /// Two wildcards in one segment.
    #[error("a segment has at most one `*` or `{{name}}`; split it with `/` or drop one")]
    SecondInSegment,
    /// `**` beside other text.
    #[error("`**` and `{{name**}}` are whole segments; put `/` around it, or write `*`")]
    ManyInSegment,
    /// The same kind of `**` twice, or two side by side.
    #[error(
        "`**` and `{{name**}}` may each stand once in a pattern, and not side by side; drop one or write `*`"
    )]
    SecondMany,
    /// A `*` where only names may stand.
    #[error(
        "`*` cannot stand in a resource; name it in the pattern, as `{{name}}`, and use the name"
    )]
    StarInTemplate,
    /// `{name**}` in a template.
    #[error("in a resource write `{{{0}}}`, without `**`")]
    ManyInTemplate(Box<str>),
}

/// Most bytes of a pattern: a bucket, a key of 1,024 bytes, and room for names.
pub const MAX_BYTES: usize = 4_096;

/// Most bytes that `*` or `{name}` matches.
pub const MAX_ONE_BYTES: usize = 255;

// === impl Pattern ===

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`] says what is wrong, where, and what to write instead.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let whole = |at, fault| Err(PatternError { at, fault });
        if text.is_empty() {
            return whole(0, PatternFault::Empty);
        }
        if text.len() > MAX_BYTES {
            return whole(MAX_BYTES, PatternFault::TooLong { bytes: text.len() });
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return whole(at, PatternFault::Control);
        }
        if text.starts_with('/') {
            return whole(0, PatternFault::LeadingSlash);
        }
        let mut pattern = Pattern { text: text.into(), segments: Vec::new(), many: Vec::new() };
        let mut at = 0;
        for part in text.split('/') {
            let segment = Segment::parse(part, at)?;
            pattern.push(segment).map_err(|fault| PatternError { at, fault })?;
            at += part.len() + 1;
        }
        Ok(pattern)
    }

    fn push(&mut self, segment: Segment) -> Result<(), PatternFault> {
        if let Some(name) = segment.name()
            && self.captures(name).is_some()
        {
            return Err(PatternFault::Repeated(name.into()));
        }
        if let Segment::Many { name } = &segment {
            // With one of each kind, "the first takes as few segments as it can" is one sure reading.
            // More of them would only be harder to read.
            let index = self.segments.len();
            let same_kind =
                |&other: &usize| self.segments[other].name().is_some() == name.is_some();
            if self.many.iter().any(same_kind) || self.many.contains(&index.wrapping_sub(1)) {
                return Err(PatternFault::SecondMany);
            }
            self.many.push(index);
        }
        self.segments.push(segment);
        Ok(())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its segments, in order; never empty.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether it goes on for ever, as `b/**` does.
    pub fn ends_in_many(&self) -> bool {
        matches!(self.segments.last(), Some(Segment::Many { .. }))
    }

    /// The index of the segment that captures `name`.
    pub fn captures(&self, name: &str) -> Option<usize> {
        self.segments.iter().position(|segment| segment.name() == Some(name))
    }

    /// Whether it matches the key, and how it lies on it.
    ///
    /// Where two `Many` could share the key in several ways, the first takes as few segments as it can:
    /// `lake/{table**}/_log/**` reads `lake/a/_log/b/_log/c` as table `a`.
    pub fn fit(&self, key: &Key<'_>) -> Option<Fit> {
        let (have, want) = (key.len(), self.segments.len());
        let all = |from: usize, to: usize, at: usize| {
            (from..to).all(|i| self.segments[i].matches(key.segment(at + i - from)))
        };
        match self.many[..] {
            [] => (have == want && all(0, want, 0)).then_some(Fit { runs: [0, 0] }),
            [only] => {
                let tail = want - only - 1;
                if have < want || !all(0, only, 0) || !all(only + 1, want, have - tail) {
                    return None;
                }
                let run = have - only - tail;
                (!key.span(only, run).is_empty()).then_some(Fit { runs: [run, 0] })
            }
            [first, second, ..] => {
                let (middle, tail) = (second - first - 1, want - second - 1);
                if have < want || !all(0, first, 0) || !all(second + 1, want, have - tail) {
                    return None;
                }
                // `have - want` segments are to be shared beyond the one that each must take.
                (1..=have - want + 1).find_map(|run| {
                    let (after, rest) = (first + run, have - first - run - middle - tail);
                    let fits = !key.span(first, run).is_empty()
                        && all(first + 1, second, after)
                        && !key.span(after + middle, rest).is_empty();
                    fits.then_some(Fit { runs: [run, rest] })
                })
            }
        }
    }

    /// What the capturing segment `index` matched, given how the pattern lies on the key.
    pub fn captured<'k>(&self, index: usize, fit: Fit, key: &Key<'k>) -> &'k str {
        let mut at = index;
        for (&many, run) in self.many.iter().zip(fit.runs) {
            if many < index {
                at += run - 1;
            } else if many == index {
                return key.span(at, run);
            }
        }
        let segment = key.segment(at);
        match &self.segments[index] {
            Segment::One { prefix, suffix, .. } => {
                &segment[prefix.len()..segment.len() - suffix.len()]
            }
            _ => segment,
        }
    }
}

// === impl Segment ===

impl Segment {
    /// Reads one segment, which starts at byte `at` of the pattern.
    fn parse(part: &str, at: usize) -> Result<Segment, PatternError> {
        let fault = |offset: usize, fault| Err(PatternError { at: at + offset, fault });
        if part == "." || part == ".." {
            return fault(0, PatternFault::Dots(part.into()));
        }
        if part == "**" {
            return Ok(Segment::Many { name: None });
        }
        if let Some(offset) = part.find("**").filter(|_| !part.contains('{')) {
            return fault(offset, PatternFault::ManyInSegment);
        }
        let Some(open) = part.find(['*', '{', '}']) else {
            return Ok(Segment::Literal(part.into()));
        };
        let (name, end) = match part.as_bytes()[open] {
            b'*' => (None, open + 1),
            b'}' => return fault(open, PatternFault::Unopened),
            _ => {
                let Some(length) = part[open..].find('}') else {
                    return fault(open, PatternFault::Unclosed);
                };
                (Some(&part[open + 1..open + length]), open + length + 1)
            }
        };
        let (prefix, suffix) = (&part[..open], &part[end..]);
        if let Some(second) = suffix.find(['*', '{', '}']) {
            let what = match suffix.as_bytes()[second] {
                b'}' => PatternFault::Unopened,
                _ => PatternFault::SecondInSegment,
            };
            return fault(end + second, what);
        }
        if let Some(name) = name.and_then(|name| name.strip_suffix("**")) {
            let whole = prefix.is_empty() && suffix.is_empty();
            return match (whole, is_name(name)) {
                (_, false) => fault(open + 1, PatternFault::BadName(name.into())),
                (false, true) => fault(open, PatternFault::ManyInSegment),
                (true, true) => Ok(Segment::Many { name: Some(name.into()) }),
            };
        }
        if let Some(name) = name.filter(|name| !is_name(name)) {
            return fault(open + 1, PatternFault::BadName(name.into()));
        }
        let (prefix, suffix) = (prefix.into(), suffix.into());
        Ok(Segment::One { prefix, suffix, name: name.map(Into::into) })
    }

    /// The name it captures, if it does.
    pub fn name(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::One { name, .. } | Segment::Many { name } => name.as_deref(),
        }
    }

    /// Whether it matches this one segment of a key. `Many` is not decided here.
    pub fn matches(&self, segment: &str) -> bool {
        match self {
            Segment::Literal(text) => **text == *segment,
            Segment::One { prefix, suffix, .. } => {
                let inside = segment.len().wrapping_sub(prefix.len() + suffix.len());
                (1..=MAX_ONE_BYTES).contains(&inside)
                    && segment.starts_with(&**prefix)
                    && segment.ends_with(&**suffix)
            }
            Segment::Many { .. } => true,
        }
    }
}

/// Whether this may stand between braces.
pub(super) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

// === impl Key ===

impl<'k> Key<'k> {
    /// Cuts a key on `/`.
    pub fn new(text: &'k str) -> Key<'k> {
        let slashes = text.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
        let ends = slashes.map(|(at, _)| at).chain([text.len()]).collect();
        Key { text, ends }
    }

    /// How many segments it has; at least one.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: the empty key is one empty segment.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The segment with this index.
    pub fn segment(&self, index: usize) -> &'k str {
        self.span(index, 1)
    }

    /// `count` segments from `first` on, with the `/` between them; `count` is at least one.
    fn span(&self, first: usize, count: usize) -> &'k str {
        let start = if first == 0 { 0 } else { self.ends[first - 1] + 1 };
        &self.text[start..self.ends[first + count - 1]]
    }
}

#[cfg(test)]
#[path = "pattern/tests.rs"]
mod tests;
