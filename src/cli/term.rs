//! One term under a lease: acquire it, keep it, wait for what came before, give it back.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::client::{ANSWER_TIME, Client, ClientError, printable};
use super::lease::{default_holder, random_id};
use crate::core::keeper::{Keeper, Renewal};
use crate::core::units::Span;
use crate::core::{Millis, Token};
use crate::lease::keeper::{Holding, keep};
use crate::store::clock::{Clock, SystemClock};
use crate::telemetry::log::chain;

/// Longest wait that the server allows for one acquire.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Longest barrier that the server may be configured with, as far as one call waits for it.
const BARRIER_TIME: Duration = Duration::from_secs(310);

/// Between two attempts at a server that does not answer or says "later".
const PAUSE: Duration = Duration::from_secs(1);

/// Longest time to give the lease back; without it, it ends by itself.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// What to lease and how.
#[derive(Args, Clone, Debug)]
pub struct TermArgs {
    /// What to lease, such as wal/main.
    pub resource: String,
    /// How long the lease lasts without a renewal: 1s to 24h. It is renewed every third of it.
    #[arg(long, default_value = "15s")]
    pub ttl: Span,
    /// How long to wait while another holder has it.
    #[arg(long, default_value = "0s")]
    wait: Span,
    /// The label to acquire under (default: user@host:pid).
    #[arg(long)]
    holder: Option<String>,
}

/// A lease that is being kept.
pub struct Term {
    client: Client,
    resource: String,
    /// The token of this term.
    pub token: Token,
    /// What is known of the lease.
    pub holding: watch::Receiver<Holding>,
}

// === impl TermArgs ===

impl TermArgs {
    /// Takes the lease and keeps it from then on.
    ///
    /// # Errors
    /// [`ClientError`]: nothing was acquired, or it is lost again.
    /// # Cancel safety
    /// A dropped call may leave a grant behind until its TTL ends.
    pub async fn acquire(self, client: Client) -> Result<Term, ClientError> {
        let clock = SystemClock;
        let give_up = clock.boottime() + self.wait.0;
        let holder = self.holder.clone().unwrap_or_else(default_holder);
        let mut request_id = random_id();
        // Of an ask that was not answered, the grant may be as old as its first attempt.
        let mut old = false;
        loop {
            let sent = clock.boottime();
            let wait = sent.until(give_up).min(MAX_WAIT);
            let body = json!({
                "resource": self.resource, "holder": holder, "ttl": self.ttl,
                "wait": Span(wait), "request_id": request_id,
            });
            let answer = client.post("/v1/lease/acquire", &body, ANSWER_TIME + wait).await;
            let left = clock.boottime() < give_up;
            let error = match answer {
                Ok(answer) => {
                    let Some(token) = token_of(&answer) else {
                        return Err(client.no_answer(std::io::Error::other("no token in it")));
                    };
                    // A grant that was waited for did not begin when it was asked for.
                    old |= clock.boottime() > sent + self.ttl.0 / 6;
                    let base = if old { self.confirm(&client, token).await } else { Ok(sent) };
                    match base {
                        Ok(base) => return Ok(self.kept(client, token, base)),
                        Err(error) => {
                            // Another ask: the id of this one stands for a lease that is over.
                            (request_id, old) = (random_id(), false);
                            error
                        }
                    }
                }
                Err(error) => {
                    let first = !old && matches!(error, ClientError::NoAnswer { .. });
                    old |= matches!(error, ClientError::NoAnswer { .. });
                    if first {
                        // The same ask gets the same grant, if there was one.
                        continue;
                    }
                    error
                }
            };
            let held =
                matches!(&error, ClientError::Refused { status, .. } if status.as_u16() == 423);
            if !left || !(held || passes(&error)) {
                return Err(error);
            }
            if !held {
                sleep(PAUSE).await;
            }
        }
    }

    /// Renews a fresh grant, so that its TTL counts from now.
    async fn confirm(&self, client: &Client, token: Token) -> Result<Millis, ClientError> {
        let sent = SystemClock.boottime();
        let body = json!({ "resource": self.resource, "token": token });
        client.post("/v1/lease/renew", &body, self.ttl.0 / 3).await?;
        Ok(sent)
    }

    fn kept(self, client: Client, token: Token, base: Millis) -> Term {
        let keeper = Keeper::new(self.ttl.0, base);
        let patience = keeper.patience();
        let (publish, holding) = watch::channel(Holding::Held(keeper.deadlines()));
        let (asker, resource) = (client.clone(), self.resource.clone());
        let renew = move || renew(asker.clone(), resource.clone(), token, patience);
        tokio::spawn(keep(keeper, SystemClock, renew, publish));
        Term { client, resource: self.resource, token, holding }
    }
}

/// One renewal. What is neither yes nor no is said, since it is tried again.
async fn renew(client: Client, resource: String, token: Token, patience: Duration) -> Renewal {
    let body = json!({ "resource": resource, "token": token });
    match client.post("/v1/lease/renew", &body, patience).await {
        Ok(answer) if token_of(&answer) == Some(token) => Renewal::Kept,
        Ok(_) => Renewal::Unknown,
        Err(ClientError::Refused { status, .. }) if matches!(status.as_u16(), 404 | 412) => {
            Renewal::Refused
        }
        Err(error) => {
            say(&format!("the lease was not renewed, trying again: {}", chain(&error)));
            Renewal::Unknown
        }
    }
}

/// Whether the same call may succeed a moment later.
fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::NoAnswer { .. } => true,
        ClientError::Refused { status, kind, .. } => {
            status.is_server_error() || kind == "/errors/lease-lost"
        }
        ClientError::Usage(_) | ClientError::File { .. } | ClientError::Local(_) => false,
    }
}

fn token_of(answer: &serde_json::Value) -> Option<Token> {
    Token::parse(answer["token"].as_str()?.as_bytes()).ok()
}

/// A line on stderr.
pub(super) fn say(text: &str) {
    eprintln!("fencegate: {}", printable(text));
}

// === impl Term ===

impl Term {
    /// Returns when every older write of the resource has settled, however long that takes.
    ///
    /// # Errors
    /// [`ClientError`], when asking again would not help.
    /// # Cancel safety
    /// Cancel safe.
    pub async fn barrier(&self) -> Result<(), ClientError> {
        let body = json!({ "resource": self.resource, "token": self.token });
        loop {
            match self.client.post("/v1/fence/raise", &body, BARRIER_TIME).await {
                Ok(_) => return Ok(()),
                Err(error) if passes(&error) => {
                    say(&format!("waiting for older writes to settle: {}", chain(&error)));
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the lease is lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> crate::core::keeper::Lost {
        let mut holding = self.holding.clone();
        loop {
            if let Holding::Lost(lost) = *holding.borrow_and_update() {
                return lost;
            }
            if holding.changed().await.is_err() {
                // The keeper ends only after it has said so.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Gives the lease back. It ends by itself if that fails.
    pub async fn release(self) {
        let body = json!({ "resource": self.resource, "token": self.token });
        let release = self.client.post("/v1/lease/release", &body, RELEASE_TIME);
        if let Err(error) = release.await {
            say(&format!(
                "the lease on {} was not given back and ends by itself: {}",
                self.resource,
                chain(&error)
            ));
        }
    }
}
