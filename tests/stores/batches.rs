//! Batch deletes: what names their keys is a document, and two parsers can read one document differently.

use super::Site;
use crate::support::clients::{boto3, stdout_of};
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::signed::{Shape, Signed};
use crate::support::stores;

fn batch(keys: &[&str]) -> String {
    let objects: String =
        keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{objects}</Delete>")
}

fn one(inside: &str) -> String {
    format!("<Delete><Object>{inside}</Object></Delete>")
}

// R22: milvus-io/talon#533, rustfs/rustfs#2814.

#[test]
fn an_oddly_written_batch_is_refused_whole_before_a_byte_leaves() {
    let store = RawStore::start();
    // Every object of the bucket is fenced as one resource, but for what is under `open/`.
    let rules = "[[rule]]\nmatch = \"b/open/**\"\nfence = \"none\"\n[[rule]]\nmatch = \"b/{part}/**\"\nresource = \"r/{part}\"\n";
    let gate = Gate::builder(&store.url()).rules(rules).start();
    let token = gate.acquire("r/wal", "a", "60s");
    let thousand: Vec<String> = (0..1_001).map(|at| format!("wal/{at}")).collect();
    let too_many: Vec<&str> = thousand.iter().map(String::as_str).collect();
    let utf16: Vec<u8> = batch(&["wal/x"]).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let padded = format!("{}{}", batch(&["wal/x"]), " ".repeat(3 << 20));
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("two resources", batch(&["wal/x", "other/x"]).into(), 400),
        ("fenced and open", batch(&["open/x", "wal/x"]).into(), 400),
        ("no rule covers it", batch(&["bare"]).into(), 403),
        ("no rule covers one of them", batch(&["wal/x", "bare"]).into(), 400),
        ("1,001 keys", batch(&too_many).into(), 400),
        ("a numeric reference", batch(&["&#x77;al/x"]).into(), 400),
        ("CDATA", batch(&["<![CDATA[wal/x]]>"]).into(), 400),
        ("a comment inside", batch(&["wal<!-- -->/x"]).into(), 400),
        ("a prefix", one("<s3:Key>wal/x</s3:Key>").into(), 400),
        (
            "a DOCTYPE",
            format!("<!DOCTYPE d [<!ENTITY k \"wal/x\">]>{}", batch(&["&k;"])).into(),
            400,
        ),
        ("UTF-16", utf16, 400),
        ("two keys in one object", one("<Key>wal/x</Key><Key>other/x</Key>").into(), 400),
        ("a key in a key", one("<Key>wal/<Key>x</Key></Key>").into(), 400),
        ("a second root", [batch(&["wal/x"]), batch(&["other/x"])].concat().into(), 400),
        ("NUL", batch(&["wal/x\0"]).into(), 400),
        ("U+FFFF", batch(&["wal/x\u{ffff}"]).into(), 400),
        ("dot segments", batch(&["wal/../other/x"]).into(), 400),
        ("a leading slash", batch(&["/other/x", "wal/x"]).into(), 400),
        ("white space at an end", batch(&["wal/x "]).into(), 400),
        ("nothing", Vec::new(), 400),
        ("no object", batch(&[]).into(), 400),
        ("not closed", b"<Delete><Object><Key>wal/x</Key></Object>".to_vec(), 400),
        ("larger than a document may be", padded.into(), 413),
    ];
    let header = format!("Fencing-Token: {token}");
    for (name, body, status) in &cases {
        let mut client = RawClient::connect(gate.address());
        let whole = request("POST", "/b?delete", "localhost", &[&header], body);
        client.try_send(&whole);
        let answer = client.answer();
        assert_eq!(answer.status, *status, "{name}: {}", answer.text());
        assert!(answer.code().is_some(), "{name}");
    }
    // A token decides only after the document: one without it is refused for the keys all the same.
    let mut client = RawClient::connect(gate.address());
    client.send(&request("POST", "/b?delete", "localhost", &[], batch(&["wal/x"]).as_bytes()));
    assert_eq!(client.answer().status, 428);
    assert!(store.seen().is_empty(), "{:?}", store.seen());
}

#[test]
fn a_good_batch_goes_upstream_byte_for_byte() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    let header = format!("Fencing-Token: {token}");
    let document = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
        batch(&["a&amp;b", "caf\u{e9}", "cafe\u{301}", "d/"]).replace("><", ">\n  <")
    );
    let chunks = format!(
        "5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        &document[..5],
        document.len() - 5,
        &document[5..]
    );
    let head = format!(
        "POST /wal?delete HTTP/1.1\r\nHost: localhost\r\n{header}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    for raw in [
        request(
            "POST",
            "/wal?delete",
            "localhost",
            &[&header, "Content-MD5: AAAA"],
            document.as_bytes(),
        ),
        [head, chunks].concat().into_bytes(),
    ] {
        let mut client = RawClient::connect(gate.address());
        client.send(&raw);
        assert_eq!(client.answer().status, 200);
        let seen = store.seen().pop().unwrap();
        assert_eq!(String::from_utf8_lossy(&seen.body), document);
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/wal?delete"));
    }
    assert_eq!(store.seen()[0].header("content-md5").as_deref(), Some("AAAA"));
}

#[test]
fn a_batch_without_a_fence_keeps_its_document() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        store.put_object(&site.bucket, "public/a", b"gone");
        store.put_object(&site.bucket, "public/b", b"gone");
        let code = "s3.delete_objects(Bucket=sys.argv[1], Delete={'Objects': [{'Key': 'public/a'}, {'Key': 'public/b'}]})";
        stdout_of(&boto3(&site.gate.url(), None, code, &[&site.bucket]));
        assert_eq!(
            (site.stored("public/a"), site.stored("public/b")),
            (None, None),
            "{}",
            store.name
        );
    }
}

#[test]
fn a_thousand_keys_are_deleted_under_a_good_signature_and_digest() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    store.put_object(&site.bucket, "k-7", b"gone");
    store.put_object(&site.bucket, "stays", b"kept");
    let keys: Vec<String> = (0..1_000).map(|at| format!("k-{at}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let document = batch(&keys);
    let host = site.gate.address().to_string();
    let target = format!("/{}?delete", site.bucket);
    let code = "import hashlib, base64; print(base64.b64encode(hashlib.md5(open(sys.argv[1], 'rb').read()).digest()).decode())";
    let file = site.gate.dir().join("document");
    std::fs::write(&file, &document).unwrap();
    let digest = stdout_of(&boto3(&site.gate.url(), None, code, &[file.to_str().unwrap()]));
    let post = Signed::new("POST", &target, &host).token(token).header("content-md5", &digest);
    let right = post.body(Shape::Plain, document.as_bytes()).send(site.gate.address());
    assert_eq!(right.status, 200, "{right:?}");
    assert_eq!(right.text().matches("<Deleted>").count(), 1_000);
    assert_eq!(site.stored("k-7"), None);
    assert!(site.stored("stays").is_some());
}
