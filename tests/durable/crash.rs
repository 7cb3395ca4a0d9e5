//! T11: `kill -9` at any moment under load; afterwards nothing acknowledged is lost, nothing stale passes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Quarantine, applied, ask, call, fence, json, number, overtake, put, write_in_flight};
use crate::support::gate::Gate;
use crate::support::raw_client::request;
use crate::support::raw_store::RawStore;
use crate::support::wait::{DEADLINE, long, wait_for};

const SETTLE: Duration = Duration::from_secs(1);
const RULES: &str = "[[rule]]\nmatch = \"load/{n}/**\"\nresource = \"load/{n}\"\n\
                     [[rule]]\nmatch = \"open/{n}/**\"\nresource = \"open/{n}\"\n";
const WRITERS: usize = 3;

/// One writer: a resource that it takes, writes and gives back again and again, and what it was
/// acknowledged.
struct Writer {
    resource: String,
    /// Every token it was given, in order.
    tokens: Vec<u64>,
    /// The ask that was not answered; its grant may stand.
    unanswered: Option<String>,
    /// The token that it holds, or is about to give back.
    holds: Option<u64>,
    asks: u64,
    /// Greatest token of a write that was answered with 200.
    mark: u64,
    stale_refused: usize,
}

fn write(to: SocketAddr, path: &str, token: u64) -> Option<u16> {
    let header = format!("Fencing-Token: {token}");
    let headers = [header.as_str(), "Connection: close"];
    let body = token.to_string();
    Some(call(to, &request("PUT", path, "localhost", &headers, body.as_bytes()))?.status)
}

// === impl Writer ===

impl Writer {
    fn new(n: usize) -> Writer {
        let resource = format!("load/{n}");
        let (tokens, unanswered, holds) = (Vec::new(), None, None);
        Writer { resource, tokens, unanswered, holds, asks: 0, mark: 0, stale_refused: 0 }
    }

    fn path(&self) -> String {
        format!("/{}/x", self.resource)
    }

    /// Works until the server is gone.
    fn run(&mut self, proxy: SocketAddr, admin: SocketAddr) {
        while self.round(proxy, admin).is_some() {}
    }

    fn round(&mut self, proxy: SocketAddr, admin: SocketAddr) -> Option<()> {
        if let Some(token) = self.holds {
            let body = serde_json::json!({ "resource": self.resource, "token": token.to_string() });
            let released = ask(admin, "/v1/lease/release", &body)?;
            assert_eq!(released.status, 204, "{}: the holder of {token} is not it", self.resource);
            self.holds = None;
        }
        let before = self.tokens.last().copied();
        let token = self.acquire(admin)?;
        match write(proxy, &self.path(), token)? {
            200 => self.mark = token,
            // A write of the killed process has not settled; or it is starting or ending.
            503 => {}
            status => panic!("{}: {status} for the latest token {token}", self.resource),
        }
        if let Some(before) = before {
            let status = write(proxy, &self.path(), before)?;
            assert_eq!(status, 412, "{}: {before} is older than {token}", self.resource);
            self.stale_refused += 1;
        }
        Some(())
    }

    fn acquire(&mut self, admin: SocketAddr) -> Option<u64> {
        let id = self.unanswered.clone().unwrap_or_else(|| {
            self.asks += 1;
            format!("{} {}", self.resource, self.asks)
        });
        self.unanswered = Some(id.clone());
        let body = serde_json::json!({
            "resource": self.resource, "holder": "writer", "ttl": "60s", "request_id": id,
        });
        let answer = ask(admin, "/v1/lease/acquire", &body)?;
        assert_eq!(answer.status, 200, "{}: {}", self.resource, json(&answer));
        let token = number(&json(&answer)["token"]);
        let last = self.tokens.last();
        assert!(last.is_none_or(|last| token > *last), "{token} after {last:?}");
        self.unanswered = None;
        self.tokens.push(token);
        self.holds = Some(token);
        Some(token)
    }

    /// After a restart: nothing that was acknowledged is lost.
    fn check(&self, gate: &Gate) {
        let Some(last) = self.tokens.last() else { return };
        let lease = json(&gate.get(&format!("/v1/lease?resource={}", self.resource)));
        assert!(number(&lease["token"]) >= *last, "{}: {last} lost: {lease}", self.resource);
        let fence = fence(gate, &self.resource);
        let mark = fence["mark"].as_str().map_or(0, |mark| mark.parse().unwrap());
        assert!(mark >= self.mark, "{}: mark {} lost: {fence}", self.resource, self.mark);
        for stale in self.tokens.iter().rev().skip(1).take(3) {
            assert_eq!(put(gate, &self.path(), *stale).status, 412, "{} {stale}", self.resource);
        }
    }
}

/// With a write in flight: its permit is there after the restart, and its successor waits for it.
fn kill_once(gate: &mut Gate, store: &RawStore, writers: &mut [Writer], round: u64) {
    let (proxy, admin) = (gate.address(), gate.admin_address());
    let (resource, path) = (format!("open/{round}"), format!("/open/{round}/x"));
    let old = gate.acquire(&resource, "a", "60s");
    let _lost = write_in_flight(gate, store, &path, old);
    std::thread::scope(|scope| {
        for writer in writers.iter_mut() {
            scope.spawn(|| writer.run(proxy, admin));
        }
        let mut byte = [0];
        getrandom::fill(&mut byte).unwrap();
        // Some moment: no other fact is waited for.
        let moment = Instant::now() + Duration::from_millis(3 * u64::from(byte[0]));
        wait_for("the moment", DEADLINE, || Instant::now() >= moment);
        gate.sigkill();
    });
    let started = Instant::now();
    gate.restart();
    let status = json(&gate.get("/v1/status"));
    assert!(status["service"]["revoked"].is_null(), "a crash is no restore: {status}");

    let left = fence(gate, &resource);
    let permit = &left["permits"][0];
    assert_eq!(number(&permit["token"]), old, "{left}");
    assert_eq!((&permit["mine"], &permit["tainted"]), (&false.into(), &true.into()), "{left}");
    writers.iter().for_each(|writer| writer.check(gate));
    let new = gate.hand_over(&resource, old, "b");
    assert!(new > old);
    let quarantine = Quarantine { started, settle_after: SETTLE };
    overtake(gate, store, &path, &resource, (old, new), quarantine);
    assert_eq!(put(gate, &path, old).status, 412);
}

#[test]
fn t11_a_killed_gate_loses_nothing_acknowledged_and_lets_nothing_stale_pass() {
    let kills = if long() { 200 } else { 8 };
    let store = RawStore::start();
    let builder = Gate::builder(&store.url()).rules(RULES);
    let mut gate = builder.fence("settle_after = \"1s\"").start();
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    for round in 0..kills {
        kill_once(&mut gate, &store, &mut writers, round);
    }
    for writer in &writers {
        let landed = applied(&store, &writer.path());
        assert!(landed.is_sorted(), "{}: an older write on top: {landed:?}", writer.resource);
    }
    let tokens: usize = writers.iter().map(|writer| writer.tokens.len()).sum();
    let writes: usize = writers.iter().map(|writer| applied(&store, &writer.path()).len()).sum();
    let stale: usize = writers.iter().map(|writer| writer.stale_refused).sum();
    let enough = kills as usize;
    assert!(
        tokens > enough && writes > enough && stale > enough,
        "no load: {tokens} {writes} {stale}"
    );
    println!("{kills} kills, {tokens} tokens, {writes} writes, {stale} stale ones refused");
}
