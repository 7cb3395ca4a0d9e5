use super::*;

fn captures(pattern: &str, key: &str) -> Option<Vec<(String, String)>> {
    let pattern = Pattern::parse(pattern).unwrap();
    let key = Key::new(key);
    let fit = pattern.fit(&key)?;
    let named = pattern.segments().iter().enumerate().filter_map(|(index, segment)| {
        Some((segment.name()?.to_owned(), pattern.captured(index, fit, &key).to_owned()))
    });
    Some(named.collect())
}

#[test]
fn a_pattern_matches_exactly_its_keys_and_captures_what_it_names() {
    type Case = (&'static str, &'static str, Option<&'static [(&'static str, &'static str)]>);
    let long = "x".repeat(255);
    let cases: &[Case] = &[
        ("wal/main", "wal/main", Some(&[])),
        ("wal/main", "wal/Main", None),
        ("wal/main", "wal/main/", None),
        ("wal/main", "wal/main/x", None),
        ("wal/*", "wal/x", Some(&[])),
        ("wal/*", "wal/", None),
        ("wal/*", "wal/x/y", None),
        ("wal/{seg}", "wal/0A", Some(&[("seg", "0A")])),
        ("tf/state-{env}.json", "tf/state-prod.json", Some(&[("env", "prod")])),
        ("tf/state-{env}.json", "tf/state-.json", None),
        ("tf/state-{env}.json", "tf/state-p.jso", None),
        ("tf/aa{x}aa", "tf/aaaa", None),
        ("tf/aa{x}aa", "tf/aaa", None),
        ("tf/aa{x}aa", "tf/aaéaa", Some(&[("x", "é")])),
        ("b/**", "b", None),
        ("b/**", "b/", None),
        ("b/**", "b/x", Some(&[])),
        ("b/**", "b/dir/", Some(&[])),
        ("b/**", "b//", Some(&[])),
        ("b/**", "b//x", Some(&[])),
        ("b/**", "bb/x", None),
        ("b/", "b/", Some(&[])),
        ("b/", "b", None),
        ("b/", "b//", None),
        ("{bucket}/", "b/", Some(&[("bucket", "b")])),
        ("{bucket}/", "/", None),
        ("**", "x", Some(&[])),
        ("**", "b/", Some(&[])),
        ("**", "", None),
        ("**/last", "last", None),
        ("**/last", "a/b/last", Some(&[])),
        ("**/last", "/last", None),
        ("a/**/z", "a//z", None),
        ("a/**/z", "a/b//z", Some(&[])),
        ("a/**/", "a/b/", Some(&[])),
        ("a/{rest**}", "a/b/c", Some(&[("rest", "b/c")])),
        ("a/{rest**}", "a/b/", Some(&[("rest", "b/")])),
        ("lake/{t**}/_log/{v}.json", "lake/a/b/_log/7.json", Some(&[("t", "a/b"), ("v", "7")])),
        ("lake/{t**}/_log/**", "lake/a/b/_log/7", Some(&[("t", "a/b")])),
        ("lake/{t**}/_log/**", "lake/a/_log/b/_log/c", Some(&[("t", "a")])),
        ("lake/{t**}/_log/**", "lake/a/_log/", None),
        ("lake/{t**}/_log/**", "lake//_log/x", None),
        ("lake/{t**}/_log/**", "lake//_log/_log/x", Some(&[("t", "/_log")])),
        ("**/_log/{rest**}", "a/_log/_log/c", Some(&[("rest", "_log/c")])),
        ("**/{x}/_log/{rest**}/z", "a/b/_log/c/z", Some(&[("x", "b"), ("rest", "c")])),
    ];
    for (pattern, key, want) in cases {
        let want = want.map(|pairs| {
            pairs.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect::<Vec<_>>()
        });
        assert_eq!(captures(pattern, key), want, "{pattern} on {key:?}");
    }
    assert!(captures("a/*", &format!("a/{long}")).is_some());
    assert!(captures("a/*", &format!("a/{long}x")).is_none(), "256 bytes are too many for `*`");
    assert!(captures("a/**", &format!("a/{long}x")).is_some());
}

#[test]
fn what_is_no_pattern_is_refused_at_its_byte() {
    use PatternFault::*;
    let cases: &[(&str, usize, PatternFault)] = &[
        ("", 0, Empty),
        ("/b/x", 0, LeadingSlash),
        ("b/a\nb", 3, Control),
        ("b/../x", 2, Dots("..".into())),
        ("b/.", 2, Dots(".".into())),
        ("b/{x", 2, Unclosed),
        ("b/x}", 3, Unopened),
        ("b/{x}}", 5, Unopened),
        ("b/{}", 3, BadName("".into())),
        ("b/{1x}", 3, BadName("1x".into())),
        ("b/{a-b}", 3, BadName("a-b".into())),
        ("b/{a*}", 3, BadName("a*".into())),
        ("b/{**}", 3, BadName("".into())),
        ("b/{a}/{a}", 6, Repeated("a".into())),
        ("b/{a}{c}", 5, SecondInSegment),
        ("b/*x*", 4, SecondInSegment),
        ("b/x**", 3, ManyInSegment),
        ("b/***", 2, ManyInSegment),
        ("b/x{a**}", 3, ManyInSegment),
        ("b/**/x/**", 7, SecondMany),
        ("b/{a**}/x/{c**}", 10, SecondMany),
        ("b/{a**}/**", 8, SecondMany),
    ];
    for (text, at, fault) in cases {
        let want = PatternError { at: *at, fault: fault.clone() };
        assert_eq!(Pattern::parse(text), Err(want), "{text:?}");
    }
    let long = "x".repeat(MAX_BYTES + 1);
    assert_eq!(Pattern::parse(&long).unwrap_err().fault, TooLong { bytes: MAX_BYTES + 1 });
}

/// What a pattern matches, as the reference says it, with nothing clever.
fn spec(pattern: &[&str], key: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return key.is_empty() };
    if first.ends_with("**") || first.ends_with("**}") {
        return (1..=key.len()).any(|n| key[..n] != [""] && spec(rest, &key[n..]));
    }
    let Some((segment, others)) = key.split_first() else { return false };
    let fits = match first.split_once(['*', '{']) {
        None => first == segment,
        Some((before, after)) => {
            let after = after.split_once('}').map_or(after, |(_, after)| after);
            (1..=segment.len()).any(|n| {
                before.len() + n + after.len() == segment.len()
                    && segment.starts_with(before)
                    && segment.ends_with(after)
            })
        }
    };
    fits && spec(rest, others)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_pattern_matches_what_the_reference_says(
        pattern in proptest::collection::vec(
            proptest::sample::select(vec!["a", "b", "", "*", "{x}", "a*b", "{y}b", "**", "{m**}"]), 1..6),
        key in proptest::collection::vec(
            proptest::sample::select(vec!["a", "b", "", "ab", "aab", "c"]), 1..8),
    ) {
        if let Ok(parsed) = Pattern::parse(&pattern.join("/")) {
            let text = key.join("/");
            let fit = parsed.fit(&Key::new(&text));
            proptest::prop_assert_eq!(fit.is_some(), spec(&pattern, &key), "{:?} {:?}", parsed.as_str(), text);
            if let Some(fit) = fit {
                // What is captured, put in the place of its name, makes the key again.
                let key = Key::new(&text);
                let filled = parsed.segments().iter().enumerate().map(|(index, segment)| match segment {
                    Segment::Literal(text) => text.to_string(),
                    Segment::One { prefix, suffix, .. } => {
                        format!("{prefix}{}{suffix}", parsed.captured(index, fit, &key))
                    }
                    Segment::Many { .. } => parsed.captured(index, fit, &key).to_owned(),
                });
                proptest::prop_assert_eq!(filled.collect::<Vec<_>>().join("/"), text.clone());
            }
        }
    }
}
