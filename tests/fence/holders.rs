//! Who is refused after a takeover, a release, an expiry.

use super::{NO_END, put, send};
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

/// pgbackrest/pgbackrest#1646, patroni/patroni#890, cloudnative-pg/cloudnative-pg#4990
#[test]
fn an_archiver_paused_halfway_through_a_segment_is_refused_when_it_goes_on() {
    for successor_wrote in [false, true] {
        let store = RawStore::start();
        let gate = Gate::builder(&store.url()).fence(NO_END).start();
        let a = gate.acquire("wal/main", "a", "60s");
        let whole = put("/wal/0000000A", a, &vec![b'a'; 1 << 20]);
        let (first, rest) = whole.split_at(whole.len() / 2);
        let mut archiver = RawClient::connect(gate.address());
        archiver.send(first);
        store.wait_seen("/wal/0000000A", "half-read", |seen| seen.raw_body.len() > 100_000);
        let b = gate.hand_over("wal/main", a, "b");
        if successor_wrote {
            assert_eq!(send(&gate, "/wal/0000000A", b, b"b").status, 200);
        }
        archiver.try_send(rest);
        let refused = archiver.answer();
        let code = refused.code();
        assert_eq!((refused.status, code.as_deref()), (412, Some("StaleFencingToken")));
        assert!(refused.text().contains("wal/main"), "{}", refused.text());
        store.wait_torn("/wal/0000000A");
        let stored = store.object("/wal/0000000A");
        assert_eq!(stored.as_deref(), successor_wrote.then_some(&b"b"[..]));
        assert_eq!(send(&gate, "/wal/0000000A", b, b"bb").status, 200);
    }
}

/// pgbackrest/pgbackrest#1646, patroni/patroni#890
#[test]
fn a_token_is_worth_nothing_after_its_own_release_and_an_expired_one_as_much_as_the_rule_says() {
    for require_live in [false, true] {
        let store = RawStore::start();
        let lines = format!("require_live = {require_live}");
        let gate = Gate::builder(&store.url()).fence(&lines).start();
        let a = gate.acquire("wal/main", "a", "1s");
        let live = || {
            let lease = gate.get("/v1/lease?resource=wal/main").text();
            lease.contains("\"live\":true")
        };
        wait_for("the lease runs out", DEADLINE, || !live());
        let expired = send(&gate, "/wal/x", a, b"expired");
        match require_live {
            false => assert_eq!(expired.status, 200, "nobody has acquired since"),
            true => {
                assert_eq!(
                    (expired.status, expired.code().as_deref()),
                    (412, Some("LeaseExpired"))
                );
            }
        }
        let b = gate.acquire("wal/main", "b", "60s");
        assert_eq!(send(&gate, "/wal/x", b, b"b").status, 200);
        gate.release("wal/main", b);
        let released = send(&gate, "/wal/x", b, b"after");
        assert_eq!((released.status, released.code().as_deref()), (412, Some("LeaseReleased")));
        assert_eq!(store.object("/wal/x").as_deref(), Some(&b"b"[..]));
    }
}

/// benbjohnson/litestream#224, benbjohnson/litestream#1301, thanos-io/thanos#469
#[test]
fn a_replaced_writer_deletes_copies_and_aborts_nothing() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let a = gate.acquire("wal/main", "a", "60s");
    for number in 1..=10 {
        assert_eq!(send(&gate, &format!("/wal/{number:04}"), a, b"a").status, 200);
    }
    let b = gate.hand_over("wal/main", a, "b");
    assert_eq!(send(&gate, "/wal/snapshot", b, b"b").status, 200);
    assert_eq!(send(&gate, "/wal/0011", b, b"b").status, 200);
    let seen = store.seen().len();
    let token = format!("Fencing-Token: {a}");
    let batch =
        b"<Delete><Object><Key>0010</Key></Object><Object><Key>0011</Key></Object></Delete>";
    let md5 = "x-amz-checksum-crc32: AAAAAA==";
    let stale = [
        request("DELETE", "/wal/0011", "localhost", &[&token], b""),
        request("POST", "/wal?delete", "localhost", &[&token, md5], batch),
        request("PUT", "/wal/0011", "localhost", &[&token, "x-amz-copy-source: /wal/0001"], b""),
        request("DELETE", "/wal/0012?uploadId=upload-of-b", "localhost", &[&token], b""),
    ];
    for bytes in stale {
        let mut client = RawClient::connect(gate.address());
        client.send(&bytes);
        let refused = client.answer();
        let what = String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned();
        assert_eq!(refused.status, 412, "{what}: {}", refused.text());
        assert_eq!(refused.code().as_deref(), Some("StaleFencingToken"), "{what}");
    }
    assert_eq!(store.seen().len(), seen, "the store saw none of them");
    assert_eq!(store.object("/wal/0011").as_deref(), Some(&b"b"[..]));
}
