//! The fence commands against a running admin listener.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

use clap::Parser;

use super::*;
use crate::core::Token;
use crate::pipeline::refusal::Refusal;
use crate::serve::admin::double::Server;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    fence: FenceArgs,
}

/// Runs `fencegate fence …` and returns what it printed.
async fn fence(server: &Server, arguments: &[&str]) -> Result<String, ClientError> {
    let url = format!("http://{}", server.address);
    let line = ["fence"].into_iter().chain(arguments.iter().copied()).chain(["--server", &url]);
    let mut out = Vec::new();
    Cli::try_parse_from(line).unwrap().fence.execute(&mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn raise_show_and_settle_reach_the_fence() {
    let server = Server::start(&[]).await;
    *server.gate.mark.lock().unwrap() = Token::new(4);
    let raised = fence(&server, &["raise", "r", "5"]).await.unwrap();
    assert_eq!(raised, "raised to 5: every older write has settled\n");
    assert_eq!(server.gate.barriers.lock().unwrap()[0].1.get(), 5);
    let show = fence(&server, &["show", "r"]).await.unwrap();
    assert_eq!(show, "resource  r\nmark      4\nwaiting   0\nclosed    -\n");
    assert_eq!(fence(&server, &["settle", "r"]).await.unwrap(), "settled\n");
    assert_eq!(server.gate.settled.load(Ordering::SeqCst), 1);

    let (resource, presented) = (crate::core::Resource::new("r").unwrap(), Token::MIN);
    *server.gate.refusal.lock().unwrap() = Some(Refusal::StaleToken { resource, presented });
    let stale = fence(&server, &["raise", "r", "1"]).await.unwrap_err();
    assert_eq!(stale.exit(), Exit::Refused);
    assert!(stale.to_string().contains("token 1 of r is older"), "{stale}");
}

#[tokio::test]
async fn a_backup_is_whole_private_and_replaces_the_old_one() {
    let server = Server::start(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("copy.redb");
    std::fs::write(&file, "old").unwrap();
    let answer = fence(&server, &["backup", file.to_str().unwrap(), "--json"]).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["bytes"], 600_000);
    let meta = std::fs::metadata(&file).unwrap();
    assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (600_000, 0o600));
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left beside it");
}

#[tokio::test]
async fn a_backup_that_breaks_off_leaves_the_old_copy() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let args = ServerArgs {
        server: format!("http://{}", listener.local_addr().unwrap()),
        admin_token_file: None,
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("copy.redb");
    std::fs::write(&file, "old").unwrap();
    let client = Client::new(&args).unwrap();
    let (copied, ()) = tokio::join!(backup(&client, &file), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nnew").await.unwrap();
    });
    assert_eq!(copied.unwrap_err().exit(), Exit::Unreachable);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn settle_warns_of_each_permit_it_overrides() {
    let permit = |id: &str, mine: bool, tainted: bool| json!({ "id": id, "token": "3", "mine": mine, "counted": 0, "streaming": 0, "tainted": tainted });
    let fence = json!({ "resource": "r", "mark": "4", "waiting": 1, "permits": [
        permit("clean", true, false), permit("tainted", true, true), permit("other", false, false),
    ]});
    let text = overridden(&fence);
    assert!(text.starts_with("warning: r: 2 permit(s)"), "{text}");
    assert!(text.contains("permit tainted of token 3") && text.contains("permit other"), "{text}");
    assert!(!text.contains("clean"), "{text}");
    assert!(shown(&fence).contains("until settled"), "{}", shown(&fence));
    assert!(!overridden(&json!({ "resource": "r", "permits": [] })).contains("warning"));
}
