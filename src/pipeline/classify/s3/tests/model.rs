//! The table against the service model, its page in the documentation, and mutations of every row.

use proptest::prelude::*;

use super::super::ops::{Body, Class, KeyRule, PathKind, Row, TABLE, Verb};
use super::*;

const MODEL: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/s3-operations.tsv"));

/// The model's rows: its columns, of the given source.
fn model(source: &str) -> Vec<Vec<&'static str>> {
    let lines = MODEL.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| line.split('\t').collect())
        .filter(|row: &Vec<&str>| row[0] == source)
        .collect()
}

/// A row of ours in the words of the model: op to keys, body, other_query, alias.
fn in_model_words(row: &Row) -> [String; 10] {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let class = match row.class {
        Class::Read => "read",
        Class::Write => "write",
        Class::ConfigWrite => "config-write",
        Class::MultiKeyWrite => "multi-key-write",
        Class::MultipartOpen => "multipart-open",
        Class::MultipartPart => "multipart-part",
        Class::MultipartCommit => "multipart-commit",
        Class::MultipartAbort => "multipart-abort",
        Class::Session => "session",
    };
    let keys = match row.keys {
        KeyRule::PathKey => "path key",
        KeyRule::CopySource => "path key + copy source (read)",
        KeyRule::RenameSource => "path key + rename source (removed)",
        KeyRule::Bucket => "bucket",
        KeyRule::BodyKeys => "body XML keys",
        KeyRule::Nothing => "-",
    };
    let body = match row.body {
        Body::None => "none",
        Body::Xml => "xml",
        Body::Json => "json",
        Body::Stream => "stream",
    };
    let path = match row.path {
        PathKind::Service => "service",
        PathKind::Bucket => "bucket",
        PathKind::Object => "object",
    };
    [
        row.name.to_owned(),
        method(row.verb).to_owned(),
        path.to_owned(),
        or_dash(row.query),
        or_dash(row.header),
        class.to_owned(),
        keys.to_owned(),
        body.to_owned(),
        or_dash(row.other_query),
        row.alias.unwrap_or_default().to_owned(),
    ]
}

#[test]
fn the_table_is_the_service_model_row_for_row() {
    let rows = model("model");
    assert_eq!((rows.len(), TABLE.len()), (111, 111));
    for (row, model) in TABLE.iter().zip(rows) {
        // One row's remark on its body stands in this column; `document_keys` reads that body.
        let keys = model[7].split(" (+ body").next().unwrap();
        let alias = model[11].split("Alias on the same wire shape: ").nth(1);
        let alias = alias.map_or("", |rest| rest.split('.').next().unwrap());
        let want = [
            model[1], model[2], model[3], model[4], model[5], model[6], keys, model[8], model[10],
            alias,
        ];
        assert_eq!(in_model_words(row), want.map(str::to_owned));
    }
}

/// One line of the page: name, request, effect, keys that decide.
fn line(row: &Row) -> String {
    let query = if row.query.is_empty() { String::new() } else { format!("?{}", row.query) };
    let field = if row.header.is_empty() { String::new() } else { format!(" + {}", row.header) };
    let effect = match (row.class, row.body) {
        (Class::Read, _) => "read",
        (Class::Session, _) => "refused",
        (_, Body::Stream) => "write, streamed",
        (_, Body::None | Body::Xml | Body::Json) => "write, withheld whole",
    };
    let keys = match (row.class, row.keys) {
        (Class::Session, _) | (_, KeyRule::Nothing) => "none",
        (_, KeyRule::Bucket) if row.lists_keys() => "`b/` and the prefix",
        (_, KeyRule::Bucket) => "`b/`",
        (_, KeyRule::PathKey) => "`b/k`",
        (_, KeyRule::CopySource) => "`b/k`; the source is only read",
        (_, KeyRule::RenameSource) => "`b/k` and the source",
        (_, KeyRule::BodyKeys) => "every key in the body",
    };
    let target = format!("{} {}{query}{field}", method(row.verb), path(row.path));
    format!("| {} | `{target}` | {effect} | {keys} |", row.name)
}

#[test]
fn the_page_of_operations_is_the_table() {
    let page =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/s3-operations.md"));
    let rows = page.lines().skip_while(|line| !line.starts_with("| --- |")).skip(1);
    let written: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    let table: Vec<String> = TABLE.iter().map(line).collect();
    assert_eq!(written, table, "write the table's lines into the page:\n{}", table.join("\n"));
}

#[test]
fn every_row_is_classified_as_itself() {
    for row in TABLE {
        let own = params(row);
        let others = row.other_query.split(',').filter(|name| !name.is_empty());
        let all: Vec<String> =
            own.iter().cloned().chain(others.map(|name| format!("{name}=1"))).collect();
        let signed = |params: &[String]| {
            let more = [
                "x-id=".to_owned() + row.name,
                "X-Amz-Signature=0".into(),
                "x-amz-meta-a=b".into(),
            ];
            [params, &more].concat()
        };
        for params in [own.clone(), all.clone(), signed(&own), signed(&all)] {
            let operation = send(row, &params);
            if row.class == Class::Session {
                assert!(matches!(operation, Err(Refusal::UnknownOperation { .. })), "{}", row.name);
                continue;
            }
            let operation = operation.unwrap_or_else(|refusal| panic!("{}: {refusal:?}", row.name));
            assert_eq!(operation.name, row.name, "{params:?}");
            assert_eq!(operation.effect == Effect::Read, row.class == Class::Read, "{}", row.name);
        }
    }
}

