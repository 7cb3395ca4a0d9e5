//! Fenced writes: the body is read, the commit point is passed, the tail is handed over, the answer settles.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::answer::{Judge, NoHead, Reply, announced, doubted, frame, head, read};
use super::collect::{Collected, Stopped, collect};
use super::{Failed, Forward};
use crate::core::gate::{Commit, Outcome};
use crate::core::{Resource, Token};
use crate::pipeline::body::{DownBody, Relay, Tail, UpBody, Whole};
use crate::pipeline::classify::BodyKind;
use crate::pipeline::fence::{Admission, Validated};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::respond::clean;
use crate::pipeline::settle::{Answer, Stage, settle};
use crate::pipeline::upstream::{Checkout, Connection};
use crate::telemetry::clock::Started;
use crate::telemetry::metrics::Step;

/// Bodies up to this size are withheld whole, their head included.
pub(super) const WHOLE: u64 = 64 << 10;

/// What the fence granted to one write.
pub struct Fenced {
    /// Its token.
    pub token: Token,
    /// Its place in the fence.
    pub admission: Admission,
    /// The validation that it relies on.
    pub validated: Validated,
}

// === impl Fenced ===

impl Fenced {
    /// Passes the commit point, or says why it must not be passed.
    pub(super) async fn commit(&mut self) -> Result<(), Refusal> {
        loop {
            match self.admission.commit(self.validated) {
                Commit::Go => return Ok(()),
                Commit::Cut => return Err(self.overtaken()),
                Commit::Revalidate => {
                    self.validated = self.admission.revalidate(self.token).await?;
                }
            }
        }
    }

    /// The refusal of an exchange that was cut.
    pub(super) fn overtaken(&self) -> Refusal {
        Refusal::StaleToken { resource: self.admission.resource().clone(), presented: self.token }
    }
}

/// Forwards one fenced write and settles it.
///
/// # Errors
/// [`Failed`] if nothing was forwarded, or no usable answer came back; the exchange is settled either way.
/// # Cancel safety
/// Not cancel safe: run it to its end. Dropped, it settles as the worst it may be.
pub async fn write(
    mut forward: Box<Forward>,
    fenced: Box<Fenced>,
) -> Result<Response<DownBody>, Failed> {
    let mut share = forward.budget.share();
    let collected = match forward.document.take() {
        Some(bytes) => Ok(Collected::Whole { bytes, trailers: None }),
        None => body(&mut forward, &fenced, &mut share).await,
    };
    let collected = match collected {
        Ok(collected) => collected,
        Err(refusal) => return Err(unsent(&mut forward, *fenced, refusal)),
    };
    match collected {
        Collected::Whole { bytes, trailers } => {
            forward.incoming = None;
            let answered = whole(forward, fenced, bytes, trailers).await;
            drop(share);
            answered
        }
        Collected::More(first) => {
            // From here on pieces pass through; what is held is the tail.
            drop(share);
            super::stream::stream(forward, fenced, first).await
        }
    }
}

/// Reads the body, or as much of it as decides whether it is streamed.
async fn body(
    forward: &mut Forward,
    fenced: &Fenced,
    share: &mut super::budget::Share,
) -> Result<Collected, Refusal> {
    let limits = &forward.set.limits;
    let (limit, what) = match forward.operation.body {
        BodyKind::Document => (limits.max_document.0, Some("the document")),
        BodyKind::RestDocument => (limits.max_document.0, None),
        BodyKind::Stream | BodyKind::AwsChunked { .. } => (WHOLE, None),
    };
    let too_large = |what| Refusal::TooLarge { what, limit, key: "proxy.limits.max_document" };
    let Some(incoming) = forward.incoming.as_mut().filter(|incoming| !incoming.is_end_stream())
    else {
        return Ok(Collected::Whole { bytes: Bytes::new(), trailers: None });
    };
    if forward.framed.length.is_some_and(|length| length > limit) {
        // Known to be large: nothing of it is read before the store is asked.
        return match what {
            Some(what) => Err(too_large(what)),
            None => Ok(Collected::More(VecDeque::new())),
        };
    }
    let cut = || fenced.admission.cut_signal();
    let collected =
        collect(incoming, limit, limits.body_idle.0, share, limits.max_buffered.0, cut).await;
    match collected {
        Ok(Collected::More(_)) if what.is_some() => Err(too_large(what.unwrap_or_default())),
        Ok(collected) => Ok(collected),
        Err(Stopped::Refused(refusal)) => Err(refusal),
        Err(Stopped::Cut) => Err(fenced.overtaken()),
        Err(Stopped::Gone) => Err(Refusal::InvalidRequest {
            why: "the connection ended inside the body, whose end was not sent to the store"
                .to_owned(),
        }),
    }
}

