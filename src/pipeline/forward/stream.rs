//! Large writes: head and body stream upstream at once, the tail waits for the commit point.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::answer::{NoHead, Reply, head, poll_head, read, read_whole};
use super::write::{Fenced, conclude, connected, finish, timed, unsent};
use super::{Failed, Forward};
use crate::pipeline::body::{Broken, DownBody, Progress, StreamControl, Tail};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::respond::clean;
use crate::pipeline::settle::{Answer, Stage};
use crate::pipeline::upstream::Connection;

/// How long a store that was asked with `Expect` may take to want the body.
///
/// # Reference
/// RFC 9110, section 10.1.1: a client should not wait for ever.
const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// What ended the time before the tail.
enum Event {
    /// The whole body is here; its tail waits.
    AtTail,
    /// The store answered, or its connection ended, before it had the body.
    Early(Result<Response<Incoming>, NoHead>),
    /// The client went away, or sent what must not be forwarded.
    Broken(Broken),
    /// A newer token was admitted.
    Cut,
    /// No piece of the body for too long.
    Idle,
}

/// Streams one fenced write and settles it. `first` are pieces that were read already.
pub(super) async fn stream(
    mut forward: Box<Forward>,
    mut fenced: Box<Fenced>,
    first: VecDeque<Bytes>,
) -> Result<Response<DownBody>, Failed> {
    let upstream = Arc::clone(&forward.upstream);
    let signal = fenced.admission.cut_signal();
    let mut connection = match connected(&forward).await {
        Ok(connection) => connection,
        Err(refusal) => return Err(unsent(&mut forward, *fenced, refusal)),
    };
    let Some(incoming) = forward.incoming.take() else {
        return Err(unsent(&mut forward, *fenced, Refusal::Internal));
    };
    let asks = forward.framed.expects;
    if asks {
        forward.head.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
    }
    let tail = Tail::new(forward.operation.body, forward.hold_tail);
    let (control, body) = StreamControl::new(first, incoming, tail, !asks);
    let mut request = forward.request(body);
    let continued = Arc::new(AtomicBool::new(!asks));
    if asks {
        let continued = Arc::clone(&continued);
        hyper::ext::on_informational(&mut request, move |_| {
            continued.store(true, Ordering::Relaxed)
        });
    }
    connection.arm();
    fenced.admission.touch();
    let mut sending = Box::pin(connection.sender.send_request(request));
    let idle = forward.set.limits.body_idle.0;
    let timer = tokio::time::sleep(if asks { EXPECT_WAIT } else { idle });
    tokio::pin!(timer);
    let mut pieces = 0;
    let event = poll_fn(|cx| {
        loop {
            let answer = poll_head(&mut connection, &mut sending, cx);
            if continued.load(Ordering::Relaxed) && !control.is_open() && answer.is_pending() {
                control.open();
                continue;
            }
            // A body that broke ends the connection too: the cause counts, not what it led to.
            if let Progress::Broken(broken) = control.progress() {
                return Poll::Ready(Event::Broken(broken));
            }
            if let Poll::Ready(answer) = answer {
                return Poll::Ready(Event::Early(answer));
            }
            if control.progress() == Progress::AtTail {
                return Poll::Ready(Event::AtTail);
            }
            if signal.poll_cut(cx).is_ready() {
                return Poll::Ready(Event::Cut);
            }
            if control.pieces() != pieces {
                pieces = control.pieces();
                Sleep::reset(timer.as_mut(), Instant::now() + idle);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if control.is_open() {
                return Poll::Ready(Event::Idle);
            }
            control.open();
            Sleep::reset(timer.as_mut(), Instant::now() + idle);
        }
    })
    .await;
    let clean_so_far = !control.is_touched() || upstream.discards_torn;
    let before = Stage::Before { clean: clean_so_far };
    let unread = || control.reclaim();
    let refusal = match event {
        Event::AtTail => match fenced.commit().await {
            Ok(()) => {
                control.release();
                let deadline = Instant::now() + upstream.answer_timeout;
                let answer = timed(&forward, head(&mut connection, &mut sending, deadline)).await;
                drop(sending);
                return finish(forward, fenced, connection, answer, deadline).await;
            }
            Err(refusal) => refusal,
        },
        Event::Early(answer) => {
            drop(sending);
            return early(forward, fenced, connection, answer, before, unread).await;
        }
        Event::Cut => fenced.overtaken(),
        Event::Idle => Refusal::BodyTimeout,
        Event::Broken(Broken::Refused(error)) => Refusal::InvalidRequest { why: error.to_string() },
        Event::Broken(Broken::Client) => Refusal::InvalidRequest {
            why: "the connection ended inside the body, whose end was not sent to the store"
                .to_owned(),
        },
    };
    // The tail never leaves: the connection is reset before anything else is told.
    drop(sending);
    let unread = unread();
    connection.abandon();
    conclude(&forward, fenced, before, &Answer::None, "cut before its tail");
    Err(Failed { refusal, unread })
}

/// The store answered before it had the body: its answer goes to the client, the pair is never used again.
async fn early(
    forward: Box<Forward>,
    fenced: Box<Fenced>,
    mut connection: Connection,
    answer: Result<Response<Incoming>, NoHead>,
    before: Stage,
    unread: impl FnOnce() -> Option<Incoming>,
) -> Result<Response<DownBody>, Failed> {
    let deadline = Instant::now() + forward.upstream.answer_timeout;
    let response = match answer {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the store's connection ended inside the body"
            );
            let unread = unread();
            connection.abandon();
            conclude(
                &forward,
                fenced,
                before,
                &Answer::None,
                "the store's connection ended inside the body",
            );
            let unknown = before == Stage::Before { clean: false };
            let why = "the connection ended before it had the whole body".to_owned();
            return Err(Failed { refusal: Refusal::UpstreamFailed { unknown, why }, unread });
        }
    };
    let status = response.status();
    let kind = forward.operation.answer;
    let signal = fenced.admission.cut_signal();
    let reply = {
        let mut reading = std::pin::pin!(async {
            match read(&mut connection, response, kind, deadline).await {
                // Without a length, as chunked error bodies are: still the store's own words.
                Reply::Long(response) => {
                    read_whole(&mut connection, response, kind, deadline).await
                }
                reply => reply,
            }
        });
        // The tail has not left: a successor does not wait for a store that stalls inside its answer.
        poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending => signal.poll_cut(cx).map(|()| None),
        })
        .await
    };
    let overtaken = reply.is_none().then(|| fenced.overtaken());
    let unread = unread();
    connection.abandon();
    let (answer, response) = match reply {
        Some(Reply::Read(answer, response)) => (answer, response),
        Some(Reply::Long(_)) | None => (Answer::Torn(status), None),
    };
    // No client shall take for done what the store got no end of. Without the withheld tail it got one.
    let response = response.filter(|_| !status.is_success() || !forward.hold_tail);
    conclude(&forward, fenced, before, &answer, "answered before it had the body");
    match response {
        Some(response) => {
            let (mut head, body) = response.into_parts();
            clean(&mut head.headers);
            head.headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            forward.worker.discard(unread);
            Ok(Response::from_parts(head, DownBody::from(body)))
        }
        None => {
            if let Some(refusal) = overtaken {
                return Err(Failed { refusal, unread });
            }
            let unknown = !status.is_client_error();
            let why = "it answered before it had the whole body, and not plainly".to_owned();
            Err(Failed { refusal: Refusal::UpstreamFailed { unknown, why }, unread })
        }
    }
}
