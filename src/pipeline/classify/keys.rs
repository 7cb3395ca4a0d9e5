//! Keys: from the bytes of a request to the one key they mean, or a refusal when that is in doubt.
//!
//! Stores alias keys: `/b//k` is `k` on one, `/b/k/` is `k` on another, `d/../k` is `k` on a third.
//! A write's key must therefore have one spelling and readings that fall under one rule.

use crate::pipeline::refusal::Refusal;
use crate::pipeline::settings::StoreKind;

/// The readings of one key: as decoded, and as a store may fold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings<'a> {
    /// As decoded.
    pub exact: &'a str,
    /// Every other one, each different from the rest; almost always none.
    pub others: Vec<String>,
}

// === impl Readings ===

impl Readings<'_> {
    /// All of them, the exact one first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.exact).chain(self.others.iter().map(String::as_str))
    }
}

/// The possible readings of a decoded key: as it is; runs of `/` folded, leading ones dropped; a trailing
/// `/` dropped; and both. The `/` that ends an S3 bucket (`bucket/`) stays: without it nothing is named.
///
/// REST servers may also take path parameters off each segment (`a;v=1/b` is `a/b`), with all of the above.
pub fn readings(kind: StoreKind, key: &str) -> Readings<'_> {
    let mut others = Vec::new();
    match kind {
        StoreKind::S3 => add_folded(&mut others, key, key, |reading| reading.contains('/')),
        StoreKind::Rest => {
            add_folded(&mut others, key, key, |_| true);
            if key.contains(';') {
                let plain = without_parameters(key);
                add_folded(&mut others, key, &plain, |_| true);
                if !others.contains(&plain) {
                    others.push(plain);
                }
            }
        }
    }
    Readings { exact: key, others }
}

/// Adds what `reading` may be folded to, each once and none that is `exact`.
fn add_folded(others: &mut Vec<String>, exact: &str, reading: &str, names: impl Fn(&str) -> bool) {
    if !(reading.ends_with('/') || reading.starts_with('/') || reading.contains("//")) {
        return;
    }
    let folded = fold(reading);
    for form in [without_trailing(&folded), without_trailing(reading), &folded] {
        if names(form) && form != exact && others.iter().all(|other| other != form) {
            others.push(form.to_owned());
        }
    }
}

/// Decodes the path of a write, without its first `/`: strict, so that no store can read another key.
///
/// # Errors
/// [`Refusal::AmbiguousKey`] for NUL and other control characters, `\`, `.` and `..` segments (also with
/// `;` parameters), `%2F`, broken escapes, escapes of characters that need none, raw bytes outside ASCII
/// and invalid UTF-8.
pub fn written(raw: &str) -> Result<String, Refusal> {
    let refuse =
        |why: &str| Err(Refusal::AmbiguousKey { key: raw.to_owned(), why: why.to_owned() });
    let mut bytes = raw.bytes();
    let mut decoded = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = (bytes.next().and_then(hex), bytes.next().and_then(hex));
                let (Some(high), Some(low)) = digits else {
                    return refuse(
                        "`%` must be followed by two hexadecimal digits; write `%25` for a percent sign",
                    );
                };
                let byte = high << 4 | low;
                match byte {
                    b'/' => return refuse("`%2F` may be read as `/`; write `/`"),
                    b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => {
                        return refuse(
                            "it percent-encodes a character that needs no encoding; write the character itself",
                        );
                    }
                    _ => decoded.push(byte),
                }
            }
            b'#' | b'?' => return refuse("`#` and `?` end a path; percent-encode them"),
            0..=b' ' | 0x7f.. => return refuse("it has a raw byte that must be percent-encoded"),
            _ => decoded.push(byte),
        }
    }
    let Ok(key) = String::from_utf8(decoded) else {
        return refuse("it is not UTF-8 when decoded");
    };
    literal(&key)?;
    Ok(key)
}

/// Checks a key that is already decoded (from a document, a header, or [`written`]).
///
/// # Errors
/// [`Refusal::AmbiguousKey`] for control characters, `\` and dot segments.
pub fn literal(key: &str) -> Result<(), Refusal> {
    match fault(key) {
        None => Ok(()),
        Some(why) => Err(Refusal::AmbiguousKey { key: key.to_owned(), why: why.to_owned() }),
    }
}

