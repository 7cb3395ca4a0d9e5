//! What must survive: the embedded database through kills, restores, odd clocks, full disks, restarts.

mod clocks;
mod crash;
mod leases;
mod remap;
mod restore;
mod trouble;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::clients::{Answer, Curl};
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::wait::{DEADLINE, wait_for};

/// A PUT to `path` with a token and its number as the body.
fn put(gate: &Gate, path: &str, token: u64) -> Answer {
    let url = format!("{}{path}", gate.url());
    Curl::put(&url).unsigned().token(token).body(token.to_string().as_bytes()).send()
}

/// A JSON answer of the admin side.
#[track_caller]
fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// `GET /v1/fence` of a resource.
#[track_caller]
fn fence(gate: &Gate, resource: &str) -> Value {
    json(&gate.get(&format!("/v1/fence?resource={resource}")))
}

/// A number that the API has as a string.
#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_str().expect("a number as a string").parse().expect("a number")
}

/// Everything that a command wrote.
fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A write that has left the gate and that the store takes up only when it is released: its connection,
/// which dies with the gate.
fn write_in_flight(gate: &Gate, store: &RawStore, path: &str, token: u64) -> RawClient {
    store.next(path, script::late());
    let mut client = RawClient::connect(gate.address());
    let body = token.to_string();
    let header = format!("Fencing-Token: {token}");
    client.send(&request("PUT", path, "localhost", &[&header], body.as_bytes()));
    store.wait_complete(path);
    client
}

/// A restart that left a write in flight: from when its quarantine counts at the earliest, and how long.
#[derive(Clone, Copy)]
struct Quarantine {
    started: Instant,
    settle_after: Duration,
}

/// Writes to `path` with `new` while the write of `old` is in flight, which takes effect as soon as the new
/// one waits in the queue of `resource`. The new one has to be forwarded after it, and not before the
/// quarantine is over.
#[track_caller]
fn overtake(
    gate: &Gate,
    store: &RawStore,
    path: &str,
    resource: &str,
    (old, new): (u64, u64),
    quarantine: Quarantine,
) {
    let earliest = quarantine.started + quarantine.settle_after;
    let released = std::thread::scope(|scope| {
        let writing = scope.spawn(|| put(gate, path, new));
        // If it does not wait it has been answered, and what follows tells why that is wrong.
        wait_for("the successor to wait", DEADLINE, || {
            writing.is_finished() || fence(gate, resource)["waiting"] == 1
        });
        store.release(path);
        store.wait_applied(path);
        let released = Instant::now();
        assert_eq!(writing.join().unwrap().status, 200);
        released
    });
    let forwarded = store.seen_at(path).last().unwrap().head_at;
    assert!(forwarded >= earliest, "{:?} after the start", forwarded - quarantine.started);
    // On a machine so busy that the quarantine was over before, this store took up a write too late: it
    // is not one that the promise is made for.
    if released < earliest {
        assert_eq!(applied(store, path), [old, new]);
    }
}

/// The tokens of the writes to `path` that took effect, in order.
fn applied(store: &RawStore, path: &str) -> Vec<u64> {
    let line = format!("PUT {path}");
    let bodies = store.applied().into_iter().filter(|(what, _)| *what == line);
    bodies.map(|(_, body)| String::from_utf8(body).unwrap().parse().unwrap()).collect()
}

/// Sends one request on a connection of its own; `None` if the server died before it had answered.
fn call(to: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(bytes).ok()?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok()?;
    let end = all.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut answer = Answer::parse_head(&all[..end]);
    answer.body = all.split_off(end);
    let length: usize = answer.header("content-length").map_or(0, |value| value.parse().unwrap());
    (answer.body.len() == length).then_some(answer)
}

/// A POST with a JSON body to the admin side.
fn ask(to: SocketAddr, path: &str, body: &serde_json::Value) -> Option<Answer> {
    let headers = ["Content-Type: application/json", "Connection: close"];
    call(to, &request("POST", path, "localhost", &headers, body.to_string().as_bytes()))
}
