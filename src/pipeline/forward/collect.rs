//! Reads a body, or as much of it as may be held back whole.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use hyper::body::Incoming;

use super::budget::{Budget, Share};
use crate::pipeline::fence::CutSignal;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::settings::Limits;

/// What was read.
pub enum Collected {
    /// All of it.
    Whole {
        /// Its bytes.
        bytes: Bytes,
        /// Its trailers, if it was sent in chunks.
        trailers: Option<HeaderMap>,
    },
    /// More than the limit: the pieces read so far.
    More(VecDeque<Bytes>),
}

/// Why reading stopped.
pub enum Stopped {
    /// The exchange was cut.
    Cut,
    /// The client went away.
    Gone,
    /// For this reason.
    Refused(Refusal),
}

/// Reads up to `limit` bytes.
///
/// * `idle` — the longest pause between two pieces.
/// * `cut` — asked for only if the body is not here already.
///
/// # Errors
/// [`Stopped`].
/// # Cancel safety
/// Not cancel safe: pieces that were read are lost.
pub async fn collect(
    incoming: &mut Incoming,
    limit: u64,
    idle: Duration,
    share: &mut Share,
    most: u64,
    cut: impl FnOnce() -> std::sync::Arc<CutSignal>,
) -> Result<Collected, Stopped> {
    let mut pieces: VecDeque<Bytes> = VecDeque::new();
    let mut trailers = None;
    let mut length = 0u64;
    let mut cut = Some(cut);
    let mut signal = None;
    loop {
        let next = match here(incoming).await {
            Some(next) => next,
            None => {
                wait(incoming, idle, signal.get_or_insert_with(|| cut.take().expect("made once")()))
                    .await?
            }
        };
        match next {
            None => return Ok(Collected::Whole { bytes: join(pieces), trailers }),
            Some(Err(_)) => return Err(Stopped::Gone),
            Some(Ok(frame)) => match frame.into_data() {
                Err(frame) => trailers = frame.into_trailers().ok(),
                Ok(data) => {
                    length += data.len() as u64;
                    share.grow(data.len(), most).map_err(Stopped::Refused)?;
                    pieces.push_back(data);
                    if length > limit {
                        return Ok(Collected::More(pieces));
                    }
                }
            },
        }
    }
}

/// Reads a whole document, to learn what it names.
///
/// # Errors
/// [`Refusal::TooLarge`], [`Refusal::Busy`], [`Refusal::BodyTimeout`]; [`Refusal::InvalidRequest`] if the
/// client goes away.
/// # Cancel safety
/// Not cancel safe: what was read is lost.
pub async fn document(
    incoming: &mut Incoming,
    limits: &Limits,
    budget: &Budget,
) -> Result<Bytes, Refusal> {
    let limit = limits.max_document.0;
    let too_large =
        Refusal::TooLarge { what: "the document", limit, key: "proxy.limits.max_document" };
    if incoming.size_hint().exact().is_some_and(|length| length > limit) {
        return Err(too_large);
    }
    let mut share = budget.share();
    let never = std::sync::Arc::<CutSignal>::default;
    match collect(incoming, limit, limits.body_idle.0, &mut share, limits.max_buffered.0, never)
        .await
    {
        Ok(Collected::Whole { bytes, .. }) => Ok(bytes),
        Ok(Collected::More(_)) => Err(too_large),
        Err(Stopped::Refused(refusal)) => Err(refusal),
        Err(Stopped::Cut | Stopped::Gone) => Err(Refusal::InvalidRequest {
            why: "the connection ended inside the document".to_owned(),
        }),
    }
}

type Next = Option<hyper::Result<Frame<Bytes>>>;

/// The next frame if it is here already, which it is for most small requests. hyper reads a body only
/// after it was asked for it once, so it is asked twice.
async fn here(incoming: &mut Incoming) -> Option<Next> {
    let mut asked = false;
    poll_fn(|cx| match Pin::new(&mut *incoming).poll_frame(cx) {
        Poll::Ready(next) => Poll::Ready(Some(next)),
        Poll::Pending if asked => Poll::Ready(None),
        Poll::Pending => {
            asked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn wait(
    incoming: &mut Incoming,
    idle: Duration,
    signal: &CutSignal,
) -> Result<Next, Stopped> {
    let mut deadline = std::pin::pin!(tokio::time::sleep(idle));
    poll_fn(|cx| {
        if let Poll::Ready(next) = Pin::new(&mut *incoming).poll_frame(cx) {
            return Poll::Ready(Ok(next));
        }
        if signal.poll_cut(cx).is_ready() {
            return Poll::Ready(Err(Stopped::Cut));
        }
        deadline.as_mut().poll(cx).map(|()| Err(Stopped::Refused(Refusal::BodyTimeout)))
    })
    .await
}

fn join(mut pieces: VecDeque<Bytes>) -> Bytes {
    if pieces.len() < 2 {
        return pieces.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    whole.freeze()
}
