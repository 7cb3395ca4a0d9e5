//! One thread of the data path: accepts, serves, and ends in good order.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::Stop;
use super::client_io::ClientIo;
use super::settings::Address;
use crate::pipeline::body::{DownBody, Torn};
use crate::pipeline::buffers;
use crate::pipeline::worker::Worker;
use crate::pipeline::{Client, Peer, Pipeline};
use crate::telemetry::metrics::{Event, Level, Metrics};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;

/// At the end, a connection with nothing in progress has this long to get its last bytes out.
const LAST_BYTES: Duration = Duration::from_millis(200);

/// A bound listener of one thread.
pub(super) enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// What a thread needs to serve.
#[derive(Clone)]
pub(super) struct Serving {
    pub pipeline: Arc<Pipeline>,
    pub slots: Arc<Semaphore>,
    pub stop: Stop,
}

/// Binds one address for each of `threads` threads. A Unix socket goes to the first one.
pub(super) fn bind(address: &Address, threads: usize) -> io::Result<Vec<Vec<Listener>>> {
    let mut listeners: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    match address {
        Address::Unix(path) => {
            let stale = std::fs::symlink_metadata(path).is_ok_and(|at| at.file_type().is_socket())
                && std::os::unix::net::UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if stale {
                std::fs::remove_file(path)?;
            }
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            listeners[0].push(Listener::Unix(listener));
        }
        Address::Tcp(address) => {
            // With SO_REUSEPORT a second server would share our port unnoticed: ask without it first.
            let probe = tcp(*address, false)?;
            let address = probe.local_addr()?.as_socket().unwrap_or(*address);
            drop(probe);
            for mine in &mut listeners {
                let socket = tcp(address, true)?;
                socket.listen(BACKLOG)?;
                mine.push(Listener::Tcp(socket.into()));
            }
        }
    }
    Ok(listeners)
}

fn tcp(address: std::net::SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if !share {
        socket.listen(1)?;
    }
    Ok(socket)
}

/// Serves until told to stop, then until everything in flight is settled or `patience` is over. Returns
/// whether all of it was.
pub(super) fn run(
    serving: Serving,
    listeners: Vec<Listener>,
    patience: Duration,
) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let worker = Worker::new(Arc::clone(&serving.pipeline.metrics));
    let open = Rc::new(Cell::new(0usize));
    let drained = local.block_on(&runtime, async {
        tokio::task::spawn_local(worker.reaper.clone().run());
        for listener in listeners {
            tokio::task::spawn_local(accept(
                serving.clone(),
                listener,
                Rc::clone(&worker),
                Rc::clone(&open),
            ));
        }
        let mut stop = serving.stop.clone();
        let mut prune = tokio::time::interval(Duration::from_secs(1));
        while !*stop.borrow() {
            tokio::select! {
                _ = stop.changed() => {}
                _ = prune.tick() => worker.prune(),
            }
        }
        let over = tokio::time::Instant::now() + patience;
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while open.get() > 0 || !worker.reaper.is_empty() {
            if tokio::time::Instant::now() >= over {
                return false;
            }
            look.tick().await;
        }
        true
    });
    Ok(drained)
}

async fn accept(serving: Serving, listener: Listener, worker: Rc<Worker>, open: Rc<Cell<usize>>) {
    enum Ready {
        Tcp(TcpListener),
        Unix(UnixListener),
    }
    let listener = match listener {
        Listener::Tcp(listener) => TcpListener::from_std(listener).map(Ready::Tcp),
        Listener::Unix(listener) => UnixListener::from_std(listener).map(Ready::Unix),
    };
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a bound listener cannot be used");
            return;
        }
    };
    let mut stop = serving.stop.clone();
    loop {
        // First the connection, then its slot: a thread that waits with a slot in its hand would keep it
        // from the thread that the kernel gave a client to.
        let slot = async || Arc::clone(&serving.slots).acquire_owned().await.expect("never closed");
        let accepted = async {
            match &listener {
                Ready::Tcp(listener) => {
                    let (stream, address) = listener.accept().await?;
                    stream.set_nodelay(true)?;
                    let slot = slot().await;
                    spawn(&serving, &worker, &open, slot, stream, Peer::Tcp(address));
                }
                Ready::Unix(listener) => {
                    let (stream, _) = listener.accept().await?;
                    let slot = slot().await;
                    spawn(&serving, &worker, &open, slot, stream, Peer::Unix);
                }
            }
            Ok(())
        };
        let accepted: io::Result<()> = tokio::select! {
            _ = stop.changed() => return,
            accepted = accepted => accepted,
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection was not accepted");
            // Out of descriptors, or gone already: at once would be the same again.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spawn(
    serving: &Serving,
    worker: &Rc<Worker>,
    open: &Rc<Cell<usize>>,
    slot: tokio::sync::OwnedSemaphorePermit,
    stream: impl AsyncRead + AsyncWrite + AsRawFd + Unpin + 'static,
    peer: Peer,
) {
    let counted = Counted::new(open);
    let buffer = buffers::size(open.get());
    let serving = serving.clone();
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        let gauge = Gauge::new(&serving.pipeline.metrics);
        connection(&serving, worker, stream, peer, buffer).await;
        drop((slot, counted, gauge));
    });
}

