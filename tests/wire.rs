//! The corpus under `tests/corpus`: raw requests, byte for byte, with what must become of them.
//!
//! `NAME.http` is sent as it stands, but for `{token}` (the holder's), `{stale}` (its predecessor's) and
//! `{port}`. `NAME.expect` has one fact a line; `#` begins a comment:
//!
//! | line | meaning |
//! | --- | --- |
//! | `gate rest` | in front of a REST store instead of S3 |
//! | `store PATH TEXT` | what the store answers to the next request to PATH, with `\r\n` for line ends |
//! | `half-close` | the client ends its side after the last byte |
//! | `answer STATUS [CODE]`, `answer-to HEAD STATUS` | the next answer; `answer 400` alone may lack a body |
//! | `has NAME: VALUE`, `lacks NAME`, `body TEXT` | of the answer above |
//! | `upstream METHOD TARGET` | the next request that the store saw |
//! | `sent NAME: VALUE`, `unsent NAME`, `payload TEXT` | of the request above |
//! | `closed`, `open` | afterwards: closed; or in step, which one more request shows |
//!
//! What the store sees and the file does not name is a failure.

mod expectation;
mod limits;
mod refusals;
mod reload;
mod secrets;
mod shutdown;
mod upload;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::clients::Answer;
use crate::support::gate::Gate;
use crate::support::raw_client::RawClient;
use crate::support::raw_store::{RawStore, Seen, script};

struct Bench {
    store: RawStore,
    gate: Gate,
    token: u64,
    stale: u64,
}

impl Bench {
    fn new(rest: bool) -> Bench {
        let store = RawStore::start();
        let mut builder = Gate::builder(&store.url()).proxy("hosts = [\"s3.internal\"]");
        if rest {
            builder = builder.rest();
        }
        let gate = builder.start();
        let stale = gate.acquire("wal/main", "a", "60s");
        let token = gate.hand_over("wal/main", stale, "b");
        Bench { store, gate, token, stale }
    }

    /// Plays one case; the text is what went wrong.
    fn play(&self, bytes: &[u8], lines: &[&str]) -> Result<(), String> {
        let before = self.store.seen().len();
        let mut client = RawClient::connect(self.gate.address());
        for line in lines {
            if let Some(("store", rest)) = line.split_once(' ') {
                let (path, text) = rest.split_once(' ').ok_or("store PATH TEXT")?;
                let text = text.replace("\\r\\n", "\r\n");
                self.store.next(path, script::answer(text.as_bytes()));
            }
        }
        // The other side may close before it has read everything.
        client.try_send(&self.filled(bytes));
        if lines.contains(&"half-close") {
            client.half_close();
        }
        let mut answer: Option<Answer> = None;
        let mut at = before;
        let mut request: Option<Seen> = None;
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "gate" | "store" | "half-close" => {}
                "answer" => answer = Some(answered(client.answer(), rest)?),
                "answer-to" => {
                    let (method, rest) = rest.split_once(' ').ok_or("answer-to METHOD STATUS")?;
                    answer = Some(answered(client.answer_to(method), rest)?);
                }
                "has" | "lacks" | "body" => {
                    let answer = answer.as_ref().ok_or("no answer above")?;
                    told(word, rest, |name| answer.header(name).map(str::to_owned), &answer.body)?;
                }
                "upstream" => {
                    let seen = self.store.seen();
                    let next = seen.get(at).ok_or_else(|| format!("the store saw no {rest}"))?;
                    let got = format!("{} {}", next.method, next.target);
                    if got != rest {
                        return Err(format!("the store saw {got}, not {rest}"));
                    }
                    request = Some(next.clone());
                    at += 1;
                }
                "sent" | "unsent" | "payload" => {
                    let seen = request.as_ref().ok_or("no upstream above")?;
                    let word = match word {
                        "sent" => "has",
                        "unsent" => "lacks",
                        _ => "body",
                    };
                    told(word, rest, |name| seen.header(name), &seen.body)?;
                }
                "closed" => {
                    let rest = client.rest();
                    if !rest.is_empty() {
                        return Err(format!("more came: {}", String::from_utf8_lossy(&rest)));
                    }
                }
                "open" => {
                    client.send(b"GET /public/in-step HTTP/1.1\r\nHost: localhost\r\n\r\n");
                    let status = client.answer().status;
                    if status != 404 {
                        return Err(format!("the connection is out of step: {status}"));
                    }
                }
                _ => return Err(format!("{line:?} is no fact")),
            }
        }
        if !lines.contains(&"closed") && !lines.contains(&"open") {
            return Err("say `closed` or `open`".to_owned());
        }
        let more: Vec<_> = self.store.seen()[at..]
            .iter()
            .filter(|seen| seen.path() != "/public/in-step")
            .map(|seen| format!("{} {}", seen.method, seen.target))
            .collect();
        if !more.is_empty() {
            return Err(format!("the store saw more: {more:?}"));
        }
        Ok(())
    }

    fn filled(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (name, value) in [
            ("{token}", self.token),
            ("{stale}", self.stale),
            ("{port}", u64::from(self.gate.address().port())),
        ] {
            let mut from = 0;
            while let Some(found) =
                bytes[from..].windows(name.len()).position(|window| window == name.as_bytes())
            {
                let value = value.to_string();
                let at = from + found;
                bytes.splice(at..at + name.len(), value.bytes());
                from = at + value.len();
            }
        }
        bytes
    }
}

