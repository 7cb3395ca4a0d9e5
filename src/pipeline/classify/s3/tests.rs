//! Requests that are exactly one operation, and those that are not.

mod model;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use super::super::document_keys;
use super::ops::{PathKind, Row, Verb};
use super::*;

type Field = (&'static str, &'static str);

fn run(method: &str, target: &str, fields: &[(&str, &str)]) -> Result<Operation, Refusal> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    classify(&Head { method: &method, path, query, host_bucket: None, headers: &headers })
}

fn name(result: &Result<Operation, Refusal>) -> &'static str {
    result.as_ref().map_or("refused", |operation| operation.name)
}

fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::Head => "HEAD",
        Verb::Put => "PUT",
        Verb::Post => "POST",
        Verb::Delete => "DELETE",
    }
}

fn path(kind: PathKind) -> &'static str {
    match kind {
        PathKind::Service => "/",
        PathKind::Bucket => "/b",
        PathKind::Object => "/b/k",
    }
}

/// `name=value` for every discriminator of a row.
fn params(row: &Row) -> Vec<String> {
    row.discriminators()
        .map(|(name, value)| match (name, value) {
            (_, Some(value)) => format!("{name}={value}"),
            ("partNumber", _) => "partNumber=1".to_owned(),
            ("uploadId" | "id" | "annotationName", _) => format!("{name}=x"),
            _ => name.to_owned(),
        })
        .collect()
}

fn fields(row: &Row) -> Vec<(&'static str, &'static str)> {
    if row.header.is_empty() { vec![] } else { vec![(row.header, "src/s")] }
}

fn send(row: &Row, params: &[String]) -> Result<Operation, Refusal> {
    run(method(row.verb), &format!("{}?{}", path(row.path), params.join("&")), &fields(row))
}

#[test]
fn an_alias_is_as_good_as_the_name() {
    assert_eq!(
        name(&run("PUT", "/b?lifecycle&x-id=PutBucketLifecycle", &[])),
        "PutBucketLifecycleConfiguration"
    );
    assert!(run("PUT", "/b?lifecycle&x-id=PutBucketNotification", &[]).is_err());
}

