//! The lease commands against a running admin listener.

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::serve::admin::double::Server;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    lease: LeaseArgs,
}

/// Runs `fencegate lease …` and returns what it printed.
async fn lease(address: &str, arguments: &[&str]) -> Result<String, ClientError> {
    let server = match address.strip_prefix("unix:") {
        Some(_) => address.to_owned(),
        None => format!("http://{address}"),
    };
    let line = ["lease"].into_iter().chain(arguments.iter().copied()).chain(["--server", &server]);
    let mut out = Vec::new();
    Cli::try_parse_from(line).unwrap().lease.execute(&mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Exit {
    result.unwrap_err().exit()
}

#[tokio::test]
async fn acquire_prints_the_token_alone_and_renew_and_release_take_it_from_a_file() {
    let server = Server::start(&[]).await;
    let at = server.address.as_str();
    assert_eq!(lease(at, &["acquire", "wal/main", "--ttl", "30s"]).await.unwrap(), "1\n");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "1\n").unwrap();
    let file = file.to_str().unwrap();
    let renewed = lease(at, &["renew", "wal/main", "--token-file", file]).await.unwrap();
    assert!(renewed.starts_with("renewed, expires in "), "{renewed}");
    assert_eq!(code(lease(at, &["acquire", "wal/main"]).await), Exit::Refused, "held");
    assert_eq!(code(lease(at, &["renew", "wal/main", "2"]).await), Exit::Refused, "not ours");
    let released = lease(at, &["release", "wal/main", "--token-file", file]).await.unwrap();
    assert_eq!(released, "released\n");
    assert_eq!(lease(at, &["acquire", "wal/main"]).await.unwrap(), "2\n");
    let json = lease(at, &["acquire", "b", "--json", "--holder", "me"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["token"], &json["holder"]), (&json!("1"), &json!("me")));
}

#[tokio::test]
async fn show_and_list_are_tables() {
    let server = Server::start(&[]).await;
    let at = server.address.as_str();
    for resource in ["wal/a", "wal/long name"] {
        lease(at, &["acquire", resource, "--holder", "h", "--ttl", "300s"]).await.unwrap();
    }
    lease(at, &["release", "wal/a", "1"]).await.unwrap();
    let list = lease(at, &["list", "--prefix", "wal/"]).await.unwrap();
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "RESOURCE       HOLDER  STATE     EXPIRES IN");
    assert_eq!(lines[1], "wal/a          h       released  0s");
    assert!(lines[2].starts_with("wal/long name  h       live      "), "{list}");
    let page = lease(at, &["list", "--limit", "1", "--json"]).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&page).unwrap()["next"], "wal/a");
    let show = lease(at, &["show", "wal/long name"]).await.unwrap();
    assert!(show.contains("\nstate       live\n") && show.contains("\ntoken       1\n"), "{show}");
    assert_eq!(code(lease(at, &["show", "never"]).await), Exit::Refused);
}

#[tokio::test]
async fn a_server_on_a_unix_socket_is_reached_and_an_absent_one_is_exit_3() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/admin.sock", dir.path().display());
    let server = Server::start_on(&address, &[], None).await;
    assert_eq!(lease(&address, &["acquire", "r"]).await.unwrap(), "1\n");
    drop(server);
    let absent = format!("unix:{}/none.sock", dir.path().display());
    assert_eq!(code(lease(&absent, &["show", "r"]).await), Exit::Unreachable);
}

#[tokio::test]
async fn the_bearer_token_comes_from_its_file() {
    let server = Server::start(&["s3cret"]).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin.token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(code(lease(&server.address, &["list"]).await), Exit::Refused);
    assert!(lease(&server.address, &["list", "--admin-token-file", file]).await.is_ok());
}

/// Answers of a scripted server: reads one request and says so much before it closes.
async fn scripted(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"}") {
                assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            let text = String::from_utf8(seen).unwrap();
            bodies.push(text.split_once("\r\n\r\n").unwrap().1.to_owned());
        }
        bodies
    });
    (address, serving)
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_is_repeated_once_with_the_same_request_id() {
    let body = r#"{"token":"7"}"#;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (address, serving) = scripted(vec!["HTTP/1.1 200 OK\r\nConte".into(), answer]).await;
    assert_eq!(lease(&address, &["acquire", "r"]).await.unwrap(), "7\n");
    let bodies = serving.await.unwrap();
    let ids: Vec<Value> = bodies
        .iter()
        .map(|body| serde_json::from_str::<Value>(body).unwrap()["request_id"].clone())
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0].as_str().unwrap().len(), 32);

    let (address, serving) = scripted(vec![String::new(), String::new()]).await;
    let given = ["acquire", "r", "--request-id", "mine"];
    assert_eq!(code(lease(&address, &given).await), Exit::Unreachable, "only once");
    for body in serving.await.unwrap() {
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["request_id"], "mine");
    }
}

#[test]
fn a_token_is_the_argument_then_the_file_and_an_empty_file_means_lost() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let given = Token::new(9);
    std::fs::write(&file, " 5\n").unwrap();
    assert_eq!(token_from(given, Some(&file)).unwrap(), given.unwrap());
    assert_eq!(token_from(None, Some(&file)).unwrap().get(), 5);
    for (text, want) in [("", Exit::Refused), ("\n", Exit::Refused), ("05", Exit::Usage)] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(code(token_from(None, Some(&file))), want, "{text:?}");
    }
}

#[test]
fn events_print_one_line_each_without_control_characters() {
    let message =
        |event: &str, data: &str| Message { id: None, event: event.into(), data: data.into() };
    let data = r#"{"change":"acquired","resource":"r\u001b[2J","holder":"h"}"#;
    let mut out = Vec::new();
    print_event(&mut out, false, &message("acquired", data));
    print_event(&mut out, true, &message("gap", "{}"));
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text, "acquired  r\u{fffd}[2J  h\n{\"change\":\"gap\"}\n");
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_until_the_server_is_gone() {
    let server = Server::start(&[]).await;
    let url = format!("http://{}", server.address);
    let line = ["lease", "watch", "--prefix", "wal/", "--server", &url];
    let mut out = Vec::new();
    let watching = Cli::try_parse_from(line).unwrap().lease.execute(&mut out);
    let (ended, ()) = tokio::join!(watching, async {
        while server.events.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        let event = crate::serve::admin::double::event;
        server.events.send(event(1, "other/x")).unwrap();
        server.events.send(event(2, "wal/main")).unwrap();
        while !server.events.is_empty() {
            tokio::task::yield_now().await;
        }
        server.readiness.set(|ready| ready.draining = true);
        server.stop.notify_one();
        server.running.await.unwrap();
    });
    assert_eq!(code(ended), Exit::Unreachable);
    assert_eq!(String::from_utf8(out).unwrap(), "acquired  wal/main  a\n");
}

#[tokio::test]
async fn a_watch_that_broke_off_before_its_first_event_says_that_some_may_be_missed() {
    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let line = ["lease", "watch", "--server", &url];
    let mut out = Vec::new();
    let watching = Cli::try_parse_from(line).unwrap().lease.execute(&mut out);
    let (ended, ()) = tokio::join!(watching, async {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4_096]).await.unwrap() > 0);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 2\r\n\r\n:\n";
            stream.write_all(head.as_bytes()).await.unwrap();
        }
        drop(listener);
    });
    assert_eq!(code(ended), Exit::Unreachable);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text, "gap: events were missed; list the leases again\n");
}
