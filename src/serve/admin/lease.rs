//! `/v1/lease/…`: acquire, renew, release, show, list.

use std::time::Duration;

use axum::extract::{Extension, Json as Answer, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::audit::Audit;
use super::extract::{Json, Params};
use super::guard::Caller;
use super::problem::{Problem, RequestId};
use super::state::{AdminState, FenceControl};
use crate::core::units::Span;
use crate::core::{Holder, Resource, Token};
use crate::lease::{Ask, Grant, LeaseBackend, LeaseError, LeaseView};
use crate::telemetry::metrics::Event;

const TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
const MAX_WAIT: Duration = Duration::from_secs(60);
const MAX_REQUEST_ID: usize = 128;
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Acquire {
    resource: Resource,
    holder: Holder,
    ttl: Span,
    wait: Option<Span>,
    request_id: Option<String>,
    #[serde(default)]
    drain: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renew {
    resource: Resource,
    token: Token,
    ttl: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    resource: Resource,
    token: Token,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    pub(super) resource: Resource,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Granted {
    resource: Resource,
    holder: Holder,
    token: Token,
    ttl_ms: u64,
    expires_in_ms: u64,
}

#[derive(Serialize)]
pub(super) struct Shown {
    resource: Resource,
    holder: Holder,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    live: bool,
    released: bool,
    expires_in_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Option<Token>>,
}

#[derive(Serialize)]
pub(super) struct Listed {
    leases: Vec<Shown>,
    /// Pass it as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

// === acquire ===

/// Cancel safe as [`LeaseBackend::acquire`] is: when the client goes away, hyper drops this future,
/// and with it the place in the queue.
pub(super) async fn acquire<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    Json(body): Json<Acquire>,
) -> Result<Answer<Granted>, Problem> {
    let drain = body.drain;
    let ask = body.ask()?;
    let mut audit = Audit::of(caller, id, "lease.acquire", &ask.resource);
    audit.holder(&ask.holder);
    let result = grant(&state, ask, drain, &mut audit).await;
    audit.end(result).map(|grant| Answer(Granted::from(grant)))
}

async fn grant<B: LeaseBackend, F: FenceControl>(
    state: &AdminState<B, F>,
    ask: Ask,
    drain: bool,
    audit: &mut Audit,
) -> Result<Grant, Problem> {
    let grant = tokio::select! {
        biased;
        grant = state.lease.acquire(ask) => grant.map_err(|error| Problem::from_lease(&error))?,
        // A waiter would hold up the shutdown for up to a minute.
        () = state.readiness.draining() => {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting-down",
                "shutting down",
                "the server is shutting down; ask again with the same request_id when it is back",
            )
            .retry_after(Duration::from_secs(1)));
        }
    };
    audit.token(grant.token);
    state.metrics.count(Event::LeaseGranted);
    if drain {
        let granted = boot_now();
        let barrier = state.fences.barrier(&grant.resource, grant.token, state.now().drain_wait);
        if let Err(refusal) = barrier.await {
            return Err(undrained(Problem::from_refusal(refusal), &grant));
        }
        return spend(grant, boot_now().saturating_sub(granted));
    }
    Ok(grant)
}

/// The problem of a barrier that did not end, with what the holder needs to go on: the grant stands.
fn undrained(mut problem: Problem, grant: &Grant) -> Problem {
    if problem.status == StatusCode::SERVICE_UNAVAILABLE {
        problem.detail.push_str(
            "; the lease is granted: repeat the call with the same request_id, or release the token",
        );
        problem = problem.with("token", grant.token.to_string());
    }
    problem.with("resource", grant.resource.as_str())
}

/// What the barrier took is gone from the lease; a lease that is over is not handed out.
fn spend(mut grant: Grant, taken: Duration) -> Result<Grant, Problem> {
    grant.expires_in = grant.expires_in.saturating_sub(taken);
    if grant.expires_in.is_zero() {
        let Grant { resource, token, .. } = grant;
        return Err(Problem::from_lease(&LeaseError::Lost { resource, token }));
    }
    Ok(grant)
}

/// What is left of a lease runs on the clock that goes on while the machine sleeps.
fn boot_now() -> Duration {
    nix::time::ClockId::CLOCK_BOOTTIME.now().map_or(Duration::ZERO, Duration::from)
}

// === renew, release ===

pub(super) async fn renew<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    Json(body): Json<Renew>,
) -> Result<Answer<Granted>, Problem> {
    let Renew { resource, token, ttl } = body;
    let ttl = ttl.map(check_ttl).transpose()?;
    let mut audit = Audit::of(caller, id, "lease.renew", &resource);
    audit.token(token);
    // On a task of its own: a change that has begun is finished and logged though the client leaves.
    detached(async move {
        let result = state.lease.renew(&resource, token, ttl).await;
        audit.end(result.map_err(|error| not_holder(error, token)))
    })
    .await
    .map(|grant| Answer(Granted::from(grant)))
}

