//! Clocks that step, and a proxy that sleeps through a lease: lives of leases do not change, nothing stale passes.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{applied, fence, json, number, put};
use crate::support::clients::stdout_of;
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, wait_for};

const RESOURCE: &str = "wal/main";
const TTL: Duration = Duration::from_secs(30);
const HOUR: i64 = 3_600;

/// The library of libfaketime for programs with threads; `make prereqs` installs it.
fn libfaketime() -> PathBuf {
    let places = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let names = places.map(|dir| dir.join("faketime/libfaketimeMT.so.1"));
    let found = names.chain([PathBuf::from("/usr/lib/faketime/libfaketimeMT.so.1")]);
    found.into_iter().find(|path| path.exists()).expect("libfaketime; see `make prereqs`")
}

/// The lease as the server shows it, no longer and no shorter than since `renewed` it can be.
#[track_caller]
fn assert_lives(gate: &Gate, token: u64, renewed: Instant, step: i64) {
    let lease = json(&gate.get(&format!("/v1/lease?resource={RESOURCE}")));
    assert_eq!((number(&lease["token"]), &lease["live"]), (token, &true.into()), "{step}: {lease}");
    let left = Duration::from_millis(lease["expires_in_ms"].as_u64().unwrap());
    // One for the milliseconds that both sides cut off.
    let least = TTL.saturating_sub(renewed.elapsed()).saturating_sub(Duration::from_millis(2));
    assert!((least..=TTL).contains(&left), "{step}: {left:?} left, {least:?} at least");
}

/// valkey-io/valkey#2651, etcd-io/etcd#12291, rust-lang/rust#87906: one step of the wall clock expired
/// every lock, or kept dead ones alive.
#[test]
fn r43_steps_of_the_wall_clock_change_no_lease_and_lower_no_token() {
    let store = RawStore::start();
    let dir = tempfile::tempdir().unwrap();
    let offset = dir.path().join("offset");
    let step_to = |seconds: i64| {
        // Renamed, so that it is never read half written.
        let fresh = dir.path().join("fresh");
        fs::write(&fresh, format!("{seconds:+}s")).unwrap();
        fs::rename(&fresh, &offset).unwrap();
    };
    step_to(0);
    let mut gate = Gate::builder(&store.url())
        .fence("settle_after = \"1s\"")
        .env("LD_PRELOAD", libfaketime().to_str().unwrap())
        .env("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1")
        .start();
    let mut renewed = Instant::now();
    let token = gate.acquire(RESOURCE, "a", "30s");
    let mut other = gate.acquire("other", "b", "60s");
    assert_eq!(put(&gate, "/wal/x", token).status, 200);

    for (round, step) in [365 * 24 * HOUR, -HOUR, 25 * HOUR].into_iter().enumerate() {
        // A lease that the step must not lengthen.
        let short = gate.acquire(&format!("short/{round}"), "c", "1s");
        step_to(step);
        // A resource without a token before shows where the server's clock is.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let seen = gate.acquire(&format!("probe/{round}"), "p", "60s") / 1_000_000;
        assert!((seen as i64 - wall - step).abs() < 600, "the clock did not step: {seen} {step}");

        assert_lives(&gate, token, renewed, step);
        renewed = Instant::now();
        stdout_of(&gate.cli(&["lease", "renew", RESOURCE, &token.to_string()]));
        assert_lives(&gate, token, renewed, step);
        assert_eq!(put(&gate, "/wal/x", token).status, 200, "{step}");
        let next = gate.hand_over("other", other, "b");
        assert!(next > other, "{step}: {next} after {other}");
        other = next;
        wait_for("the short lease to end", DEADLINE, || {
            let path = format!("/v1/lease?resource=short/{round}");
            let lease = json(&gate.get(&path));
            assert_eq!(number(&lease["token"]), short);
            lease["live"] == false
        });

        renewed = Instant::now();
        gate.restart();
        let status = json(&gate.get("/v1/status"));
        assert!(status["service"]["revoked"].is_null(), "{step}: {status}");
        // What was left is not known after a restart: the full TTL again, and no more.
        assert_lives(&gate, token, renewed, step);
        assert_eq!(put(&gate, "/wal/x", token).status, 200, "{step}");
        let next = gate.hand_over("other", other, "b");
        assert!(next > other, "{step}: {next} after {other}");
        other = next;
    }
}

