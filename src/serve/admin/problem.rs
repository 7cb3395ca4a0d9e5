//! Errors of the admin API: RFC 9457 problems, rendered in one place.
//!
//! A handler returns a [`Problem`]; it travels as an extension of an empty response to `render`,
//! which knows the request id. Whatever else answers with an error (an unknown path, a wrong method)
//! becomes a problem there, too.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode, Uri};
use serde_json::{Map, Value, json};

use super::state::random_id;
use crate::lease::LeaseError;
use crate::pipeline::refusal::Refusal;
use crate::telemetry::log::chain;

/// The id of one request, in its answer (`X-Request-Id`) and in its log lines.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// Marks a response that has an error status and the body it wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complete;

/// An error as the client sees it.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// The last part of the type, `/errors/…`. Stable: clients compare it.
    pub kind: &'static str,
    /// One phrase for the kind.
    pub title: &'static str,
    /// What happened, to which resource, what to do.
    pub detail: String,
    /// When to ask again.
    pub retry_after: Option<Duration>,
    /// Further members.
    pub members: Map<String, Value>,
}

// === impl Problem ===

impl Problem {
    /// A problem without further members.
    pub fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Problem {
        let detail = detail.into();
        Problem { status, kind, title, detail, retry_after: None, members: Map::new() }
    }

