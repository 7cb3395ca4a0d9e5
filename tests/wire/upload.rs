//! A large upload that is refused at once: its client reads the answer, the proxy does not read it all, the
//! store sees nothing.
//!
//! hyperium/hyper#2384, villadora/express-http-proxy#546

use std::fs::File;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::clients::{self, Answer, boto3};
use crate::support::gate::Gate;
use crate::support::process::clean_env;
use crate::support::raw_client::{RawClient, request};
use crate::support::raw_store::{RawStore, script};
use crate::support::relay::Relay;
use crate::support::wait::long;

/// What the proxy throws away at most, and what the kernels on the way hold.
const BOUND: usize = (96 << 20) + (32 << 20);

struct Scene {
    store: RawStore,
    gate: Gate,
    far: Relay,
    stale: u64,
}

fn scene() -> Scene {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let stale = gate.acquire("wal/main", "a", "60s");
    gate.hand_over("wal/main", stale, "b");
    let far = Relay::far(&gate.url(), Duration::from_millis(20));
    Scene { store, gate, far, stale }
}

fn rounds() -> usize {
    if long() { 20 } else { 5 }
}

impl Scene {
    /// Every client reads the 412 with its body, near and far; the store sees nothing of any of them.
    fn all_read_the_refusal(&self, upload: impl Fn(&str, u64) -> Answer) {
        for url in [self.gate.url(), self.far.url()] {
            for round in 0..rounds() {
                let before = self.far.sent();
                let answer = upload(&url, self.stale);
                assert_eq!(answer.status, 412, "round {round} at {url}: {}", answer.text());
                let code = answer.code();
                assert_eq!(code.as_deref(), Some("StaleFencingToken"), "{}", answer.text());
                assert!(answer.text().ends_with("</Error>"));
                assert!(self.far.sent() - before < BOUND, "the proxy read {}", self.far.sent());
            }
        }
        assert_eq!(self.store.connections(), 0);
    }
}

#[test]
fn curl_reads_the_refusal_of_a_gigabyte_that_it_did_not_announce() {
    let scene = scene();
    let path = scene.gate.dir().join("zeros");
    File::create(&path).unwrap().set_len(1 << 30).unwrap();
    scene.all_read_the_refusal(|url, stale| {
        let mut command = Command::new("curl");
        clean_env(&mut command)
            .args(["-q", "-sS", "-i", "--max-time", "120", "-H", "Expect:", "-T"])
            .arg(&path)
            .args(["-H", &format!("Fencing-Token: {stale}"), &format!("{url}/wal/x")]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer = Answer::parse(&output.stdout);
        assert_eq!(answer.header("connection"), Some("close"));
        answer
    });
}

const HTTP_CLIENT: &str = r#"
import http.client, sys, urllib.parse
url = urllib.parse.urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
headers = {"Fencing-Token": sys.argv[2]} if sys.argv[2] else {}
connection.request("PUT", url.path, bytes(64 << 20), headers)
answer = connection.getresponse()
body = answer.read()
head = "".join(f"{name}: {value}\r\n" for name, value in answer.getheaders())
sys.stdout.buffer.write(f"HTTP/1.1 {answer.status} {answer.reason}\r\n{head}\r\n".encode() + body)
"#;

fn http_client(url: &str, token: &str) -> Answer {
    let mut command = clients::client("python", url);
    let output: Output = command.args(["-c", HTTP_CLIENT, url, token]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Answer::parse(&output.stdout)
}

#[test]
fn a_client_that_sends_all_before_it_reads_gets_its_refusal() {
    scene().all_read_the_refusal(|url, stale| {
        http_client(&format!("{url}/wal/x"), &stale.to_string())
    });
}

const PUT_OBJECT: &str = r#"
import sys
from botocore.exceptions import ClientError
try:
    s3.put_object(Bucket="wal", Key="x", Body=bytes(64 << 20))
except ClientError as error:
    meta, said = error.response["ResponseMetadata"], error.response["Error"]
    body = f"<Error><Code>{said['Code']}</Code><Message>{said['Message']}</Message></Error>"
    assert meta["RetryAttempts"] == 0 and "stale" in said["Message"], error.response
    sys.stdout.write(f"HTTP/1.1 {meta['HTTPStatusCode']} X\r\n\r\n{body}")
"#;

#[test]
fn boto3_reads_the_refusal_and_does_not_repeat_the_upload() {
    scene().all_read_the_refusal(|url, stale| {
        let output = boto3(url, Some(stale), PUT_OBJECT, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Answer::parse(&output.stdout)
    });
}

#[test]
fn an_upload_without_end_is_read_up_to_a_bound_only() {
    let scene = scene();
    let mut client = RawClient::connect(scene.gate.address());
    let head = format!(
        "PUT /wal/x HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {}\r\nContent-Length: {}\r\n\r\n",
        scene.stale,
        1u64 << 40
    );
    client.send(head.as_bytes());
    let piece = vec![0; 1 << 20];
    let mut sent = 0;
    while client.try_send(&piece) {
        sent += piece.len();
        assert!(sent < BOUND, "{sent} bytes and no end");
    }
    assert_eq!(scene.store.connections(), 0);
}

#[test]
fn a_stores_early_refusal_of_an_upload_is_read_too() {
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let token = gate.acquire("wal/main", "a", "60s");
    for length in [
        "Content-Length: 6\r\n\r\ndenied",
        "Transfer-Encoding: chunked\r\n\r\n6\r\ndenied\r\n0\r\n\r\n",
    ] {
        let answer = format!("HTTP/1.1 403 Forbidden\r\nConnection: close\r\n{length}");
        for (path, token) in [("/public/x", String::new()), ("/wal/x", token.to_string())] {
            store.next(path, script::early(answer.as_bytes()));
            let answer = http_client(&format!("{}{path}", gate.url()), &token);
            assert_eq!((answer.status, answer.text().as_str()), (403, "denied"), "{path}");
        }
    }
}

#[test]
fn after_a_refused_upload_that_was_read_the_next_one_goes_through() {
    let scene = scene();
    let token = scene.gate.cli(&["lease", "show", "wal/main", "--json"]);
    let token: serde_json::Value = serde_json::from_slice(&token.stdout).unwrap();
    let token = format!("Fencing-Token: {}", token["token"].as_str().unwrap());
    let refused = http_client(&format!("{}/wal/x", scene.gate.url()), &scene.stale.to_string());
    assert_eq!(refused.status, 412);
    let mut client = RawClient::connect(scene.gate.address());
    client.send(&request("PUT", "/wal/x", "localhost", &[&token], &vec![b'b'; 1 << 20]));
    assert_eq!(client.answer().status, 200);
    assert_eq!(scene.store.object("/wal/x"), Some(vec![b'b'; 1 << 20]));
}
