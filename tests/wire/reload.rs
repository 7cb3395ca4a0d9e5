//! SIGHUP again and again, with good and bad files, under uploads, small writes and an event stream.
//!
//! jcmoraisjr/haproxy-ingress#899, haproxy/haproxy#1114

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, long, wait_for};

const UPLOADS: usize = 20;
const PIECE: usize = 16 << 10;

#[derive(Clone, Copy)]
enum File {
    Good,
    Broken,
    HalfWritten,
    Missing,
}

fn write(gate: &Gate, good: &str, file: File) {
    let path = gate.config_path();
    match file {
        File::Good => fs::write(path, good).unwrap(),
        File::Broken => fs::write(path, good.replace("[fence]", "[fence]\nnonsense = 1")).unwrap(),
        File::HalfWritten => fs::write(path, &good[..good.len() - 10]).unwrap(),
        File::Missing => fs::remove_file(path).unwrap(),
    }
}

#[test]
fn reloads_good_or_bad_fail_no_request_and_a_bad_file_keeps_the_old_rules() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "120s");
    let good = fs::read_to_string(gate.config_path()).unwrap();
    let mut events = RawClient::connect(gate.admin_address());
    events.send(b"GET /v1/leases/watch?prefix=later HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(events.head().starts_with(b"HTTP/1.1 200"));
    let rounds = if long() { 100 } else { 24 };
    let mut uploads: Vec<RawClient> = (0..UPLOADS)
        .map(|at| {
            let mut client = RawClient::connect(gate.address());
            let head = format!(
                "PUT /wal/up{at} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nContent-Length: {}\r\n\r\n",
                rounds * PIECE
            );
            client.send(head.as_bytes());
            client
        })
        .collect();
    let (done, small) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let line = format!("Fencing-Token: {token}");
            let mut client = RawClient::connect(gate.address());
            while !done.load(Ordering::SeqCst) {
                client.send(&request("PUT", "/wal/small", "localhost", &[&line], b"s"));
                assert_eq!(client.answer().status, 200);
                small.fetch_add(1, Ordering::SeqCst);
            }
        });
        let heard = |line: &String| {
            line.contains("configuration reloaded") || line.contains("was not reloaded")
        };
        for round in 0..rounds {
            let file = [File::Good, File::Broken, File::HalfWritten, File::Missing][round % 4];
            write(&gate, &good, file);
            let before = small.load(Ordering::SeqCst);
            gate.sighup();
            wait_for("the reload to be over", DEADLINE, || {
                gate.log().iter().filter(|line| heard(line)).count() > round
            });
            for upload in &mut uploads {
                upload.send(&[b'u'; PIECE]);
            }
            wait_for("small writes to go on", DEADLINE, || {
                small.load(Ordering::SeqCst) > before + 1
            });
        }
        for (at, upload) in uploads.iter_mut().enumerate() {
            assert_eq!(upload.answer().status, 200, "upload {at}");
            let object = store.object(&format!("/wal/up{at}")).unwrap();
            assert_eq!(object.len(), rounds * PIECE);
        }
        done.store(true, Ordering::SeqCst);
    });
    let log = gate.log();
    let bad: Vec<&String> = log.iter().filter(|line| line.contains("was not reloaded")).collect();
    assert_eq!(bad.len(), rounds / 4 * 3, "{bad:#?}");
    let places = bad.iter().filter(|line| has_place(line)).count();
    assert!(places >= rounds / 2, "no line and column: {bad:#?}");
    assert!(bad.iter().all(|line| line.contains("fencegate.toml")), "{bad:#?}");
    // The last file was a missing one: the rules of before are in force.
    let mut client = RawClient::connect(gate.address());
    client.send(&request("PUT", "/wal/x", "localhost", &[], b""));
    assert_eq!(client.answer().status, 428);
    gate.acquire("later/one", "b", "60s");
    assert!(events.event_with("later/one"));
}

/// `fencegate.toml:LINE:COLUMN:`
fn has_place(line: &str) -> bool {
    line.split("fencegate.toml:").skip(1).any(|rest| {
        let mut parts = rest.splitn(3, ':');
        let is_number = |part: Option<&str>| part.is_some_and(|part| part.parse::<usize>().is_ok());
        is_number(parts.next()) && is_number(parts.next())
    })
}

#[test]
fn new_rules_hold_from_the_reload_on() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let mut client = RawClient::connect(gate.address());
    let mut put = || {
        client.send(&request("PUT", "/public/x", "localhost", &[], b"x"));
        client.answer().status
    };
    assert_eq!(put(), 200);
    let file = fs::read_to_string(gate.config_path()).unwrap();
    let file = file.replace("fence = \"none\"", "resource = \"public\"");
    fs::write(gate.config_path(), file).unwrap();
    gate.sighup();
    gate.wait_log(&["configuration reloaded"]);
    assert_eq!(put(), 428);
}
