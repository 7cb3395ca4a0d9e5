//! Where a store is, and how a connection to it is made.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::io::{Shared, Transport, UpstreamIo};

/// Where a store is.
#[derive(Clone)]
pub enum Endpoint {
    /// `http://host:port`. The name is resolved again for each connection.
    Http {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// `https://host:port`; the certificate must be valid for `host`, whatever the request's Host is.
    Https {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The name to verify and to send as SNI.
        name: ServerName<'static>,
        /// Trust anchors and protocol versions.
        tls: Arc<rustls::ClientConfig>,
    },
    /// `unix:/path`.
    Unix {
        /// The socket.
        path: PathBuf,
    },
}

/// Why there is no connection, or no such endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Not a URL of a store.
    #[error(
        "{url:?} is no address of a store: {why}; write http://host:port, https://host or unix:/path"
    )]
    Url {
        /// What was written.
        url: String,
        /// What is wrong.
        why: &'static str,
    },
    /// No root certificates on this machine.
    #[error("no trusted root certificates were found; install the package ca-certificates")]
    NoRoots,
    /// The network said no.
    #[error("connecting failed")]
    Io(#[source] io::Error),
    /// It took too long.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads `upstream.url`.
    ///
    /// # Errors
    /// [`ConnectError::Url`] for another scheme, a path, a query, or credentials; [`ConnectError::NoRoots`]
    /// for `https` on a machine that trusts nobody.
    pub fn parse(url: &str) -> Result<Endpoint, ConnectError> {
        let bad = |why| ConnectError::Url { url: url.to_owned(), why };
        if let Some(path) = url.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Endpoint::Unix { path })
            } else {
                Err(bad("the socket's path is not absolute"))
            };
        }
        let uri: http::Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            // Not to be repeated: the message goes to terminals and logs.
            let url = format!("***@{}", authority.as_str().rsplit('@').next().unwrap_or_default());
            return Err(ConnectError::Url { url, why: "credentials do not belong in it" });
        }
        if uri.path() != "/" && !uri.path().is_empty() || uri.query().is_some() {
            return Err(bad("a path or query does not belong in it; use `add_prefix` of a rule"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        match uri.scheme_str() {
            Some("http") => Ok(Endpoint::Http { host, port: authority.port_u16().unwrap_or(80) }),
            Some("https") => {
                let name = ServerName::try_from(host.clone())
                    .map_err(|_| bad("its host is neither a name nor an address"))?;
                Ok(Endpoint::Https {
                    host,
                    port: authority.port_u16().unwrap_or(443),
                    name,
                    tls: client_config()?,
                })
            }
            _ => Err(bad("its scheme is neither http nor https")),
        }
    }

    /// Whether a new connection costs next to nothing.
    pub fn is_cheap(&self) -> bool {
        !matches!(self, Endpoint::Https { .. })
    }

    /// Connects, at most for `timeout`.
    ///
    /// # Errors
    /// [`ConnectError::Io`], [`ConnectError::TimedOut`].
    /// # Cancel safety
    /// Cancel safe: a dropped call closes what it had opened.
    pub async fn connect(
        &self,
        timeout: Duration,
        shared: Rc<Shared>,
    ) -> Result<UpstreamIo, ConnectError> {
        match tokio::time::timeout(timeout, self.transport()).await {
            Ok(Ok(transport)) => Ok(UpstreamIo::new(transport, shared)),
            Ok(Err(error)) => Err(ConnectError::Io(error)),
            Err(_) => Err(ConnectError::TimedOut(timeout)),
        }
    }

    /// Connects, TLS included, and closes again: whether the store can be reached.
    ///
    /// # Errors
    /// [`ConnectError::Io`], [`ConnectError::TimedOut`].
    /// # Cancel safety
    /// Cancel safe.
    pub async fn probe(&self, timeout: Duration) -> Result<(), ConnectError> {
        match tokio::time::timeout(timeout, self.transport()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(ConnectError::Io(error)),
            Err(_) => Err(ConnectError::TimedOut(timeout)),
        }
    }

    async fn transport(&self) -> io::Result<Transport> {
        match self {
            Endpoint::Http { host, port } => Ok(Transport::Tcp(tcp(host, *port).await?)),
            Endpoint::Unix { path } => Ok(Transport::Unix(UnixStream::connect(path).await?)),
            Endpoint::Https { host, port, name, tls } => {
                let stream = tcp(host, *port).await?;
                let stream =
                    TlsConnector::from(Arc::clone(tls)).connect(name.clone(), stream).await?;
                Ok(Transport::Tls(Box::new(stream)))
            }
        }
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn client_config() -> Result<Arc<rustls::ClientConfig>, ConnectError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(ConnectError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.2 and 1.3");
    Ok(Arc::new(versions.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_scheme_host_and_port_alone() {
        for good in
            ["http://127.0.0.1:9000", "http://[::1]:9000/", "http://store", "unix:/run/s3.sock"]
        {
            assert!(Endpoint::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "127.0.0.1:9000",
            "ftp://x",
            "http://u:p@x",
            "http://x/path",
            "http://x/?q",
            "unix:s3.sock",
            "",
        ] {
            assert!(matches!(Endpoint::parse(bad), Err(ConnectError::Url { .. })), "{bad}");
        }
    }
}
