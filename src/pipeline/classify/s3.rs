//! What an S3 request does and which keys it touches.
//!
//! A write must be exactly one row of [`ops::TABLE`]: every query name on it is a discriminator of that row,
//! legal on it, or legal everywhere. Real stores disagree on what a request with leftovers means: they store
//! the body for `PUT ?foo`, or open an upload, or complete another one. `GET` and `HEAD` change nothing on
//! any store, so there an unknown name only widens what the read is taken to touch.

pub mod ops;
mod query;
mod shape;

#[cfg(test)]
mod tests;

use http::Method;

use super::fields::check_override;
use super::{AnswerKind, BodyKind, Effect, Head, Keys, Operation, keys};
use crate::pipeline::refusal::Refusal;
use ops::{Class, KeyRule, PathKind, Row, TABLE, Verb};
use query::Query;

/// Classifies one S3 request by its head.
///
/// # Errors
/// [`Refusal::UnknownOperation`] for a method, or a method on a path, that no operation has;
/// [`Refusal::InvalidRequest`] for a write that is not exactly one operation;
/// [`Refusal::AmbiguousKey`] for a write's key with more than one spelling.
/// # Reference
/// `docs/reference/s3-operations.md`.
pub fn classify(head: &Head<'_>) -> Result<Operation, Refusal> {
    check_override(head.headers)?;
    if !head.path.starts_with('/') {
        return Err(invalid("the target is not a path"));
    }
    let query = Query::parse(head.query.unwrap_or_default());
    if query.has("_method") {
        return Err(invalid(
            "the query name `_method` would change the method; send the method itself",
        ));
    }
    let verb = match *head.method {
        Method::GET => Verb::Get,
        Method::HEAD => Verb::Head,
        Method::PUT => Verb::Put,
        Method::POST => Verb::Post,
        Method::DELETE => Verb::Delete,
        // A CORS preflight, and nothing else on any store.
        Method::OPTIONS => return Ok(read("CorsPreflight", Keys::Nothing)),
        _ => return Err(Refusal::UnknownOperation { what: format!("method {}", head.method) }),
    };
    match verb {
        Verb::Get | Verb::Head => classify_read(verb, head, &query),
        Verb::Put | Verb::Post | Verb::Delete => classify_write(verb, head, &query),
    }
}

/// The row with most discriminators among those whose discriminators are all there.
fn best(
    verb: Verb,
    path: PathKind,
    query: &Query<'_>,
    has: impl Fn(&str) -> bool,
) -> Option<&'static Row> {
    TABLE
        .iter()
        .filter(|row| row.verb == verb && row.path == path)
        // Most requests have no query: then no row that needs one is taken apart.
        .filter(|row| row.query.is_empty() || !query.is_empty())
        .filter(|row| row.discriminators().all(|(name, value)| query.matches(name, value)))
        .filter(|row| row.header.is_empty() || has(row.header))
        .max_by_key(|row| row.weight())
}

// === reads ===

fn classify_read(verb: Verb, head: &Head<'_>, query: &Query<'_>) -> Result<Operation, Refusal> {
    let (path, key) = split(head, keys::read(path_of(head)));
    let Some(row) = best(verb, path, query, |_| false) else {
        // `HEAD /`; health checks send it.
        return Ok(read("HeadService", Keys::Nothing));
    };
    // The query protocol of other services, which several S3 servers answer on the same port.
    if path == PathKind::Service && query.has("Action") {
        return Err(Refusal::UnknownOperation { what: "an `Action` in the query".to_owned() });
    }
    if row.class == Class::Session {
        return Err(Refusal::UnknownOperation {
            what: format!("{}: it hands out credentials that no fence sees", row.name),
        });
    }
    let means_nothing = |name: &str| name == "x-id" || query::is_legal_everywhere(name);
    let exact = query.names().all(|name| row.allows(name) || means_nothing(name));
    let keys = match (row.keys, path) {
        (KeyRule::Nothing, _) => Keys::Nothing,
        (_, PathKind::Bucket) if verb == Verb::Head => Keys::One(key),
        // With an unknown name, what is listed is anybody's guess.
        (_, PathKind::Bucket) if row.lists_keys() || !exact => {
            Keys::Prefix(format!("{key}{}", query.prefix()))
        }
        _ => Keys::One(key),
    };
    Ok(read(row.name, keys))
}

fn read(name: &'static str, keys: Keys) -> Operation {
    Operation {
        name,
        effect: Effect::Read,
        keys,
        source: None,
        body: BodyKind::Stream,
        answer: AnswerKind::Plain,
    }
}

// === writes ===

