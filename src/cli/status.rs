//! `fencegate status`: how a server is: readiness, backends, the level of each rule, fences at work.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{Client, ClientError, ServerArgs, block_on, printable};
use super::exit::Exit;
use super::lease::{print, table};
use crate::core::units::Span;

/// Between two looks of `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

/// Moves the cursor to the top of a terminal and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show how a server is: readiness, backends and stores, the level of each rule, fences at work.
///
/// Exits with 0 if everything is well, with 1 if something needs attention: not ready, a backend or store
/// that does not answer, a resource that refuses everything. Writes in flight and outcomes that are
/// still unknown are shown, and are no reason for 1: they end by themselves.
#[derive(Args, Debug)]
pub struct Status {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's JSON answer, with that of /readyz as `readiness`.
    #[arg(long)]
    json: bool,
    /// Look again every 2 s, until interrupted or until the server is gone.
    #[arg(long)]
    watch: bool,
}

// === impl Status ===

impl Status {
    /// Runs the command.
    pub fn run(self) -> Exit {
        let mut verdict = Exit::Done;
        let ended = block_on(async {
            let mut out = std::io::stdout();
            let clear = !self.json && out.is_terminal();
            verdict = self.execute(&mut out, clear).await?;
            Ok(())
        });
        if ended == Exit::Done { verdict } else { ended }
    }