/// Decodes the path of a read, without its first `/`: lenient, for matching only. The path goes upstream as
/// it was sent, and reads without a token are nobody's concern.
pub fn read(raw: &str) -> String {
    percent_encoding::percent_decode_str(raw).decode_utf8_lossy().into_owned()
}

/// The source of a copy or rename, decoded: the key named by `b/k`, `/b/k`, either of them percent-encoded
/// in whole or in part, with or without `?versionId=`.
///
/// # Errors
/// [`Refusal::InvalidRequest`] for any other form: an access-point ARN, a leading `//`, no key.
/// [`Refusal::AmbiguousKey`] as [`literal`].
pub fn source(header: &str, raw: &str) -> Result<String, Refusal> {
    let refuse = |why: &str| {
        Err(Refusal::InvalidRequest {
            why: format!("`{header}: {raw}` {why}; send `bucket/key`, percent-encoded"),
        })
    };
    if raw.bytes().any(|byte| !(b' '..0x7f).contains(&byte)) {
        return refuse("has a raw byte that must be percent-encoded");
    }
    let path = match raw.split_once('?') {
        None => raw,
        Some((path, version)) => {
            let id = version.strip_prefix("versionId=").unwrap_or_default();
            if id.is_empty() || id.contains(['&', '?', ';', '#']) {
                return refuse("has something other than `?versionId=` after the key");
            }
            path
        }
    };
    if !escapes_are_whole(path) {
        return refuse("has a `%` without two hexadecimal digits");
    }
    let Ok(decoded) = percent_encoding::percent_decode_str(path).decode_utf8() else {
        return refuse("is not UTF-8 when decoded");
    };
    let key = decoded.strip_prefix('/').unwrap_or(&decoded);
    if key.starts_with('/') || key.is_empty() {
        return refuse("names no bucket");
    }
    if key.starts_with("arn:") {
        return refuse("is an access point");
    }
    literal(key)?;
    Ok(key.to_owned())
}

fn fold(key: &str) -> String {
    let mut folded = String::with_capacity(key.len());
    for c in key.chars() {
        if c != '/' || !(folded.is_empty() || folded.ends_with('/')) {
            folded.push(c);
        }
    }
    folded
}

fn without_parameters(key: &str) -> String {
    let segments: Vec<&str> =
        key.split('/').map(|segment| segment.split(';').next().unwrap_or_default()).collect();
    segments.join("/")
}

fn without_trailing(key: &str) -> &str {
    key.strip_suffix('/').unwrap_or(key)
}

