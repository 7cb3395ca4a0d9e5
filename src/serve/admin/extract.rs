//! Reading requests: JSON bodies and queries, strictly, with problems for everything else.

use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Largest request body, in bytes.
pub(super) const MAX_BODY: usize = 64 << 10;

/// Longest wait for a request body. A body fits in one packet or a few.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The body, read as `T`. Types deny unknown fields: a misspelt `drain` must not be ignored.
pub(super) struct Json<T>(pub(super) T);

/// The query, read as `T`.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Json<T>, Problem> {
        // Also a guard: a web page can post text/plain anywhere without asking, but not this type.
        if !is_json(request.headers()) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "not JSON",
                "the body must be JSON; send `Content-Type: application/json`",
            ));
        }
        let reading = to_bytes(request.into_body(), MAX_BODY);
        let body = match tokio::time::timeout(BODY_TIME, reading).await {
            Ok(Ok(body)) => body,
            Ok(Err(fault)) if is_too_long(&fault) => {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "too-large",
                    "body too large",
                    format!("the body has more than {MAX_BODY} bytes; no call needs that many"),
                ));
            }
            Ok(Err(_)) => {
                return Err(Problem::invalid("the body ended early; send all of it"));
            }
            Err(_) => {
                return Err(Problem::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "body-timeout",
                    "body too slow",
                    format!("the body did not arrive within {BODY_TIME:?}; send it at once"),
                ));
            }
        };
        serde_json::from_slice(&body).map(Json).map_err(|fault| {
            Problem::invalid(format!("the body is not what this call takes: {fault}"))
        })
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params<T>, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Params(query)),
            Err(QueryRejection::FailedToDeserializeQueryString(fault)) => Err(Problem::invalid(
                format!("the query is not what this call takes: {}", fault.body_text()),
            )),
            Err(fault) => Err(Problem::invalid(fault.body_text())),
        }
    }
}

/// Whether the one content type is `application/json`, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else { return false };
    let essence = first.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Whether reading stopped at the limit and not for a fault of the connection.
fn is_too_long(fault: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(fault);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_content_type_and_only_json_is_json() {
        let cases: &[(&[&str], bool)] = &[
            (&["application/json"], true),
            (&["Application/JSON; charset=utf-8"], true),
            (&[], false),
            (&["text/plain"], false),
            (&["text/plain; application/json"], false),
            (&["application/jsonp"], false),
            (&["application/json", "text/plain"], false),
        ];
        for (types, want) in cases {
            let mut headers = HeaderMap::new();
            for value in *types {
                headers.append(CONTENT_TYPE, value.parse().unwrap());
            }
            assert_eq!(is_json(&headers), *want, "{types:?}");
        }
    }
}
