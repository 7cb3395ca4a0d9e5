//! Bodies on their way through the sidecar.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::Notify;

use crate::pipeline::body::DownBody;
use crate::pipeline::worker::Worker;

/// A client that waits for a 100 sends its body after this long without one, as RFC 9110 asks it to; the fencing
/// proxy always says something, other hops before it may not.
const WITHOUT_100: Duration = Duration::from_secs(3);

/// Opens when the proxy wants the body.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Notify>);

/// The command's body, as the proxy gets it.
pub(super) struct Up {
    body: Option<Incoming>,
    /// Not read before this is over: the first read is what makes the client send.
    closed: Option<Pin<Box<dyn Future<Output = ()>>>>,
    worker: Rc<Worker>,
}

/// The answer, as the command gets it.
pub(super) enum Down {
    /// The proxy's.
    Streamed(Incoming),
    /// Our own.
    Own(DownBody),
}

// === impl Gate ===

impl Gate {
    /// Lets the body pass.
    pub(super) fn open(&self) {
        self.0.notify_one();
    }

    async fn passed(self) {
        let _ = tokio::time::timeout(WITHOUT_100, self.0.notified()).await;
    }
}

// === impl Up ===

impl Up {
    pub(super) fn new(body: Incoming, gate: Option<Gate>, worker: Rc<Worker>) -> Up {
        let closed = gate.map(|gate| Box::pin(gate.passed()) as Pin<Box<dyn Future<Output = ()>>>);
        Up { body: Some(body), closed, worker }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // The proxy has answered early: the client must be able to read that. One that still waits for its
        // 100 reads it at once.
        if self.closed.is_none() {
            self.worker.discard(self.body.take());
        }
    }
}

impl Body for Up {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(closed) = &mut self.closed {
            std::task::ready!(closed.as_mut().poll(cx));
            self.closed = None;
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Body for Down {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Down::Streamed(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Down::Own(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Down::Streamed(body) => body.is_end_stream(),
            Down::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Down::Streamed(body) => body.size_hint(),
            Down::Own(body) => body.size_hint(),
        }
    }
}
