//! Keys: every one goes through byte for byte, and no spelling of one reaches another.

use super::Site;
use crate::support::clients::{Curl, awscli_fenced, boto3, stdout_of};
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::signed::{Shape, Signed};
use crate::support::stores;

/// Keys that re-signers and path handling have broken, as Python text.
const KEYS: &str = r#"
keys = ['a b', ' a ', 'a+b', 'a=b', 'a%2Bb', 'a%b', '100%', 'a&b=c', "(x)!*'~", '~', '$@,:;', 'あ',
    'caf\u00e9', 'cafe\u0301', 'a\u0316\u0302\u0308', '\U0001f600', 'q?x=1#f', '"q"', '<a>', '[b]', '{c}', '|^`',
    'dir/sub dir/k+', '.hidden', '...', '/'.join(['k' * 99] * 9) + '/end']
"#;

// R25: paradigmxyz/iron-proxy#220, anomalizer/ngx_aws_auth#87, nginx/nginx-s3-gateway#28: paths were escaped
// twice, or signed in one spelling and sent in another.

#[test]
fn every_key_makes_its_round_trip_under_its_own_name() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    let code = format!(
        "{KEYS}{}",
        r#"
import boto3, botocore
bucket = sys.argv[1]
straight = boto3.client('s3', endpoint_url=sys.argv[2], config=Config(s3={'addressing_style': 'path'}))
def names(client, **more):
    pages = client.get_paginator('list_objects_v2').paginate(Bucket=bucket, **more)
    return sorted(o['Key'] for page in pages for o in page.get('Contents', []))
for key in keys:
    body = key.encode()
    s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata={'who': 'a'})
    assert straight.get_object(Bucket=bucket, Key=key)['Body'].read() == body, key
    assert s3.get_object(Bucket=bucket, Key=key)['Body'].read() == body, key
    assert s3.head_object(Bucket=bucket, Key=key)['ContentLength'] == len(body), key
    assert key in names(s3, Prefix=key[:20]), key
    s3.copy_object(Bucket=bucket, Key='copy/' + key, CopySource={'Bucket': bucket, 'Key': key})
    assert straight.get_object(Bucket=bucket, Key='copy/' + key)['Body'].read() == body, key
assert names(s3) == names(straight) == sorted(keys + ['copy/' + key for key in keys]), names(s3)
for key in keys:
    s3.delete_object(Bucket=bucket, Key=key)
s3.delete_object(Bucket=bucket, Key='copy/ a ')
# In a document white space at an end is refused: parsers strip it or keep it.
inside = ['copy/' + key for key in keys if key == key.strip()]
s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': key} for key in inside]})
print(names(straight))"#
    );
    let output = boto3(&site.gate.url(), Some(token), &code, &[&site.bucket, &store.url]);
    assert_eq!(stdout_of(&output), "[]");
}

#[test]
fn every_key_makes_its_round_trip_with_awscli() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    let body = site.gate.config_path();
    let bytes = std::fs::read(&body).unwrap();
    let cases = [
        ("a b+c", "a%20b%2Bc"),
        ("caf\u{e9}/cafe\u{301}", "caf%C3%A9/cafe%CC%81"),
        ("(x)!*'~%&=", "%28x%29%21%2A%27~%25%26%3D"),
    ];
    for (key, path) in cases {
        let put = ["s3api", "put-object", "--bucket", &site.bucket, "--key", key, "--body"];
        let put = [&put[..], &[body.to_str().unwrap()]].concat();
        stdout_of(&awscli_fenced(&site.gate.url(), token, &put));
        assert!(site.stored(path).as_ref() == Some(&bytes), "{key}");
        let (from, to) =
            (format!("s3://{}/{key}", site.bucket), format!("s3://{}/moved/{key}", site.bucket));
        stdout_of(&awscli_fenced(&site.gate.url(), token, &["s3", "mv", &from, &to]));
        assert!(site.stored(&format!("moved/{path}")).as_ref() == Some(&bytes), "{key}");
        assert_eq!(site.stored(path), None, "{key}");
    }
}

