//! Idle connections of one thread to one store. Nobody polls them: they are looked at when they are
//! taken, since a store may have closed one just as a write is about to go out on it.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{future::Future, pin::Pin};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nix::sys::socket::{MsgFlags, recv};

use super::io::Shared;
use super::{ConnectError, Endpoint, UpstreamIo};
use crate::core::Millis;
use crate::pipeline::body::UpBody;
use crate::pipeline::buffers;
use crate::telemetry::clock;
use crate::telemetry::metrics::{Event, Metrics};

/// One connection to a store. Its owner polls it, inside the task of the request it serves.
pub struct Connection {
    /// Sends a request on it.
    pub sender: http1::SendRequest<UpBody>,
    /// Does its I/O when polled.
    pub driver: http1::Connection<TokioIo<UpstreamIo>, UpBody>,
    shared: Rc<Shared>,
    descriptor: RawFd,
    idle_since: Millis,
    _open: Open,
}

/// Counts one connection for as long as it lives.
struct Open(Rc<Cell<usize>>);

/// What a request may do with a connection that was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkout {
    /// A read: if the store closed the connection meanwhile, nothing is lost.
    Read,
    /// A write: a lost answer taints its permit, so only a connection that is surely alive will do.
    Write,
}

/// Idle connections, last used first.
pub struct Pool {
    idle: RefCell<Vec<Connection>>,
    /// Connections of this pool, in use or idle.
    open: Rc<Cell<usize>>,
    metrics: Arc<Metrics>,
}

/// A write takes a new connection rather than one idle for longer than this, if that is cheap.
const WRITE_IDLE: Duration = Duration::from_secs(1);

/// Most idle connections kept for one thread and store.
const MOST_IDLE: usize = 512;

// === impl Open ===

impl Open {
    fn new(count: &Rc<Cell<usize>>) -> Open {
        count.set(count.get() + 1);
        Open(Rc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

// === impl Connection ===

impl Connection {
    /// Drops it in a way that makes the kernel drop what is still queued.
    pub fn abandon(self) {
        self.shared.abort.set(true);
    }

    /// Makes any later drop reset the connection, until [`calm`](Self::calm): from when the first byte of
    /// a request may leave until it is completely answered.
    pub fn arm(&self) {
        self.shared.abort.set(true);
    }

    /// A drop closes the connection in the ordinary way.
    pub fn calm(&self) {
        self.shared.abort.set(false);
    }

    /// Lets the connection do its I/O. Ready when it is over.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.driver).poll(cx)
    }

    /// Whether a write failed: then the store did not get all that was handed over.
    pub fn has_lost(&self) -> bool {
        self.shared.write_failed.get()
    }

    /// Whether it is surely open, with nothing on it that was not asked for.
    fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if self.poll(&mut cx).is_ready() || !self.sender.is_ready() {
            return false;
        }
        let mut byte = [0];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        matches!(recv(self.descriptor, &mut byte, flags), Err(nix::errno::Errno::EAGAIN))
    }
}

// === impl Pool ===

impl Pool {
    /// A pool without connections.
    pub fn new(metrics: Arc<Metrics>) -> Pool {
        Pool { idle: RefCell::default(), open: Rc::default(), metrics }
    }

    /// An idle connection, or a new one.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    /// # Cancel safety
    /// Cancel safe: a dropped call closes what it had opened.
    pub async fn checkout(
        &self,
        endpoint: &Endpoint,
        connect_timeout: Duration,
        idle_timeout: Duration,
        purpose: Checkout,
    ) -> Result<Connection, ConnectError> {
        let most = match purpose {
            Checkout::Write if endpoint.is_cheap() => idle_timeout.min(WRITE_IDLE),
            _ => idle_timeout,
        };
        while let Some(mut connection) = self.take(most) {
            if connection.is_quiet() {
                self.metrics.count(Event::UpstreamReused);
                return Ok(connection);
            }
            self.metrics.count(Event::UpstreamDiscarded);
        }
        let shared = Rc::new(Shared::default());
        let io = endpoint.connect(connect_timeout, Rc::clone(&shared)).await?;
        let descriptor = io.descriptor();
        let mut http = http1::Builder::new();
        let open = Open::new(&self.open);
        http.max_buf_size(buffers::size(self.open.get())).max_headers(200);
        let (sender, driver) = http
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| ConnectError::Io(std::io::Error::other(error)))?;
        self.metrics.count(Event::UpstreamMade);
        let idle_since = clock::monotonic();
        Ok(Connection { sender, driver, shared, descriptor, idle_since, _open: open })
    }

    /// The one used last, if it is young enough; the rest has been idle for even longer.
    fn take(&self, most: Duration) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let young = idle.last().is_some_and(|last| last.idle_since + most >= clock::monotonic());
        if young { idle.pop() } else { None }
    }

    /// Keeps a connection whose request was completely sent and completely answered.
    pub fn put(&self, mut connection: Connection) {
        connection.calm();
        // hyper says that it takes another request only when it is polled after an answer's end.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let over = connection.poll(&mut cx).is_ready() || connection.has_lost();
        if over || !connection.sender.is_ready() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= MOST_IDLE {
            idle.remove(0);
            self.metrics.count(Event::UpstreamDiscarded);
        }
        connection.idle_since = clock::monotonic();
        idle.push(connection);
    }

    /// Closes what has been idle for longer than `idle_timeout`.
    pub fn prune(&self, idle_timeout: Duration) {
        let now = clock::monotonic();
        self.idle.borrow_mut().retain(|connection| {
            let young = connection.idle_since + idle_timeout >= now;
            if !young {
                self.metrics.count(Event::UpstreamDiscarded);
            }
            young
        });
    }

    /// How many are idle.
    pub fn len(&self) -> usize {
        self.idle.borrow().len()
    }

    /// Whether none is idle.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