/// One of the connections in the metrics, for as long as it lives.
struct Gauge(Arc<Metrics>);

impl Gauge {
    fn new(metrics: &Arc<Metrics>) -> Gauge {
        metrics.raise(Level::Connections);
        Gauge(Arc::clone(metrics))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.lower(Level::Connections);
    }
}

/// Counts one more for as long as it lives, whatever ends it.
struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn new(count: &Rc<Cell<usize>>) -> Counted {
        count.set(count.get() + 1);
        Counted(Rc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn connection(
    serving: &Serving,
    worker: Rc<Worker>,
    stream: impl AsyncRead + AsyncWrite + AsRawFd + Unpin + 'static,
    peer: Peer,
    buffer: usize,
) {
    let busy = Rc::new(Cell::new(0usize));
    let (client, connected) = Client::new(peer.clone(), stream.as_raw_fd());
    let service = {
        let (pipeline, busy) = (Arc::clone(&serving.pipeline), Rc::clone(&busy));
        service_fn(move |request| {
            let pipeline = Arc::clone(&pipeline);
            let counted = Counted::new(&busy);
            let served =
                worker.reaper.attach(pipeline.serve(Rc::clone(&worker), client.clone(), request));
            async move {
                let response = served.await;
                Ok::<_, std::convert::Infallible>(
                    response.map(|body| Tracked { body, _counted: counted }),
                )
            }
        })
    };
    let limits = serving.pipeline.rules.load().limits.clone();
    let head = usize::try_from(limits.head.0).unwrap_or(usize::MAX);
    let blocked = Rc::new(Cell::new(false));
    let stream = ClientIo::new(stream, limits.body_idle.0, Rc::clone(&blocked));
    let serving_it = http1::Builder::new()
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time.0)
        .max_headers(limits.headers)
        .max_header_size(head)
        .max_buf_size(buffer.max(head))
        .serve_connection(TokioIo::new(stream), service);
    let mut serving_it = std::pin::pin!(serving_it);
    // Dropped before the socket is.
    let _connected = connected;
    let mut stop = serving.stop.clone();
    let ended = tokio::select! {
        ended = serving_it.as_mut() => ended,
        () = stopped(&mut stop) => {
            serving_it.as_mut().graceful_shutdown();
            loop {
                match tokio::time::timeout(LAST_BYTES, serving_it.as_mut()).await {
                    Ok(ended) => break ended,
                    // hyper waits for ever on a connection that has not said anything yet.
                    Err(_) if busy.get() == 0 && !blocked.get() => return,
                    Err(_) => {}
                }
            }
        }
    };
    if let Err(error) = ended {
        if error.is_parse() {
            serving.pipeline.metrics.count(Event::ParseError);
            tracing::warn!(client = %peer, error = &error as &dyn std::error::Error, "a request head could not be read");
        } else {
            tracing::debug!(client = %peer, error = &error as &dyn std::error::Error, "client connection ended");
        }
    }
}

async fn stopped(stop: &mut Stop) {
    // The sender lives as long as the process.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// A body that keeps its connection counted as busy.
struct Tracked {
    body: DownBody,
    _counted: Counted,
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = Torn;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Torn>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