fn fault(key: &str) -> Option<&'static str> {
    if key.chars().any(char::is_control) {
        return Some(
            "it has a control character, which stores cut at, drop or escape; rename the object",
        );
    }
    if key.contains('\\') {
        return Some("it has a backslash, which may be read as `/`");
    }
    // `..;x` is a `..` to servers that take path parameters off before they resolve dots.
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    if key.split('/').any(is_dots) {
        return Some("it has a `.` or `..` segment, which may be resolved");
    }
    None
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Whether every `%` begins a whole escape.
pub(super) fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let mut digits = rest.bytes();
        digits.next().and_then(hex).is_some() && digits.next().and_then(hex).is_some()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_write_has_one_spelling() {
        let good = [
            ("b/k", "b/k"),
            ("b/a%20b", "b/a b"),
            ("b/a+b", "b/a+b"),
            ("b/p%2bp", "b/p+p"),
            ("b/a%252Bb", "b/a%2Bb"),
            ("b/a%25b", "b/a%b"),
            ("b/a&b=c", "b/a&b=c"),
            ("b/(x)!*'~", "b/(x)!*'~"),
            ("b/!*()", "b/!*()"),
            ("b/%E3%81%82", "b/あ"),
            ("public/%252e%252e/wal/x", "public/%2e%2e/wal/x"),
            ("b/a;v=1", "b/a;v=1"),
            ("b/...", "b/..."),
            ("b//k/", "b//k/"),
            ("b/.hidden/..x", "b/.hidden/..x"),
        ];
        for (raw, key) in good {
            assert_eq!(written(raw).unwrap(), key, "{raw}");
        }
        let bad = [
            "public/../wal/x",
            "public/%2e%2e/wal/x",
            "public/.%2e/wal/x",
            "public/..%2fwal/x",
            "public%2f..%2fwal/x",
            "public%2Fx",
            "public/..;/wal/x",
            "public/..;a=b/wal/x",
            "public/..%3B/wal/x",
            "public/.;/wal/x",
            "public\\..\\wal\\x",
            "public/%5c..%5cwal",
            "public/x%00",
            "public/x%0a",
            "public/x%7f",
            "public/x%C2%85",
            "wal/x#f",
            "wal/x?f",
            "%77al/x",
            "b/%6B",
            "b/%7e",
            "b/%",
            "b/%4",
            "b/%zz",
            "b/%+1",
            "b/%ff",
            "b/%C3",
            "b/é",
            "b/a b",
            "b/./k",
            "b/..",
            "../b",
        ];
        for raw in bad {
            assert!(matches!(written(raw), Err(Refusal::AmbiguousKey { .. })), "{raw}");
        }
    }

    #[test]
    fn a_read_matches_what_its_escapes_mean() {
        for (raw, key) in [("b/%61.txt", "b/a.txt"), ("b/p%2bp", "b/p+p"), ("b/p+p", "b/p+p")] {
            assert_eq!(read(raw), key);
        }
        assert_eq!(read("b/%ff%"), "b/\u{fffd}%");
    }

    #[test]
    fn readings_are_every_way_a_store_may_fold_a_key() {
        let s3: [(&str, &[&str]); 9] = [
            ("b/k", &[]),
            ("b/", &[]),
            ("b//k", &["b/k"]),
            ("b/d//k", &["b/d/k"]),
            ("b/k/", &["b/k"]),
            ("b//k/", &["b/k", "b//k", "b/k/"]),
            ("b/k//", &["b/k", "b/k/"]),
            ("b///k", &["b/k"]),
            ("b//", &["b/"]),
        ];
        for (key, want) in s3 {
            let readings = readings(StoreKind::S3, key);
            assert_eq!(readings.others, want, "{key}");
            assert_eq!(readings.iter().next(), Some(key));
        }
        let rest: [(&str, &[&str]); 6] = [
            ("", &[]),
            ("/wal/x", &["wal/x"]),
            ("a/", &["a"]),
            ("a//b", &["a/b"]),
            ("wal;v=1/x", &["wal/x"]),
            ("a//;b", &["a/;b", "a", "a/", "a//"]),
        ];
        for (key, want) in rest {
            assert_eq!(readings(StoreKind::Rest, key).others, want, "{key}");
        }
    }

    #[test]
    fn a_copy_source_is_normalised_or_refused() {
        let good = [
            "b/k",
            "/b/k",
            "b%2Fk",
            "%2Fb%2Fk",
            "b/%6b",
            "b/k?versionId=3sL4kqtJ",
            "/b/k?versionId=null",
        ];
        for raw in good {
            assert_eq!(source("x-amz-copy-source", raw).unwrap(), "b/k", "{raw}");
        }
        assert_eq!(source("h", "b/a%3Fversion").unwrap(), "b/a?version");
        let bad = [
            "",
            "/",
            "//b/k",
            "/%2Fb/k",
            "b/../k",
            "b/%2e%2e/k",
            "b\\k",
            "b/k%00",
            "b/é",
            "b/%ff",
            "b/%f",
            "b/k?versionId=",
            "b/k?x=1",
            "b/k?versionId=1&x=2",
            "b/k?versionId=1;x",
            "arn:aws:s3:us-east-1:1:accesspoint/a/object/k",
        ];
        for raw in bad {
            assert!(source("x-amz-copy-source", raw).is_err(), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics_and_a_written_key_reads_the_same_to_lenient_decoders(raw in ".{0,40}") {
            if let Ok(key) = written(&raw) {
                prop_assert_eq!(&read(&raw), &key);
                prop_assert!(literal(&key).is_ok());
            }
            let _ = source("h", &raw);
            for kind in [StoreKind::S3, StoreKind::Rest] {
                for reading in readings(kind, &raw).others {
                    prop_assert_ne!(&reading, &raw);
                }
            }
        }

        #[test]
        fn every_plain_key_round_trips(key in "[a-z]{1,5}(/[ -.0-\\[\\]-~ぁ-ん]{3,9}){1,3}") {
            prop_assume!(fault(&key).is_none());
            const KEEP: &percent_encoding::AsciiSet =
                &percent_encoding::NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
            let raw = percent_encoding::utf8_percent_encode(&key, KEEP).to_string();
            prop_assert_eq!(written(&raw).unwrap(), key);
        }
    }
}
