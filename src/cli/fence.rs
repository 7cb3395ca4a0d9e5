//! `fencegate fence …`: the barrier, an operator's look and overrides, backup.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::ConfigFile;
use super::client::{ANSWER_TIME, Client, ClientError, ServerArgs, block_on, printable, query};
use super::exit::Exit;
use super::lease::{Holding, print, table};
use crate::store::embedded::{self, StoreError};

/// Longest wait for a barrier.
const DRAIN_TIME: Duration = Duration::from_secs(310);

/// Longest pause in a backup.
const BACKUP_PAUSE: Duration = Duration::from_secs(60);

/// Look at a resource's fence, raise it, and override it.
#[derive(Args, Debug)]
pub struct FenceArgs {
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
    /// The barrier: wait until every older write of the resource has settled.
    ///
    /// After it, everything done under this token, fenced or not, comes after every older write.
    Raise(Holding),
    /// Show a resource's mark, permits and waiters.
    Show {
        /// Which resource.
        resource: String,
    },
    /// Make every token so far stale and end the running lease.
    ///
    /// The way on after the lease backend forgot tokens: a restored snapshot, a flushed database.
    Bump {
        /// Which resource.
        resource: String,
    },
    /// Declare that every unknown outcome of a resource is settled.
    ///
    /// Only after making sure that the writes in question have happened or never will: this
    /// overrides the wait that protects the next holder from them.
    Settle {
        /// Which resource.
        resource: String,
    },
    /// Download a consistent copy of the ledger.
    Backup {
        /// Where to write it; replaced only by a whole copy. Readable by its owner alone.
        file: PathBuf,
    },
    /// Put a backup in the place of the ledger's file. The server must be stopped.
    ///
    /// The next start ends every lease and makes every token of before stale: the backup knows nothing
    /// of what was granted and written after it was made.
    Restore(Restore),
}

#[derive(Args, Debug)]
struct Restore {
    /// The backup.
    from: PathBuf,
    /// The file to replace (default: what the configuration names).
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    file: ConfigFile,
}

// === impl FenceArgs ===

impl FenceArgs {
    /// Runs the command.
    pub fn run(self) -> Exit {
        block_on(async {
            let mut out = std::io::stdout();
            self.execute(&mut out).await
        })
    }

    /// Runs the command, printing results to `out`.
    async fn execute(self, out: &mut dyn Write) -> Result<(), ClientError> {
        let json = self.json;
        let call = match self.call {
            // Needs no server, and no valid address of one.
            Call::Restore(restore) => return restore.execute(json, out),
            call => call,
        };
        let client = Client::new(&self.server)?;
        match call {
            Call::Restore(_) => unreachable!("done above"),
            Call::Raise(holding) => {
                let (token, resource) = (holding.token()?, holding.resource);
                let body = json!({ "resource": resource, "token": token });
                client.post("/v1/fence/raise", &body, DRAIN_TIME).await?;
                let text = format!("raised to {token}: every older write has settled");
                print(out, json, &json!({ "resource": resource, "raised": token }), &text);
            }
            Call::Show { resource } => {
                let fence = show(&client, &resource).await?;
                print(out, json, &fence, &shown(&fence));
            }
            Call::Bump { resource } => {
                client
                    .post("/v1/fence/bump", &json!({ "resource": resource }), ANSWER_TIME)
                    .await?;
                print(
                    out,
                    json,
                    &json!({ "bumped": resource }),
                    "bumped: every token so far is stale",
                );
            }
            Call::Settle { resource } => {
                // What is overridden is gone afterwards, so it is shown before.
                let fence = show(&client, &resource).await?;
                eprint!("{}", overridden(&fence));
                client
                    .post("/v1/fence/settle", &json!({ "resource": resource }), ANSWER_TIME)
                    .await?;
                print(out, json, &json!({ "settled": resource }), "settled");
            }
            Call::Backup { file } => {
                let bytes = backup(&client, &file).await?;
                let text = format!("{bytes} bytes in {}", file.display());
                print(out, json, &json!({ "file": file, "bytes": bytes }), &text);
            }
        }
        Ok(())
    }
}

// === impl Restore ===

