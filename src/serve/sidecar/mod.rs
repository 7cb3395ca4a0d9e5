//! A listener on loopback that adds the token to what one command sends, and forwards it to the proxy.
//!
//! So a writer that cannot set headers works unmodified: its requests go on as they are, Host included, and
//! keep their signatures; only `Fencing-Token` is added. Its thread is its own: a busy writer must not keep
//! its lease from being renewed.

mod body;

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::Instant;

use crate::core::{Millis, Resource, Token};
use crate::pipeline::frame;
use crate::pipeline::refusal::{Refusal, TokenFault};
use crate::pipeline::respond::{Occasion, RequestId, is_conditional, refuse};
use crate::pipeline::settings::StoreKind;
use crate::pipeline::token::{FENCING_TOKEN, carried};
use crate::pipeline::upstream::Endpoint;
use crate::pipeline::worker::Worker;
use crate::store::clock::{Clock, SystemClock};
use crate::telemetry::metrics::Metrics;
use body::{Down, Gate, Up};

/// Most that one direction of a connection holds, in bytes.
const BUFFER: usize = 400 << 10;

/// Most fields of one head.
const FIELDS: usize = 200;

/// Longest wait for a connection to the proxy.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection that was idle for longer is not used again if a new one is cheap: the proxy may be closing it.
const FRESH: Duration = Duration::from_secs(1);

/// Pause after a connection was not accepted; at once would be the same again.
const AGAIN: Duration = Duration::from_millis(20);

/// An instant of CLOCK_BOOTTIME from which everything is refused; moved by whoever keeps the lease.
#[derive(Debug)]
pub struct Until(AtomicU64);

/// What the sidecar adds and where it forwards to.
pub struct Carrying {
    /// The proxy.
    pub endpoint: Endpoint,
    /// The token of the term.
    pub token: Token,
    /// What it is of, for refusals.
    pub resource: Option<Resource>,
    /// When to stop.
    pub until: Arc<Until>,
}

/// A sidecar that has its address.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// What all connections share.
struct Side {
    carrying: Carrying,
    header: HeaderValue,
    worker: Rc<Worker>,
}

/// The connection to the proxy that belongs to one connection of the command, and when it was used last.
type Upstream = RefCell<Option<(client::SendRequest<Up>, Instant)>>;

// === impl Until ===

impl Until {
    /// Refuses from `at` on; [`Millis::NEVER`] never does.
    pub fn new(at: Millis) -> Until {
        Until(AtomicU64::new(at.0))
    }

    /// Moves it.
    pub fn set(&self, at: Millis) {
        self.0.store(at.0, Ordering::SeqCst);
    }

    /// By reading the clock: a process that was stopped has not been told yet that its time is over.
    fn is_over(&self) -> bool {
        SystemClock.boottime().0 >= self.0.load(Ordering::SeqCst)
    }
}

// === impl Bound ===

impl Bound {
    /// Takes an address; port 0 is any free one.
    ///
    /// # Errors
    /// If it is taken or not ours.
    pub fn bind(address: SocketAddr) -> io::Result<Bound> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Bound { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on a thread of its own until the process ends.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(self, carrying: Carrying) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = move || LocalSet::new().block_on(&runtime, accept(self.listener, carrying));
        std::thread::Builder::new().name("sidecar".into()).spawn(serving).map(drop)
    }
}

