//! Requests captured from real clients (`tests/data/wire`): the operation each one is, and its keys.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::aws_chunked::{Scanned, Scanner};
use super::*;

/// One captured request; the body without HTTP's own chunked framing.
struct Captured {
    method: Method,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Vec<u8>,
}

fn captured(file: &str) -> Captured {
    let path = format!("{}/tests/data/wire/{file}.http", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|fault| panic!("{path}: {fault}"));
    let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
    // Two comment lines end with LF alone; the request's own lines with CRLF.
    let request =
        head.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect::<String>();
    let mut lines = request.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { panic!("{file}: {words:?}") };
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
    }
    let raw = &bytes[head_end + 4..];
    let chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    let body =
        if chunked { dechunked(raw) } else { raw.strip_suffix(b"\n").unwrap_or(raw).to_vec() };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    };
    Captured { method: Method::from_bytes(method.as_bytes()).unwrap(), path, query, headers, body }
}

fn dechunked(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = raw.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&raw[end + 2..end + 2 + size]);
        raw = &raw[end + 2 + size + 2..];
    }
}

fn run(kind: StoreKind, request: &Captured) -> Result<Operation, Refusal> {
    let head = Head {
        method: &request.method,
        path: &request.path,
        query: request.query.as_deref(),
        host_bucket: None,
        headers: &request.headers,
    };
    classify(kind, &head, &[])
}

#[test]
fn what_real_clients_send_is_what_they_mean() {
    let chunked = |length| BodyKind::AwsChunked { decoded_length: Some(length) };
    let cases = [
        ("boto3-abort-multipart", "AbortMultipartUpload", "bt3/ab", BodyKind::Document),
        ("boto3-complete-multipart", "CompleteMultipartUpload", "bt3/big.bin", BodyKind::Document),
        ("boto3-copy-object", "CopyObject", "bt3/copy.txt", BodyKind::Document),
        ("boto3-create-multipart", "CreateMultipartUpload", "bt3/big.bin", BodyKind::Document),
        ("boto3-put-aws-chunked-trailer", "PutObject", "bt4/dir/a.txt", chunked(11)),
        ("boto3-put-header-checksum", "PutObject", "bt3/dir/a.txt", BodyKind::Stream),
        ("boto3-put-if-none-match", "PutObject", "bt3/f.txt", BodyKind::Stream),
        ("boto3-put-session-token", "PutObject", "sesenv/dir/a.txt", BodyKind::Stream),
        ("boto3-upload-part-copy", "UploadPartCopy", "bt3/ab", BodyKind::Document),
        ("boto3-upload-part", "UploadPart", "bt3/big.bin", BodyKind::Stream),
        ("curl-put-sigv4", "PutObject", "bt3/curl1", BodyKind::Stream),
        ("curl-put-te-chunked", "PutObject", "bt3/curlte", BodyKind::Stream),
        (
            "delta-commit-if-none-match",
            "PutObject",
            "bt3/delta/_delta_log/00000000000000000000.json",
            BodyKind::Stream,
        ),
        ("js-put-stream-trailer", "PutObject", "bt3/js/stream", chunked(6)),
        (
            "litestream-put",
            "PutObject",
            "bt3/ls/0000/0000000000000002-0000000000000002.ltx",
            BodyKind::Stream,
        ),
        ("presigned-put", "PutObject", "bt3/ps", BodyKind::Stream),
        ("pyarrow-directory-marker", "PutObject", "bt3/pa/dd/", BodyKind::Stream),
        ("pyarrow-part-crc64-trailer", "UploadPart", "bt3/pa/small", chunked(1)),
        ("rclone160-put", "PutObject", "bt3/rclone-deb/f1", BodyKind::Stream),
        ("rclone175-put", "PutObject", "bt3/rclone-pypi/f1", BodyKind::Stream),
        ("restic-put-signed-chunked", "PutObject", "bt3/restic/config", chunked(155)),
        ("s3cmd-create-multipart", "CreateMultipartUpload", "bt3/s3c/m20", BodyKind::Document),
        ("s3cmd-upload-part", "UploadPart", "bt3/s3c/m20", BodyKind::Stream),
    ];
    for (file, name, key, body) in cases {
        let operation = run(StoreKind::S3, &captured(file))
            .unwrap_or_else(|refusal| panic!("{file}: {refusal:?}"));
        assert_eq!(
            (operation.name, operation.effect, operation.body),
            (name, Effect::Write, body),
            "{file}"
        );
        assert_eq!(operation.keys, Keys::One(key.to_owned()), "{file}");
    }
    for (file, source) in
        [("boto3-copy-object", "bt3/dir/a.txt"), ("boto3-upload-part-copy", "bt3/big.bin")]
    {
        assert_eq!(
            run(StoreKind::S3, &captured(file)).unwrap().source.as_deref(),
            Some(source),
            "{file}"
        );
    }
}