#[test]
fn a_write_with_anything_left_over_is_refused() {
    let cases: &[(&str, &str, &[Field])] = &[
        ("PUT", "/b/k?foo=bar", &[]),
        ("PUT", "/b/k?uploads", &[]),
        ("PUT", "/b/k?append&position=0", &[]),
        ("PUT", "/b/k?restore", &[]),
        ("PUT", "/b/k?delete", &[]),
        ("PUT", "/b/k?upload_id=x", &[]),
        ("PUT", "/b/k?UPLOADID=x&PARTNUMBER=1", &[]),
        ("PUT", "/b/k?partNumber=1", &[]),
        ("PUT", "/b/k?uploadId=x", &[]),
        ("PUT", "/b/k?uploadId=&partNumber=1", &[]),
        ("PUT", "/b/k?uploadId&partNumber=1", &[]),
        ("PUT", "/b/k?uploadId=x&partNumber=", &[]),
        ("PUT", "/b/k?uploadId=x&partNumber=1a", &[]),
        ("PUT", "/b/k?uploadId=bad&uploadId=good&partNumber=1", &[]),
        ("PUT", "/b/k?tagging&acl", &[]),
        ("PUT", "/b/k?tagging&partNumber=1&uploadId=x", &[]),
        ("PUT", "/b/k?tagging", &[("x-amz-copy-source", "b/s")]),
        ("PUT", "/b/k?retention", &[("x-amz-copy-source", "b/s")]),
        ("PUT", "/b/k?uploadId=x", &[("x-amz-copy-source", "b/s")]),
        ("PUT", "/b/k?versionId=x", &[]),
        ("PUT", "/b/k?x-amz-copy-source=b/s", &[]),
        ("PUT", "/b/k?X-Amz-Copy-Source=b/s", &[]),
        ("PUT", "/b/k?x-amz-rename-source=b/s", &[]),
        ("PUT", "/b/k?renameObject", &[]),
        ("PUT", "/b/k", &[("x-amz-rename-source", "s")]),
        ("PUT", "/b/k?renameObject", &[("x-amz-rename-source", "s"), ("x-amz-copy-source", "b/s")]),
        ("PUT", "/b/k?renameObject", &[("x-amz-rename-source", "a+b")]),
        ("PUT", "/b/k", &[("x-amz-copy-source", "b/s"), ("x-amz-copy-source", "b/t")]),
        ("PUT", "/b/k", &[("x-amz-copy-source", "bucket-only")]),
        ("PUT", "/b/k", &[("x-amz-copy-source", "b/")]),
        ("PUT", "/b/k", &[("x_amz_copy_source", "b/s")]),
        ("PUT", "/b/k", &[("x-oss-copy-source", "b/s")]),
        ("PUT", "/b/k", &[("x-amz-copy-source-vendor", "b/s")]),
        ("PUT", "/b/k", &[("x-amz-meta-snowball-auto-extract", "true")]),
        ("PUT", "/b/k", &[("amz-snowball-extract", "true")]),
        ("PUT", "/b/k", &[("x-amz-meta-minio-snowball-prefix", "p")]),
        ("PUT", "/b/k", &[("x-minio-extract", "true")]),
        ("PUT", "/b/k?x-amz-meta-snowball-auto-extract=true", &[]),
        ("PUT", "/b/k", &[("x-amz-write-offset-bytes", "0")]),
        ("PUT", "/b/k", &[("x-http-method-override", "DELETE")]),
        ("PUT", "/b/k?x-id=CopyObject", &[]),
        ("PUT", "/b/k?x-id=", &[]),
        ("PUT", "/b/k?X-ID=PutObject", &[]),
        ("PUT", "/b/k?x-id=PutObject&x-id=PutObject", &[]),
        ("PUT", "/b/k?uploads;x=1", &[]),
        ("PUT", "/b/k?x-amz-acl=a;b", &[]),
        ("PUT", "/b/k?x-amz-meta-%00=a", &[]),
        ("PUT", "/b/k?x-amz-meta-a%26uploads", &[]),
        ("PUT", "/b/k?x-amz-acl=private&X-Amz-Acl=public-read", &[]),
        ("PUT", "/b/k?&", &[]),
        ("PUT", "/b/k?=x", &[]),
        ("PUT", "/b/k?x-amz-acl=%zz", &[]),
        ("PUT", "/b/k?AWSAccessKeyId=A&Signature=s&Expires=1", &[]),
        ("PUT", "/b/k", &[("authorization", "AWS AK:sig")]),
        ("PUT", "/b/k?X-Amz-Signature=0", &[("authorization", "AWS4-HMAC-SHA256 x")]),
        (
            "PUT",
            "/b/k",
            &[("authorization", "AWS4-HMAC-SHA256 x"), ("authorization", "AWS4-HMAC-SHA256 y")],
        ),
        ("PUT", "/", &[]),
        ("PUT", "/b?foo", &[]),
        ("PUT", "/b?acl&policy", &[]),
        ("PUT", "/b?id=x", &[]),
        ("PUT", "/b?metrics", &[]),
        ("POST", "/b", &[]),
        ("POST", "/b", &[("content-type", "multipart/form-data; boundary=x")]),
        ("POST", "/b/k", &[]),
        ("POST", "/b/k?delete", &[]),
        ("POST", "/b/k?uploads&uploadId=x", &[]),
        ("POST", "/b/k?select", &[]),
        ("POST", "/b/k?select&select-type=1", &[]),
        ("POST", "/b/k?select&select-type=2&x=1", &[]),
        ("POST", "/b/k?uploads", &[("x-goog-resumable", "start")]),
        ("POST", "/b?delete&uploads", &[]),
        ("POST", "/b?Delete", &[]),
        ("POST", "/", &[]),
        ("DELETE", "/b/k?foo", &[]),
        ("DELETE", "/b/k?acl", &[]),
        ("DELETE", "/b/k?annotation", &[]),
        ("DELETE", "/b/k?tagging&uploadId=x", &[]),
        ("DELETE", "/b/k?versionID=x", &[]),
        ("DELETE", "/b/k", &[("x-minio-force-delete", "true")]),
        ("DELETE", "/b/k", &[("x-amz-copy-source", "b/s")]),
        ("DELETE", "/b", &[("x-minio-force-delete", "true")]),
        ("DELETE", "/", &[]),
        ("PATCH", "/b/k", &[]),
        ("put", "/b/k", &[]),
        ("get", "/b/k", &[]),
        ("PROPFIND", "/b/k", &[]),
        ("GET", "/b?session", &[]),
        ("GET", "/?Action=CreateUser", &[]),
        ("GET", "*", &[]),
        ("PUT", "b/k", &[]),
        ("GET", "/b?%73ession", &[]),
        ("GET", "/b/k", &[("x-http-method-override", "DELETE")]),
        ("GET", "/b/k?_method=DELETE", &[]),
    ];
    for (method, target, fields) in cases {
        assert_eq!(name(&run(method, target, fields)), "refused", "{method} {target} {fields:?}");
    }
}

