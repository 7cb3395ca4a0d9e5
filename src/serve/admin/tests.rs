//! The admin API over real sockets, byte for byte where it matters.

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
        check_problem(&get(&server, target).await, status, kind, target);
    }
    let held = post(&server, "/v1/lease/acquire", acquire_body("held")).await;
    assert_eq!(held.json()["holder"], "a");
    assert_eq!(held.header("retry-after"), Some("30"));
}

fn check_problem(reply: &Reply, status: u16, kind: &str, case: &str) {
    assert_eq!(reply.status, status, "{case}: {}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{case}");
    let body = reply.json();
    assert_eq!(body["type"], format!("/errors/{kind}"), "{case}");
    assert_eq!(body["status"], status, "{case}");
    assert_eq!(body["request_id"].as_str(), reply.header("x-request-id"), "{case}");
    for member in ["title", "detail"] {
        assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{case}: {member}");
    }
}

#[tokio::test]
async fn bodies_that_are_not_json_or_too_long_are_refused() {
    let server = Server::start(&[]).await;
    let json = "Content-Type: application/json\r\n";
    let long = " ".repeat((64 << 10) + 1);
    let cases = [
        ("", "{}", 415, "unsupported-media-type"),
        ("Content-Type: text/plain\r\n", "{}", 415, "unsupported-media-type"),
        (
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "a=b",
            415,
            "unsupported-media-type",
        ),
        (json, "{", 400, "invalid-request"),
        (json, "{}x", 400, "invalid-request"),
        (json, "[]", 400, "invalid-request"),
        (json, &long, 413, "too-large"),
    ];
    for (headers, body, status, kind) in cases {
        let reply = raw(&server, &request("POST", "/v1/lease/acquire", headers, body)).await;
        check_problem(&reply, status, kind, &format!("{headers:?} {} bytes", body.len()));
    }
}

/// open-mercato/cezar#426: a web page drove an unauthenticated API on localhost.
#[tokio::test]
async fn r40_no_web_page_can_take_or_release_a_lease() {
    let server = Server::start(&[]).await;
    post(&server, "/v1/lease/acquire", acquire_body("held")).await;
    let acquire = acquire_body("x").to_string();
    let release = json!({ "resource": "held", "token": "1" }).to_string();
    let json = "Content-Type: application/json\r\n";
    let cases = [
        ("127.0.0.1", "Content-Type: text/plain\r\n".to_owned(), 415),
        ("127.0.0.1", format!("{json}Origin: http://evil.example\r\n"), 403),
        ("127.0.0.1", format!("{json}Origin: null\r\n"), 403),
        ("127.0.0.1:1", format!("{json}Origin: http://127.0.0.1:2\r\n"), 403),
        ("evil.example:8081", json.to_owned(), 421),
        ("evil.example:8081", format!("{json}Origin: http://evil.example:8081\r\n"), 421),
        ("localhost.evil.example", json.to_owned(), 421),
    ];
    for (host, headers, status) in cases {
        for (target, body) in [("/v1/lease/acquire", &acquire), ("/v1/lease/release", &release)] {
            let text = request("POST", target, &headers, body)
                .replace("Host: 127.0.0.1\r\n", &format!("Host: {host}\r\n"));
            let reply = raw(&server, &text).await;
            assert_eq!(reply.status, status, "{host} {headers:?} {target}: {}", reply.body);
        }
    }
    assert_eq!(get(&server, "/v1/lease?resource=x").await.status, 404, "nothing was acquired");
    let held = get(&server, "/v1/lease?resource=held").await.json();
    assert_eq!(held["live"], true, "nothing was released");
    // Without a Host, with two, or with a target that names another.
    for text in [
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    ] {
        assert_eq!(raw(&server, text).await.status, 400, "{text:?}");
    }
    let own = format!("{json}Origin: http://127.0.0.1\r\n");
    let reply = raw(&server, &request("POST", "/v1/lease/acquire", &own, &acquire)).await;
    assert_eq!(reply.status, 200, "a page of ours may: {}", reply.body);
}

#[tokio::test]
async fn r40_the_page_escapes_names_and_shows_no_tokens() {
    let server = Server::start(&[]).await;
    let body =
        json!({ "resource": "<b>\"&", "holder": "<img src=x onerror=alert(1)>", "ttl": "30s" });
    assert_eq!(post(&server, "/v1/lease/acquire", body).await.status, 200);
    let page = get(&server, "/").await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<td>&lt;img src=x onerror=alert(1)&gt;"), "{}", page.body);
    assert!(page.body.contains("<td>&lt;b&gt;&quot;&amp;"), "{}", page.body);
    assert!(!page.body.contains("<img") && !page.body.contains("<script"), "{}", page.body);
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
}

#[tokio::test]
async fn with_tokens_configured_only_a_bearer_opens_v1() {
    let server = Server::start(&["first", "second"]).await;
    let cases = [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        ("Authorization: Bearer first \r\n", 404),
        ("Authorization: Bearer firs\r\n", 401),
        ("Authorization: Bearer \r\n", 401),
        ("Authorization: Basic first\r\n", 401),
        ("Authorization: Bearer first\r\nAuthorization: Bearer first\r\n", 401),
        ("Authorization: Bearer first\r\n", 404),
        ("Authorization: bearer second\r\n", 404),
    ];
    for (headers, status) in cases {
        let reply = raw(&server, &request("GET", "/v1/lease?resource=x", headers, "")).await;
        assert_eq!(reply.status, status, "{headers:?}");
        let challenge = (status == 401).then_some("Bearer");
        assert_eq!(reply.header("www-authenticate"), challenge, "{headers:?}");
    }
    for target in ["/healthz", "/metrics", "/"] {
        assert_eq!(get(&server, target).await.status, 200, "{target}");
    }
    assert_eq!(get(&server, "/readyz").await.status, 503);
    let name = request("GET", "/healthz", "", "").replace("127.0.0.1", "probe.example");
    assert_eq!(raw(&server, &name).await.status, 200, "probes call it what they like");
}