    /// Runs the command, printing results to `out`; `clear`: each over the one before.
    async fn execute(self, out: &mut dyn Write, clear: bool) -> Result<Exit, ClientError> {
        let client = Client::new(&self.server)?;
        loop {
            let mut status = client.get("/v1/status").await?;
            status["readiness"] = client.readiness().await?;
            let text = match (self.watch, clear) {
                (false, _) => shown(&status),
                (true, true) => format!("{CLEAR}{}", shown(&status)),
                (true, false) => format!("{}\n", shown(&status)),
            };
            let is_read = print(out, self.json, &status, &text);
            if !self.watch || !is_read {
                let well = attention(&status).is_empty();
                return Ok(if well { Exit::Done } else { Exit::Refused });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// What an operator should look at, a line each.
fn attention(status: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if status["readiness"]["ready"] != true {
        let missing = ["configured", "ledger_open", "bound"]
            .into_iter()
            .filter(|fact| status["readiness"][fact] != true);
        let facts: Vec<_> = missing.collect();
        lines.push(match status["readiness"]["draining"] == true {
            true => "the server is shutting down".to_owned(),
            false => format!("the server is not ready; not {}", facts.join(", ")),
        });
    }
    let backends = &status["backends"];
    let why = |probe: &Value| text(&probe["error"]);
    if backends["lease"]["state"] == "down" {
        lines.push(format!("the lease backend does not answer: {}", why(&backends["lease"])));
    }
    for store in down(&backends["stores"]) {
        lines.push(format!("the store {} cannot be reached: {}", text(&store["name"]), why(store)));
    }
    for fence in rows(&status["fences"]).filter(|fence| fence["closed"].is_string()) {
        let (resource, why) = (text(&fence["resource"]), text(&fence["closed"]));
        lines.push(format!("{resource} refuses everything: {why}; see `fencegate fence bump`"));
    }
    lines
}

fn down(stores: &Value) -> impl Iterator<Item = &Value> {
    rows(stores).filter(|store| store["state"] == "down")
}

fn shown(status: &Value) -> String {
    let service = &status["service"];
    let mut out = vec![
        format!(
            "fencegate {}: {}",
            text(&status["version"]),
            if status["readiness"]["ready"] == true { "ready" } else { "not ready" }
        ),
        format!("proxy   {}", text(&status["readiness"]["proxy"])),
        format!(
            "lease   {}, {}",
            text(&status["backends"]["lease"]["state"]),
            text(&status["lease_grade"])
        ),
    ];
    for store in rows(&status["backends"]["stores"]) {
        let [name, kind, url, state] =
            ["name", "kind", "url", "state"].map(|key| text(&store[key]));
        out.push(format!("store   {state}, {name}: {kind} {url}"));
    }
    out.push(format!(
        "writes  {} not settled, {} bytes withheld",
        service["exchanges"], service["withheld_bytes"]
    ));
    if !service["revoked"].is_null() {
        let reason = text(&service["revoked"]["reason"]);
        out.push(format!(
            "note    the ledger was revoked ({reason}): every token of before is stale"
        ));
    }
    if !service["held_on_all"].is_null() {
        let until = ends(&service["held_on_all"]["ends_in_ms"]);
        out.push(format!(
            "note    every resource waits for what was left at the last end, {until}"
        ));
    }
    out.push(String::new());
    out.push(format!("rules, version {}", service["rules_generation"]));
    out.push(rules(&service["rules"]));
    let fences = fences(&status["fences"]);
    if !fences.is_empty() {
        out.push(String::new());
        out.push(fences);
    }
    let attention = attention(status);
    if !attention.is_empty() {
        out.push(String::new());
        out.extend(attention.into_iter().map(|line| format!("attention: {line}")));
    }
    out.join("\n")
}

fn rules(rules: &Value) -> String {
    let mut lines = vec![["RULE", "MATCH", "RESOURCE", "LEVEL", "WHY"].map(String::from)];
    for rule in rows(rules) {
        let patterns: Vec<_> = rows(&rule["match"]).map(text).collect();
        let (level, why) = match rule["level"].as_str() {
            Some(level) => (printable(level), reason(rule)),
            None => ("-".to_owned(), "fence = \"none\"".to_owned()),
        };
        let place = rule["rule"].to_string();
        lines.push([place, patterns.join(", "), text(&rule["resource"]), level, why]);
    }
    table(&lines)
}

/// What keeps a rule from the next level, or on what its level rests.
fn reason(rule: &Value) -> String {
    let lacks = |finding: &&Value| finding["basis"] == "missing" || finding["basis"] == "denied";
    let lacking: Vec<_> = rows(&rule["findings"])
        .filter(lacks)
        .map(|finding| format!("{} {}", text(&finding["assumption"]), text(&finding["reason"])))
        .collect();
    if lacking.is_empty() {
        let held: Vec<_> = rows(&rule["findings"]).map(|one| text(&one["assumption"])).collect();
        return format!("assuming {}", held.join(" "));
    }
    lacking.join("; ")
}

/// Resources with something in flight, in doubt or waiting; empty if there are none.
fn fences(fences: &Value) -> String {
    let mut lines = vec![
        ["RESOURCE", "MARK", "IN FLIGHT", "STREAMING", "TAINTED", "WAITING"].map(String::from),
    ];
    for fence in rows(fences) {
        let sum = |key: &str| -> u64 {
            rows(&fence["permits"]).filter_map(|permit| permit[key].as_u64()).sum()
        };
        let tainted = rows(&fence["permits"]).filter(|permit| permit["tainted"] == true);
        // The longest: until then a successor may have to wait.
        let longest =
            tainted.max_by_key(|permit| permit["clears_in_ms"].as_u64().unwrap_or(u64::MAX));
        let tainted = longest.map_or("no".to_owned(), |permit| ends(&permit["clears_in_ms"]));
        lines.push([
            text(&fence["resource"]),
            text(&fence["mark"]),
            sum("counted").to_string(),
            sum("streaming").to_string(),
            tainted,
            fence["waiting"].to_string(),
        ]);
    }
    if lines.len() > 1 { table(&lines) } else { String::new() }
}

fn ends(ms: &Value) -> String {
    match ms.as_u64() {
        Some(ms) => format!("for {}", Span(Duration::from_secs(ms.div_ceil(1_000)))),
        None => "until settled".to_owned(),
    }
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or("-"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::serve::admin::double::Server;

    fn well() -> Value {
        json!({
            "version": "1.0.0", "lease_grade": "single-node-durable",
            "readiness": { "ready": true, "proxy": "http://127.0.0.1:8080" },
            "backends": {
                "lease": { "state": "up" },
                "stores": [{ "name": "upstream", "kind": "s3", "url": "http://s:1", "state": "up" }],
            },
            "service": {
                "exchanges": 2, "withheld_bytes": 0, "rules_generation": 3,
                "rules": [
                    { "rule": 1, "match": ["wal/**"], "resource": "wal/main", "level": "drained",
                      "findings": [{ "assumption": "U1", "basis": "declared", "reason": "r" }] },
                    { "rule": 2, "match": ["x/**", "y/**"], "resource": "x", "level": "advisory",
                      "findings": [{ "assumption": "U2", "basis": "missing", "reason": "set k" }] },
                    { "rule": 3, "match": ["p/**"], "resource": null },
                ],
            },
            "fences": [{
                "resource": "wal/main", "mark": "7", "waiting": 1,
                "permits": [
                    { "counted": 2, "streaming": 1, "tainted": false },
                    { "counted": 0, "streaming": 0, "tainted": true, "clears_in_ms": 40_100 },
                ],
            }],
        })
    }

    #[test]
    fn the_text_shows_rules_with_their_reasons_and_fences_at_work() {
        let want = "\
fencegate 1.0.0: ready
proxy   http://127.0.0.1:8080
lease   up, single-node-durable
store   up, upstream: s3 http://s:1
writes  2 not settled, 0 bytes withheld

rules, version 3
RULE  MATCH       RESOURCE  LEVEL     WHY
1     wal/**      wal/main  drained   assuming U1
2     x/**, y/**  x         advisory  U2 set k
3     p/**        -         -         fence = \"none\"

RESOURCE  MARK  IN FLIGHT  STREAMING  TAINTED  WAITING
wal/main  7     2          1          for 41s  1";
        assert_eq!(shown(&well()), want);
    }

    #[test]
    fn what_needs_attention_is_said() {
        assert_eq!(attention(&well()), Vec::<String>::new());
        let cases: [(&str, Value, &str); 5] = [
            ("/readiness", json!({ "ready": false, "draining": true }), "shutting down"),
            ("/readiness", json!({ "ready": false, "bound": true }), "not configured, ledger_open"),
            ("/backends/lease", json!({ "state": "down", "error": "gone" }), "answer: gone"),
            (
                "/backends/stores/0",
                json!({ "name": "s", "state": "down", "error": "e" }),
                "store s",
            ),
            ("/fences/0/closed", json!("lost tokens"), "wal/main refuses everything: lost tokens"),
        ];
        for (at, value, want) in cases {
            let mut status = well();
            status["fences"][0]["closed"] = Value::Null;
            *status.pointer_mut(at).unwrap() = value;
            let lines = attention(&status);
            assert!(lines.len() == 1 && lines[0].contains(want), "{at}: {lines:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_ready_needs_attention() {
        let server = Server::start(&[]).await;
        let arguments =
            || ServerArgs { server: format!("http://{}", server.address), admin_token_file: None };
        let status = |json| Status { server: arguments(), json, watch: false };
        let mut out = Vec::new();
        assert_eq!(status(true).execute(&mut out, false).await.unwrap(), Exit::Refused);
        let told: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&told["readiness"]["ready"], &told["ready"]), (&json!(false), &json!(false)));
        server.readiness.set(|ready| {
            (ready.configured, ready.ledger_open, ready.bound) = (true, true, true);
        });
        out.clear();
        assert_eq!(status(false).execute(&mut out, false).await.unwrap(), Exit::Done);
        assert!(out.starts_with(b"fencegate "), "{}", String::from_utf8_lossy(&out));
    }
}