impl Restore {
    fn execute(self, json: bool, out: &mut dyn Write) -> Result<(), ClientError> {
        let to = match self.to {
            Some(to) => to,
            None => {
                let config = crate::config::load(&self.file.config)
                    .map_err(|faults| ClientError::Usage(faults.to_string()))?;
                config.ledger.path.unwrap_or(config.lease.path)
            }
        };
        let restored = embedded::restore(&self.from, &to).map_err(not_restored)?;
        let mut text = format!(
            "{} is restored; the next start ends every lease and makes every token of before stale",
            restored.path.display()
        );
        if let Some(kept) = &restored.kept {
            text.push_str(&format!("\nwhat was there is kept as {}", kept.display()));
        }
        let answer = json!({ "restored": restored.path, "kept": restored.kept });
        print(out, json, &answer, &text);
        Ok(())
    }
}

/// What the file system or the content refuses is no mistake in the command line, and no server's.
fn not_restored(cause: StoreError) -> ClientError {
    ClientError::Local(Box::new(cause))
}

async fn show(client: &Client, resource: &str) -> Result<Value, ClientError> {
    client.get(&format!("/v1/fence?{}", query(&[("resource", Some(resource))]))).await
}

fn shown(fence: &Value) -> String {
    let text = |name: &str| printable(fence[name].as_str().unwrap_or("-"));
    let mut out = format!(
        "resource  {}\nmark      {}\nwaiting   {}\nclosed    {}",
        text("resource"),
        text("mark"),
        fence["waiting"],
        text("closed")
    );
    let mut rows =
        vec![["PERMIT", "TOKEN", "OURS", "IN FLIGHT", "STREAMING", "TAINTED"].map(String::from)];
    for permit in fence["permits"].as_array().into_iter().flatten() {
        let text = |name: &str| printable(permit[name].as_str().unwrap_or("-"));
        let yes = |name: &str| if permit[name] == true { "yes" } else { "no" };
        let tainted = match (&permit["tainted"], permit["clears_in_ms"].as_u64()) {
            (Value::Bool(true), Some(ms)) => format!("for {} s", ms.div_ceil(1_000)),
            (Value::Bool(true), None) => "until settled".into(),
            _ => "no".into(),
        };
        let (counted, streaming) = (permit["counted"].to_string(), permit["streaming"].to_string());
        rows.push([text("id"), text("token"), yes("mine").into(), counted, streaming, tainted]);
    }
    if rows.len() > 1 {
        out.push_str("\n\n");
        out.push_str(&table(&rows));
    }
    out
}

/// What a settle overrides, as a warning.
fn overridden(fence: &Value) -> String {
    let resource = printable(fence["resource"].as_str().unwrap_or("-"));
    let permits = fence["permits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let unknown: Vec<_> = permits
        .iter()
        .filter(|permit| permit["tainted"] == true || permit["mine"] == false)
        .collect();
    if unknown.is_empty() {
        return format!("{resource}: nothing is unknown, so nothing is overridden\n");
    }
    let mut out = format!(
        "warning: {resource}: {} permit(s) may stand for writes that have not happened yet. If one happens \
         after this, it lands on top of the next holder's:\n",
        unknown.len()
    );
    for permit in unknown {
        let text = |name: &str| printable(permit[name].as_str().unwrap_or("-"));
        out.push_str(&format!("  permit {} of token {}\n", text("id"), text("token")));
    }
    out
}

/// Downloads the copy beside `file` and puts it in place when it is whole and on disk.
async fn backup(client: &Client, file: &Path) -> Result<u64, ClientError> {
    let fault = |what| move |cause| ClientError::File { what, path: file.to_owned(), cause };
    let response = client.send(Method::GET, "/v1/fence/backup", None, &[]).await?;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = Part(PathBuf::from(name));
    let mut copy = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part.0)
        .map_err(fault("creating the copy"))?;
    let mut body = response.into_body();
    let mut bytes = 0;
    loop {
        let frame = tokio::time::timeout(BACKUP_PAUSE, body.frame()).await;
        // A copy shorter than its Content-Length ends in an error of the body, not here.
        let Some(frame) = frame.map_err(|late| client.no_answer(late))? else { break };
        if let Ok(piece) = frame.map_err(|fault| client.no_answer(fault))?.into_data() {
            copy.write_all(&piece).map_err(fault("writing the copy"))?;
            bytes += piece.len() as u64;
        }
    }
    copy.sync_all().map_err(fault("writing the copy"))?;
    std::fs::rename(&part.0, file).map_err(fault("putting the copy in place"))?;
    let directory =
        file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(fault("putting the copy in place"))?;
    Ok(bytes)
}

/// A file that is not whole yet; removed unless it was renamed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests;