#[test]
fn the_batch_deletes_of_real_clients_name_their_keys() {
    let cases = [
        ("boto3-delete-objects", vec!["bt3/dir/a.txt", "bt3/copy.txt"]),
        (
            "delta-delete-objects",
            vec![
                "bt3/delta/part-00000-0d77433e-0413-425a-8344-0f3e589753f1-c000.snappy.parquet",
                "bt3/delta/part-00000-522a803c-3456-4aeb-b14d-15bdd358af11-c000.snappy.parquet",
            ],
        ),
        ("js-delete-objects", vec!["bt3/js/a"]),
        ("s3cmd-delete-objects", vec!["bt3/s3c/f1", "bt3/s3c/m20"]),
    ];
    for (file, keys) in cases {
        let request = captured(file);
        let operation = run(StoreKind::S3, &request).unwrap();
        assert_eq!(
            (operation.name, operation.answer),
            ("DeleteObjects", AnswerKind::PerKey),
            "{file}"
        );
        assert_eq!(operation.keys, Keys::InBody { bucket: "bt3".into() }, "{file}");
        assert_eq!(document_keys(&operation, &request.body).unwrap(), keys, "{file}");
    }
}

#[test]
fn a_form_upload_is_refused() {
    let result = run(StoreKind::S3, &captured("browser-form-post"));
    assert!(matches!(result, Err(Refusal::UnknownOperation { .. })), "{result:?}");
}

#[test]
fn the_terraform_backend_only_writes() {
    let cases = [
        ("terraform-lock", "LOCK", BodyKind::Document),
        ("terraform-post-id", "POST", BodyKind::RestDocument),
        ("terraform-unlock", "UNLOCK", BodyKind::Document),
    ];
    for (file, name, body) in cases {
        let operation = run(StoreKind::Rest, &captured(file)).unwrap();
        assert_eq!(
            (operation.name, operation.effect, operation.body),
            (name, Effect::Write, body),
            "{file}"
        );
        assert_eq!(operation.keys, Keys::One("state/x".into()), "{file}");
    }
}

#[test]
fn the_chunked_bodies_of_real_clients_are_followed_to_their_end() {
    let cases = [
        ("boto3-put-aws-chunked-trailer", &b"hello boto3"[..]),
        ("js-put-stream-trailer", b"file1\n"),
        ("pyarrow-part-crc64-trailer", b"x"),
    ];
    for (file, payload) in cases {
        let request = captured(file);
        let BodyKind::AwsChunked { decoded_length } = run(StoreKind::S3, &request).unwrap().body
        else {
            panic!("{file}");
        };
        assert_eq!(decoded_length, Some(payload.len() as u64), "{file}");
        let start = request.body.windows(payload.len()).position(|some| some == payload).unwrap();
        let mut scanner = Scanner::new(decoded_length);
        let want = Scanned { last_payload: Some(start + payload.len() - 1), complete: true };
        assert_eq!(scanner.feed(&request.body), Ok(want), "{file}");
        assert_eq!(scanner.finish(), Ok(()), "{file}");
    }
}
