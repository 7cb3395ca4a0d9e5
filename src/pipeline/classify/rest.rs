//! What a request to a plain HTTP or WebDAV store does and which paths it touches.
//!
//! Five methods read, everything else writes: an unknown method may do anything.

use http::header::{CONTENT_TYPE, HOST, HeaderName};

use super::fields::{check_override, text};
use super::{AnswerKind, BodyKind, Effect, Head, Keys, Operation, keys};
use crate::pipeline::refusal::Refusal;

/// Methods that change nothing (RFC 9110, RFC 4918, RFC 3253).
const READS: &[&str] = &["GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT"];

/// Methods that change something, by name. Any other is called `OTHER`.
const WRITES: &[&str] =
    &["PUT", "POST", "PATCH", "DELETE", "COPY", "MOVE", "LOCK", "UNLOCK", "MKCOL", "PROPPATCH"];

/// Classifies one REST request by its head.
///
/// * `read_methods`: further methods that only read, in upper case, from the rule that covers the path.
///   Their path is held to the rules of a write all the same.
///
/// # Errors
/// [`Refusal::UnknownOperation`] for TRACE and CONNECT; [`Refusal::InvalidRequest`] for a method override or
/// a `Destination` that is not plainly a path of this server; [`Refusal::AmbiguousKey`] for a write's path
/// with more than one spelling.
pub fn classify(head: &Head<'_>, read_methods: &[String]) -> Result<Operation, Refusal> {
    check_override(head.headers)?;
    if overrides_method(head.query.unwrap_or_default()) {
        return Err(invalid(
            "the query name `_method` would change the method; send the method itself",
        ));
    }
    let method = head.method.as_str();
    if matches!(method, "TRACE" | "CONNECT") {
        return Err(Refusal::UnknownOperation { what: format!("method {method}") });
    }
    let raw = head.path.strip_prefix('/').ok_or_else(|| invalid("the target is not a path"))?;
    if let Some(name) = known(READS, method) {
        return Ok(operation(name, Effect::Read, Keys::One(keys::read(raw)), BodyKind::Stream));
    }
    let name = known(WRITES, method).unwrap_or("OTHER");
    let key = keys::written(raw)?;
    let effect = match read_methods.iter().any(|read| read == method) {
        true => Effect::Read,
        false => Effect::Write,
    };
    let body = body_kind(head, name)?;
    match name {
        "COPY" => {
            let copy = operation(name, effect, Keys::One(destination(head)?), body);
            Ok(Operation { source: Some(key), ..copy })
        }
        "MOVE" => Ok(operation(name, effect, Keys::Several(vec![key, destination(head)?]), body)),
        _ => Ok(operation(name, effect, Keys::One(key), body)),
    }
}

fn operation(name: &'static str, effect: Effect, keys: Keys, body: BodyKind) -> Operation {
    Operation { name, effect, keys, source: None, body, answer: AnswerKind::Plain }
}

