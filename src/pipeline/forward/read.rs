//! Reads: forwarded with their bodies, if they have one, and streamed back.

use std::future::poll_fn;
use std::task::Poll;

use http::{HeaderValue, Response};
use http_body::Body;
use tokio::time::Instant;

use super::answer::{NoHead, head};
use super::write::timed;
use super::{Failed, Forward};
use crate::pipeline::body::{
    Broken, DownBody, Progress, ReadBody, StreamControl, Tail, UpBody, Whole,
};
use crate::pipeline::classify::BodyKind;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::respond::{clean, is_ambiguous};
use crate::pipeline::upstream::Checkout;

/// Forwards a request that writes nothing that is fenced: a read, or an unfenced write.
///
/// * `purpose` — an unfenced write does not risk a connection that the store may be closing.
///
/// # Errors
/// [`Failed`] if the store gave no usable answer.
/// # Cancel safety
/// A dropped call drops the connection.
pub async fn read(
    mut forward: Box<Forward>,
    purpose: Checkout,
) -> Result<Response<DownBody>, Failed> {
    let upstream = std::sync::Arc::clone(&forward.upstream);
    let pool = forward.worker.pool(&upstream);
    let checkout =
        pool.checkout(&upstream.endpoint, upstream.connect_timeout, upstream.idle_timeout, purpose);
    let mut connection = match checkout.await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "no connection to the store");
            let why = error.to_string();
            return Err(forward.failed(Refusal::UpstreamFailed { unknown: false, why }));
        }
    };
    forward.head.headers.remove(http::header::EXPECT);
    let incoming = forward.incoming.take().filter(|incoming| !incoming.is_end_stream());
    let control = incoming.map(|incoming| {
        // Nothing has to be withheld: whatever it is, it writes nothing that is fenced.
        StreamControl::new(Default::default(), incoming, Tail::new(BodyKind::Stream, false), true)
    });
    let (control, body) = match (control, forward.document.take()) {
        (Some((control, body)), _) => (Some(control), body),
        (None, Some(document)) => (None, UpBody::Whole(Whole::new(document, None))),
        (None, None) => (None, UpBody::Empty),
    };
    if let Some(control) = &control {
        control.flow_freely();
    }
    let mut sending = Box::pin(connection.sender.send_request(forward.request(body)));
    // For an upload the time counts from its end; until then its own pauses are bounded.
    let uploading = || control.as_ref().is_some_and(StreamControl::has_unread);
    let pieces = || control.as_ref().map_or(0, StreamControl::pieces);
    let answer = timed(&forward, async {
        loop {
            let (before, began) = (pieces(), uploading());
            let patience =
                if began { forward.set.limits.body_idle.0 } else { upstream.answer_timeout };
            match head(&mut connection, &mut sending, Instant::now() + patience).await {
                Err(NoHead::TimedOut) if pieces() > before || uploading() != began => {}
                answer => break answer,
            }
        }
    })
    .await;
    drop(sending);
    let unread =
        |control: &Option<StreamControl>| control.as_ref().and_then(StreamControl::reclaim);
    let wrote = purpose == Checkout::Write;
    let gone = Progress::Broken(Broken::Client);
    match answer {
        Err(NoHead::TimedOut) => {
            connection.abandon();
            let refusal = if uploading() {
                Refusal::BodyTimeout
            } else {
                Refusal::UpstreamTimeout { unknown: wrote }
            };
            Err(Failed { refusal, unread: unread(&control) })
        }
        Err(_) if control.as_ref().is_some_and(|control| control.progress() == gone) => {
            connection.abandon();
            let why = "the connection ended inside the body".to_owned();
            Err(Failed { refusal: Refusal::InvalidRequest { why }, unread: None })
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "no answer from the store");
            connection.abandon();
            let why = "the connection ended before the answer".to_owned();
            Err(Failed {
                refusal: Refusal::UpstreamFailed { unknown: wrote, why },
                unread: unread(&control),
            })
        }
        Ok(response)
            if response.status().is_informational() || is_ambiguous(response.headers()) =>
        {
            connection.abandon();
            let why = "the answer is not plain HTTP/1.1".to_owned();
            Err(Failed {
                refusal: Refusal::UpstreamFailed { unknown: wrote, why },
                unread: unread(&control),
            })
        }
        Ok(response) => {
            let (mut head, incoming) = response.into_parts();
            clean(&mut head.headers);
            let patience = forward.set.limits.body_idle.0;
            let early = control.filter(StreamControl::has_unread);
            let nothing = incoming.is_end_stream();
            let mut body = ReadBody::new(incoming, connection, pool, patience);
            if let Some(control) = early {
                head.headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
                body = body.answers_early(control, std::rc::Rc::clone(&forward.worker));
            }
            if nothing {
                // To HEAD, or a 204 or 304: its length, if it has one, is not of this body.
                poll_fn(|cx| {
                    body.finish(cx);
                    Poll::Ready(())
                })
                .await;
                return Ok(Response::from_parts(head, DownBody::empty()));
            }
            Ok(Response::from_parts(head, DownBody::Read(Box::new(body))))
        }
    }
}