/// Stops the gate, and waits until it has stopped.
fn pause(gate: &Gate) {
    gate.pause();
    let stat = format!("/proc/{}/stat", gate.pid());
    wait_for("the gate to stop", DEADLINE, || {
        fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().trim().starts_with('T')
    });
}

fn wait_until(end: Instant) {
    wait_for("the lease to run out", DEADLINE, || Instant::now() >= end);
}

fn write(token: u64) -> Vec<u8> {
    let header = format!("Fencing-Token: {token}");
    request("PUT", "/wal/x", "localhost", &[&header], token.to_string().as_bytes())
}

/// restic/restic#3126, borgbackup/borg#9870, with the proxy as the one that slept: the requests lie in
/// its socket buffers, some on connections that it has not accepted yet.
#[test]
fn r39_a_proxy_that_slept_past_the_lease_refuses_what_lay_in_its_buffers() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).fence("require_live = true").start();
    let a = gate.acquire(RESOURCE, "a", "2s");
    let granted = Instant::now();
    let mut known = RawClient::connect(gate.address());
    known.send(&write(a));
    assert_eq!(known.answer().status, 200);
    pause(&gate);
    let mut clients: Vec<RawClient> =
        (0..5).map(|_| RawClient::connect(gate.address())).chain([known]).collect();
    clients.iter_mut().for_each(|client| client.send(&write(a)));
    wait_until(granted + Duration::from_secs(2));
    gate.resume();
    for mut client in clients {
        let answer = client.answer();
        assert_eq!((answer.status, answer.code().as_deref()), (412, Some("LeaseExpired")));
    }
    assert_eq!(applied(&store, "/wal/x"), [a], "a write of after the lease took effect");
}

/// The same while a successor's acquire lies there, too: whatever order they are read in, nothing of the
/// predecessor lands after the first write of the successor.
#[test]
fn r39_a_successor_and_stale_writes_in_the_buffers_come_out_in_order() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let a = gate.acquire(RESOURCE, "a", "1s");
    let granted = Instant::now();
    let mut known = RawClient::connect(gate.address());
    known.send(&write(a));
    assert_eq!(known.answer().status, 200);
    pause(&gate);
    let mut clients: Vec<RawClient> =
        (0..20).map(|_| RawClient::connect(gate.address())).chain([known]).collect();
    std::thread::scope(|scope| {
        let (early, late) = clients.split_at_mut(10);
        early.iter_mut().for_each(|client| client.send(&write(a)));
        let successor = scope.spawn(|| {
            let b = gate.acquire(RESOURCE, "b", "60s");
            assert_eq!(put(&gate, "/wal/x", b).status, 200);
            b
        });
        late.iter_mut().for_each(|client| client.send(&write(a)));
        wait_until(granted + Duration::from_secs(1));
        gate.resume();
        let b = successor.join().unwrap();
        let statuses: Vec<u16> =
            early.iter_mut().chain(late).map(|client| client.answer().status).collect();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 412)), "{statuses:?}");
        let landed = applied(&store, "/wal/x");
        assert!(b > a && landed.is_sorted() && landed.last() == Some(&b), "{landed:?}");
        // One of before the pause, and of those in the buffers exactly the acknowledged ones.
        let acknowledged = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(landed.iter().filter(|token| **token == a).count(), 1 + acknowledged);
        assert_eq!(put(&gate, "/wal/x", a).status, 412);
    });
    // It keeps no permit that it forgot about.
    wait_for("the permits to be given back", DEADLINE, || {
        fence(&gate, RESOURCE)["permits"] == serde_json::json!([])
    });
}
