//! A parsed file that knows where everything stands, and the reader of its tables.
//!
//! Reading goes on after a fault, so that one run shows all of them. Texts about a value quote it only if
//! it is a short plain word: a password in the wrong place must not end up in a log.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::fault::{Fault, closest};

/// The text, the places of its keys, and what was found wrong so far.
pub(super) struct Source<'i> {
    file: String,
    text: &'i str,
    places: BTreeMap<String, Place>,
    faults: Vec<(usize, Fault)>,
    warnings: Vec<(usize, Fault)>,
}

/// Where a key and its value begin, in bytes.
#[derive(Clone, Copy)]
struct Place {
    key: usize,
    value: usize,
}

/// One table while it is read.
pub(super) struct Section<'i> {
    path: String,
    table: BTreeMap<String, Spanned<DeValue<'i>>>,
    known: Vec<&'static str>,
}

/// What a value has to be: a noun, and how to write it.
#[derive(Clone, Copy)]
pub(super) struct Want(pub &'static str, pub &'static str);

// === impl Source ===

impl<'i> Source<'i> {
    /// Parses the text. On a fault of TOML itself there is no table to read.
    pub(super) fn parse(file: &str, text: &'i str) -> (Source<'i>, Option<Section<'i>>) {
        let (file, places) = (file.to_owned(), BTreeMap::new());
        let mut source = Source { file, text, places, faults: Vec::new(), warnings: Vec::new() };
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().map_or(text.len(), |span| span.start);
            let remedy = "see https://toml.io for how it is written; strings stand in quotes";
            source.fault_at(at, format!("not TOML: {}", error.message()), remedy);
        }
        if !errors.is_empty() {
            // One slip makes several errors on its line; the first says it best.
            let mut lines = std::collections::BTreeSet::new();
            source.faults.retain(|(_, fault)| lines.insert(fault.line));
            return (source, None);
        }
        let root = root.into_inner();
        for (key, value) in &root {
            source.record(key.get_ref().to_string(), key.span().start, value);
        }
        let section = Section::new(String::new(), root);
        (source, Some(section))
    }

    fn record(&mut self, path: String, key: usize, value: &Spanned<DeValue<'_>>) {
        let inner = value.get_ref();
        if let Some(table) = inner.as_table() {
            for (name, value) in table {
                self.record(format!("{path}.{}", name.get_ref()), name.span().start, value);
            }
        }
        if let Some(array) = inner.as_array() {
            for (index, value) in array.iter().enumerate() {
                self.record(format!("{path}.{index}"), value.span().start, value);
            }
        }
        self.places.insert(path, Place { key, value: value.span().start });
    }

    /// Where this key, or the nearest table around it, stands.
    fn place(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            match (self.places.get(path), path.rfind('.')) {
                (Some(place), _) => return place.key,
                (None, Some(dot)) => path = &path[..dot],
                (None, None) => return 0,
            }
        }
    }

    /// Whether the file has this key.
    pub(super) fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Notes a fault of this key.
    pub(super) fn fault(&mut self, path: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.fault_at(self.place(path), what, remedy);
    }

    /// Notes a fault inside this string, `offset` bytes from its beginning.
    pub(super) fn fault_in(
        &mut self,
        path: &str,
        text: &str,
        offset: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        // Exact where the string is written as it reads, without escapes; else where it begins.
        let start = self.places.get(path).map(|place| place.value);
        let at = match start {
            Some(start) if self.text[start..].get(1..).is_some_and(|raw| raw.starts_with(text)) => {
                start + 1 + offset
            }
            Some(start) => start,
            None => self.place(path),
        };
        self.fault_at(at, what, remedy);
    }

    /// Notes a warning about this key.
    pub(super) fn warn(&mut self, path: &str, what: impl Into<String>, remedy: impl Into<String>) {
        let at = self.place(path);
        let warning = self.at(at, what.into(), remedy.into());
        self.warnings.push((at, warning));
    }

    fn fault_at(&mut self, at: usize, what: impl Into<String>, remedy: impl Into<String>) {
        let fault = self.at(at, what.into(), remedy.into());
        self.faults.push((at, fault));
    }

    fn at(&self, at: usize, what: String, remedy: String) -> Fault {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        Fault { file: self.file.clone(), line, column, what, remedy }
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The faults and the warnings, each in the order of the lines.
    pub(super) fn finish(mut self) -> (Vec<Fault>, Vec<Fault>) {
        let sorted = |all: &mut Vec<(usize, Fault)>| {
            all.sort_by_key(|(at, _)| *at);
            std::mem::take(all).into_iter().map(|(_, fault)| fault).collect()
        };
        (sorted(&mut self.faults), sorted(&mut self.warnings))
    }
}

// === impl Section ===

impl<'i> Section<'i> {
    fn new(path: String, table: DeTable<'i>) -> Section<'i> {
        let table = table.into_iter().map(|(key, value)| (key.into_inner().into_owned(), value));
        Section { path, table: table.collect(), known: Vec::new() }
    }

    /// The full name of a key.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// The value of a key; `None` if it is absent or wrong, and a fault if it is wrong.
    pub(super) fn get<T: Deserialize<'i>>(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        want: Want,
    ) -> Option<T> {
        let value = self.take(key)?;
        let found = found(value.get_ref());
        let read = T::deserialize(ValueDeserializer::from(value));
        if read.is_err() {
            let path = self.path(key);
            source.fault(&path, format!("`{}` is {found}, not {}", shown(&path), want.0), want.1);
        }
        read.ok()
    }