#[test]
fn a_discriminator_is_known_with_or_without_a_value_and_encoded() {
    let cases = [
        ("POST", "/b/k?uploads=", "CreateMultipartUpload"),
        ("POST", "/b/k?uploads=1", "CreateMultipartUpload"),
        ("POST", "/b/k?%75ploads", "CreateMultipartUpload"),
        ("POST", "/b/?delete=", "DeleteObjects"),
        ("PUT", "/b/", "CreateBucket"),
        ("PUT", "/b/k?", "PutObject"),
        ("HEAD", "/", "HeadService"),
        ("GET", "/", "ListBuckets"),
        ("GET", "/b/k?partNumber=1", "GetObject"),
        ("GET", "/b/k?foo&uploads;x=%zz", "GetObject"),
        ("OPTIONS", "/b/k", "CorsPreflight"),
    ];
    for (method, target, want) in cases {
        assert_eq!(name(&run(method, target, &[])), want, "{method} {target}");
    }
}

#[test]
fn the_keys_are_those_that_the_store_touches() {
    let one = |key: &str| Keys::One(key.to_owned());
    let prefix = |key: &str| Keys::Prefix(key.to_owned());
    let cases = [
        ("PUT", "/b/a%20b/", one("b/a b/")),
        ("PUT", "/b//k", one("b//k")),
        ("PUT", "/b?acl", one("b/")),
        ("DELETE", "/b/", one("b/")),
        ("PUT", "/b//", one("b//")),
        ("POST", "/b?delete", Keys::InBody { bucket: "b".into() }),
        ("GET", "/b/%61.txt", one("b/a.txt")),
        ("GET", "/b?location", one("b/")),
        ("GET", "/b?location&X-Amz-Signature=0&x-id=GetBucketLocation", one("b/")),
        ("HEAD", "/b", one("b/")),
        ("GET", "/", Keys::Nothing),
        ("GET", "/b", prefix("b/")),
        ("GET", "/b?list-type=2&prefix=wal%2Fx&max-keys=1", prefix("b/wal/x")),
        ("GET", "/b?uploads&prefix=wal/", prefix("b/wal/")),
        ("GET", "/b?versions&prefix=wal/", prefix("b/wal/")),
        ("GET", "/b?prefix=a&prefix=b", prefix("b/")),
        ("GET", "/b?Prefix=a", prefix("b/")),
        ("GET", "/b?prefix=a+b", prefix("b/a")),
        ("GET", "/b?prefix=a//b", prefix("b/a/")),
        ("GET", "/b?prefix=/a", prefix("b/")),
        ("GET", "/b?prefix=a%ffb", prefix("b/a")),
        ("GET", "/b?location&versions&prefix=a", prefix("b/a")),
        ("GET", "/b?location&prefix=a", prefix("b/a")),
        ("GET", "/b?location&foo", prefix("b/")),
    ];
    for (method, target, want) in cases {
        assert_eq!(run(method, target, &[]).unwrap().keys, want, "{method} {target}");
    }
}

#[test]
fn a_copy_writes_its_destination_and_a_rename_both() {
    let copy = run("PUT", "/b/k", &[("x-amz-copy-source", "/c%2Fs?versionId=1")]).unwrap();
    assert_eq!(
        (copy.name, copy.keys, copy.source.as_deref()),
        ("CopyObject", Keys::One("b/k".into()), Some("c/s"))
    );
    assert_eq!((copy.answer, copy.body), (AnswerKind::MayHideError, BodyKind::Document));
    let part = run(
        "PUT",
        "/b/k?partNumber=1&uploadId=x",
        &[("x-amz-copy-source", "c/s"), ("x-amz-copy-source-range", "bytes=0-1")],
    );
    assert_eq!((name(&part), part.unwrap().answer), ("UploadPartCopy", AnswerKind::MayHideError));
    for (source, want) in [
        ("s", vec!["b/k", "b/s"]),
        ("/b/s", vec!["b/k", "b/b/s", "b/s"]),
        ("bb/s", vec!["b/k", "b/bb/s"]),
    ] {
        let rename = run("PUT", "/b/k?renameObject", &[("x-amz-rename-source", source)]).unwrap();
        assert_eq!(
            rename.keys,
            Keys::Several(want.into_iter().map(str::to_owned).collect()),
            "{source}"
        );
    }
}

#[test]
fn the_body_of_a_restore_is_judged() {
    let restore = run("POST", "/b/k?restore", &[]).unwrap();
    let body = b"<RestoreRequest><OutputLocation/></RestoreRequest>";
    assert!(document_keys(&restore, body).is_err());
    assert_eq!(
        document_keys(&restore, b"<RestoreRequest><Days>1</Days></RestoreRequest>"),
        Ok(vec![])
    );
    let acl = run("PUT", "/b/k?acl", &[]).unwrap();
    assert_eq!(document_keys(&acl, body), Ok(vec![]));
}

