//! What lasts: event streams, waits, and how they end.

use super::*;

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
    server.events.send(event(8, "wal/old")).unwrap();
    server.events.send(event(9, "wal/main")).unwrap();
    assert!(next_field(&mut again, "id:").await.unwrap().ends_with(".9"), "no event twice");

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
