//! What is wrong in a configuration file, where, and what to write instead.

use std::fmt;

/// One fault, or one warning.
///
/// It never holds the value of a secret: texts name keys, not what stands beside them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1; 0 if the fault is not in a line.
    pub line: usize,
    /// Column in characters, from 1; 0 if the fault is not in a line.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What to do next.
    pub remedy: String,
}

/// Every fault of a file, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Fault>);

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { file, line, column, what, remedy } = self;
        match line {
            0 => write!(f, "{file}: {what}; {remedy}"),
            _ => write!(f, "{file}:{line}:{column}: {what}; {remedy}"),
        }
    }
}

// === impl ConfigErrors ===

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The known name that `text` was probably meant to be: at most a third of it differs.
pub(super) fn closest<'n>(text: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = (text.chars().count() / 3).max(1);
    let near = known.map(|name| (distance(text, name), name));
    near.filter(|(distance, _)| *distance <= allowed).min().map(|(_, name)| name)
}

/// How many characters have to be put in, dropped or exchanged, or neighbours swapped.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchange = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = exchange.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
