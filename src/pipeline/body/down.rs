//! The answer's body as the client gets it.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::up::StreamControl;
use crate::pipeline::token::{FENCING_TOKEN, UNDERSCORE_TWIN, announces_token};
use crate::pipeline::upstream::Connection;
use crate::pipeline::worker::{PoolRef, Worker};

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
    upload: Option<Upload>,
    idle: Pin<Box<tokio::time::Sleep>>,
    patience: std::time::Duration,
}

/// A request body whose answer came before its end.
struct Upload {
    control: StreamControl,
    worker: Rc<Worker>,
}

/// Frames of an answer, from the task that reads them.
pub struct Relay {
    /// Frames, until the answer's end or until it is torn.
    pub frames: mpsc::Receiver<Frame<Bytes>>,
    /// Set once every frame has been sent. The end of `frames` without it ends the client's connection: a
    /// chunked answer that just stopped would look whole.
    pub complete: Rc<Cell<bool>>,
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
        ReadBody { incoming, connection: Some(connection), pool, upload: None, idle, patience }
    }

    /// The request's own body is not over: what the client still sends is thrown away after the answer,
    /// so that it can be read.
    pub fn answers_early(mut self, control: StreamControl, worker: Rc<Worker>) -> ReadBody {
        self.upload = Some(Upload { control, worker });
        self
    }

    /// The answer is complete: its connection may serve again.
    pub(in crate::pipeline) fn finish(&mut self, cx: &mut Context<'_>) {
        if let Some(mut connection) = self.connection.take()
            && connection.poll(cx).is_pending()
        {
            self.pool.put(connection);
        }
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
                if self.incoming.is_end_stream() {
                    // A client that was promised this length does not ask for the end.
                    self.finish(cx);
                }
                return Poll::Ready(Some(Ok(clean(frame))));
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "answer to a read torn");
                self.connection = None;
                return Poll::Ready(Some(Err(Torn)));
            }
            Poll::Ready(None) => {
                self.finish(cx);
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

impl Drop for ReadBody {
    fn drop(&mut self) {
        // First nobody reads the upload any more.
        drop(self.connection.take());
        if let Some(Upload { control, worker }) = self.upload.take() {
            worker.discard(control.reclaim());
        }
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

/// Takes the token off an answer, and off what it announces as trailers.
pub(in crate::pipeline) fn strip_token(headers: &mut HeaderMap) {
    headers.remove(FENCING_TOKEN);
    headers.remove(UNDERSCORE_TWIN);
    if announces_token(headers) {
        headers.remove(http::header::TRAILER);
    }
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
            DownBody::Relay(relay) => match relay.frames.poll_recv(cx) {
                Poll::Ready(None) if !relay.complete.get() => Poll::Ready(Some(Err(Torn))),
                polled => polled.map(|frame| frame.map(|frame| Ok(clean(frame)))),
            },
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
