//! `/healthz`, `/readyz`, `/metrics`, `/v1/status`.

use axum::extract::{Json as Answer, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::state::{AdminState, FenceControl};
use crate::lease::LeaseBackend;

/// Most fences that `/v1/status` lists.
const MAX_FENCES: usize = 1_000;

/// The process answers; nothing more.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
) -> Response {
    let ready = state.readiness.get();
    let status = if ready.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "ready": ready.is_ready(),
        "configured": ready.configured,
        "ledger_open": ready.ledger_open,
        "bound": ready.bound,
        "draining": ready.draining,
        "proxy": ready.proxy,
        "backends": (state.health)(),
    });
    // Not a problem body: a probe that reads it wants the same members either way.
    let mut response = (status, Answer(body)).into_response();
    response.extensions_mut().insert(super::problem::Complete);
    response
}

pub(super) async fn metrics<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.render())
        .into_response()
}

pub(super) async fn status<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
) -> Answer<Value> {
    let ready = state.readiness.get();
    Answer(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": ready.is_ready(),
        "draining": ready.draining,
        "lease_grade": state.lease.grade(),
        "backends": (state.backends)().await,
        "service": (state.status)(),
        "fences": state.fences.busy(MAX_FENCES),
    }))
}