#[test]
fn the_bucket_of_the_host_stands_before_the_path() {
    let headers = HeaderMap::new();
    let cases = [
        (Method::PUT, "/", None, "CreateBucket", "wal/"),
        (Method::PUT, "/x", None, "PutObject", "wal/x"),
        (Method::PUT, "//x", None, "PutObject", "wal//x"),
        (Method::PUT, "/public/x", None, "PutObject", "wal/public/x"),
        (Method::DELETE, "/", Some("policy"), "DeleteBucketPolicy", "wal/"),
        (Method::GET, "/x/", None, "GetObject", "wal/x/"),
    ];
    for (method, path, query, want, key) in cases {
        let head =
            Head { method: &method, path, query, host_bucket: Some("wal"), headers: &headers };
        let operation = classify(&head).unwrap();
        assert_eq!(
            (operation.name, operation.keys),
            (want, Keys::One(key.into())),
            "{method} {path}"
        );
    }
}

#[test]
fn a_path_of_two_readings_is_no_key_to_write() {
    let paths = [
        "//b/k",
        "//",
        "/public/../wal/x",
        "/public/%2e%2e/wal/x",
        "/public/..%2fwal/x",
        "/public%2f..%2fwal/x",
        "/public/..;/wal/x",
        "/public\\..\\wal\\x",
        "/public/x%00",
        "/wal/x#f",
        "/%77al/x",
        "/b/./k",
        "/./k",
        "/../k",
    ];
    for path in paths {
        for method in ["PUT", "DELETE"] {
            assert!(
                matches!(run(method, path, &[]), Err(Refusal::AmbiguousKey { .. })),
                "{method} {path}"
            );
        }
        assert_eq!(run("GET", path, &[]).unwrap().effect, Effect::Read, "{path}");
    }
}

#[test]
fn the_body_is_chunked_only_if_every_field_agrees() {
    let sha = |value| ("x-amz-content-sha256", value);
    let coding = |value| ("content-encoding", value);
    let length = |value| ("x-amz-decoded-content-length", value);
    let signed = sha("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    let chunked = |decoded_length| Some(BodyKind::AwsChunked { decoded_length });
    let cases: Vec<(Vec<Field>, Option<BodyKind>)> = vec![
        (vec![], Some(BodyKind::Stream)),
        (vec![sha("UNSIGNED-PAYLOAD"), coding("gzip")], Some(BodyKind::Stream)),
        (vec![signed], chunked(None)),
        (vec![signed, length("155")], chunked(Some(155))),
        (
            vec![
                sha("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
                coding("AWS-Chunked, gzip"),
                length("0"),
            ],
            chunked(Some(0)),
        ),
        (vec![signed, coding("gzip"), coding("aws-chunked")], chunked(None)),
        (vec![coding("aws-chunked")], None),
        (vec![sha("UNSIGNED-PAYLOAD"), coding("gzip,aws-chunked")], None),
        (vec![signed, coding("aws-chunked,aws-chunked")], None),
        (vec![signed, coding("aws-chunked;q=1")], None),
        (vec![sha("STREAMING-NEW-FORM")], None),
        (vec![sha("streaming-unsigned-payload-trailer")], None),
        (vec![signed, signed], None),
        (vec![signed, length("1"), length("1")], None),
        (vec![signed, length("+1")], None),
        (vec![signed, length("")], None),
        (vec![signed, length("0x1")], None),
        (vec![signed, length("9999999999999999")], None),
        (vec![length("1")], None),
        (vec![("content_encoding", "aws-chunked")], None),
    ];
    for (fields, want) in cases {
        assert_eq!(
            run("PUT", "/b/k", &fields).ok().map(|operation| operation.body),
            want,
            "{fields:?}"
        );
    }
    assert!(
        run("PUT", "/b/k?X-Amz-Content-Sha256=STREAMING-UNSIGNED-PAYLOAD-TRAILER", &[]).is_err()
    );
    for target in ["/b?delete", "/b/k?uploadId=x", "/b/k?restore", "/b/k?uploads"] {
        assert_eq!(run("POST", target, &[]).unwrap().body, BodyKind::Document, "{target}");
        assert!(run("POST", target, &[signed]).is_err(), "{target}");
    }
    assert!(run("POST", "/b?delete", &[coding("gzip")]).is_err());
    assert!(run("POST", "/b/k?uploads", &[coding("gzip")]).is_ok(), "it is the object's metadata");
    assert_eq!(run("DELETE", "/b/k", &[]).unwrap().body, BodyKind::Document);
}

proptest! {
    #[test]
    fn no_head_panics(
        method in "(GET|HEAD|PUT|POST|DELETE|OPTIONS|X)",
        path in "/[ -~é]{0,20}",
        query in "[ -~é]{0,30}",
        value in "[ -~]{0,20}",
        host_bucket in proptest::option::of("[a-z]{1,3}"),
    ) {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-copy-source", HeaderValue::from_str(&value).unwrap());
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let head = Head { method: &method, path: &path, query: Some(&query), host_bucket: host_bucket.as_deref(), headers: &headers };
        let _ = classify(&head);
    }
}
