//! One socket to a store, which is reset rather than closed when its request is abandoned, and on which a
//! failed write does not keep what the store had to say from being read.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// The transport under a connection to a store.
pub enum Transport {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

/// What a connection and its socket tell each other.
#[derive(Debug, Default)]
pub struct Shared {
    /// Reset on drop, so that the kernel does not go on sending what is queued (SO_LINGER 0).
    pub abort: Cell<bool>,
    /// A write failed: what was handed to the connection has not all left.
    pub write_failed: Cell<bool>,
}

/// A transport with the switch that decides how it ends.
pub struct UpstreamIo {
    transport: Transport,
    shared: Rc<Shared>,
}

// === impl UpstreamIo ===

impl UpstreamIo {
    /// Wraps a connected transport.
    pub fn new(transport: Transport, shared: Rc<Shared>) -> UpstreamIo {
        UpstreamIo { transport, shared }
    }

    /// A store that refuses an upload before its end closes, and the next write fails, with the refusal
    /// still to be read. hyper would take the failure for the end of the connection: so nothing is
    /// written any more, and what can be read decides, its end at the latest.
    fn written<T>(&self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = polled else { return polled };
        if !self.shared.write_failed.replace(true) {
            tracing::debug!(%error, "a write to the store failed");
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// The socket's descriptor, to look at an idle connection without reading from it.
    pub fn descriptor(&self) -> RawFd {
        match &self.transport {
            Transport::Tcp(stream) => stream.as_raw_fd(),
            Transport::Unix(stream) => stream.as_raw_fd(),
            Transport::Tls(stream) => stream.get_ref().0.as_raw_fd(),
        }
    }
}

impl Drop for UpstreamIo {
    fn drop(&mut self) {
        if !self.shared.abort.get() {
            return;
        }
        let reset = match &self.transport {
            Transport::Tcp(stream) => stream.set_zero_linger(),
            Transport::Tls(stream) => stream.get_ref().0.set_zero_linger(),
            // A Unix socket has no queue that outlives it.
            Transport::Unix(_) => Ok(()),
        };
        if let Err(error) = reset {
            tracing::warn!(%error, "an abandoned connection to a store could not be reset");
        }
    }
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match &mut $self.transport {
            Transport::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Unix(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        each!(this, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.shared.write_failed.get() {
            return Poll::Pending;
        }
        let polled = each!(this, stream => stream.poll_write(cx, buf));
        this.written(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.shared.write_failed.get() {
            return Poll::Pending;
        }
        let polled = each!(this, stream => stream.poll_write_vectored(cx, bufs));
        this.written(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Tcp(stream) => stream.is_write_vectored(),
            Transport::Unix(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = each!(this, stream => stream.poll_flush(cx));
        this.written(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        each!(this, stream => stream.poll_shutdown(cx))
    }
}
