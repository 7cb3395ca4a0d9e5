//! The rules of the source itself: who may use whom, how long a file may be, which words stay out.

use std::fs;
use std::path::{Path, PathBuf};

/// Each top module's layer. One uses itself and lower layers; [`OPEN`] ones also serve their own layer.
const LAYERS: &[(&str, u8)] = &[
    ("core", 0),
    ("telemetry", 1),
    ("store", 1),
    ("ledger", 1),
    ("lease", 1),
    ("pipeline", 2),
    ("serve", 3),
    ("config", 4),
    ("cli", 5),
];

const OPEN: &[&str] = &["telemetry", "store"];

const LONGEST: usize = 500;

/// Where, what, and what to do instead.
const WORDS: &[(Place, &str, &str)] = &[
    (Place::Anywhere, concat!("/wo", "rk/"), "name no place on one machine"),
    (Place::Anywhere, concat!("TO", "DO"), "do it, or say what is not promised"),
    (Place::Anywhere, concat!("FIX", "ME"), "fix it"),
    (Place::Anywhere, concat!("todo", "!("), "write it"),
    (Place::Anywhere, concat!("unimplemented", "!("), "write it"),
    (Place::Anywhere, concat!("dbg", "!("), "log through tracing"),
    (Place::Tests, concat!("#[ign", "ore"), "a test that does not run shows nothing"),
    (Place::Tests, concat!("thread::sl", "eep"), "wait for a fact with support::wait"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Anywhere,
    Tests,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(under: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![root().join(under)];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// The top modules that `text` names through `crate::`, with their line numbers.
fn uses(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        let before = text[..at].chars().next_back();
        let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let comment = text[start..at].trim_start().starts_with("//");
        if comment || before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$')) {
            continue;
        }
        let after = &text[at + "crate::".len()..];
        match after.strip_prefix('{') {
            Some(group) => {
                let group = &group[..group.find(';').unwrap_or(group.len())];
                found.extend(first_words(group).into_iter().map(|word| (line, word)));
            }
            None => found.push((line, word(after))),
        }
    }
    found
}

/// The first word of each item of a `{a::b, c::{d, e}}` group, whose `{` is taken off already.
fn first_words(group: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut depth = 0;
    let mut at_start = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            c if c.is_whitespace() => {}
            _ => {
                if at_start {
                    words.push(word(&group[at..]));
                }
                at_start = false;
            }
        }
    }
    words
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

/// What is wrong with `user` using `used`; nothing if both may.
fn fault(user: &str, used: &str) -> Option<String> {
    if user == used {
        return None;
    }
    let (Some(own), Some(other)) = (layer(user), layer(used)) else {
        return Some(format!("{used} has no layer; add it to LAYERS"));
    };
    if other > own {
        return Some(format!("{user} (L{own}) uses {used} above it (L{other})"));
    }
    if other == own && !OPEN.contains(&used) {
        return Some(format!("{user} uses {used} beside it (L{own})"));
    }
    None
}

#[test]
fn each_module_uses_its_own_layer_and_those_below() {
    let mut faults = Vec::new();
    for (path, text) in sources("src") {
        let top = path.iter().nth(1).unwrap().to_string_lossy().into_owned();
        let module = top.strip_suffix(".rs").unwrap_or(&top).to_owned();
        if matches!(module.as_str(), "lib" | "main") {
            continue;
        }
        for (line, used) in uses(&text) {
            if let Some(fault) = fault(&module, &used) {
                faults.push(format!("{}:{line}: {fault}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_layer_scan_sees_every_way_to_name_a_module() {
    let text = "use crate::core::Token;\nuse crate::{\n    lease::{any, Grant},\n    store,\n};\n\
                fn f() { crate::serve::g() }\n// crate::cli\nuse other_crate::cli;\n";
    let found = uses(text);
    let want = [(1, "core"), (2, "lease"), (2, "store"), (6, "serve")];
    assert_eq!(found, want.map(|(line, word)| (line, word.to_owned())));
    let cases = [
        ("pipeline", "core", true),
        ("ledger", "store", true),
        ("ledger", "lease", false),
        ("core", "telemetry", false),
        ("serve", "cli", false),
        ("cli", "serve", true),
        ("cli", "unheard_of", false),
    ];
    for (user, used, may) in cases {
        assert_eq!(fault(user, used).is_none(), may, "{user} -> {used}");
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let mut long = Vec::new();
    for (path, text) in ["src", "tests", "benches"].iter().flat_map(|dir| sources(dir)) {
        let lines = text.lines().count();
        if lines > LONGEST {
            long.push(format!(
                "{}: {lines} lines, cap {LONGEST}; split it by noun",
                path.display()
            ));
        }
    }
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

#[test]
fn no_source_holds_a_word_that_does_not_belong() {
    let mut found = Vec::new();
    for (path, text) in ["src", "tests", "benches"].iter().flat_map(|dir| sources(dir)) {
        for (number, line) in text.lines().enumerate() {
            for (place, word, advice) in WORDS {
                let applies = *place == Place::Anywhere || path.starts_with("tests");
                if applies && line.contains(word) {
                    found.push(format!("{}:{}: {word}: {advice}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