    /// A request that cannot be understood.
    pub fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid-request", "invalid request", detail)
    }

    /// This one, to be tried again after a while.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Problem {
        self.retry_after = Some(after);
        self
    }

    /// This one with a further member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.members.insert(name.into(), value.into());
        self
    }

    /// What a lease call failed with. Causes go to the log, never to the client.
    pub fn from_lease(error: &LeaseError) -> Problem {
        use StatusCode as S;
        let detail = error.to_string();
        let problem = |status, kind, title| Problem::new(status, kind, title, detail.clone());
        match error {
            LeaseError::Held { resource, holder, retry_after } => {
                problem(S::LOCKED, "lease-held", "the lease is held")
                    .with("resource", resource.as_str())
                    .with("holder", holder.as_str())
                    .retry_after(*retry_after)
            }
            LeaseError::Lost { resource, .. } => {
                problem(S::PRECONDITION_FAILED, "lease-lost", "the lease is lost")
                    .with("resource", resource.as_str())
            }
            LeaseError::NeverLeased { resource } => {
                problem(S::NOT_FOUND, "never-leased", "never leased")
                    .with("resource", resource.as_str())
            }
            LeaseError::Invalid { .. } => {
                problem(S::BAD_REQUEST, "invalid-request", "invalid request")
            }
            LeaseError::TooManyWaiters { .. } => {
                problem(S::SERVICE_UNAVAILABLE, "too-many-waiters", "too many wait")
                    .retry_after(Duration::from_secs(1))
            }
            LeaseError::Exhausted { .. } => {
                problem(S::INSUFFICIENT_STORAGE, "tokens-exhausted", "no tokens left")
            }
            LeaseError::Unknown { .. } => {
                problem(S::SERVICE_UNAVAILABLE, "lease-unknown", "the outcome is unknown")
                    .retry_after(Duration::from_secs(1))
            }
            LeaseError::Backend { .. } => {
                tracing::error!(error = %chain(error), "lease call failed");
                problem(S::SERVICE_UNAVAILABLE, "lease-backend-failed", "the lease backend failed")
                    .retry_after(Duration::from_secs(1))
            }
        }
    }

    /// What a fence call was refused with.
    pub fn from_refusal(refusal: Refusal) -> Problem {
        use StatusCode as S;
        let unavailable = |kind, title, detail: String| {
            Problem::new(S::SERVICE_UNAVAILABLE, kind, title, detail)
                .retry_after(Duration::from_secs(1))
        };
        match refusal {
            Refusal::StaleToken { resource, presented } => Problem::new(
                S::PRECONDITION_FAILED,
                "stale-fencing-token",
                "stale token",
                format!("token {presented} of {resource} is older than the latest; stop writing and acquire again"),
            ),
            Refusal::LeaseReleased { resource, presented } => Problem::new(
                S::PRECONDITION_FAILED,
                "lease-released",
                "lease released",
                format!("the lease on {resource} with token {presented} was given back; acquire again"),
            ),
            Refusal::LeaseExpired { resource, presented } => Problem::new(
                S::PRECONDITION_FAILED,
                "lease-expired",
                "lease expired",
                format!("the lease on {resource} with token {presented} ran out; acquire again"),
            ),
            Refusal::UnknownToken { resource, presented } => Problem::new(
                S::FORBIDDEN,
                "unknown-fencing-token",
                "token never issued",
                format!("token {presented} was never issued for {resource}; check which resource it belongs to"),
            ),
            Refusal::Draining { resource, retry_after, why } => unavailable(
                "draining",
                "older writes have not settled",
                format!("older writes of {resource} have not settled: {why}; ask again, or see `fencegate fence show {resource}`"),
            )
            .retry_after(retry_after),
            Refusal::Busy { what, retry_after } => {
                unavailable("busy", "too much at once", format!("{what} is full; ask again later"))
                    .retry_after(retry_after)
            }
            Refusal::FenceUnavailable { resource, why } => unavailable(
                "fence-unavailable",
                "no sure answer",
                format!("the fence of {resource} has no sure answer: {why}"),
            ),
            Refusal::ShuttingDown => unavailable(
                "shutting-down",
                "shutting down",
                "the server is shutting down; ask again when it is back".into(),
            ),
            other => {
                // The fences refuse a barrier for no other reason; whatever it is, it is ours to fix.
                tracing::error!(error = ?other, "fence call failed");
                Problem::new(
                    S::INTERNAL_SERVER_ERROR,
                    "internal",
                    "internal error",
                    "the fence refused for a reason that does not belong to this call; see the server's log",
                )
            }
        }
    }

    /// The problem that a bare status stands for.
    fn of_status(status: StatusCode, allow: Option<&HeaderValue>) -> Problem {
        let (kind, title, detail) = match status {
            StatusCode::NOT_FOUND => (
                "not-found",
                "not found",
                "nothing is here; see docs/reference/lease-api.md".to_owned(),
            ),
            StatusCode::METHOD_NOT_ALLOWED => {
                let allow = allow.and_then(|allow| allow.to_str().ok()).unwrap_or("another method");
                (
                    "method-not-allowed",
                    "method not allowed",
                    format!("this path does not take that method; use {allow}"),
                )
            }
            status if status.is_client_error() => (
                "invalid-request",
                "invalid request",
                "the request was not understood; see docs/reference/lease-api.md".to_owned(),
            ),
            _ => ("internal", "internal error", "the server failed; see its log".to_owned()),
        };
        Problem::new(status, kind, title, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The answer to a path that is not there.
pub(super) async fn no_such_route(uri: Uri) -> Problem {
    let detail = format!(
        "there is no {} on the admin listener; `GET /openapi.json` lists its calls. Clients of the store use `proxy.listen`",
        uri.path()
    );
    Problem::new(StatusCode::NOT_FOUND, "not-found", "not found", detail)
}

/// The outermost layer: gives every request its id, and every error its body.
pub(super) async fn render(mut request: Request, next: Next) -> Response {
    let id = random_id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    let status = response.status();
    let is_complete = response.extensions_mut().remove::<Complete>().is_some();
    if (status.is_client_error() || status.is_server_error()) && !is_complete {
        let problem = response
            .extensions_mut()
            .remove::<Problem>()
            .unwrap_or_else(|| Problem::of_status(status, response.headers().get(ALLOW)));
        response = write(&problem, &id, response);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn write(problem: &Problem, id: &str, mut response: Response) -> Response {
    let mut body = json!({
        "type": format!("/errors/{}", problem.kind),
        "title": problem.title,
        "status": problem.status.as_u16(),
        "detail": problem.detail,
        "request_id": id,
    });
    if let Value::Object(body) = &mut body {
        body.extend(problem.members.clone());
    }
    *response.body_mut() = Body::from(body.to_string());
    let headers = response.headers_mut();
    headers.remove(http::header::CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(after) = problem.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(retry_seconds(after)));
    }
    if problem.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Whole seconds, rounded up, at least one: `Retry-After: 0` makes clients spin.
fn retry_seconds(after: Duration) -> u64 {
    after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_never_zero() {
        for (millis, want) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (29_500, 30)] {
            assert_eq!(retry_seconds(Duration::from_millis(millis)), want, "{millis} ms");
        }
    }
}
