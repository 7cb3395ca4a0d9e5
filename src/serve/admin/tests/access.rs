//! Who gets in, and what web pages cannot do.

use super::*;

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
    server.state.reload(Server::reloadable(&["third"]));
    for (token, status) in [("first", 401), ("third", 404)] {
        let headers = format!("Authorization: Bearer {token}\r\n");
        let reply = raw(&server, &request("GET", "/v1/lease?resource=x", &headers, "")).await;
        assert_eq!(reply.status, status, "after a reload: {token}");
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
