//! The admin listener's sockets: TCP or Unix, accept loop, graceful end.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use super::guard::Peer;

/// Most connections at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 1_024;

/// Longest wait for a complete head, also on an idle kept-alive connection.
const HEADER_TIME: Duration = Duration::from_secs(30);

/// A bound socket that has not accepted anything yet.
pub struct AdminListener(Socket);

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Why an address could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("admin.listen = {address:?} cannot be bound; check that it is free and may be used")]
pub struct BindError {
    /// The address, as written.
    pub address: String,
    /// Why.
    #[source]
    pub cause: io::Error,
}

// === impl AdminListener ===

impl AdminListener {
    /// Binds `"127.0.0.1:8081"`, `"localhost:8081"` or `"unix:/run/fencegate/admin.sock"`. Whoever can
    /// open a Unix socket may do everything when there are no tokens, so it is made for its owner only.
    ///
    /// # Errors
    /// [`BindError`]. A socket file that nobody listens on is replaced; anything else in its place is not.
    pub async fn bind(address: &str) -> Result<AdminListener, BindError> {
        let fault = |cause| BindError { address: address.into(), cause };
        let socket = match address.strip_prefix("unix:") {
            Some(path) => {
                let path = PathBuf::from(path);
                Socket::Unix(bind_unix(&path).map_err(fault)?, path)
            }
            None => Socket::Tcp(TcpListener::bind(address).await.map_err(fault)?),
        };
        Ok(AdminListener(socket))
    }

    /// Where it listens: `127.0.0.1:8081`, the port chosen if 0 was asked for; or `unix:/path`.
    pub fn address(&self) -> String {
        match &self.0 {
            Socket::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "unknown".into(), |address| address.to_string()),
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|at| at.file_type().is_socket());
    let connected = std::os::unix::net::UnixStream::connect(path);
    // Left behind by a process that was killed. Any other fault may mean that somebody listens.
    if is_socket && connected.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    // Before `listen`, nobody can connect: there is no moment in which others could get in.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket.into())
}

/// Accepts and answers until `stop` is ready; then lets requests in progress finish and returns.
/// The caller bounds that end; event streams and waits for a lease end by
/// [`Readiness`](super::Readiness) being set to draining.
///
/// # Cancel safety
/// Dropping it stops accepting; connections go on until their next request.
pub async fn run(listener: AdminListener, router: Router, stop: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (stopping, stopped) = watch::channel(());
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepting = async {
            let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            (slot, accept(&listener.0).await)
        };
        let (slot, accepted) = tokio::select! {
            () = &mut stop => break,
            accepted = accepting => accepted,
        };
        match accepted {
            Ok(Accepted { io, peer }) => {
                let (router, stopped) = (router.clone(), stopped.clone());
                tokio::spawn(async move {
                    connection(io, peer, router, stopped).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "admin connection not accepted");
                // Out of descriptors: at once would be the same again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    if let Socket::Unix(_, path) = &listener.0 {
        // Nobody may connect to a file that nobody listens on; if it is gone already, all the better.
        let _ = std::fs::remove_file(path);
    }
    drop(listener);
    drop(stopped);
    // A closed channel tells the connections; each one's receiver tells us that it has ended.
    let _ = stopping.send(());
    stopping.closed().await;
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

struct Accepted {
    io: Box<dyn Io>,
    peer: Peer,
}

async fn accept(socket: &Socket) -> io::Result<Accepted> {
    match socket {
        Socket::Tcp(listener) => {
            let (stream, address) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Accepted { io: Box::new(stream), peer: Peer::Tcp(address) })
        }
        Socket::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            Ok(Accepted { io: Box::new(stream), peer: Peer::Unix })
        }
    }
}

async fn connection(io: Box<dyn Io>, peer: Peer, router: Router, mut stopped: watch::Receiver<()>) {
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request)
    });
    // hyper drops the service's future when the client goes away: that is what ends a wait.
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(io), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        _ = stopped.changed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "admin connection ended");
    }
}
