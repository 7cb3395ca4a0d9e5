//! What goes through unharmed: answers to reads, bodies in every framing, signatures over the token.

use super::Site;
use crate::support::clients::{Answer, awscli_fenced, boto3, stdout_of};
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::signed::{SHAPES, Shape, Signed, crc32};
use crate::support::stores;

/// Header fields that differ from one answer to the next by themselves.
const VOLATILE: [&str; 4] = ["date", "x-amz-request-id", "x-amz-id-2", "x-amzn-requestid"];
/// What concerns one connection only.
const HOP_BY_HOP: [&str; 2] = ["connection", "keep-alive"];

/// Status, header fields and body; what changes by itself is taken out.
fn comparable(mut answer: Answer) -> (u16, Vec<(String, String)>, String) {
    let ids: Vec<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| VOLATILE.contains(&name.as_str()))
        .map(|(_, value)| value.clone())
        .collect();
    let stays = |name: &str| !VOLATILE.contains(&name) && !HOP_BY_HOP.contains(&name);
    answer.headers.retain(|(name, _)| stays(name));
    // Fields of one name keep their order; between names there is none (RFC 9110, section 5.3).
    answer.headers.sort_by(|one, other| one.0.cmp(&other.0));
    if answer.body.len() > 10_000 {
        let length = answer.body.len();
        let body = format!("{length} bytes, CRC {:08x}", crc32(&answer.body));
        return (answer.status, answer.headers, body);
    }
    let body = ids.iter().fold(answer.text(), |body, id| body.replace(id.as_str(), "ID"));
    (answer.status, answer.headers, body)
}

/// T3: without a token a write is refused, and reads and open paths are as if the gate were not there.
#[test]
fn reads_and_open_paths_are_answered_as_by_the_store_itself() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        let bucket = &site.bucket;
        let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        store.put_object(bucket, "segment", &body);
        store.put_object(bucket, "public/a", b"open");
        let host = site.store.url.strip_prefix("http://").unwrap();
        let to = |method: &str, target: &str| Signed::new(method, target, host);
        let object = format!("/{bucket}/segment");
        let cases = [
            to("GET", &object),
            to("HEAD", &object),
            to("GET", &object).header("range", "bytes=10-19"),
            to("GET", &object).header("if-none-match", "\"absent\""),
            to("GET", &object).header("if-match", "\"absent\""),
            to("GET", &object).header("if-modified-since", "Wed, 01 Jan 2120 00:00:00 GMT"),
            to("GET", &format!("/{bucket}/absent")),
            to("HEAD", &format!("/{bucket}/absent")),
            to("GET", &format!("/{bucket}?list-type=2&prefix=seg")),
            to("GET", &format!("/{bucket}?list-type=2&max-keys=1&unknown=1")),
            to("GET", &format!("/{bucket}?uploads=")),
            to("GET", "/"),
            to("GET", "/absent-bucket/x"),
            // Nothing fences it, so any token will do, and the store is not shown it.
            to("GET", &format!("/{bucket}/public/a")).token(3),
            to("GET", &format!("/{bucket}/public/b")),
            to("DELETE", &format!("/{bucket}/public/b")),
            to("GET", &format!("/{bucket}/public/b")),
        ];
        let uploads = SHAPES.iter().map(|shape| {
            let size = if shape.has_trailer() { 10 } else { 100_000 };
            to("PUT", &format!("/{bucket}/public/b")).body(*shape, &vec![b'u'; size])
        });
        let direct: std::net::SocketAddr = host.parse().unwrap();
        for case in uploads.chain(cases) {
            let mut through = comparable(case.send(site.gate.address()));
            let mut straight = comparable(case.send(direct));
            for answer in [&mut through, &mut straight] {
                answer.1.retain(|(name, _)| name != "last-modified");
            }
            assert_eq!(through, straight, "{}: {case:?}", store.name);
        }
        let unsigned = request("GET", &object, host, &[], b"");
        let ask = |address| {
            let mut client = RawClient::connect(address);
            client.send(&unsigned);
            comparable(client.answer())
        };
        assert_eq!(ask(site.gate.address()), ask(direct), "{}", store.name);
    }
}