fn classify_write(verb: Verb, head: &Head<'_>, query: &Query<'_>) -> Result<Operation, Refusal> {
    let fields = shape::check_fields(head.headers)?;
    query.check_shape()?;
    shape::check_signature(head.headers, query)?;
    let raw = path_of(head);
    if raw.starts_with('/') && head.host_bucket.is_none() {
        return Err(Refusal::AmbiguousKey {
            key: head.path.to_owned(),
            why: "it begins with `//`: some stores read an empty bucket, some the next name"
                .to_owned(),
        });
    }
    let (path, key) = split(head, keys::written(raw)?);
    let Some(row) = best(verb, path, query, |name| head.headers.contains_key(name)) else {
        return Err(Refusal::UnknownOperation { what: unknown(verb, path, query) });
    };
    if row.class == Class::Session {
        return Err(Refusal::UnknownOperation {
            what: format!("{}: it is no storage traffic", row.name),
        });
    }
    check_query(row, query)?;
    fields.check_sources(row)?;
    let source =
        fields.source().map(|(name, value)| keys::source(name.as_str(), value)).transpose()?;
    let bucket = || key.split('/').next().unwrap_or_default().to_owned();
    let (keys, source) = match (row.keys, source) {
        (KeyRule::Nothing, _) => (Keys::Nothing, None),
        (KeyRule::BodyKeys, _) => (Keys::InBody { bucket: bucket() }, None),
        (KeyRule::RenameSource, Some(source)) => {
            // The source is removed, and is named with its bucket or without: both readings count.
            let inside = format!("{}/{source}", bucket());
            let mut written = vec![key.clone(), inside];
            if source.strip_prefix(&bucket()).is_some_and(|rest| rest.starts_with('/')) {
                written.push(source);
            }
            (Keys::Several(written), None)
        }
        (KeyRule::CopySource, Some(source)) => {
            let (_, name) = source.split_once('/').unwrap_or_default();
            if name.is_empty() {
                return Err(invalid(
                    "the copy source names a bucket but no key; send `bucket/key`",
                ));
            }
            (Keys::One(key), Some(source))
        }
        (_, _) => (Keys::One(key), None),
    };
    Ok(Operation {
        name: row.name,
        effect: if row.class == Class::Read { Effect::Read } else { Effect::Write },
        keys,
        source,
        body: shape::body_kind(row, head.headers)?,
        answer: answer_kind(row),
    })
}

fn check_query(row: &Row, query: &Query<'_>) -> Result<(), Refusal> {
    for param in query.params() {
        let name: &str = &param.name;
        if row.allows(name) {
            check_value(row, name, &param.value)?;
        } else if name == "x-id" {
            if *param.value != *row.name && row.alias != Some(&*param.value) {
                return Err(invalid(&format!(
                    "`x-id={}` disagrees with the operation, which is {}",
                    param.value, row.name
                )));
            }
        } else if !query::is_legal_everywhere(name) {
            return Err(invalid(&format!(
                "the query name `{name}` is not part of {}; leave it out, or name one operation only",
                row.name
            )));
        }
    }
    Ok(())
}

/// Stores fall back to a plain `PUT` when one of these is empty.
fn check_value(row: &Row, name: &str, value: &str) -> Result<(), Refusal> {
    let fits = match name {
        "uploadId" | "annotationName" | "id" => !value.is_empty(),
        "partNumber" => (1..=5).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit()),
        _ => true,
    };
    if fits {
        return Ok(());
    }
    Err(invalid(&format!("the query name `{name}` of {} has no usable value", row.name)))
}

fn answer_kind(row: &Row) -> AnswerKind {
    match (row.keys, row.class) {
        (KeyRule::BodyKeys, _) => AnswerKind::PerKey,
        (KeyRule::CopySource, _) | (_, Class::MultipartCommit) => AnswerKind::MayHideError,
        _ => AnswerKind::Plain,
    }
}

fn unknown(verb: Verb, path: PathKind, query: &Query<'_>) -> String {
    let names: Vec<&str> = query.names().filter(|name| !query::is_legal_everywhere(name)).collect();
    let method = match verb {
        Verb::Get => "GET",
        Verb::Head => "HEAD",
        Verb::Put => "PUT",
        Verb::Post => "POST",
        Verb::Delete => "DELETE",
    };
    let path = match path {
        PathKind::Service => "the service",
        PathKind::Bucket => "a bucket",
        PathKind::Object => "an object",
    };
    match names.as_slice() {
        [] => format!("{method} on {path} without a query"),
        names => format!("{method} on {path} with `{}`", names.join("&")),
    }
}

// === paths ===

fn path_of<'a>(head: &Head<'a>) -> &'a str {
    head.path.strip_prefix('/').unwrap_or(head.path)
}

/// What a decoded path names, and the key that decides: `bucket/key`, `bucket/`, or nothing.
fn split(head: &Head<'_>, decoded: String) -> (PathKind, String) {
    match (head.host_bucket, decoded.split_once('/')) {
        (Some(bucket), _) if decoded.is_empty() => (PathKind::Bucket, format!("{bucket}/")),
        (Some(bucket), _) => (PathKind::Object, format!("{bucket}/{decoded}")),
        (None, _) if decoded.is_empty() => (PathKind::Service, decoded),
        (None, None) => (PathKind::Bucket, format!("{decoded}/")),
        (None, Some((_, ""))) => (PathKind::Bucket, decoded),
        (None, Some(_)) => (PathKind::Object, decoded),
    }
}

fn invalid(why: &str) -> Refusal {
    Refusal::InvalidRequest { why: why.to_owned() }
}