    /// As [`get`](Self::get), with a default.
    pub(super) fn or<T: Deserialize<'i>>(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        want: Want,
        default: T,
    ) -> T {
        self.get(source, key, want).unwrap_or(default)
    }

    /// As [`get`](Self::get), of a key that has no default.
    pub(super) fn need<T: Deserialize<'i>>(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        want: Want,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            let (path, Want(_, how)) = (self.path(key), want);
            source.fault(&path, format!("`{}` is missing", shown(&path)), how);
        }
        self.get(source, key, want)
    }

    /// The table under a key; an empty one if it is absent.
    pub(super) fn section(&mut self, source: &mut Source<'_>, key: &'static str) -> Section<'i> {
        let path = self.path(key);
        let table = match self.take(key).map(Spanned::into_inner) {
            None => DeTable::new(),
            Some(DeValue::Table(table)) => table,
            Some(other) => {
                let what = format!("`{path}` is {}, not a table", found(&other));
                source.fault(&path, what, format!("write `[{path}]` above its keys"));
                DeTable::new()
            }
        };
        Section::new(path, table)
    }

    /// The tables under a key whose names the file chooses.
    pub(super) fn named(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
    ) -> Vec<(String, Section<'i>)> {
        let Section { path, table, .. } = self.section(source, key);
        let mut all = Vec::new();
        for (name, value) in table {
            let path = format!("{path}.{name}");
            match value.into_inner() {
                DeValue::Table(table) => all.push((name, Section::new(path, table))),
                other => {
                    let what = format!("`{path}` is {}, not a table", found(&other));
                    source.fault(&path, what, format!("write `[{path}]` above its keys"));
                }
            }
        }
        all
    }

    /// The tables of a list of tables.
    pub(super) fn list(&mut self, source: &mut Source<'_>, key: &'static str) -> Vec<Section<'i>> {
        let path = self.path(key);
        let remedy = format!("write `[[{path}]]` above the keys of each");
        let values = match self.take(key).map(Spanned::into_inner) {
            None => return Vec::new(),
            Some(DeValue::Array(values)) => values,
            Some(other) => {
                let what = format!("`{path}` is {}, not a list of tables", found(&other));
                source.fault(&path, what, remedy);
                return Vec::new();
            }
        };
        let mut all = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            let path = format!("{path}.{index}");
            match value.into_inner() {
                DeValue::Table(table) => all.push(Section::new(path, table)),
                other => {
                    let what = format!("an entry of `{key}` is {}, not a table", found(&other));
                    source.fault(&path, what, remedy.clone());
                }
            }
        }
        all
    }

    /// The entries of a list, each `None` if it is not a `T`; `None` if there is something else. Nothing
    /// is noted: for secrets, whose faults must be told in words of their own.
    pub(super) fn items<T: Deserialize<'i>>(
        &mut self,
        key: &'static str,
    ) -> Option<Vec<Option<T>>> {
        match self.take(key).map(Spanned::into_inner) {
            None => Some(Vec::new()),
            Some(DeValue::Array(values)) => {
                // A list in the list would be read as the fields of a table, in order.
                let plain = |value: &Spanned<DeValue<'_>>| !value.get_ref().is_array();
                let read = |value: Spanned<DeValue<'i>>| {
                    let value = Some(value).filter(plain)?;
                    T::deserialize(ValueDeserializer::from(value)).ok()
                };
                Some(values.into_iter().map(read).collect())
            }
            Some(_) => None,
        }
    }

    /// Whether no key is there.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Ends the reading: what was not asked for is unknown.
    pub(super) fn finish(self, source: &mut Source<'_>) {
        for key in self.table.keys() {
            let path = self.path(key);
            let place = match self.path.as_str() {
                "" => "at the top of the file".to_owned(),
                path => format!("in `{}`", shown(path)),
            };
            let remedy = match closest(key, self.known.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known keys are {}", list(&self.known)),
            };
            source.fault(&path, format!("unknown key `{key}` {place}"), remedy);
        }
    }
}

/// A path as people know it: `rule.3.match` is the fourth rule's `match`.
pub(super) fn shown(path: &str) -> String {
    let parts = path.split('.').filter(|part| part.parse::<usize>().is_err());
    parts.collect::<Vec<_>>().join(".")
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A text of the file in a message. One with an `@` may hold a password and is not shown.
pub(super) fn quoted(text: &str) -> String {
    if text.contains('@') {
        "a text that is not shown here".to_owned()
    } else {
        format!("{text:?}")
    }
}

/// What stands there, without saying more than a log may hold.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
            match text.len() <= 24 && text.chars().all(plain) {
                true => format!("{text:?}"),
                false => "another text".to_owned(),
            }
        }
        DeValue::Integer(number) => format!("the number {}", number.as_str()),
        DeValue::Float(number) => format!("the number {}", number.as_str()),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