async fn accept(listener: TcpListener, carrying: Carrying) {
    // Nobody reads them: the proxy counts.
    let worker = Worker::new(Arc::new(Metrics::new(1, &[])));
    spawn_local(worker.reaper.clone().run());
    let header = HeaderValue::from(carrying.token.get());
    let side = Rc::new(Side { carrying, header, worker });
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("fencegate: the sidecar cannot listen: {error}");
            return;
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                spawn_local(connection(Rc::clone(&side), stream));
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn connection(side: Rc<Side>, stream: tokio::net::TcpStream) {
    let upstream = Rc::new(Upstream::default());
    let service = service_fn(move |request| {
        let (side, upstream) = (Rc::clone(&side), Rc::clone(&upstream));
        async move { Ok::<_, std::convert::Infallible>(side.serve(&upstream, request).await) }
    });
    let serving = server::Builder::new()
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .preserve_header_case(true)
        // The proxy's own is passed on.
        .auto_date_header(false)
        .max_headers(FIELDS)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    // How it ends is the command's business; what it was told, it was told.
    let _ = serving.await;
}

// === impl Side ===

impl Side {
    async fn serve(&self, upstream: &Upstream, mut request: Request<Incoming>) -> Response<Down> {
        let occasion = Asked::of(&request);
        let framed =
            frame::check(request.method(), request.uri(), request.version(), request.headers());
        let expects = match framed.and_then(|framed| self.carry(&mut request).map(|()| framed)) {
            Ok(framed) => framed.expects,
            Err(refusal) => {
                let unread = request.into_body();
                self.worker.discard(Some(unread));
                return occasion.refuse(&refusal);
            }
        };
        let gate = expects.then(Gate::default);
        if let Some(gate) = &gate {
            let gate = gate.clone();
            hyper::ext::on_informational(&mut request, move |interim| {
                if interim.status() == http::StatusCode::CONTINUE {
                    gate.open();
                }
            });
        }
        let request = request.map(|body| Up::new(body, gate, Rc::clone(&self.worker)));
        match self.send(upstream, request).await {
            Ok(response) => response.map(Down::Streamed),
            Err(refusal) => occasion.refuse(&refusal),
        }
    }

    /// Puts the token on the request, unless its time is over or it brings another one.
    fn carry(&self, request: &mut Request<Incoming>) -> Result<(), Refusal> {
        if self.carrying.until.is_over() {
            let presented = self.carrying.token;
            let resource =
                self.carrying.resource.clone().expect("only `run`, which knows it, sets a time");
            return Err(Refusal::LeaseExpired { resource, presented });
        }
        match carried(request.headers())? {
            // Signed, perhaps: it stays as it is.
            Some(token) if token == self.carrying.token => {}
            Some(_) => {
                return Err(Refusal::InvalidToken { fault: TokenFault::Contradicting });
            }
            None => {
                request.headers_mut().insert(FENCING_TOKEN, self.header.clone());
            }
        }
        Ok(())
    }

    /// Sends a request once. On a connection that turned out closed before anything of it was sent, a new one
    /// takes it.
    async fn send(
        &self,
        upstream: &Upstream,
        mut request: Request<Up>,
    ) -> Result<Response<Incoming>, Refusal> {
        loop {
            let kept = upstream.borrow_mut().take();
            let (mut sender, is_new) = match self.usable(kept).await {
                Some(sender) => (sender, false),
                None => (self.connect().await?, true),
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    *upstream.borrow_mut() = Some((sender, Instant::now()));
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    unsent => {
                        let why = "the fencing proxy closed the connection".to_owned();
                        return Err(Refusal::UpstreamFailed { unknown: unsent.is_none(), why });
                    }
                },
            }
        }
    }

    /// The connection used before, if it is open and young enough.
    async fn usable(
        &self,
        kept: Option<(client::SendRequest<Up>, Instant)>,
    ) -> Option<client::SendRequest<Up>> {
        let (mut sender, used) = kept?;
        if self.carrying.endpoint.is_cheap() && used.elapsed() > FRESH {
            return None;
        }
        sender.ready().await.ok()?;
        Some(sender)
    }

    async fn connect(&self) -> Result<client::SendRequest<Up>, Refusal> {
        let failed = |why: String| Refusal::UpstreamFailed { unknown: false, why };
        let connecting = self.carrying.endpoint.connect(CONNECT, Rc::default());
        let io = connecting.await.map_err(|_| {
            failed("the fencing proxy cannot be reached; check that `fencegate serve` runs".into())
        })?;
        let mut builder = client::Builder::new();
        builder.preserve_header_case(true).max_headers(FIELDS).max_buf_size(BUFFER);
        let handshake = builder.handshake(TokioIo::new(io)).await;
        let (sender, connection) = handshake.map_err(|error| failed(error.to_string()))?;
        spawn_local(async move {
            // Whoever waits for an answer on it hears of its end.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// What of a request is needed to refuse it.
struct Asked {
    kind: StoreKind,
    path: String,
    conditional: bool,
}

// === impl Asked ===

impl Asked {
    /// Only the proxy knows what store a request is for; what looks like S3 is answered like S3.
    fn of(request: &Request<Incoming>) -> Asked {
        let headers = request.headers();
        let signed = headers
            .get(http::header::AUTHORIZATION)
            .is_some_and(|value| value.as_bytes().starts_with(b"AWS"));
        let named = headers.keys().any(|name| name.as_str().starts_with("x-amz-"));
        let query = request.uri().query().unwrap_or_default();
        let s3 = signed || named || query.contains("X-Amz-") || query.contains("AWSAccessKeyId=");
        Asked {
            kind: if s3 { StoreKind::S3 } else { StoreKind::Rest },
            path: request.uri().path().to_owned(),
            conditional: is_conditional(headers),
        }
    }

    fn refuse(&self, refusal: &Refusal) -> Response<Down> {
        let occasion = Occasion {
            kind: self.kind,
            path: &self.path,
            conditional: self.conditional,
            carried: true,
            close: true,
            id: RequestId::next(),
        };
        refuse(refusal, &occasion).map(Down::Own)
    }
}
