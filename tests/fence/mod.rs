//! Takeovers while writes are in flight, on a scripted store: what blocks a successor, for how long, and what
//! ends it.

/// Many writers, many takeovers, random delays.
mod hammer;
/// Who is refused after a takeover, a release, an expiry.
mod holders;
/// How exchanges end: the settle table, seen from the store and from the client.
mod outcomes;
/// A reload that moves keys of writes in flight.
mod reload;
/// One older write in flight.
pub mod takeover;
/// The queue: who waits, who leaves it, what an operator sees and may do.
mod waiting;

use std::time::Duration;

use serde_json::Value;

use crate::support::clients::Answer;
use crate::support::gate::Gate;
use crate::support::raw_client::{RawClient, request};
use crate::support::wait::{DEADLINE, wait_for};

/// Every bucket is a resource of its own: `r/BUCKET`.
const RULE_PER_BUCKET: &str = "[[rule]]\nmatch = \"{bucket}/**\"\nresource = \"r/{bucket}\"\n";

/// Longer than any test waits: who waits so long is freed by the event that the test is about.
const NO_END: &str = "drain_wait = \"300s\"\nsettle_after = \"never\"";

/// A PUT with a token.
fn put(path: &str, token: u64, body: &[u8]) -> Vec<u8> {
    request("PUT", path, "localhost", &[&format!("Fencing-Token: {token}")], body)
}

/// Sends a PUT on a connection of its own and does not wait for the answer.
fn begin(gate: &Gate, path: &str, token: u64, body: &[u8]) -> RawClient {
    let mut client = RawClient::connect(gate.address());
    client.send(&put(path, token, body));
    client
}

/// A PUT, and its answer.
fn send(gate: &Gate, path: &str, token: u64, body: &[u8]) -> Answer {
    begin(gate, path, token, body).answer()
}

/// What `GET /v1/fence` says of a resource.
fn fence(gate: &Gate, resource: &str) -> Value {
    let answer = gate.get(&format!("/v1/fence?resource={resource}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Waits until so many requests wait for a resource.
#[track_caller]
fn wait_waiting(gate: &Gate, resource: &str, count: u64) {
    wait_for(&format!("{count} requests wait for {resource}"), DEADLINE, || {
        fence(gate, resource)["waiting"] == count
    });
}

/// Waits until nothing is in flight and unsettled.
#[track_caller]
fn wait_settled(gate: &Gate) {
    wait_for("every exchange is settled", DEADLINE, || {
        gate.get("/v1/status").text().contains("\"exchanges\":0,")
    });
}

/// The seconds of `Retry-After`.
fn retry_after(answer: &Answer) -> Duration {
    let text = answer.header("retry-after").expect("a Retry-After");
    Duration::from_secs(text.parse().expect("whole seconds"))
}
