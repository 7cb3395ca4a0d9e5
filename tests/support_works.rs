//! What the other tests stand on does what it says.

use std::time::Duration;

use crate::support::clients::{boto3, stdout_of};
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, Step, script};
use crate::support::stores::{self, Store};

/// Puts with boto3, reads with curl, and the other way round.
fn stores_boot(store: Option<&'static Store>) {
    let Some(store) = store else { return };
    let bucket = store.bucket("boot");
    let put = "s3.put_object(Bucket=sys.argv[1], Key='d/one', Body=b'first')";
    stdout_of(&boto3(&store.url, None, put, &[&bucket]));
    assert_eq!(store.object(&bucket, "d/one").as_deref(), Some(&b"first"[..]), "{}", store.name);
    store.put_object(&bucket, "two", b"second");
    let get = "print(s3.get_object(Bucket=sys.argv[1], Key='two')['Body'].read().decode())";
    assert_eq!(stdout_of(&boto3(&store.url, None, get, &[&bucket])), "second", "{}", store.name);
    assert_eq!(store.object(&bucket, "absent"), None, "{}", store.name);
}

#[test]
fn stores_boot_seaweedfs() {
    stores_boot(stores::seaweedfs());
}

#[test]
fn stores_boot_moto() {
    stores_boot(stores::moto());
}

#[test]
fn stores_boot_nanio() {
    stores_boot(stores::nanio());
}

#[test]
fn stores_boot_rclone() {
    stores_boot(stores::rclone());
}

#[test]
fn the_scripted_store_applies_and_answers_what_is_not_scripted() {
    let store = RawStore::start();
    let mut client = RawClient::connect(store.address());
    client.send(&request("PUT", "/b/k?x=1", "h", &["X-One: 1"], b"hello"));
    assert_eq!(client.answer().status, 200);
    client.send(b"PUT /b/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    client.send(&request("GET", "/b/c", "h", &[], b""));
    assert_eq!(client.answer().body, b"abcde");
    client.send(&request("HEAD", "/b/c", "h", &[], b""));
    assert_eq!(client.answer_to("HEAD").header("content-length"), Some("5"));
    let seen = &store.seen_at("/b/k")[0];
    assert_eq!((seen.target.as_str(), seen.header("x-one").as_deref()), ("/b/k?x=1", Some("1")));
    assert_eq!(seen.raw_body, b"hello");
    assert_eq!(store.connections(), 1);
    assert_eq!(store.applied()[1], ("PUT /b/c".to_owned(), b"abcde".to_vec()));
}

#[test]
fn the_scripted_store_holds_until_released() {
    let store = RawStore::start();
    store.next("/b/held", script::hold());
    store.next("/b/late", script::late());
    let mut held = RawClient::connect(store.address());
    let mut late = RawClient::connect(store.address());
    held.send(&request("PUT", "/b/held", "h", &[], b"1"));
    late.send(&request("PUT", "/b/late", "h", &[], b"2"));
    store.wait_applied("/b/held");
    store.wait_complete("/b/late");
    assert!(held.silent_for(Duration::from_millis(50)));
    assert_eq!((store.object("/b/held"), store.object("/b/late")), (Some(b"1".to_vec()), None));
    store.release("/b/late");
    assert_eq!(late.answer().status, 200);
    assert_eq!(store.object("/b/late"), Some(b"2".to_vec()));
    store.release("/b/held");
    assert_eq!(held.answer().status, 200);
}

#[test]
fn the_scripted_store_ends_connections_as_told() {
    let early = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let twice = b"HTTP/1.1 200 OK\r\nETag: \"raw\"\r\nContent-Length: 0\r\n\r\n".repeat(2);
    let half = vec![Step::ReadAtLeast(1), Step::Send(b"HTTP/1.1 2".to_vec()), Step::Close];
    let cases = [
        ("early", script::early(early), early.to_vec()),
        ("twice", [script::twice(), vec![Step::Close]].concat(), twice),
        ("half a status line", half, b"HTTP/1.1 2".to_vec()),
        ("closed", script::applied_without_answer(), Vec::new()),
        ("reset after the head", script::reset_after_head(), Vec::new()),
        ("reset after the body", script::reset_after_body(), Vec::new()),
    ];
    for (name, steps, want) in cases {
        let store = RawStore::start();
        store.next("/b/k", steps);
        let mut client = RawClient::connect(store.address());
        client.send(&request("PUT", "/b/k", "h", &[], b"x"));
        assert_eq!(client.rest(), want, "{name}");
    }
}

#[test]
fn the_scripted_store_sees_a_torn_upload() {
    let store = RawStore::start();
    let mut client = RawClient::connect(store.address());
    client.send(b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    store.wait_seen("/b/k", "half-read", |seen| seen.raw_body == b"half");
    client.reset();
    let seen = store.wait_torn("/b/k");
    assert_eq!((seen.raw_body.as_slice(), seen.applied_at), (&b"half"[..], None));
    assert_eq!(store.object("/b/k"), None);
}
