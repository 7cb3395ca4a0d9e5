//! The answer's body as the client gets it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::pipeline::upstream::Connection;
use crate::pipeline::worker::PoolRef;

/// What a client gets.
pub enum DownBody {
    /// Known whole: a refusal, or the complete answer to a write.
    Whole(Option<Bytes>),
    /// The answer to a read, streamed; the connection is polled inside the client's task.
    Read(Box<ReadBody>),
    /// The long answer to a write, read by a task of its own so that a slow client does not hold up
    /// its settlement.
    Relay(Relay),
}

/// The answer to a read.
pub struct ReadBody {
    incoming: Incoming,
    connection: Option<Connection>,
    pool: PoolRef,
    idle: Pin<Box<tokio::time::Sleep>>,
    patience: std::time::Duration,
}

/// Frames of an answer, from the task that reads them.
pub struct Relay {
    /// Frames; an error ends the client's connection.
    pub frames: mpsc::Receiver<Result<Frame<Bytes>, Torn>>,
    /// The length that the head announces.
    pub length: Option<u64>,
}

/// The answer ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("the store's answer ended before its end")]
pub struct Torn;

// === impl DownBody ===

impl DownBody {
    /// No body.
    pub fn empty() -> DownBody {
        DownBody::Whole(None)
    }
}

impl From<Bytes> for DownBody {
    fn from(whole: Bytes) -> DownBody {
        DownBody::Whole(Some(whole).filter(|whole| !whole.is_empty()))
    }
}

// === impl ReadBody ===

impl ReadBody {
    /// An answer whose head has arrived on `connection`.
    ///
    /// * `patience` — the longest pause between two pieces.
    pub fn new(
        incoming: Incoming,
        connection: Connection,
        pool: PoolRef,
        patience: std::time::Duration,
    ) -> ReadBody {
        let idle = Box::pin(tokio::time::sleep(patience));
        ReadBody { incoming, connection: Some(connection), pool, idle, patience }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Torn>>> {
        let over = match &mut self.connection {
            Some(connection) => connection.poll(cx).is_ready(),
            None => true,
        };
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let deadline = tokio::time::Instant::now() + self.patience;
                self.idle.as_mut().reset(deadline);
                return Poll::Ready(Some(Ok(clean(frame))));
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "answer to a read torn");
                self.connection = None;
                return Poll::Ready(Some(Err(Torn)));
            }
            Poll::Ready(None) => {
                if let Some(connection) = self.connection.take().filter(|_| !over) {
                    self.pool.put(connection);
                }
                return Poll::Ready(None);
            }
            Poll::Pending if over => return Poll::Ready(Some(Err(Torn))),
            Poll::Pending => {}
        }
        std::task::ready!(self.idle.as_mut().poll(cx));
        self.connection = None;
        Poll::Ready(Some(Err(Torn)))
    }
}

/// No answer ever carries a token, not in a trailer either: some clients send back what they got.
fn clean(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            strip_token(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

/// Takes the token off an answer.
pub(in crate::pipeline) fn strip_token(headers: &mut HeaderMap) {
    headers.remove(crate::pipeline::token::FENCING_TOKEN);
}

impl Body for DownBody {
    type Data = Bytes;
    type Error = Torn;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Torn>>> {
        match self.get_mut() {
            DownBody::Whole(whole) => Poll::Ready(whole.take().map(|bytes| Ok(Frame::data(bytes)))),
            DownBody::Read(read) => read.poll(cx),
            DownBody::Relay(relay) => relay.frames.poll_recv(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            DownBody::Whole(whole) => whole.is_none(),
            // Not the body's own word: the connection goes back to the pool when the end is polled.
            DownBody::Read(_) | DownBody::Relay(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            DownBody::Whole(whole) => {
                SizeHint::with_exact(whole.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            DownBody::Read(read) => read.incoming.size_hint(),
            DownBody::Relay(relay) => {
                relay.length.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}
