//! A client's socket that gives up on a client which takes nothing.
//!
//! Nothing else would: a peer that keeps its window closed answers probes for ever, and with it live its
//! connection, the store's behind it, and what both have buffered.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A client's socket.
pub(super) struct ClientIo<S> {
    stream: S,
    patience: Duration,
    /// Runs while the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    blocked: Rc<Cell<bool>>,
}

// === impl ClientIo ===

impl<S> ClientIo<S> {
    /// Wraps a socket.
    ///
    /// * `patience`: the longest time in which the client may take nothing.
    /// * `blocked`: set while there is something that it has not taken.
    pub(super) fn new(stream: S, patience: Duration, blocked: Rc<Cell<bool>>) -> ClientIo<S> {
        ClientIo { stream, patience, stalled: None, blocked }
    }

    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.blocked.set(polled.is_pending());
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client takes nothing of its answer",
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let blocked = Rc::new(Cell::new(false));
        let mut io = ClientIo::new(ours, Duration::from_secs(60), Rc::clone(&blocked));
        let writing = async {
            io.write_all(&[0; 30]).await.unwrap();
            assert!(!blocked.get());
            io.write_all(&[0; 30]).await.unwrap_err().kind()
        };
        let reading = async {
            for _ in 0..2 {
                sleep(Duration::from_secs(59)).await;
                assert!(blocked.get());
                theirs.read_exact(&mut [0; 10]).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let kind = tokio::select! {
            kind = writing => kind,
            () = reading => unreachable!(),
        };
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!(blocked.get());
    }
}