#[test]
fn a_write_without_a_token_is_refused_and_leaves_the_store_untouched() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        store.put_object(&site.bucket, "segment", b"kept");
        let host = site.gate.address().to_string();
        let object = format!("/{}/segment", site.bucket);
        for shape in SHAPES {
            let put = Signed::new("PUT", &object, &host).body(shape, &vec![b'x'; 100 << 10]);
            let seen = put.send(site.gate.address());
            let want = (428, Some("MissingFencingToken".to_owned()));
            assert_eq!((seen.status, seen.code()), want, "{} {shape:?}", store.name);
            assert_eq!(seen.header("fencing-resource"), None);
        }
        let seen = Signed::new("DELETE", &object, &host).send(site.gate.address());
        assert_eq!(seen.status, 428, "{}", store.name);
        assert_eq!(site.stored("segment").as_deref(), Some(&b"kept"[..]), "{}", store.name);
    }
}

// R06: milvus-io/talon#527, afreidah/s3-orchestrator#1536, storj/gateway-st#89: the checksums that SDKs add by
// default were rejected, or their framing was stored.

#[test]
fn bodies_with_default_checksums_are_stored_as_they_were_sent() {
    for store in [stores::seaweedfs(), stores::moto()].into_iter().flatten() {
        let site = Site::new(store);
        let token = site.gate.acquire("wal/main", "a", "60s");
        let dir = tempfile::tempdir().unwrap();
        for size in [0, 1, 8 << 20] {
            let body: Vec<u8> = (0..size as u32).map(|at| (at % 253) as u8).collect();
            let file = dir.path().join(size.to_string());
            std::fs::write(&file, &body).unwrap();
            let file = file.to_str().unwrap();
            let code = r#"
s3.put_object(Bucket=sys.argv[1], Key=sys.argv[2], Body=open(sys.argv[3], 'rb'))
got = s3.get_object(Bucket=sys.argv[1], Key=sys.argv[2], ChecksumMode='ENABLED')
assert got['Body'].read() == open(sys.argv[3], 'rb').read()
print(got.get('ContentEncoding'), got.get('ChecksumCRC32') is not None)"#;
            let key = format!("boto3-{size}");
            let seen = boto3(&site.gate.url(), Some(token), code, &[&site.bucket, &key, file]);
            assert_eq!(stdout_of(&seen), "None True", "{} {size}", store.name);
            assert!(site.stored(&key).as_ref() == Some(&body), "{} {size}", store.name);
            let key = format!("awscli-{size}");
            let put =
                ["s3api", "put-object", "--bucket", &site.bucket, "--key", &key, "--body", file];
            stdout_of(&awscli_fenced(&site.gate.url(), token, &put));
            assert!(site.stored(&key).as_ref() == Some(&body), "{} {size}", store.name);
        }
    }
}

#[test]
fn aws_chunked_bodies_do_what_they_do_at_the_store_itself() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    let host = store.url.strip_prefix("http://").unwrap();
    let direct: std::net::SocketAddr = host.parse().unwrap();
    for shape in SHAPES {
        for size in [0, 1, 70_000, 8 << 20] {
            let body: Vec<u8> = (0..size as u32).map(|at| (at % 249) as u8).collect();
            let key = format!("{shape:?}-{size}");
            let target = format!("/{}/{key}", site.bucket);
            let put = Signed::new("PUT", &target, host).token(token).body(shape, &body);
            let seen = put.send(site.gate.address());
            assert_eq!(seen.status, 200, "{shape:?} {size}: {seen:?}");
            assert!(site.stored(&key).as_ref() == Some(&body), "{shape:?} {size}");
            let encoding = |answer: &Answer| answer.header("content-encoding").map(str::to_owned);
            let get = Signed::new("GET", &target, host);
            let through = encoding(&get.send(site.gate.address()));
            put.send(direct);
            assert_eq!(through, encoding(&get.send(direct)), "{shape:?} {size}");
        }
    }
}