#[test]
fn a_target_goes_upstream_byte_for_byte() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = format!("Fencing-Token: {}", gate.acquire("wal/main", "a", "60s"));
    let cases = [
        ("PUT", "/wal/p%2bp"),
        ("PUT", "/wal/p%2Bp"),
        ("PUT", "/wal/p+p"),
        ("PUT", "/wal/!*()'"),
        ("PUT", "/wal/%21%2a%28%29%27"),
        ("PUT", "/wal/a%20b"),
        ("PUT", "/wal/a%252Bb"),
        ("PUT", "/wal/%E3%81%82"),
        ("PUT", "/wal/a;v=1,b:c@d$e&f=g"),
        ("PUT", "/wal/x?x-id=PutObject"),
        ("PUT", "/wal/a//b"),
        ("PUT", "/wal//a"),
        ("PUT", "/wal/a/"),
        ("PUT", "/public/%252e%252e/wal/x"),
        ("GET", "/wal/%61.txt"),
        ("GET", "/wal/a%2Fb?versionId=%31&x=%7e"),
        ("GET", "/wal/./a/../b//c"),
        ("GET", "/wal?list-type=2&prefix=a%20b&delimiter=%2F"),
    ];
    for (method, target) in cases {
        let mut client = RawClient::connect(gate.address());
        let header: &[&str] = if method == "PUT" { &[&token] } else { &[] };
        client.send(&request(method, target, "localhost", header, b""));
        let status = client.answer().status;
        assert!(matches!(status, 200 | 404), "{target}: {status}");
        assert_eq!(store.seen().last().unwrap().target, target);
    }
}

// R33: thin-edge/thin-edge.io#4349, nitrojs/nitro#4222: the rule looked at the path as received, the store at
// the path after it had resolved dots and slashes.

#[test]
fn no_spelling_of_a_fenced_key_passes_for_an_open_one() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = format!("Fencing-Token: {}", gate.acquire("wal/main", "a", "60s"));
    let cases = [
        ("/public/../wal/x", 400, "segment"),
        ("/public/%2e%2e/wal/x", 400, "needs no encoding"),
        ("/public/..%2fwal/x", 400, "%2F"),
        ("/public%2f..%2fwal/x", 400, "%2F"),
        ("/public/..;/wal/x", 400, "segment"),
        ("/public/x%00", 400, "control character"),
        ("/public/..%5cwal%5cx", 400, "backslash"),
        ("//wal/x", 400, "begins with"),
        ("//localhost/wal/x", 400, "begins with"),
        ("/%77al/x", 400, "needs no encoding"),
        ("/wal/%6B", 400, "needs no encoding"),
        ("/wal/a%2Fb", 400, "%2F"),
        ("/wal/./a", 400, "segment"),
        ("/wal/%zz", 400, "two hexadecimal digits"),
        ("/wal/%ff", 400, "UTF-8"),
        ("/public//../wal/x", 400, "segment"),
    ];
    for (target, status, why) in cases {
        // With a good token the spelling is refused all the same, and the answer says why.
        for header in [&[][..], &[token.as_str()][..]] {
            let mut client = RawClient::connect(gate.address());
            client.send(&request("PUT", target, "localhost", header, b"x"));
            let answer = client.answer();
            assert_eq!(answer.status, status, "{target}: {answer:?}");
            assert_eq!(answer.code().as_deref(), Some("AmbiguousKey"), "{target}");
            assert!(answer.text().contains(why), "{target}: {}", answer.text());
        }
    }
    for (target, wanted) in [
        ("/public\\..\\wal\\x", &[400][..]),
        ("http://elsewhere/wal/x", &[421]),
        ("http://localhost/wal/x", &[400, 421, 428]),
        ("/wal/x#f", &[400, 428]),
        ("wal/x", &[400]),
    ] {
        let mut client = RawClient::connect(gate.address());
        client.send(&request("PUT", target, "localhost", &[], b"x"));
        let answer = client.answer();
        assert!(wanted.contains(&answer.status), "{target}: {answer:?}");
    }
    assert!(store.seen().is_empty(), "the store saw {:?}", store.seen());
}

