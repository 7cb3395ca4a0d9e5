//! `fencegate lease …`: acquire, renew, release, show, list, watch.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::client::{ANSWER_TIME, Client, ClientError, ServerArgs, block_on, printable, query};
use super::exit::Exit;
use super::sse::{Events, Message};
use crate::core::Token;
use crate::core::units::Span;

/// Longest barrier that the server may be configured with, as far as this program waits for one.
const DRAIN_TIME: Duration = Duration::from_secs(300);

/// Pause before a watch that broke off connects again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Take, keep, give back and look at leases.
///
/// A lease belongs to a term (a promotion, a leadership, one run of a job), never to one command of
/// it: acquire once, then write with that token.
#[derive(Args, Debug)]
pub struct LeaseArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's JSON answer.
    #[arg(long, global = true, display_order = 100)]
    json: bool,
    #[command(subcommand)]
    call: Call,
}

#[derive(Subcommand, Debug)]
enum Call {
    /// Take the lease on a resource; prints its token.
    Acquire(Acquire),
    /// Extend the lease that a token holds.
    Renew(Renew),
    /// Give the lease back.
    Release(Holding),
    /// Show who has a resource.
    Show {
        /// Which resource.
        resource: String,
    },
    /// List leases by name.
    List(List),
    /// Print every change of leases as it happens, until interrupted.
    Watch {
        /// Only names that start like this.
        #[arg(long, default_value = "")]
        prefix: String,
    },
}

#[derive(Args, Debug)]
struct Acquire {
    /// What to lease, such as wal/main.
    resource: String,
    /// How long it lasts without a renewal: 1s to 24h.
    #[arg(long, default_value = "15s")]
    ttl: Span,
    /// How long to wait while another holder has it, at most 60s.
    #[arg(long, default_value = "0s")]
    wait: Span,
    /// Wait until every older write of the resource has settled.
    #[arg(long)]
    drain: bool,
    /// The label to acquire under (default: user@host:pid).
    #[arg(long)]
    holder: Option<String>,
    /// Repeats an acquire whose answer was lost: the same id gets the same grant (default: random).
    #[arg(long)]
    request_id: Option<String>,
}

#[derive(Args, Debug)]
struct Renew {
    #[command(flatten)]
    holding: Holding,
    /// The new time to live (default: the one granted).
    #[arg(long)]
    ttl: Option<Span>,
}

/// A resource and the token that holds it.
#[derive(Args, Debug)]
pub(super) struct Holding {
    /// Which resource.
    pub(super) resource: String,
    /// Its token (default: from --token-file, then FENCING_TOKEN).
    token: Option<Token>,
    /// File with the token.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct List {
    /// Only names that start like this.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only names that sort after this one.
    #[arg(long)]
    after: Option<String>,
    /// At most so many, 1 to 1000.
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

// === impl LeaseArgs ===

impl LeaseArgs {
    /// Runs the command.
    pub fn run(self) -> Exit {
        block_on(async {
            let mut out = std::io::stdout();
            self.execute(&mut out).await
        })
    }

