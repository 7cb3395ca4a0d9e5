//! The admin API over real sockets, byte for byte where it matters.

mod access;
mod streams;

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::double::{Server, event};
use super::guard::Peer;
use crate::core::Token;
use crate::lease::LeaseError;
use crate::pipeline::refusal::Refusal;

/// Longest wait for anything in these tests.
const DEADLINE: Duration = Duration::from_secs(10);

const API: &str = include_str!("../../../../docs/reference/lease-api.md");

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends raw bytes on a connection of their own and reads the answer to its end.
async fn raw(server: &Server, request: &str) -> Reply {
    let exchange = async {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = tokio::time::timeout(DEADLINE, exchange).await.expect("an answer in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.into(), body: body.into() }
}

fn request(method: &str, target: &str, headers: &str, body: &str) -> String {
    format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn get(server: &Server, target: &str) -> Reply {
    raw(server, &request("GET", target, "", "")).await
}

async fn post(server: &Server, target: &str, body: Value) -> Reply {
    let headers = "Content-Type: application/json\r\n";
    raw(server, &request("POST", target, headers, &body.to_string())).await
}

fn acquire_body(resource: &str) -> Value {
    json!({ "resource": resource, "holder": "a", "ttl": "30s" })
}

async fn wait_for(what: &str, fact: impl Fn() -> bool) {
    let waiting = async {
        while !fact() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, waiting).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_lease_is_acquired_shown_renewed_and_released() {
    let server = Server::start(&[]).await;
    *server.gate.mark.lock().unwrap() = Token::new(1);
    let granted = post(&server, "/v1/lease/acquire", acquire_body("wal/main")).await;
    assert_eq!(granted.status, 200, "{}", granted.body);
    let answer = granted.json();
    assert_eq!(answer["resource"], "wal/main");
    assert_eq!(answer["holder"], "a");
    assert_eq!(answer["token"], "1", "tokens are strings");
    assert_eq!(answer["ttl_ms"], 30_000);
    assert!(answer["expires_in_ms"].as_u64().unwrap() > 29_000);

    let shown = get(&server, "/v1/lease?resource=wal/main").await.json();
    assert_eq!(shown["token"], "1");
    assert_eq!(shown["mark"], "1");
    assert_eq!(shown["live"], true);

    let renew = json!({ "resource": "wal/main", "token": "1", "ttl": "60s" });
    let renewed = post(&server, "/v1/lease/renew", renew).await;
    assert_eq!((renewed.status, &renewed.json()["ttl_ms"]), (200, &json!(60_000)));

    let release = json!({ "resource": "wal/main", "token": "1" });
    let released = post(&server, "/v1/lease/release", release).await;
    assert_eq!((released.status, released.body.as_str()), (204, ""));
    let shown = get(&server, "/v1/lease?resource=wal/main").await.json();
    assert_eq!((&shown["live"], &shown["released"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn every_call_answers_with_its_status_and_every_error_is_a_problem() {
    let server = Server::start(&[]).await;
    post(&server, "/v1/lease/acquire", acquire_body("held")).await;
    let lost = json!({ "resource": "held", "token": "9" });
    let never = json!({ "resource": "never", "token": "9" });
    let with = |name: &str, value: Value| {
        let mut body = acquire_body("x");
        body[name] = value;
        body
    };
    let posts = [
        ("/v1/lease/acquire", acquire_body("held"), 423, "lease-held"),
        ("/v1/lease/renew", lost.clone(), 412, "lease-lost"),
        ("/v1/lease/renew", never.clone(), 412, "lease-lost"),
        ("/v1/lease/release", lost.clone(), 412, "lease-lost"),
        ("/v1/lease/release", never, 412, "lease-lost"),
        ("/v1/lease/acquire", with("drian", json!(true)), 400, "invalid-request"),
        ("/v1/lease/acquire", with("ttl", json!(30)), 400, "invalid-request"),
        ("/v1/lease/acquire", with("ttl", json!("30")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("ttl", json!("999ms")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("ttl", json!("25h")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("wait", json!("61s")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("request_id", json!("")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("request_id", json!("é")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("holder", json!("a\r\nb")), 400, "invalid-request"),
        ("/v1/lease/acquire", with("resource", json!("")), 400, "invalid-request"),
        ("/v1/lease/acquire", json!({ "resource": "x" }), 400, "invalid-request"),
        ("/v1/lease/renew", json!({ "resource": "x", "token": 1 }), 400, "invalid-request"),
        ("/v1/lease/renew", json!({ "resource": "x", "token": "01" }), 400, "invalid-request"),
        ("/v1/fence/bump", json!({ "resource": "never" }), 404, "never-leased"),
        ("/v1/lease/token", lost.clone(), 404, "not-found"),
        ("/v1/fence/claim", json!({}), 404, "not-found"),
        ("/v1/fence/rules/adopt", json!({}), 404, "not-found"),
        ("/v1/lease", lost, 405, "method-not-allowed"),
    ];
    for (target, body, status, kind) in posts {
        let reply = post(&server, target, body.clone()).await;
        check_problem(&reply, status, kind, &format!("POST {target} {body}"));
    }
    let gets = [
        ("/v1/lease?resource=never", 404, "never-leased"),
        ("/v1/lease", 400, "invalid-request"),
        ("/v1/lease?resource=", 400, "invalid-request"),
        ("/v1/lease?resource=a&resource=b", 400, "invalid-request"),
        ("/v1/lease?resource=a&token=1", 400, "invalid-request"),
        ("/v1/leases?limit=0", 400, "invalid-request"),
        ("/v1/leases?limit=1001", 400, "invalid-request"),
        ("/v1/lease/acquire", 405, "method-not-allowed"),
        ("/v1/nothing", 404, "not-found"),
    ];
    for (target, status, kind) in gets {
        let reply = get(&server, target).await;
        check_problem(&reply, status, kind, target);
        assert_eq!(reply.header("allow"), (status == 405).then_some("POST"), "{target}");
    }
    let held = post(&server, "/v1/lease/acquire", acquire_body("held")).await;
    assert_eq!(held.json()["holder"], "a");
    assert_eq!(held.header("retry-after"), Some("30"));
}

fn check_problem(reply: &Reply, status: u16, kind: &str, case: &str) {
    assert_eq!(reply.status, status, "{case}: {}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{case}");
    let row = format!("\n| {status} | ");
    let documented = API.split(&row).skip(1).any(|row| {
        let kinds = row.split('|').next().unwrap_or_default();
        kinds.split([',', ' ']).any(|documented| documented == kind)
    });
    assert!(documented, "{case}: {status} {kind} is not in docs/reference/lease-api.md");
    let body = reply.json();
    assert_eq!(body["type"], format!("/errors/{kind}"), "{case}");
    assert_eq!(body["status"], status, "{case}");
    assert_eq!(body["request_id"].as_str(), reply.header("x-request-id"), "{case}");
    for member in ["title", "detail"] {
        assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{case}: {member}");
    }
}

#[tokio::test]
async fn drain_raises_the_fence_and_an_unfinished_one_leaves_the_grant() {
    let server = Server::start(&[]).await;
    let mut body = acquire_body("wal/main");
    body["drain"] = json!(true);
    body["request_id"] = json!("r1");
    *server.gate.refusal.lock().unwrap() = Some(Refusal::Draining {
        resource: crate::core::Resource::new("wal/main").unwrap(),
        retry_after: Duration::from_millis(6_500),
        why: "one exchange is in flight".into(),
    });
    let reply = post(&server, "/v1/lease/acquire", body.clone()).await;
    check_problem(&reply, 503, "draining", "drain");
    assert_eq!(reply.header("retry-after"), Some("7"));
    assert_eq!(reply.json()["token"], "1");
    *server.gate.refusal.lock().unwrap() = None;
    let reply = post(&server, "/v1/lease/acquire", body).await;
    assert_eq!((reply.status, &reply.json()["token"]), (200, &json!("1")), "the same grant");
    let barriers = server.gate.barriers.lock().unwrap().clone();
    assert_eq!(barriers.len(), 2);
    assert_eq!((barriers[0].1, barriers[0].2), (Token::MIN, Duration::from_secs(25)));
    assert_eq!(post(&server, "/v1/lease/acquire", acquire_body("b")).await.status, 200);
    assert_eq!(server.gate.barriers.lock().unwrap().len(), 2, "no drain, no barrier");
}

#[tokio::test]
async fn a_backend_without_an_answer_is_503_and_its_cause_stays_here() {
    let server = Server::start(&[]).await;
    *server.leases.broken.lock().unwrap() = Some(|resource| LeaseError::Backend {
        backend: "embedded",
        resource: resource.clone(),
        cause: "password hunter2 at 10.1.2.3".into(),
    });
    let reply = post(&server, "/v1/lease/acquire", acquire_body("r")).await;
    check_problem(&reply, 503, "lease-backend-failed", "backend");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(!reply.body.contains("hunter2"), "{}", reply.body);
    *server.leases.broken.lock().unwrap() = Some(|resource| LeaseError::Unknown {
        backend: "embedded",
        resource: resource.clone(),
        waited: Duration::from_secs(2),
    });
    let token = json!({ "resource": "r", "token": "1" });
    for (target, body) in
        [("acquire", acquire_body("r")), ("renew", token.clone()), ("release", token)]
    {
        let reply = post(&server, &format!("/v1/lease/{target}"), body).await;
        check_problem(&reply, 503, "lease-unknown", target);
    }
}

#[tokio::test]
async fn fence_calls_reach_the_fence() {
    let server = Server::start(&[]).await;
    post(&server, "/v1/lease/acquire", acquire_body("r")).await;
    *server.gate.mark.lock().unwrap() = Token::new(41);
    let raise = json!({ "resource": "r", "token": "1" });
    assert_eq!(post(&server, "/v1/fence/raise", raise.clone()).await.status, 204);
    assert_eq!(server.gate.barriers.lock().unwrap().len(), 1);
    assert_eq!(get(&server, "/v1/fence?resource=r").await.json()["mark"], "41");
    let which = json!({ "resource": "r" });
    assert_eq!(post(&server, "/v1/fence/bump", which.clone()).await.status, 204);
    let shown = get(&server, "/v1/lease?resource=r").await.json();
    assert_eq!((&shown["token"], &shown["live"]), (&json!("42"), &json!(false)), "above the mark");
    assert_eq!(server.gate.reopened.load(Ordering::SeqCst), 1, "what failed closed works again");
    assert_eq!(post(&server, "/v1/fence/settle", which).await.status, 204);
    assert_eq!(server.gate.settled.load(Ordering::SeqCst), 1);

    let resource = crate::core::Resource::new("r").unwrap();
    let presented = Token::MIN;
    let refusals = [
        (Refusal::StaleToken { resource: resource.clone(), presented }, 412, "stale-fencing-token"),
        (Refusal::LeaseReleased { resource: resource.clone(), presented }, 412, "lease-released"),
        (
            Refusal::UnknownToken { resource: resource.clone(), presented },
            403,
            "unknown-fencing-token",
        ),
        (Refusal::FenceUnavailable { resource, why: "w".into() }, 503, "fence-unavailable"),
        (Refusal::ShuttingDown, 503, "shutting-down"),
        (Refusal::Internal, 500, "internal"),
    ];
    for (refusal, status, kind) in refusals {
        *server.gate.refusal.lock().unwrap() = Some(refusal);
        check_problem(&post(&server, "/v1/fence/raise", raise.clone()).await, status, kind, kind);
    }
}

#[tokio::test]
async fn a_backup_is_streamed_whole_with_its_length() {
    let server = Server::start(&[]).await;
    let reply = get(&server, "/v1/fence/backup").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-length"), Some("600000"));
    assert!(reply.body.len() == 600_000 && reply.body.bytes().all(|byte| byte == b'r'));
}

#[tokio::test]
async fn a_list_comes_in_pages_without_tokens() {
    let server = Server::start(&[]).await;
    for resource in ["a/1", "a/2", "a/3", "b/1"] {
        post(&server, "/v1/lease/acquire", acquire_body(resource)).await;
    }
    let first = get(&server, "/v1/leases?prefix=a/&limit=2").await;
    assert!(!first.body.contains("token"), "{}", first.body);
    let first = first.json();
    assert_eq!(first["next"], "a/2");
    assert_eq!(first["leases"].as_array().unwrap().len(), 2);
    let second = get(&server, "/v1/leases?prefix=a/&limit=2&after=a/2").await.json();
    assert_eq!(second["leases"][0]["resource"], "a/3");
    assert_eq!(second.get("next"), None);
}

#[tokio::test]
async fn readiness_is_four_facts_and_the_proxy_address() {
    let server = Server::start(&[]).await;
    assert_eq!(get(&server, "/readyz").await.status, 503);
    server.readiness.set(|ready| {
        (ready.configured, ready.ledger_open, ready.bound) = (true, true, true);
        ready.proxy = Some("http://127.0.0.1:8080".into());
    });
    let reply = get(&server, "/readyz").await;
    assert_eq!((reply.status, &reply.json()["proxy"]), (200, &json!("http://127.0.0.1:8080")));
    server.readiness.set(|ready| ready.draining = true);
    let reply = get(&server, "/readyz").await;
    assert_eq!((reply.status, &reply.json()["draining"]), (503, &json!(true)));
    assert_eq!(get(&server, "/v1/status").await.json()["lease_grade"], "efficiency-only");
    let metrics = get(&server, "/metrics").await;
    assert!(
        metrics.body.contains("# TYPE fencegate_lease_grants_total counter"),
        "{}",
        metrics.body
    );
}
