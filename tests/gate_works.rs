//! The gate that the other tests start: it comes up, fences, logs, takes signals, comes back.

use std::time::Duration;

use crate::support::clients::Curl;
use crate::support::gate::Gate;
use crate::support::raw_store::RawStore;

#[test]
fn a_gate_starts_fences_and_stops() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let first = gate.acquire("wal/main", "first", "60s");
    let put = |token, body: &[u8]| {
        Curl::put(&format!("{}/wal/segment", gate.url())).token(token).body(body).send()
    };
    assert_eq!(put(first, b"first").status, 200);
    let second = gate.hand_over("wal/main", first, "second");
    assert!(second > first);
    assert_eq!(put(second, b"second").status, 200);
    let refused = put(first, b"stale");
    assert_eq!((refused.status, refused.code().as_deref()), (412, Some("StaleFencingToken")));
    assert_eq!(store.object("/wal/segment").as_deref(), Some(&b"second"[..]));
    assert_eq!(store.seen_at("/wal/segment").len(), 2, "the stale write reached the store");
    gate.sigterm();
    assert!(gate.wait_exit(Duration::from_secs(30)).success());
}

#[test]
fn a_gate_comes_back_on_the_same_addresses() {
    let store = RawStore::start();
    let mut gate = Gate::builder(&store.url()).start();
    let url = gate.url();
    gate.sigkill();
    assert!(Curl::get(&url).unsigned().try_send().is_none());
    gate.restart();
    assert_eq!((gate.url(), gate.get("/readyz").status), (url, 200));
}

#[test]
fn each_rule_sends_its_requests_to_its_own_store() {
    let (first, second) = (RawStore::start(), RawStore::start());
    let rules = format!(
        "[[rule]]\nmatch = \"a/**\"\nresource = \"a\"\n\
         [[rule]]\nmatch = \"b/**\"\nresource = \"b\"\nupstream = \"second\"\n\
         [upstreams.second]\nkind = \"s3\"\nurl = \"{}\"\n",
        second.url()
    );
    let gate = Gate::builder(&first.url()).rules(&rules).start();
    for (bucket, own, other) in [("a", &first, &second), ("b", &second, &first)] {
        let token = gate.acquire(bucket, "holder", "60s");
        let path = format!("/{bucket}/k");
        let url = format!("{}{path}", gate.url());
        assert_eq!(Curl::put(&url).token(token).body(b"body").send().status, 200, "{bucket}");
        assert_eq!(Curl::get(&url).send().body, b"body", "{bucket}");
        let list = format!("{}/{bucket}?list-type=2&prefix=x", gate.url());
        Curl::get(&list).send();
        assert_eq!(own.seen_at(&path).len(), 2, "{bucket}");
        assert_eq!(own.seen().len(), 3, "{bucket}: the list went elsewhere");
        assert!(other.seen_at(&path).is_empty(), "{bucket}");
    }
}