    /// Runs the command, printing results to `out`.
    async fn execute(self, out: &mut dyn Write) -> Result<(), ClientError> {
        let client = Client::new(&self.server)?;
        let json = self.json;
        match self.call {
            Call::Acquire(ask) => {
                let answer = ask.send(&client).await?;
                let token = answer["token"].as_str().unwrap_or_default();
                print(out, json, &answer, token);
            }
            Call::Renew(Renew { holding, ttl }) => {
                let mut body = json!({ "resource": holding.resource, "token": holding.token()? });
                if let Some(ttl) = ttl {
                    body["ttl"] = json!(ttl);
                }
                let answer = client.post("/v1/lease/renew", &body, ANSWER_TIME).await?;
                let left = millis(&answer["expires_in_ms"]);
                print(out, json, &answer, &format!("renewed, expires in {left}"));
            }
            Call::Release(holding) => {
                let body = json!({ "resource": holding.resource, "token": holding.token()? });
                client.post("/v1/lease/release", &body, ANSWER_TIME).await?;
                print(out, json, &json!({ "released": holding.resource }), "released");
            }
            Call::Show { resource } => {
                let target = format!("/v1/lease?{}", query(&[("resource", Some(&resource))]));
                let answer = client.get(&target).await?;
                print(out, json, &answer, &shown(&answer));
            }
            Call::List(list) => {
                let limit = list.limit.to_string();
                let pairs = [
                    ("prefix", Some(list.prefix.as_str())),
                    ("after", list.after.as_deref()),
                    ("limit", Some(limit.as_str())),
                ];
                let answer = client.get(&format!("/v1/leases?{}", query(&pairs))).await?;
                print(out, json, &answer, &listed(&answer));
                if !json && let Some(next) = answer["next"].as_str() {
                    eprintln!("there are more: --after {:?}", printable(next));
                }
            }
            Call::Watch { prefix } => watch(&client, &prefix, json, out).await?,
        }
        Ok(())
    }
}

// === impl Acquire ===

impl Acquire {
    async fn send(self, client: &Client) -> Result<Value, ClientError> {
        let request_id = self.request_id.unwrap_or_else(random_id);
        let body = json!({
            "resource": self.resource,
            "holder": self.holder.unwrap_or_else(default_holder),
            "ttl": self.ttl,
            "wait": self.wait,
            "drain": self.drain,
            "request_id": request_id,
        });
        let mut limit = ANSWER_TIME + self.wait.0;
        if self.drain {
            limit += DRAIN_TIME;
        }
        let first = client.post("/v1/lease/acquire", &body, limit).await;
        let result = match first {
            // The grant may exist. The same id gets the same one, or a new one if it does not.
            Err(ClientError::NoAnswer { .. }) => {
                client.post("/v1/lease/acquire", &body, limit).await
            }
            settled => settled,
        };
        if let Err(ClientError::NoAnswer { .. } | ClientError::Refused { .. }) = &result {
            let may_stand = match &result {
                Err(ClientError::Refused { status, .. }) => status.as_u16() == 503,
                _ => true,
            };
            if may_stand {
                eprintln!("fencegate: to repeat this very acquire: --request-id {request_id:?}");
            }
        }
        result
    }
}

// === impl Holding ===

impl Holding {
    pub(super) fn token(&self) -> Result<Token, ClientError> {
        token_from(self.token, self.token_file.as_deref())
    }
}

/// The token given, else that of the file, else FENCING_TOKEN.
///
/// # Errors
/// [`ClientError::Usage`] if there is none or it is not a token. An empty file is what `hold` leaves
/// behind when it has lost the lease: that is a refusal, not a mistake.
pub(super) fn token_from(
    token: Option<Token>,
    file: Option<&std::path::Path>,
) -> Result<Token, ClientError> {
    if let Some(token) = token {
        return Ok(token);
    }
    let (text, place) = match file {
        Some(path) => {
            let text = std::fs::read(path).map_err(|cause| ClientError::File {
                what: "reading the token",
                path: path.into(),
                cause,
            })?;
            if text.trim_ascii().is_empty() {
                return Err(ClientError::Refused {
                    status: http::StatusCode::PRECONDITION_FAILED,
                    kind: "/errors/lease-lost".into(),
                    detail: format!(
                        "{} is empty: the lease is lost; acquire again",
                        path.display()
                    ),
                    request_id: String::new(),
                });
            }
            (text, path.display().to_string())
        }
        None => match std::env::var_os("FENCING_TOKEN") {
            Some(text) => (text.into_encoded_bytes(), "FENCING_TOKEN".into()),
            None => {
                return Err(ClientError::Usage(
                    "no token; give it on the command line, with --token-file, or in FENCING_TOKEN"
                        .into(),
                ));
            }
        },
    };
    Token::parse(text.trim_ascii())
        .map_err(|fault| ClientError::Usage(format!("the token in {place} is not one: {fault}")))
}

/// `user@host:pid`.
pub(super) fn default_holder() -> String {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| uid.to_string(), |user| user.name);
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    format!("{user}@{}:{}", host.as_deref().unwrap_or("localhost"), std::process::id())
}

