//! `/v1/fence/…`: barrier, bump, settle, show, backup.

use std::fs::File;
use std::io::Read;

use axum::body::Body;
use axum::extract::{Extension, Json as Answer, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::audit::Audit;
use super::extract::{Json, Params};
use super::guard::Caller;
use super::lease::{Which, detached};
use super::problem::{Problem, RequestId, no_such_route};
use super::state::{AdminState, FenceControl};
use crate::core::{Resource, Token};
use crate::lease::LeaseBackend;
use crate::pipeline::fence::FenceView;

/// How much of a backup is read at once, in bytes.
const PIECE: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raise {
    resource: Resource,
    token: Token,
}

/// The barrier: after it, everything its caller does comes after every older write.
///
/// Cancel safe as [`FenceControl::barrier`] is.
pub(super) async fn raise<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    Json(Raise { resource, token }): Json<Raise>,
) -> Result<StatusCode, Problem> {
    let mut audit = Audit::of(caller, id, "fence.raise", &resource);
    audit.token(token);
    let result = state.fences.barrier(&resource, token, state.now().drain_wait).await;
    audit.end(result.map_err(Problem::from_refusal)).map(|()| StatusCode::NO_CONTENT)
}

/// The operator's way on after a token source ran backwards: everything so far is stale.
pub(super) async fn bump<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    Json(Which { resource }): Json<Which>,
) -> Result<StatusCode, Problem> {
    let mut audit = Audit::of(caller, id, "fence.bump", &resource);
    detached(async move {
        let result = bump_above_mark(&state, &resource).await;
        if let Ok(token) = result {
            audit.token(token);
        }
        audit.end(result)
    })
    .await
    .map(|_| StatusCode::NO_CONTENT)
}

async fn bump_above_mark<B: LeaseBackend, F: FenceControl>(
    state: &AdminState<B, F>,
    resource: &Resource,
) -> Result<Token, Problem> {
    // A backend that lost its memory knows less than the mark does: the mark must be read first.
    let mark = state.fences.show(resource).await.map_err(Problem::from_refusal)?.mark;
    let token = state.lease.bump(resource, mark).await;
    let token = token.map_err(|error| Problem::from_lease(&error))?;
    // Only now: its tokens are above its mark again, which is why it had failed closed.
    state.fences.reopen(resource);
    Ok(token)
}

/// The operator's override: says that every unknown outcome of the resource is settled.
pub(super) async fn settle<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    Json(Which { resource }): Json<Which>,
) -> Result<StatusCode, Problem> {
    let audit = Audit::of(caller, id, "fence.settle", &resource);
    detached(async move {
        let result = state.fences.settle(&resource).await;
        if let Ok(freed) = result {
            tracing::warn!(?resource, freed, "an operator declared unknown outcomes settled");
        }
        audit.end(result.map_err(Problem::from_refusal))
    })
    .await
    .map(|_| StatusCode::NO_CONTENT)
}

pub(super) async fn show<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Params(Which { resource }): Params<Which>,
) -> Result<Answer<FenceView>, Problem> {
    state.fences.show(&resource).await.map(Answer).map_err(Problem::from_refusal)
}

pub(super) async fn backup<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let Some(source) = state.backup.clone() else {
        return Err(no_such_route(http::Uri::from_static("/v1/fence/backup")).await);
    };
    let copying = tokio::task::spawn_blocking(move || {
        let file = source()?;
        let bytes = file.metadata()?.len();
        Ok::<_, std::io::Error>((file, bytes))
    });
    let (file, bytes) = match copying.await {
        Ok(Ok(copy)) => copy,
        Ok(Err(error)) => return Err(no_copy(&error)),
        Err(error) => return Err(no_copy(&error)),
    };
    tracing::info!(peer = %caller.peer, action = "fence.backup", bytes, "ledger copied");
    let mut response = Response::new(Body::from_stream(pieces(file)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // With a length the client can tell a whole copy from one that broke off.
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    let disposition = HeaderValue::from_static("attachment; filename=\"fencegate-backup.redb\"");
    headers.insert(CONTENT_DISPOSITION, disposition);
    Ok(response)
}

fn no_copy(error: &dyn std::error::Error) -> Problem {
    tracing::error!(%error, "backup failed");
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "backup-failed",
        "backup failed",
        "the ledger could not be copied; see the server's log, and whether its disk is full",
    )
}

/// The file in pieces, read off the runtime's thread.
fn pieces(file: File) -> impl stream::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold(file, |mut file| async move {
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE);
            file.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
            Ok::<_, std::io::Error>((piece, file))
        });
        let (piece, file) = reading.await.map_err(std::io::Error::other)??;
        Ok(if piece.is_empty() { None } else { Some((Bytes::from(piece), file)) })
    })
}