#[test]
fn a_wrong_checksum_is_the_stores_to_refuse() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    let host = store.url.strip_prefix("http://").unwrap();
    for shape in [Shape::Trailer, Shape::HttpTrailer] {
        for size in [10, 200_000] {
            let target = format!("/{}/wrong", site.bucket);
            let put = Signed::new("PUT", &target, host).token(token).checksum("AAAAAA==");
            let put = put.body(shape, &vec![b'w'; size]);
            let seen = put.send(site.gate.address());
            let straight = put.send(host.parse().unwrap());
            assert_eq!(straight.status, 400, "{shape:?} {size}");
            assert_eq!((seen.status, seen.code()), (400, straight.code()), "{shape:?} {size}");
            assert_eq!(site.stored("wrong"), None, "{shape:?} {size}");
        }
    }
    // The refusal was a definite answer: a successor does not wait.
    let next = site.gate.hand_over("wal/main", token, "b");
    assert_eq!(site.put("wrong", next, b"right").status, 200);
}

#[test]
fn only_a_signed_token_reaches_the_store() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let host = gate.address().to_string();
    for (key, size) in [("small", 10), ("large", 100_000)] {
        let (signed, unsigned) = (format!("/wal/{key}-signed"), format!("/wal/{key}-unsigned"));
        let put =
            |target: &str| Signed::new("PUT", target, &host).body(Shape::Plain, &vec![b'x'; size]);
        let one = put(&signed).header("fencing-token", &token.to_string()).send(gate.address());
        let two = put(&unsigned).token(token).send(gate.address());
        assert_eq!((one.status, two.status), (200, 200));
        let seen = store.seen_at(&signed)[0].header("fencing-token");
        assert_eq!(seen, Some(token.to_string()));
        assert_eq!(store.seen_at(&unsigned)[0].header("fencing-token"), None);
    }
    // SeaweedFS would refuse the signature if the signed one were taken off.
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s").to_string();
    let target = format!("/{}/segment", site.bucket);
    let put = Signed::new("PUT", &target, &host).header("fencing-token", &token);
    assert_eq!(put.send(site.gate.address()).status, 200);
}

#[test]
fn no_answer_carries_a_token_whatever_the_store_sends() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let plain = b"HTTP/1.1 200 OK\r\nFencing-Token: 99\r\nfencing-TOKEN: 98\r\nETag: \"e\"\r\nContent-Length: 2\r\n\r\nok";
    let refused =
        b"HTTP/1.1 403 Forbidden\r\nFencing-Token: 99\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n";
    let trailer = b"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nTrailer: Fencing-Token\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nFencing-Token: 99\r\n\r\n";
    let answers: [&[u8]; 3] = [plain, refused, trailer];
    for answer in answers {
        for (method, key, size) in
            [("GET", "a", 0), ("PUT", "b", 10), ("PUT", "c", 100_000), ("DELETE", "d", 0)]
        {
            let path = format!("/wal/{key}");
            store.next(&path, script::answer(answer));
            let lines = [
                format!("Fencing-Token: {token}"),
                "TE: trailers".to_owned(),
                "Connection: close, TE".to_owned(),
            ];
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let mut client = RawClient::connect(gate.address());
            client.send(&request(method, &path, "localhost", &lines, &vec![b'x'; size]));
            let seen = String::from_utf8_lossy(&client.rest()).to_lowercase();
            assert!(seen.contains("etag"), "{method} {key}: {seen}");
            assert!(!seen.contains("fencing-token"), "{method} {key}: {seen}");
        }
    }
}

#[test]
fn a_client_that_expects_a_100_gets_it_only_once_it_is_admitted() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let (stale, good) = site.taken_over();
    let host = site.gate.address().to_string();
    let target = format!("/{}/segment", site.bucket);
    for size in [10, 300_000] {
        let body = vec![b'e'; size];
        let put = |token| {
            let put = Signed::new("PUT", &target, &host).token(token);
            let wire = put.unsigned("Expect", "100-continue").body(Shape::Plain, &body).wire();
            let mut client = RawClient::connect(site.gate.address());
            client.send(&wire.head);
            let first = String::from_utf8_lossy(&client.head()).into_owned();
            (client, first)
        };
        let (_, first) = put(stale);
        assert!(first.starts_with("HTTP/1.1 412"), "{first}");
        let (mut client, first) = put(good);
        assert!(first.starts_with("HTTP/1.1 100"), "{first}");
        client.send(&body);
        assert_eq!(client.answer().status, 200);
        assert!(site.stored("segment") == Some(body));
    }
}