#[test]
fn vendor_shapes_are_refused_but_the_preflight() {
    for row in model("extra") {
        let fields: Vec<(&str, &str)> = match row[5] {
            "-" => vec![],
            fields => fields
                .split([' ', '|', '+'])
                .filter(|word| {
                    word.starts_with(['x', 'c', 'o', 'a']) && word.contains(['-', ':'])
                        || *word == "origin"
                })
                .map(|word| match word.trim_end_matches(':') {
                    "content-type" => ("content-type", "multipart/form-data; boundary=x"),
                    name => (name, "true"),
                })
                .collect(),
        };
        let query = if row[4] == "-" { "" } else { row[4] };
        let path = if row[3] == "bucket" { "/b" } else { "/b/k" };
        for field in fields.iter().map(|field| vec![*field]).chain([fields.clone()]) {
            let result = run(row[2], &format!("{path}?{query}"), &field);
            let want = if row[2] == "OPTIONS" { "CorsPreflight" } else { "refused" };
            // Without its field a row with fields only is another operation.
            if !(field.is_empty() && query.is_empty()) {
                assert_eq!(name(&result), want, "{} {field:?}", row[1]);
            }
        }
    }
}

/// The rows that a mutation must not turn into a read; the one read that is a POST among them.
fn writes() -> Vec<&'static Row> {
    TABLE.iter().filter(|row| !matches!(row.verb, Verb::Get | Verb::Head)).collect()
}

/// Everything that any row tells operations apart by, and some that none does.
fn all_params() -> Vec<String> {
    let mut names: Vec<String> = TABLE.iter().flat_map(params).collect();
    names.extend(TABLE.iter().flat_map(|row| row.other_query.split(',').map(str::to_owned)));
    names.extend(
        [
            "",
            "foo",
            "x-id=GetObject",
            "x-amz-copy-source=b/k",
            "select",
            "select-type=2",
            "X-Amz-Signature=0",
            "%",
        ]
        .map(str::to_owned),
    );
    names.sort();
    names.dedup();
    names
}

#[test]
fn no_single_mutation_of_a_query_is_taken_for_another_operation() {
    // Adding this one makes these a different, complete operation.
    let completes = |row: &Row, param: &str, name: &str| {
        row.query.is_empty()
            && TABLE.iter().any(|other| other.name == name && params(other) == [param])
    };
    for row in writes() {
        let own = params(row);
        for param in all_params() {
            let mut query = own.clone();
            query.insert(0, param.clone());
            let result = send(row, &query);
            let name = name(&result);
            let fine = name == "refused" || name == row.name || completes(row, &param, name);
            assert!(fine, "{} + {param:?} is {name}", row.name);
        }
        for index in 0..own.len() {
            let mut without = own.clone();
            without.remove(index);
            let fallback = send(row, &without);
            let is_catch_all =
                without.is_empty() && fallback.as_ref().is_ok_and(|op| op.effect == Effect::Write);
            assert!(fallback.is_err() || is_catch_all, "{} without {}", row.name, own[index]);
            let mut doubled = own.clone();
            doubled.push(own[index].clone());
            assert!(send(row, &doubled).is_err(), "{} with {} twice", row.name, own[index]);
            let mut recased = own.clone();
            recased[index] = own[index].to_ascii_uppercase();
            assert!(send(row, &recased).is_err(), "{} with {}", row.name, recased[index]);
        }
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Add(String),
    Remove(usize),
    Double(usize),
    Upper(usize),
    Encode(usize),
}

fn any_mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        proptest::sample::select(all_params()).prop_map(Mutation::Add),
        (0usize..4).prop_map(Mutation::Remove),
        (0usize..4).prop_map(Mutation::Double),
        (0usize..4).prop_map(Mutation::Upper),
        (0usize..4).prop_map(Mutation::Encode),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_096, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_of_the_query_makes_a_write_a_read(
        row in proptest::sample::select(writes()),
        mutations in proptest::collection::vec(any_mutation(), 1..4),
        with_field in any::<bool>(),
    ) {
        let mut query = params(row);
        for mutation in mutations {
            let at = |index: usize| index % query.len().max(1);
            match mutation {
                Mutation::Add(param) => query.push(param),
                _ if query.is_empty() => {}
                Mutation::Remove(index) => drop(query.remove(at(index))),
                Mutation::Double(index) => query.push(query[at(index)].clone()),
                Mutation::Upper(index) => {
                    let index = at(index);
                    query[index] = query[index].to_ascii_uppercase();
                }
                Mutation::Encode(index) => {
                    let index = at(index);
                    let first = query[index].bytes().next();
                    if let Some(first) = first.filter(u8::is_ascii_alphanumeric) {
                        query[index] = format!("%{first:02x}{}", &query[index][1..]);
                    }
                }
            }
        }
        let fields = if with_field { vec![("x-amz-copy-source", "src/s")] } else { fields(row) };
        let target = format!("{}?{}", path(row.path), query.join("&"));
        if let Ok(operation) = run(method(row.verb), &target, &fields) {
            let select = operation.name == "SelectObjectContent";
            prop_assert!(operation.effect == Effect::Write || select, "{target}");
            if select {
                let mut decoded: Vec<String> =
                    query.iter().map(|param| keys::read(param)).filter(|param| param != "X-Amz-Signature=0").collect();
                decoded.sort();
                let is_type = decoded.len() == 2 && decoded[1] == "select-type=2";
                prop_assert!(is_type && decoded[0].split('=').next() == Some("select"), "{target}");
            }
        }
    }
}