/// A connection for one fenced write.
pub(super) async fn connected(forward: &Forward) -> Result<Connection, Refusal> {
    let upstream = &forward.upstream;
    let pool = forward.worker.pool(upstream);
    let (connect, idle) = (upstream.connect_timeout, upstream.idle_timeout);
    pool.checkout(&upstream.endpoint, connect, idle, Checkout::Write).await.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "no connection to the store");
        Refusal::UpstreamFailed { unknown: false, why: error.to_string() }
    })
}

/// Settles a write of which nothing was sent.
pub(super) fn unsent(forward: &mut Forward, fenced: Fenced, refusal: Refusal) -> Failed {
    fenced.admission.settle(Outcome::NotSent);
    forward.failed(refusal)
}

/// A body that is here in full: head and body leave together, after the commit point.
async fn whole(
    mut forward: Box<Forward>,
    mut fenced: Box<Fenced>,
    bytes: Bytes,
    trailers: Option<http::HeaderMap>,
) -> Result<Response<DownBody>, Failed> {
    if let Err(refusal) = complete(&forward, &bytes) {
        return Err(unsent(&mut forward, *fenced, refusal));
    }
    let upstream = Arc::clone(&forward.upstream);
    let mut connection = match connected(&forward).await {
        Ok(connection) => connection,
        Err(refusal) => return Err(unsent(&mut forward, *fenced, refusal)),
    };
    if let Err(refusal) = fenced.commit().await {
        forward.worker.pool(&upstream).put(connection);
        return Err(unsent(&mut forward, *fenced, refusal));
    }
    forward.head.headers.remove(http::header::EXPECT);
    let nothing = bytes.is_empty() && !forward.framed.chunked && trailers.is_none();
    let body = if nothing { UpBody::Empty } else { UpBody::Whole(Whole::new(bytes, trailers)) };
    let deadline = Instant::now() + upstream.answer_timeout;
    connection.arm();
    let request = forward.request(body);
    let answer = {
        let mut sending = std::pin::pin!(connection.sender.send_request(request));
        timed(&forward, head(&mut connection, &mut sending, deadline)).await
    };
    finish(forward, fenced, connection, answer, deadline).await
}

/// Times the wait for the head of an answer, from when the last bytes are handed over; one that does not
/// come is not counted.
pub(super) async fn timed<T, E>(
    forward: &Forward,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let started = Started::now();
    let answer = answer.await;
    if answer.is_ok() {
        forward.worker.metrics.time(Step::Upstream, started);
    }
    answer
}

/// Checks the framing of a whole body.
fn complete(forward: &Forward, bytes: &Bytes) -> Result<(), Refusal> {
    if !matches!(forward.operation.body, BodyKind::AwsChunked { .. }) {
        return Ok(());
    }
    let mut tail = Tail::new(forward.operation.body, true);
    let checked = tail.push(bytes.clone()).and_then(|_| tail.finish());
    checked.map_err(|error| Refusal::InvalidRequest { why: error.to_string() })
}

/// The tail has left: whatever comes back now settles the exchange.
pub(super) async fn finish(
    forward: Box<Forward>,
    fenced: Box<Fenced>,
    mut connection: Connection,
    answer: Result<Response<Incoming>, NoHead>,
    deadline: Instant,
) -> Result<Response<DownBody>, Failed> {
    let failed = |refusal| Failed { refusal, unread: None };
    let response = match answer {
        Err(NoHead::TimedOut) => {
            connection.abandon();
            conclude(&forward, fenced, Stage::After, &Answer::None, "no answer in time");
            return Err(failed(Refusal::UpstreamTimeout { unknown: true }));
        }
        Err(error) => {
            connection.abandon();
            tracing::debug!(error = &error as &dyn std::error::Error, "no answer from the store");
            conclude(
                &forward,
                fenced,
                Stage::After,
                &Answer::None,
                "the connection ended before the answer",
            );
            let why = "the connection ended before a usable answer".to_owned();
            return Err(failed(Refusal::UpstreamFailed { unknown: true, why }));
        }
        Ok(response) => response,
    };
    let reply = match read(&mut connection, response, forward.operation.answer, deadline).await {
        Reply::Read(answer, response) => {
            let answer = doubted(&connection, answer);
            let response = response.filter(|_| answer != Answer::Garbled);
            Reply::Read(answer, response)
        }
        reply => reply,
    };
    match reply {
        Reply::Read(answer, Some(response)) => {
            forward.worker.pool(&forward.upstream).put(connection);
            conclude(&forward, fenced, Stage::After, &answer, "answered");
            let (mut head, body) = response.into_parts();
            clean(&mut head.headers);
            Ok(Response::from_parts(head, DownBody::from(body)))
        }
        Reply::Read(answer, None) => {
            connection.abandon();
            conclude(&forward, fenced, Stage::After, &answer, "the answer cannot be relied on");
            let why = "its answer was incomplete or not plain HTTP/1.1".to_owned();
            Err(failed(Refusal::UpstreamFailed { unknown: true, why }))
        }
        Reply::Long(response) => Ok(relay(forward, fenced, connection, response, deadline)),
    }
}