fn answered(answer: Answer, wanted: &str) -> Result<Answer, String> {
    let (status, code) = wanted.split_once(' ').unwrap_or((wanted, ""));
    let problem = || -> Option<String> {
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
        Some(problem["type"].as_str()?.to_owned())
    };
    let got = answer.code().or_else(problem).unwrap_or_default();
    if answer.status.to_string() != status || (!code.is_empty() && got != code) {
        return Err(format!("{} {got:?} instead of {wanted}: {}", answer.status, answer.text()));
    }
    Ok(answer)
}

fn told(
    word: &str,
    rest: &str,
    header: impl Fn(&str) -> Option<String>,
    body: &[u8],
) -> Result<(), String> {
    match word {
        "has" => {
            let (name, value) = rest.split_once(':').ok_or("NAME: VALUE")?;
            let got = header(name);
            if got.as_deref() != Some(value.trim()) {
                return Err(format!("{name} is {got:?}, not {value}"));
            }
        }
        "lacks" => {
            if let Some(value) = header(rest) {
                return Err(format!("there is a {rest}: {value}"));
            }
        }
        _ => {
            if body != rest.as_bytes() {
                return Err(format!("the body is {:?}", String::from_utf8_lossy(body)));
            }
        }
    }
    Ok(())
}

fn cases(fate: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(fate);
    let mut cases: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|at| at.unwrap().path()).collect();
    cases.sort();
    cases
}

fn replay(fate: &str) {
    let (s3, rest) = (Bench::new(false), Bench::new(true));
    let mut failures = Vec::new();
    for path in cases(fate).iter().filter(|path| path.extension().is_some_and(|e| e == "http")) {
        let text = fs::read_to_string(path.with_extension("expect"))
            .unwrap_or_else(|error| panic!("{}: no .expect: {error}", path.display()));
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let bench = if lines.contains(&"gate rest") { &rest } else { &s3 };
        let bytes = fs::read(path).unwrap();
        let played =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.play(&bytes, &lines)));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        match played {
            Ok(Ok(())) => {}
            Ok(Err(what)) => failures.push(format!("{name}: {what}")),
            Err(panic) => {
                let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                failures.push(format!("{name}: {what}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_must_be_refused_is_refused_and_reaches_no_store() {
    replay("refuse");
}

#[test]
fn what_may_pass_goes_up_in_clean_form_and_nothing_else_does() {
    replay("admit");
}

#[test]
fn every_file_of_the_corpus_has_its_twin() {
    for fate in ["admit", "refuse"] {
        for path in cases(fate) {
            let twin = match path.extension().and_then(|extension| extension.to_str()) {
                Some("http") => "expect",
                Some("expect") => "http",
                _ => panic!("{} is neither", path.display()),
            };
            assert!(path.with_extension(twin).exists(), "{} stands alone", path.display());
        }
    }
}
