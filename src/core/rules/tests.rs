use super::*;
use proptest::prelude::*;

fn rule(patterns: &[&str], resource: Option<&str>) -> Rule {
    rule_for(patterns, resource, None)
}

fn rule_for(patterns: &[&str], resource: Option<&str>, methods: Option<&[&str]>) -> Rule {
    let patterns = patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect();
    let template = resource.map(|text| Template::parse(text).unwrap());
    let methods = methods.map(|all| all.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>());
    Rule::new(patterns, template.as_ref(), methods.as_deref()).unwrap()
}

fn found(table: &RuleTable, method: &str, key: &str) -> Option<(usize, Option<String>)> {
    let found = table.lookup(method, key).unwrap()?;
    Some((found.rule, found.resource.map(|resource| resource.to_string())))
}

fn cover(table: &RuleTable, prefix: &str) -> Option<(usize, Option<String>)> {
    let found = table.prefix_cover(prefix)?;
    Some((found.rule, found.resource.map(|resource| resource.to_string())))
}

/// The table as its definition has it: one rule after the other, one pattern after the other.
fn naive(rules: &[Rule], method: &str, key: &str) -> Option<Result<Match, NameError>> {
    let key = Key::new(key);
    let rule = rules.iter().position(|rule| {
        rule.takes_method(method) && rule.patterns.iter().any(|p| p.fit(&key).is_some())
    })?;
    let pattern = rules[rule].patterns.iter().position(|p| p.fit(&key).is_some())?;
    Some(rules[rule].resource(pattern, &key).map(|resource| Match { rule, resource }))
}

#[test]
fn the_first_rule_that_matches_decides() {
    let table = RuleTable::new(vec![
        rule(&["wal/public/**"], None),
        rule_for(&["state/{env}"], Some("post/{env}"), Some(&["POST"])),
        rule(&["wal/{cluster}/**", "old/{cluster}"], Some("wal/{cluster}")),
        rule(&["state/**"], Some("state")),
        rule(&["lake/{table**}/_log/**"], Some("lake/{table}")),
    ]);
    let of = |rule, name: &str| Some((rule, Some(name.to_owned())));
    assert_eq!(found(&table, "PUT", "wal/public/x"), Some((0, None)));
    assert_eq!(found(&table, "PUT", "wal/main/0A"), of(2, "wal/main"));
    assert_eq!(found(&table, "PUT", "old/main"), of(2, "wal/main"));
    assert_eq!(found(&table, "POST", "state/prod"), of(1, "post/prod"));
    assert_eq!(found(&table, "PUT", "state/prod"), of(3, "state"));
    assert_eq!(found(&table, "PUT", "lake/a/b/_log/0"), of(4, "lake/a/b"));
    assert_eq!(found(&table, "PUT", "wal/main"), None);
}

#[test]
fn a_key_that_makes_no_resource_is_an_error_and_not_a_miss() {
    let table = RuleTable::new(vec![rule(&["b/{rest**}"], Some("{rest}")), rule(&["**"], None)]);
    let long = format!("b/{}", "x".repeat(1_025));
    let fault = NameError::TooLong { bytes: 1_025, limit: 1_024 };
    assert_eq!(table.lookup("PUT", &long), Err(BadResource { rule: 0, fault }));
    let fault = NameError::Control { at: 0 };
    assert_eq!(table.lookup("PUT", "b/\u{85}"), Err(BadResource { rule: 0, fault }));
}

#[test]
fn parts_that_make_no_rule_are_refused() {
    let parsed = |text: &str| Pattern::parse(text).unwrap();
    let template = Template::parse("wal/{cluster}").unwrap();
    let patterns = vec![parsed("a/{cluster}/**"), parsed("b/{other}/**")];
    let want =
        RuleFault::NotCaptured { name: "cluster".into(), at: 4, pattern: "b/{other}/**".into() };
    assert_eq!(Rule::new(patterns, Some(&template), None), Err(want));
    let empty = Template::parse("").unwrap();
    let want = RuleFault::BadName(NameError::Empty);
    assert_eq!(Rule::new(vec![parsed("a")], Some(&empty), None), Err(want));
    assert_eq!(Rule::new(vec![], None, None), Err(RuleFault::NoPattern));
    assert_eq!(Rule::new(vec![parsed("a")], None, Some(&[])), Err(RuleFault::NoMethod));
}

#[test]
fn a_prefix_is_covered_only_if_all_below_it_has_one_rule_and_one_resource() {
    let table = RuleTable::new(vec![
        rule(&["wal/"], Some("admin")),
        rule(&["wal/{cluster}/base/**"], None),
        rule(&["wal/{cluster}/**"], Some("wal/{cluster}")),
        rule(&["two/a/**", "two/**"], Some("two")),
        rule_for(&["post/**"], Some("post"), Some(&["POST"])),
        rule(&["lake/{table**}/_log/**"], Some("lake/{table}")),
        rule(&["each/{rest**}"], Some("each/{rest}")),
        rule(&["dir/x/**"], Some("dir/x")),
        rule(&["dir/**"], Some("dir")),
        rule(&["file/*.json"], Some("json")),
    ]);
    let of = |rule, name: &str| Some((rule, Some(name.to_owned())));
    let cases = [
        ("wal/", None),
        ("wal/main/", None),
        ("wal/main/b", None),
        ("wal/main/base", None),
        ("wal/main/base/", None),
        ("wal/main/base/x", Some((1, None))),
        ("wal/main/w", of(2, "wal/main")),
        ("wal/main/wal/", of(2, "wal/main")),
        ("two/", of(3, "two")),
        ("two", None),
        ("two/a", of(3, "two")),
        ("two/a/x", of(3, "two")),
        ("post/x", None),
        ("lake/a/_log/", of(5, "lake/a")),
        ("lake/a/_log/x", of(5, "lake/a")),
        ("lake/a/_lo", None),
        ("lake/a/", None),
        ("each/x/", None),
        ("dir/", None),
        ("dir/y", of(8, "dir")),
        ("dir/x", None),
        ("dir/x/", None),
        ("dir/x/y", of(7, "dir/x")),
        ("file/a", None),
        ("nothing/", None),
        ("", None),
    ];
    for (prefix, want) in cases {
        assert_eq!(cover(&table, prefix), want, "{prefix:?}");
    }
    let all = RuleTable::new(vec![rule(&["**"], Some("all"))]);
    assert_eq!(cover(&all, ""), of(0, "all"));
    assert_eq!(cover(&all, "b/"), of(0, "all"));
    let bucket = RuleTable::new(vec![rule(&["b/"], Some("admin")), rule(&["b/**"], Some("b"))]);
    assert_eq!(cover(&bucket, "b/"), of(1, "b"), "the bucket itself is in no list");
}

