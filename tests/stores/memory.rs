//! What passes through is not kept: the gate's memory stays bounded whatever the size of an object.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Site;
use crate::support::gate::Gate;
use crate::support::raw_client::RawClient;
use crate::support::raw_store::{RawStore, Step};
use crate::support::signed::Signed;
use crate::support::stores;
use crate::support::wait::long;

/// The most that the gate may ever have had in memory.
const BOUND_KIB: u64 = 64 << 10;

/// The largest resident size so far.
fn peak_kib(gate: &Gate) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).expect("a number").parse().unwrap()
}

#[test]
fn a_store_that_does_not_read_stops_the_client_and_fills_nothing() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    for (key, shown) in [("wal/x", Some(token)), ("public/x", None)] {
        let path = format!("/{key}");
        store.next(&path, vec![Step::Hold, Step::ReadBody, Step::Apply, Step::Answer]);
        let put = Signed::new("PUT", &path, "localhost").announce(1 << 30);
        let put = shown.map_or(put.clone(), |token| put.token(token));
        let mut stream = TcpStream::connect(gate.address()).unwrap();
        stream.write_all(&put.wire().head).unwrap();
        store.wait_head(&path);
        // Blocked this long, with nobody reading: no more is taken.
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let block = vec![b'm'; 1 << 20];
        let mut taken = 0;
        while let Ok(count @ 1..) = stream.write(&block) {
            taken += count;
            assert!(taken < 64 << 20, "{key}: the gate takes what the store does not");
        }
        let peak = peak_kib(&gate);
        assert!(peak < BOUND_KIB, "{key}: {peak} KiB");
        store.release(&path);
    }
}

#[test]
fn a_large_upload_and_download_leave_the_gate_small() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let token = site.gate.acquire("wal/main", "a", "60s");
    let mebibytes: u64 = if long() { 1024 } else { 256 };
    let host = site.gate.address().to_string();
    let target = format!("/{}/large", site.bucket);
    let block = vec![b'm'; 1 << 20];
    let put = Signed::new("PUT", &target, &host).token(token).announce(mebibytes << 20);
    let mut client = RawClient::connect(site.gate.address());
    client.send(&put.wire().head);
    for _ in 0..mebibytes {
        client.send(&block);
    }
    assert_eq!(client.answer().status, 200);
    let after_upload = peak_kib(&site.gate);
    assert!(after_upload < BOUND_KIB, "{after_upload} KiB after the upload");
    let get = Signed::new("GET", &target, &host).unsigned("Connection", "close").wire();
    let mut stream = TcpStream::connect(site.gate.address()).unwrap();
    stream.write_all(&get.head).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            count => received += count as u64,
        }
    }
    assert!(received > mebibytes << 20, "{received} bytes, head included");
    let after_download = peak_kib(&site.gate);
    println!("{after_upload} KiB after the upload, {after_download} KiB after the download");
    assert!(after_download < BOUND_KIB, "{after_download} KiB after the download");
}