/// 128 random bits in hex.
pub(super) fn random_id() -> String {
    let mut bytes = [0; 16];
    // The kernel's generator does not fail once it is seeded, and people log in long after that.
    getrandom::fill(&mut bytes).expect("the kernel has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints the answer as JSON, or the text made of it. Returns whether somebody still reads: what was
/// asked for is done either way, so a closed pipe is no error.
pub(super) fn print(out: &mut dyn Write, json: bool, answer: &Value, text: &str) -> bool {
    let written = if json { writeln!(out, "{answer}") } else { writeln!(out, "{text}") };
    written.and_then(|()| out.flush()).is_ok()
}

/// Time left: whole seconds, rounded down, where a part of one does not matter.
fn millis(value: &Value) -> String {
    let Some(ms) = value.as_u64() else { return "?".into() };
    let left = if ms < 10_000 { ms } else { ms - ms % 1_000 };
    Span(Duration::from_millis(left)).to_string()
}

fn state(lease: &Value) -> &'static str {
    match (lease["live"].as_bool(), lease["released"].as_bool()) {
        (Some(true), _) => "live",
        (_, Some(true)) => "released",
        _ => "expired",
    }
}

fn shown(lease: &Value) -> String {
    let text = |name: &str| printable(lease[name].as_str().unwrap_or("-"));
    format!(
        "resource    {}\nholder      {}\nstate       {}\nexpires in  {}\ntoken       {}\nmark        {}",
        text("resource"),
        text("holder"),
        state(lease),
        millis(&lease["expires_in_ms"]),
        text("token"),
        text("mark"),
    )
}

fn listed(answer: &Value) -> String {
    let mut rows = vec![["RESOURCE", "HOLDER", "STATE", "EXPIRES IN"].map(String::from)];
    for lease in answer["leases"].as_array().into_iter().flatten() {
        let text = |name: &str| printable(lease[name].as_str().unwrap_or("-"));
        let left = millis(&lease["expires_in_ms"]);
        rows.push([text("resource"), text("holder"), state(lease).into(), left]);
    }
    table(&rows)
}

/// Columns as wide as their widest cell.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints events; connects again where it was when the stream breaks off, until that fails.
async fn watch(
    client: &Client,
    prefix: &str,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), ClientError> {
    let target = format!("/v1/leases/watch?{}", query(&[("prefix", Some(prefix))]));
    let mut last: Option<String> = None;
    let mut broken = false;
    loop {
        let id = last.clone();
        let headers = id.as_deref().map(|id| ("last-event-id", id));
        let response = client.send(Method::GET, &target, None, headers.as_slice()).await?;
        // Without an id the stream begins at now, and nobody knows what happened since it broke off.
        if broken && last.is_none() && !print_event(out, json, &Message::gap()) {
            return Ok(());
        }
        let mut body = response.into_body();
        let mut events = Events::default();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            events.push(&bytes);
            while let Some(message) = events.next() {
                if let Some(id) = &message.id {
                    last = Some(id.clone());
                }
                if !print_event(out, json, &message) {
                    return Ok(());
                }
            }
        }
        broken = true;
        tokio::time::sleep(RECONNECT).await;
    }
}

fn print_event(out: &mut dyn Write, json: bool, message: &Message) -> bool {
    let data: Value = serde_json::from_str(&message.data).unwrap_or_default();
    let text = |name: &str| printable(data[name].as_str().unwrap_or("-"));
    let line = match message.event.as_str() {
        "gap" => "gap: events were missed; list the leases again".to_owned(),
        change => format!("{:<8}  {}  {}", printable(change), text("resource"), text("holder")),
    };
    let answer = match message.event.as_str() {
        "gap" => json!({ "change": "gap" }),
        _ => data,
    };
    print(out, json, &answer, &line)
}

#[cfg(test)]
mod tests;
