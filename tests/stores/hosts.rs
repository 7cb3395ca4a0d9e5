//! Which bucket `Host` names: the store's view of it and the fence's are the same, or the request is refused.

use crate::support::clients::{boto3, stdout_of};
use crate::support::gate::{Builder, Gate};
use crate::support::raw_client::{RawClient, request};
use crate::support::signed::{Shape, Signed};
use crate::support::stores::{self, Store};

/// `HOST` resolves to this machine, as does every name below it.
const RESOLVE: &str = r#"
import socket
ask = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: ask('127.0.0.1', *more, **named)
"#;

/// The bucket is fenced; a bucket of the name `public` would be open.
fn gate(store: &Store, bucket: &str) -> Builder {
    let rules = format!(
        "[[rule]]\nmatch = \"{bucket}/**\"\nresource = \"wal/main\"\n[[rule]]\nmatch = \"public/**\"\nfence = \"none\"\n"
    );
    Gate::builder(&store.url).rules(&rules)
}

// R05: gaul/s3proxy#321: a proxy matched bucket and key of the path while the client meant those of Host.

#[test]
fn both_ways_to_name_a_bucket_fall_under_one_rule() {
    let Some(store) = stores::seaweedfs() else { return };
    let bucket = store.bucket("vhost");
    let gate = gate(store, &bucket).proxy("hosts = [\"s3.test\"]\nvirtual_hosts = true").start();
    let token = gate.acquire("wal/main", "a", "60s");
    let endpoint = format!("http://s3.test:{}", gate.address().port());
    for style in ["virtual", "path"] {
        let code = format!(
            "{RESOLVE}{}",
            r#"
bucket, style = sys.argv[1:]
seen = []
def use(token):
    made = client(token, s3={'addressing_style': style})
    made.meta.events.register('before-send.s3', lambda request, **_: seen.append(request.url))
    return made
key = style + '/a b+c'
use(os.environ['TOKEN']).put_object(Bucket=bucket, Key=key, Body=style.encode())
assert use(None).get_object(Bucket=bucket, Key=key)['Body'].read() == style.encode()
assert key in [o['Key'] for o in use(None).list_objects_v2(Bucket=bucket)['Contents']]
assert (bucket + '.s3.test' in seen[0]) == (style == 'virtual'), seen
try:
    use(None).put_object(Bucket=bucket, Key=key, Body=b'no token')
except ClientError as error:
    print(error.response['ResponseMetadata']['HTTPStatusCode'], error.response['Error']['Code'])"#
        );
        let output = boto3(&endpoint, Some(token), &code, &[&bucket, style]);
        assert_eq!(stdout_of(&output), "428 MissingFencingToken", "{style}");
        let stored = store.object(&bucket, &format!("{style}/a%20b%2Bc"));
        assert_eq!(stored.as_deref(), Some(style.as_bytes()), "{style}");
    }
}

#[test]
fn a_bucket_in_host_is_never_taken_for_an_open_one_in_the_path() {
    let Some(store) = stores::seaweedfs() else { return };
    let bucket = store.bucket("vhost");
    let virtual_hosts = [
        ("", 421),
        ("hosts = [\"s3.test\"]", 421),
        ("hosts = [\"s3.test\"]\nvirtual_hosts = true", 428),
    ];
    let upper = bucket.to_uppercase();
    let names = |port: u16| {
        vec![
            format!("{bucket}.s3.test"),
            format!("{bucket}.s3.test:{port}"),
            format!("{bucket}.s3.test."),
            format!("{upper}.S3.TEST"),
        ]
    };
    for (proxy, want) in virtual_hosts {
        let gate = gate(store, &bucket).proxy(proxy).start();
        for host in names(gate.address().port()) {
            let put = Signed::new("PUT", "/public/x", &host).body(Shape::Plain, b"around");
            let seen = put.send(gate.address());
            assert_eq!(seen.status, want, "{proxy} {host}: {}", seen.text());
        }
        for (line, want) in [
            (format!("http://{bucket}.s3.test/public/x"), 421),
            (format!("http://elsewhere/{bucket}/x"), 421),
        ] {
            let mut client = RawClient::connect(gate.address());
            client.send(&request("PUT", &line, "s3.test", &[], b"around"));
            assert_eq!(client.answer().status, want, "{proxy} {line}");
        }
    }
    assert_eq!(store.object(&bucket, "public/x"), None);
    // What the fence is for: this store does read the bucket from Host.
    let host = format!("{bucket}.s3.test");
    let put = Signed::new("PUT", "/public/x", &host).body(Shape::Plain, b"direct");
    let address = store.url.strip_prefix("http://").unwrap().parse().unwrap();
    assert_eq!(put.send(address).status, 200);
    assert_eq!(store.object(&bucket, "public/x").as_deref(), Some(&b"direct"[..]));
}