#[tokio::test]
async fn without_tokens_only_this_machine_may_call() {
    let far = Peer::Tcp("10.0.0.1:999".parse().unwrap());
    let server = Server::start_on("127.0.0.1:0", &[], Some(far)).await;
    // The outer layer replaces what the listener knew: the same requests, from elsewhere.
    assert_eq!(get(&server, "/v1/leases").await.status, 401);
    assert_eq!(post(&server, "/v1/lease/acquire", acquire_body("x")).await.status, 401);
    assert_eq!(get(&server, "/healthz").await.status, 200);
}

#[tokio::test]
async fn a_unix_socket_is_its_owners_and_local() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.sock");
    let address = format!("unix:{}", path.display());
    let server = Server::start_on(&address, &[], None).await;
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    let text = request("GET", "/v1/leases", "", "").replace("127.0.0.1", "anything");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop.notify_one();
    server.running.await.unwrap();
    assert!(!path.exists());
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
async fn a_wait_ends_with_a_grant_or_when_its_client_leaves() {
    let server = Server::start(&[]).await;
    post(&server, "/v1/lease/acquire", acquire_body("r")).await;
    let mut body = acquire_body("r");
    body["wait"] = json!("60s");
    let headers = "Content-Type: application/json\r\n";
    let text = request("POST", "/v1/lease/acquire", headers, &body.to_string());
    let waiting = || server.leases.waiting.load(Ordering::SeqCst);

    let mut client = TcpStream::connect(&server.address).await.unwrap();
    client.write_all(text.as_bytes()).await.unwrap();
    wait_for("it waits", || waiting() == 1).await;
    drop(client);
    wait_for("the wait is dropped", || waiting() == 0).await;

    let release = json!({ "resource": "r", "token": "1" });
    let (granted, ()) = tokio::join!(raw(&server, &text), async {
        wait_for("it waits", || waiting() == 1).await;
        assert_eq!(post(&server, "/v1/lease/release", release).await.status, 204);
    });
    assert_eq!((granted.status, &granted.json()["token"]), (200, &json!("2")));
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

/// Opens an event stream and reads lines from behind its head.
async fn watch(server: &Server, headers: &str) -> tokio::io::Lines<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let text = request("GET", "/v1/leases/watch?prefix=wal/", headers, "");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    while next_line(&mut lines).await.is_some_and(|line| !line.is_empty()) {}
    lines
}

async fn next_line(lines: &mut tokio::io::Lines<BufReader<TcpStream>>) -> Option<String> {
    tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("a line in time").unwrap()
}

/// The next line that starts with `field`; `None` at the end of the stream.
async fn next_field(
    lines: &mut tokio::io::Lines<BufReader<TcpStream>>,
    field: &str,
) -> Option<String> {
    while let Some(line) = next_line(lines).await {
        if let Some(value) = line.strip_prefix(field) {
            return Some(value.trim().to_owned());
        }
    }
    None
}

#[tokio::test]
async fn a_watch_tells_changes_below_its_prefix_and_goes_on_where_it_was() {
    let server = Server::start(&[]).await;
    let mut lines = watch(&server, "").await;
    wait_for("subscribed", || server.events.receiver_count() == 1).await;
    server.events.send(event(6, "other/x")).unwrap();
    server.events.send(event(7, "wal/main")).unwrap();
    let id = next_field(&mut lines, "id:").await.unwrap();
    assert!(id.ends_with(".7"), "{id}");
    let data: Value =
        serde_json::from_str(&next_field(&mut lines, "data:").await.unwrap()).unwrap();
    assert_eq!(data, json!({ "change": "acquired", "resource": "wal/main", "holder": "a" }));

    let mut again = watch(&server, &format!("Last-Event-ID: {id}\r\n")).await;
    assert!(next_field(&mut again, "id:").await.unwrap().ends_with(".8"), "the backlog first");

    let mut foreign = watch(&server, "Last-Event-ID: 0123456789abcdef.7\r\n").await;
    assert_eq!(next_field(&mut foreign, "event:").await.as_deref(), Some("gap"));
}

/// hyperium/hyper#3576: one silent connection or one event stream held up the shutdown for ever.
#[tokio::test]
async fn r17_silent_idle_and_watching_connections_end_with_the_server() {
    let server = Server::start(&[]).await;
    let mut silent = TcpStream::connect(&server.address).await.unwrap();
    let mut idle = TcpStream::connect(&server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut some = [0; 16];
    idle.read_exact(&mut some).await.unwrap();
    let mut lines = watch(&server, "").await;
    post(&server, "/v1/lease/acquire", acquire_body("r")).await;
    let mut body = acquire_body("r");
    body["wait"] = json!("60s");
    let (refused, ()) = tokio::join!(post(&server, "/v1/lease/acquire", body), async {
        wait_for("it waits", || server.leases.waiting.load(Ordering::SeqCst) == 1).await;
        server.readiness.set(|ready| ready.draining = true);
        server.stop.notify_one();
    });
    check_problem(&refused, 503, "shutting-down", "a wait");
    assert_eq!(next_field(&mut lines, "event:").await, None, "the stream ends");
    let ended = tokio::time::timeout(DEADLINE, server.running).await;
    assert!(ended.is_ok(), "the listener waits for nobody");
    let mut rest = Vec::new();
    assert_eq!(silent.read_to_end(&mut rest).await.unwrap(), 0);
    idle.read_to_end(&mut rest).await.unwrap();
}
