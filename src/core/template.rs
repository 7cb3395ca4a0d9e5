//! The `resource` of a rule: text and names that every pattern of the rule captures.

use super::pattern::{Fit, Key, Pattern, PatternError, PatternFault, is_name};
use super::resource::{NameError, Resource};

/// A parsed `resource`, not yet tied to patterns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    text: Box<str>,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Text(Box<str>),
    /// A name, and its offset in the text.
    Name(Box<str>, usize),
}

/// A template tied to one pattern: how to make the resource from a key that the pattern fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recipe(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Piece {
    Text(Box<str>),
    /// What this segment of the pattern captured.
    Captured(usize),
}

// === impl Template ===

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`PatternError`] says what is wrong, where, and what to write instead.
    pub fn parse(text: &str) -> Result<Template, PatternError> {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(offset) = text[at..].find(['*', '{', '}']) {
            let open = at + offset;
            let fault = |at, fault| Err(PatternError { at, fault });
            match text.as_bytes()[open] {
                b'*' => return fault(open, PatternFault::StarInTemplate),
                b'}' => return fault(open, PatternFault::Unopened),
                _ => {}
            }
            let Some(length) = text[open..].find('}') else {
                return fault(open, PatternFault::Unclosed);
            };
            let name = &text[open + 1..open + length];
            if let Some(name) = name.strip_suffix("**").filter(|name| is_name(name)) {
                return fault(open, PatternFault::ManyInTemplate(name.into()));
            }
            if !is_name(name) {
                return fault(open + 1, PatternFault::BadName(name.into()));
            }
            if offset > 0 {
                parts.push(Part::Text(text[at..open].into()));
            }
            parts.push(Part::Name(name.into(), open));
            at = open + length + 1;
        }
        if at < text.len() {
            parts.push(Part::Text(text[at..].into()));
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(PatternError { at, fault: PatternFault::Control });
        }
        Ok(Template { text: text.into(), parts })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names it uses, with their offsets in bytes.
    pub fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Name(name, at) => Some((&**name, *at)),
        })
    }

    /// Whether some key may make it this name: every captured name taken for any text.
    pub fn may_make(&self, name: &str) -> bool {
        let Some((last, front)) = self.parts.split_last() else { return name.is_empty() };
        let mut left = name;
        // The shortest text for each name leaves the most for the rest.
        let mut free = false;
        for part in front {
            match part {
                Part::Name(..) => free = true,
                Part::Text(text) => {
                    let at = if free {
                        left.find(&**text)
                    } else {
                        left.starts_with(&**text).then_some(0)
                    };
                    let Some(at) = at else { return false };
                    left = &left[at + text.len()..];
                    free = false;
                }
            }
        }
        match last {
            Part::Name(..) => true,
            Part::Text(text) if free => left.ends_with(&**text),
            Part::Text(text) => left == &**text,
        }
    }

    /// Ties it to a pattern; `None` if the pattern does not capture one of its names.
    pub(super) fn tie(&self, pattern: &Pattern) -> Option<Recipe> {
        let piece = |part: &Part| match part {
            Part::Text(text) => Some(Piece::Text(text.clone())),
            Part::Name(name, _) => pattern.captures(name).map(Piece::Captured),
        };
        self.parts.iter().map(piece).collect::<Option<Vec<_>>>().map(Recipe)
    }
}

// === impl Recipe ===

impl Recipe {
    /// The resource of a key that `pattern` fits like this.
    pub(super) fn make(
        &self,
        pattern: &Pattern,
        fit: Fit,
        key: &Key<'_>,
    ) -> Result<Resource, NameError> {
        let mut name = String::with_capacity(64);
        for piece in &self.0 {
            name.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Captured(segment) => pattern.captured(*segment, fit, key),
            });
        }
        Resource::new(&name)
    }

    /// Whether it uses what this segment captured.
    pub(super) fn uses(&self, segment: usize) -> bool {
        self.0.contains(&Piece::Captured(segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_may_make_what_its_text_allows() {
        let cases = [
            ("wal/main", "wal/main", true),
            ("wal/main", "wal/mainz", false),
            ("wal/{x}", "wal/a", true),
            ("wal/{x}", "state/a", false),
            ("{a}/x/{b}", "1/x/2", true),
            ("{a}/x/{b}", "1/y/2", false),
            ("{a}-end", "some-end", true),
            ("{a}-end", "some-end-not", false),
            ("{a}b{c}b", "bbbb", true),
        ];
        for (template, name, want) in cases {
            assert_eq!(
                Template::parse(template).unwrap().may_make(name),
                want,
                "{template} {name}"
            );
        }
    }

    #[test]
    fn what_is_no_template_is_refused_at_its_byte() {
        use PatternFault::*;
        let cases: &[(&str, usize, PatternFault)] = &[
            ("wal/*", 4, StarInTemplate),
            ("wal/{x", 4, Unclosed),
            ("wal/x}", 5, Unopened),
            ("wal/{x**}", 4, ManyInTemplate("x".into())),
            ("wal/{}", 5, BadName("".into())),
            ("wal/\u{7f}", 4, Control),
        ];
        for (text, at, fault) in cases {
            let want = PatternError { at: *at, fault: fault.clone() };
            assert_eq!(Template::parse(text), Err(want), "{text:?}");
        }
    }
}