// R34: versity/versitygw#2274, duckdb/duckdb-httpfs#333: empty segments were collapsed, and keys hit other objects.

#[test]
fn keys_with_empty_segments_keep_their_spelling_and_their_signature() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    let body = site.gate.config_path();
    let put = |key: &str| {
        let put = ["s3api", "put-object", "--bucket", &site.bucket, "--key", key, "--body"];
        let put = [&put[..], &[body.to_str().unwrap()]].concat();
        awscli_fenced(&site.gate.url(), token, &put)
    };
    for key in ["/foo", "a//b", "dir/"] {
        stdout_of(&put(key));
    }
    // What this store makes of them is its own affair.
    assert!(site.stored("foo").is_some() && site.stored("a/b").is_some());
    // A directory marker as pyarrow writes it.
    let host = site.gate.address().to_string();
    let target = format!("/{}/table/part%3D1/", site.bucket);
    let marker = Signed::new("PUT", &target, &host).token(token);
    let marker = marker.header("content-type", "application/x-directory");
    assert_eq!(marker.send(site.gate.address()).status, 200);
    assert_eq!(site.stored("table/part%3D1/"), Some(Vec::new()));
    let refused = put("a/./b");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("AmbiguousKey") && said.contains("segment"), "{said}");
}

/// SeaweedFS writes `b/k` when it is sent `b//k`: a rule for one must not let writes of the other pass.
#[test]
fn a_store_that_folds_slashes_is_no_way_around_the_fence() {
    for store in [stores::seaweedfs(), stores::moto()].into_iter().flatten() {
        let bucket = store.bucket("fold");
        let rules = format!(
            "[[rule]]\nmatch = \"{bucket}/wal/**\"\nresource = \"wal/main\"\n[[rule]]\nmatch = \"{bucket}/**\"\nfence = \"none\"\n"
        );
        let gate = Gate::builder(&store.url).rules(&rules).start();
        let token = gate.acquire("wal/main", "a", "60s");
        let put = Curl::put(&format!("{}/{bucket}/wal/x", gate.url())).token(token).body(b"kept");
        assert_eq!(put.send().status, 200);
        let host = gate.address().to_string();
        let targets = [
            format!("/{bucket}//wal/x"),
            format!("/{bucket}///wal/x"),
            format!("/{bucket}/wal//x"),
        ];
        for (at, target) in targets.iter().enumerate() {
            for method in ["PUT", "DELETE"] {
                let seen = Signed::new(method, target, &host).send(gate.address());
                // The last one is under `wal/` in every reading: it only lacks a token.
                let want =
                    if at == 2 { (428, "MissingFencingToken") } else { (400, "AmbiguousKey") };
                assert_eq!(
                    (seen.status, seen.code().as_deref()),
                    (want.0, Some(want.1)),
                    "{target}"
                );
            }
        }
        let source = format!("/{bucket}//wal/x");
        let copy = Signed::new("PUT", &format!("/{bucket}/open"), &host);
        let seen = copy.header("x-amz-copy-source", &source).send(gate.address());
        assert_eq!(seen.status, 400, "a copy's source obeys the same rule: {seen:?}");
        let xml = "<Delete><Object><Key>/wal/x</Key></Object></Delete>";
        let batch = Signed::new("POST", &format!("/{bucket}?delete="), &host);
        let seen = batch.body(Shape::Plain, xml.as_bytes()).send(gate.address());
        assert_eq!((seen.status, seen.code().as_deref()), (400, Some("AmbiguousKey")));
        assert_eq!(store.object(&bucket, "wal/x").as_deref(), Some(&b"kept"[..]), "{}", store.name);
    }
    // The same request, sent past the gate, is one that this store folds.
    let Some(store) = stores::seaweedfs() else { return };
    let bucket = store.bucket("fold");
    let host = store.url.strip_prefix("http://").unwrap();
    let put = Signed::new("PUT", &format!("/{bucket}//wal/x"), host).body(Shape::Plain, b"folded");
    assert_eq!(put.send(host.parse().unwrap()).status, 200);
    assert_eq!(store.object(&bucket, "wal/x").as_deref(), Some(&b"folded"[..]));
}