pub(super) async fn release<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    Json(body): Json<Release>,
) -> Result<StatusCode, Problem> {
    let Release { resource, token } = body;
    let mut audit = Audit::of(caller, id, "lease.release", &resource);
    audit.token(token);
    detached(async move {
        let result = state.lease.release(&resource, token).await;
        audit.end(result.map_err(|error| not_holder(error, token)))
    })
    .await
    .map(|()| StatusCode::NO_CONTENT)
}

/// Of a resource that was never leased, nobody is the holder.
fn not_holder(error: LeaseError, token: Token) -> Problem {
    match error {
        LeaseError::NeverLeased { resource } => {
            Problem::from_lease(&LeaseError::Lost { resource, token })
        }
        error => Problem::from_lease(&error),
    }
}

/// Runs a change to its end, whether or not the caller waits for it.
pub(super) async fn detached<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(change).await.unwrap_or_else(|_| {
        Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "internal error",
            "the call broke off and its outcome is unknown; see the server's log",
        ))
    })
}

// === show, list ===

pub(super) async fn show<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Params(Which { resource }): Params<Which>,
) -> Result<Answer<Shown>, Problem> {
    let view = state.lease.inspect(&resource).await.map_err(|error| Problem::from_lease(&error))?;
    let view = view.ok_or_else(|| {
        Problem::from_lease(&LeaseError::NeverLeased { resource: resource.clone() })
    })?;
    let token = view.token;
    let mut shown = Shown::from(view);
    if caller.may_see_tokens() {
        shown.token = Some(token);
        // The mark is the holder's token as soon as it has written. A ledger that does not answer is
        // no reason to hide the lease: then there is no such member.
        shown.mark = state.fences.show(&resource).await.ok().map(|fence| fence.mark);
    }
    Ok(Answer(shown))
}

pub(super) async fn list<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Params(page): Params<Page>,
) -> Result<Answer<Listed>, Problem> {
    let limit = page.limit.unwrap_or(DEFAULT_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Problem::invalid(format!("limit is {limit}; it is 1 to {MAX_PAGE}")));
    }
    // One more than asked for tells whether there is a next page.
    let views = state.lease.list(&page.prefix, page.after.as_deref(), limit + 1).await;
    let mut views = views.map_err(|error| Problem::from_lease(&error))?;
    let more = views.len() > limit;
    views.truncate(limit);
    let next = more.then(|| views.last().map(|view| view.resource.to_string())).flatten();
    Ok(Answer(Listed { leases: views.into_iter().map(Shown::from).collect(), next }))
}

// === impl Acquire ===

impl Acquire {
    fn ask(self) -> Result<Ask, Problem> {
        let ttl = check_ttl(self.ttl)?;
        let wait = self.wait.map_or(Duration::ZERO, |wait| wait.0);
        if wait > MAX_WAIT {
            return Err(Problem::invalid(format!(
                "wait is {}; at most 60s is allowed",
                Span(wait)
            )));
        }
        if let Some(id) = &self.request_id
            && (id.is_empty()
                || id.len() > MAX_REQUEST_ID
                || !id.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
        {
            return Err(Problem::invalid(
                "request_id must be 1 to 128 printable ASCII characters; use a random one",
            ));
        }
        let (resource, holder) = (self.resource, self.holder);
        Ok(Ask { resource, holder, ttl, wait, request_id: self.request_id })
    }
}

fn check_ttl(ttl: Span) -> Result<Duration, Problem> {
    if TTL.contains(&ttl.0) {
        return Ok(ttl.0);
    }
    Err(Problem::invalid(format!("ttl is {ttl}; it is 1s to 24h")))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<Grant> for Granted {
    fn from(grant: Grant) -> Granted {
        Granted {
            resource: grant.resource,
            holder: grant.holder,
            token: grant.token,
            ttl_ms: millis(grant.ttl),
            expires_in_ms: millis(grant.expires_in),
        }
    }
}

impl From<LeaseView> for Shown {
    /// Without token and mark.
    fn from(view: LeaseView) -> Shown {
        Shown {
            resource: view.resource,
            holder: view.holder,
            token: None,
            live: view.live,
            released: view.released,
            expires_in_ms: millis(view.expires_in),
            mark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_ran_out_during_its_barrier_is_lost() {
        let grant = Grant {
            resource: Resource::new("r").unwrap(),
            holder: Holder::new("h").unwrap(),
            token: Token::MIN,
            ttl: Duration::from_secs(10),
            expires_in: Duration::from_secs(10),
        };
        let left = spend(grant.clone(), Duration::from_secs(4)).unwrap().expires_in;
        assert_eq!(left, Duration::from_secs(6));
        for taken in [10, 11] {
            let problem = spend(grant.clone(), Duration::from_secs(taken)).unwrap_err();
            assert_eq!(problem.kind, "lease-lost", "{taken} s");
        }
    }
}
