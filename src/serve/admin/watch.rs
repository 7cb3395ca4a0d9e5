//! `/v1/leases/watch`: lease events as server-sent events, without tokens.
//!
//! An event's id is `STREAM.N`: N grows by one within a process, STREAM tells processes apart. A
//! watcher that comes back with an id of another process, or of too long ago, gets a `gap` event
//! first: it must list again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::extract::Params;
use super::guard::Caller;
use super::problem::{Problem, no_such_route};
use super::state::{AdminState, FenceControl, Subscription};
use crate::core::{Holder, Resource};
use crate::lease::{Change, LeaseBackend, LeaseEvent};

/// So that a watcher behind a NAT, and the server, learn of a dead connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watched {
    #[serde(default)]
    prefix: String,
}

#[derive(Serialize)]
struct Data<'a> {
    change: Change,
    resource: &'a Resource,
    holder: &'a Holder,
}

struct Watching {
    prefix: String,
    stream: String,
    gap: bool,
    backlog: VecDeque<LeaseEvent>,
    live: broadcast::Receiver<LeaseEvent>,
    /// Whoever subscribes before it reads the backlog gets some events in both.
    last: u64,
}

/// Ends when the client goes away or the process is told to stop.
pub(super) async fn watch<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    Extension(caller): Extension<Caller>,
    Params(Watched { prefix }): Params<Watched>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let Some(subscribe) = &state.subscribe else {
        return Err(no_such_route(http::Uri::from_static("/v1/leases/watch")).await);
    };
    tracing::debug!(peer = %caller.peer, ?prefix, "watch began");
    let (after, lost) = match headers.get("last-event-id") {
        None => (None, false),
        Some(id) => match position(id.as_bytes(), state.stream()) {
            Some(after) => (Some(after), false),
            None => (None, true),
        },
    };
    let Subscription { backlog, gap, live } = subscribe(&prefix, after);
    let watching = Watching {
        prefix,
        stream: state.stream().to_owned(),
        gap: gap || lost,
        backlog: backlog.into(),
        live,
        last: after.unwrap_or(0),
    };
    let events = stream::unfold(watching, |mut watching| async {
        watching.next().await.map(|event| (Ok(event), watching))
    });
    let events = events.take_until(Box::pin(state.readiness.draining()));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// N of `STREAM.N`, if the stream is ours.
fn position(id: &[u8], stream: &str) -> Option<u64> {
    let (theirs, number) = std::str::from_utf8(id).ok()?.split_once('.')?;
    if theirs == stream { number.parse().ok() } else { None }
}

// === impl Watching ===

impl Watching {
    /// The next event; `None` when there will be no more.
    ///
    /// # Cancel safety
    /// Cancel safe: an event is taken and returned without a wait in between.
    async fn next(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.gap) {
            return Some(self.gap_event());
        }
        loop {
            let event = match self.backlog.pop_front() {
                Some(event) => event,
                None => match self.live.recv().await {
                    Ok(event) => event,
                    Err(RecvError::Lagged(_)) => return Some(self.gap_event()),
                    Err(RecvError::Closed) => return None,
                },
            };
            if event.id <= self.last {
                continue;
            }
            self.last = event.id;
            if event.resource.as_str().starts_with(&self.prefix) {
                return Some(self.render(&event));
            }
        }
    }

    fn render(&self, event: &LeaseEvent) -> Event {
        let name = match event.change {
            Change::Acquired => "acquired",
            Change::Released => "released",
            Change::Expired => "expired",
            Change::Revoked => "revoked",
        };
        let LeaseEvent { id, change, resource, holder } = event;
        let data = Data { change: *change, resource, holder };
        // JSON of these types has no line break, the one thing an event cannot carry.
        let data = serde_json::to_string(&data).expect("plain strings serialize");
        Event::default().id(format!("{}.{id}", self.stream)).event(name).data(data)
    }

    fn gap_event(&self) -> Event {
        Event::default()
            .event("gap")
            .data(r#"{"detail":"events were missed; list the leases again"}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_of_this_stream_has_a_position() {
        let cases: &[(&[u8], Option<u64>)] = &[
            (b"ab.7", Some(7)),
            (b"cd.7", None),
            (b"7", None),
            (b"ab.", None),
            (b"ab.-1", None),
            (b"ab.99999999999999999999", None),
            (b"\xff.7", None),
        ];
        for (id, want) in cases {
            assert_eq!(position(id, "ab"), *want, "{id:?}");
        }
    }
}