fn known(methods: &[&'static str], method: &str) -> Option<&'static str> {
    methods.iter().find(|known| **known == method).copied()
}

/// Some frameworks take the method from the query, in forms as well as in links.
fn overrides_method(query: &str) -> bool {
    query.split(['&', ';']).any(|piece| {
        let name = piece.split('=').next().unwrap_or_default();
        keys::read(name).eq_ignore_ascii_case("_method")
    })
}

fn body_kind(head: &Head<'_>, name: &str) -> Result<BodyKind, Refusal> {
    if !matches!(name, "PUT" | "POST" | "PATCH" | "OTHER") {
        // Their effect does not hang on the body: a store may act on the head, which must wait, too.
        return Ok(BodyKind::Document);
    }
    let media = text(head.headers, &CONTENT_TYPE)?.unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_document =
        matches!(media.as_str(), "application/json" | "application/xml" | "text/xml" | "text/json")
            || media.ends_with("+json")
            || media.ends_with("+xml");
    Ok(if is_document { BodyKind::RestDocument } else { BodyKind::Stream })
}

/// The key of `Destination` (RFC 4918, section 10.3): an absolute path, or a URI with our own authority.
fn destination(head: &Head<'_>) -> Result<String, Refusal> {
    let Some(value) = text(head.headers, &HeaderName::from_static("destination"))? else {
        return Err(invalid("COPY and MOVE need a Destination"));
    };
    let refuse =
        || invalid("Destination is neither an absolute path nor a URI with the authority of Host");
    let path = match value.split_once("://") {
        None => value,
        Some((scheme, rest)) => {
            let host = text(head.headers, &HOST)?.unwrap_or_default();
            let (authority, _) = rest.split_once('/').ok_or_else(refuse)?;
            let is_http = ["http", "https"].iter().any(|own| scheme.eq_ignore_ascii_case(own));
            if !is_http || authority.is_empty() || !authority.eq_ignore_ascii_case(host) {
                return Err(refuse());
            }
            &rest[authority.len()..]
        }
    };
    let raw = path.strip_prefix('/').ok_or_else(refuse)?;
    // `//other/path` is another authority to a URI parser.
    if raw.starts_with('/') {
        return Err(refuse());
    }
    keys::written(raw)
}

fn invalid(why: &str) -> Refusal {
    Refusal::InvalidRequest { why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;

    fn run(method: &str, target: &str, fields: &[(&str, &str)]) -> Result<Operation, Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        classify(&Head { method: &method, path, query, host_bucket: None, headers: &headers }, &[])
    }

    #[test]
    fn five_methods_read_and_everything_else_writes() {
        for method in ["GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT"] {
            assert_eq!(run(method, "/a%62", &[]).unwrap().effect, Effect::Read, "{method}");
        }
        for method in [
            "PUT",
            "POST",
            "PATCH",
            "DELETE",
            "LOCK",
            "UNLOCK",
            "MKCOL",
            "PROPPATCH",
            "PURGE",
            "get",
            "Put",
        ] {
            let operation = run(method, "/state/x", &[]).unwrap();
            assert_eq!(
                (operation.effect, operation.keys),
                (Effect::Write, Keys::One("state/x".into())),
                "{method}"
            );
        }
        for method in ["TRACE", "CONNECT"] {
            assert!(matches!(run(method, "/x", &[]), Err(Refusal::UnknownOperation { .. })));
        }
    }

    #[test]
    fn a_rule_may_declare_that_further_methods_only_read() {
        let headers = HeaderMap::new();
        let head = Head {
            method: &Method::POST,
            path: "/q",
            query: None,
            host_bucket: None,
            headers: &headers,
        };
        assert_eq!(classify(&head, &["POST".into()]).unwrap().effect, Effect::Read);
        assert_eq!(classify(&head, &["PUT".into(), "post".into()]).unwrap().effect, Effect::Write);
    }

    #[test]
    fn what_would_change_the_method_is_refused() {
        for name in [
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X_HTTP_Method_Override",
            "X-Original-URL",
        ] {
            for method in ["GET", "POST"] {
                assert!(run(method, "/x", &[(name, "DELETE")]).is_err(), "{method} {name}");
            }
        }
        for target in
            ["/x?_method=DELETE", "/x?a=b&_METHOD=PUT", "/x?%5fmethod=PUT", "/x?a;_method=PUT"]
        {
            assert!(run("GET", target, &[]).is_err(), "{target}");
        }
        assert!(run("GET", "/x?method=PUT&a=_method", &[]).is_ok());
        assert!(run("GET", "x", &[]).is_err());
    }

    #[test]
    fn a_destination_is_a_written_key() {
        let host = ("Host", "dav.example:80");
        for to in ["/b/y", "http://dav.example:80/b/y", "HTTPS://DAV.example:80/b/y"] {
            let copy = run("COPY", "/a/x", &[host, ("Destination", to)]).unwrap();
            assert_eq!(
                (copy.keys, copy.source),
                (Keys::One("b/y".into()), Some("a/x".into())),
                "{to}"
            );
            let moved = run("MOVE", "/a/x", &[host, ("Destination", to)]).unwrap();
            assert_eq!(moved.keys, Keys::Several(vec!["a/x".into(), "b/y".into()]), "{to}");
        }
        for to in [
            "",
            "b/y",
            "//b/y",
            "///y",
            "http://other/b/y",
            "http://dav.example/b/y",
            "http:///b/y",
            "ftp://dav.example:80/b/y",
            "http://dav.example:80",
            "http://dav.example:80//b",
            "/b/../y",
            "/b/%2e%2e/y",
            "/b%2Fy",
            "/b/y?q",
            "/b/y#f",
            "http://u@dav.example:80/b",
        ] {
            for method in ["COPY", "MOVE"] {
                assert!(
                    run(method, "/a/x", &[host, ("Destination", to)]).is_err(),
                    "{method} {to:?}"
                );
            }
        }
        for method in ["COPY", "MOVE"] {
            assert!(run(method, "/a/x", &[host]).is_err());
            assert!(
                run(method, "/a/x", &[host, ("Destination", "/b"), ("Destination", "/c")]).is_err()
            );
        }
    }

    #[test]
    fn a_write_obeys_the_shape_rules_of_keys() {
        for target in ["/a/../b", "/a%2Fb", "/%61", "/a\\b", "/a/%00", "/a/..;/b"] {
            assert!(
                matches!(run("PUT", target, &[]), Err(Refusal::AmbiguousKey { .. })),
                "{target}"
            );
        }
        assert_eq!(run("PUT", "//a", &[]).unwrap().keys, Keys::One("/a".into()), "readings tell");
    }

    #[test]
    fn documents_are_withheld_whole_and_so_are_methods_that_need_no_body() {
        let cases = [
            ("POST", "application/json", BodyKind::RestDocument),
            ("PUT", "Application/XML; charset=utf-8", BodyKind::RestDocument),
            ("PATCH", "application/merge-patch+json", BodyKind::RestDocument),
            ("PUT", "application/octet-stream", BodyKind::Stream),
            ("PUT", "", BodyKind::Stream),
            ("DELETE", "application/octet-stream", BodyKind::Document),
            ("LOCK", "application/json", BodyKind::Document),
        ];
        for (method, media, want) in cases {
            assert_eq!(
                run(method, "/x", &[("Content-Type", media)]).unwrap().body,
                want,
                "{method} {media}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_request_panics(path in "/[ -~é]{0,30}", query in "[ -~]{0,20}", to in "[ -~]{0,20}") {
            let _ = run("MOVE", &format!("{path}?{query}"), &[("Destination", &to)]);
        }
    }
}