/// Frames of a long answer that wait for a slow client.
const WAITING_FRAMES: usize = 4;

/// Passes a long answer on while a task of its own reads it to its end.
fn relay(
    forward: Box<Forward>,
    fenced: Box<Fenced>,
    mut connection: Connection,
    response: Response<Incoming>,
    deadline: Instant,
) -> Response<DownBody> {
    let (mut head, mut body) = response.into_parts();
    let length = announced(&head.headers);
    clean(&mut head.headers);
    let status = head.status;
    let (sender, frames) = tokio::sync::mpsc::channel(WAITING_FRAMES);
    let complete = Rc::new(Cell::new(false));
    let whole = Rc::clone(&complete);
    let worker = Rc::clone(&forward.worker);
    worker.reaper.adopt(async move {
        let mut judge = Judge::new(forward.operation.answer);
        let mut passed_on = true;
        let answer = loop {
            let Ok(next) =
                tokio::time::timeout_at(deadline, frame(&mut connection, &mut body)).await
            else {
                break Answer::Torn(status);
            };
            match next {
                None => break judge.finish(&mut connection, status).await,
                Some(Err(_)) => break Answer::Torn(status),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        judge.take(data);
                    }
                    // A client that is gone or too slow does not keep the exchange from being settled.
                    // A piece that it did not take is missing: nothing may follow it.
                    passed_on = passed_on
                        && matches!(
                            tokio::time::timeout_at(deadline, sender.send(frame)).await,
                            Ok(Ok(()))
                        );
                }
            }
        };
        let answer = doubted(&connection, answer);
        whole.set(passed_on && matches!(answer, Answer::Complete(..)));
        drop(sender);
        if matches!(answer, Answer::Complete(..)) {
            forward.worker.pool(&forward.upstream).put(connection);
        } else {
            connection.abandon();
        }
        conclude(&forward, fenced, Stage::After, &answer, "answered at length");
    });
    Response::from_parts(head, DownBody::Relay(Relay { frames, complete, length }))
}

/// Settles the exchange, and says so in the log. The connection is reusable or gone by now.
// Boxed as it comes: taking it out of its box would only copy it.
#[allow(clippy::boxed_local)]
pub(super) fn conclude(
    forward: &Forward,
    fenced: Box<Fenced>,
    stage: Stage,
    answer: &Answer,
    what: &str,
) {
    let settlement = settle(stage, answer);
    let resource: &Resource = fenced.admission.resource();
    let token = fenced.token;
    let operation = forward.operation.name;
    // Without its query, which may be signed.
    let path = forward.framed.target.path();
    let status = match answer {
        Answer::Torn(status) | Answer::Complete(status, _) => Some(status.as_u16()),
        Answer::None | Answer::Garbled => None,
    };
    let outcome = match settlement.outcome {
        Outcome::NotSent => "not_sent",
        Outcome::Answered { applied: true } => "applied",
        Outcome::Answered { applied: false } => "not_applied",
        Outcome::Unknown => "unknown",
    };
    if settlement.alarm {
        tracing::error!(
            %resource, %token, operation, path, status, outcome,
            "the store said that a write was done before its last byte had left: it commits torn bodies; set upstream.torn_uploads = \"kept\""
        );
    } else if settlement.outcome == Outcome::Unknown {
        tracing::warn!(%resource, %token, operation, path, status, outcome, what, "the outcome of a write is unknown");
    } else {
        tracing::debug!(%resource, %token, operation, path, status, outcome, what, "exchange settled");
    }
    fenced.admission.settle(settlement.outcome);
}
