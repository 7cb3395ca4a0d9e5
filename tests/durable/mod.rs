//! What must survive: the embedded database through kills, restores, odd clocks, full disks, restarts.

mod restore;

use serde_json::Value;

use crate::support::clients::{Answer, Curl};
use crate::support::gate::Gate;

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