#[test]
fn rules_without_effect_are_found_and_no_others() {
    let table = RuleTable::new(vec![
        rule(&["a/**"], Some("a")),
        rule(&["a/x/{y}"], Some("{y}")),
        rule(&["a/"], Some("bucket")),
        rule(&["b/{x}/c", "b/lit/*"], Some("b")),
        rule(&["b/*/c"], None),
        rule(&["b/q/c", "b/q/d"], None),
        rule(&["b/q/d"], None),
        rule_for(&["m/**"], None, Some(&["PUT"])),
        rule_for(&["m/x"], None, Some(&["PUT"])),
        rule_for(&["m/x"], None, Some(&["PUT", "POST"])),
        rule(&["n/{t**}/_log/**"], Some("{t}")),
        rule(&["n/{u**}/_log/**"], Some("{u}")),
        rule(&["n/a/_log/**"], None),
        rule(&["s/*"], None),
        rule(&["s/x-*"], None),
    ]);
    let got: Vec<_> = table.shadowed().iter().map(|shadow| (shadow.rule, shadow.by)).collect();
    assert_eq!(got, [(1, 0), (4, 3), (6, 5), (8, 7), (11, 10)]);
}

// --- the index against its definition

fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "ab", "", "*", "{x}", "a*", "*b", "a*b", "{y}b"])
}

fn pattern() -> impl Strategy<Value = Option<Pattern>> {
    let many = prop::sample::select(vec!["", "", "**", "{m**}"]);
    let part = || prop::collection::vec(segment(), 0..3);
    (part(), many.clone(), part(), many, part()).prop_map(|(a, m, b, n, c)| {
        let many = |text: &'static str| (!text.is_empty()).then_some(text);
        let all = a.into_iter().chain(many(m)).chain(b).chain(many(n)).chain(c);
        Pattern::parse(&all.collect::<Vec<_>>().join("/")).ok()
    })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let methods = prop::sample::select(vec![None, None, Some("PUT"), Some("POST")]);
    let resource = prop::sample::select(vec![None, Some("r"), Some("{x}"), Some("{m}-{x}")]);
    let one = (prop::collection::vec(pattern(), 1..3), resource, methods);
    let one = one.prop_map(|(patterns, resource, methods)| {
        let patterns: Vec<_> = patterns.into_iter().flatten().collect();
        let methods = methods.map(|method| vec![method.to_owned()]);
        let template = resource.map(|text| Template::parse(text).unwrap());
        Rule::new(patterns.clone(), template.as_ref(), methods.as_deref())
            .or_else(|_| Rule::new(patterns, None, methods.as_deref()))
            .ok()
    });
    prop::collection::vec(one, 0..12).prop_map(|all| all.into_iter().flatten().collect())
}

fn key() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "ab", "", "aab", "c", "bb"]);
    prop::collection::vec(segment, 1..7).prop_map(|all| all.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_index_finds_what_asking_one_rule_after_the_other_finds(
        rules in rules(),
        keys in prop::collection::vec(key(), 1..20),
    ) {
        let table = RuleTable::new(rules.clone());
        for key in keys {
            for method in ["PUT", "POST", "DELETE"] {
                let want = naive(&rules, method, &key).transpose();
                let got = table.lookup(method, &key).map_err(|bad| bad.fault);
                prop_assert_eq!(got, want, "{} {:?}", method, key);
            }
        }
    }

    #[test]
    fn a_covered_prefix_has_no_key_below_it_elsewhere(
        rules in rules(),
        prefix in key(),
        more in prop::collection::vec(key(), 1..20),
    ) {
        let table = RuleTable::new(rules.clone());
        if let Some(cover) = table.prefix_cover(&prefix) {
            for more in more.iter().map(String::as_str).chain(["/", "//", "x"]) {
                let key = format!("{prefix}{more}");
                if key.len() > prefix.len() {
                    prop_assert_eq!(naive(&rules, "PUT", &key), Some(Ok(cover.clone())), "{:?}", key);
                }
            }
        }
    }

    #[test]
    fn a_rule_called_shadowed_matches_nothing(
        rules in rules(),
        keys in prop::collection::vec(key(), 1..40),
    ) {
        let table = RuleTable::new(rules.clone());
        for shadow in table.shadowed() {
            for key in &keys {
                for method in ["PUT", "POST", "DELETE"] {
                    let found = naive(&rules, method, key).and_then(Result::ok);
                    prop_assert!(found.is_none_or(|found| found.rule != shadow.rule), "{:?}", key);
                }
            }
        }
    }
}
