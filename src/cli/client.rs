//! The commands' HTTP client: JSON to the admin listener, over TCP or a Unix socket.
//!
//! One connection a call, nothing is retried here: which call may be repeated is for the command to say.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::address::{Place, without_wildcard};
use super::exit::Exit;

const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Longest wait for an answer that needs no wait of the server's.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Largest answer that is read whole, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// Which server, and who asks.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// The admin listener: `http://HOST:PORT` or `unix:/path`.
    #[arg(
        long,
        global = true,
        env = "FENCEGATE_SERVER",
        default_value = "http://127.0.0.1:8081",
        value_name = "URL",
        help_heading = "Server"
    )]
    pub server: String,
    /// File with the bearer token. Without it, the variable FENCEGATE_TOKEN is used if it is set.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server")]
    pub admin_token_file: Option<PathBuf>,
}

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A value that no server could take.
    #[error("{0}")]
    Usage(String),
    /// No connection: the call did not happen.
    #[error("{server} cannot be reached; check that `fencegate serve` runs there, and --server")]
    Unreachable {
        /// Which server.
        server: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Connected, sent, and no answer: the call may have happened.
    #[error(
        "{server} did not answer: the call may or may not have taken effect; see `fencegate lease show`"
    )]
    NoAnswer {
        /// Which server.
        server: String,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server said no.
    #[error("{detail}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The problem type, such as `/errors/lease-held`.
        kind: String,
        /// What happened and what to do.
        detail: String,
        /// The id to look for in the server's log.
        request_id: String,
    },
    /// A local file could not be read or written.
    #[error("{what} failed for {}", path.display())]
    File {
        /// What was done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// What was to be done here, without a server, was not done.
    #[error(transparent)]
    Local(Box<dyn std::error::Error + Send + Sync>),
}

/// A server that calls can be made to.
#[derive(Clone, Debug)]
pub struct Client {
    server: String,
    place: Place,
    bearer: Option<HeaderValue>,
}

// === impl ClientError ===

impl ClientError {
    /// The exit code that tells this failure from others.
    pub fn exit(&self) -> Exit {
        match self {
            ClientError::Usage(_) => Exit::Usage,
            ClientError::Unreachable { .. } | ClientError::NoAnswer { .. } => Exit::Unreachable,
            ClientError::File { .. } | ClientError::Local(_) => Exit::Refused,
            ClientError::Refused { status, kind, .. } => match status.as_u16() {
                400 => Exit::Usage,
                503 if !matches!(
                    kind.as_str(),
                    "/errors/draining" | "/errors/too-many-waiters" | "/errors/busy"
                ) =>
                {
                    Exit::Unreachable
                }
                500 | 502 | 504 => Exit::Unreachable,
                _ => Exit::Refused,
            },
        }
    }

    /// Prints it with its causes to stderr, and tells the exit code.
    pub fn report(&self) -> Exit {
        eprintln!("fencegate: {}", printable(&crate::telemetry::log::chain(self)));
        if let ClientError::Refused { request_id, .. } = self
            && !request_id.is_empty()
        {
            eprintln!("  request {}", printable(request_id));
        }
        if let ClientError::Refused { kind, .. } = self
            && kind == "/errors/lease-held"
        {
            eprintln!("  to wait for it: --wait, such as --wait 30s");
        }
        self.exit()
    }
}

// === impl Client ===

impl Client {
    /// Reads the arguments and the credential; connects to nothing yet.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for an address of another shape, [`ClientError::File`] for the token file.
    pub fn new(args: &ServerArgs) -> Result<Client, ClientError> {
        let place = Place::parse(&args.server)?;
        let token = match &args.admin_token_file {
            Some(path) => Some(std::fs::read(path).map_err(|cause| ClientError::File {
                what: "reading the admin token",
                path: path.clone(),
                cause,
            })?),
            None => std::env::var("FENCEGATE_TOKEN").ok().map(String::into_bytes),
        };
        let bearer = match token.as_deref().map(<[u8]>::trim_ascii_end) {
            None | Some([]) => None,
            Some(token) => {
                let text = [b"Bearer ".as_slice(), token].concat();
                let mut bearer = HeaderValue::from_bytes(&text).map_err(|_| {
                    ClientError::Usage("the admin token has bytes that no header may have".into())
                })?;
                bearer.set_sensitive(true);
                Some(bearer)
            }
        };
        Ok(Client { server: args.server.clone(), place, bearer })
    }

    /// The host of the server's URL; `None` for a Unix socket.
    pub fn host(&self) -> Option<&str> {
        match &self.place {
            Place::Tcp { host, .. } => Some(host),
            Place::Unix(_) => None,
        }
    }

    /// GETs a JSON answer.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` for every status but 2xx.
    pub async fn get(&self, target: &str) -> Result<Value, ClientError> {
        self.json(Method::GET, target, None, ANSWER_TIME).await
    }

    /// POSTs a JSON body; an empty answer is `null`.
    ///
    /// # Errors
    /// [`ClientError`]; `NoAnswer` means that the call may have happened.
    /// # Cancel safety
    /// Not cancel safe: a dropped call may have happened.
    pub async fn post(
        &self,
        target: &str,
        body: &Value,
        answer: Duration,
    ) -> Result<Value, ClientError> {
        self.json(Method::POST, target, Some(body), answer).await
    }

    async fn json(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
        answer: Duration,
    ) -> Result<Value, ClientError> {
        let call = async {
            let response = self.send(method, target, body, &[]).await?;
            self.read(response.into_body()).await
        };
        let body =
            tokio::time::timeout(answer, call).await.map_err(|late| self.no_answer(late))??;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|fault| self.no_answer(fault))
    }

    /// Where the proxy listens, as `/readyz` says, with the server's host in place of a wildcard.
    ///
    /// # Errors
    /// [`ClientError`]; `Usage` if the server has no proxy or its address means nothing from here.
    pub async fn proxy_url(&self) -> Result<String, ClientError> {
        // A server that is not ready says where its proxy is, too.
        let body = self.readiness().await?;
        let proxy = body["proxy"].as_str().ok_or_else(|| {
            ClientError::Usage(format!(
                "{} does not say where its proxy is; give --proxy",
                self.server
            ))
        })?;
        Ok(without_wildcard(proxy, self.host().unwrap_or("127.0.0.1")))
    }

    /// What `/readyz` says, with whichever status.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn readiness(&self) -> Result<Value, ClientError> {
        let call = async {
            let response = self.exchange(Method::GET, "/readyz", None, &[]).await?;
            self.read(response.into_body()).await
        };
        let body = tokio::time::timeout(ANSWER_TIME, call)
            .await
            .map_err(|late| self.no_answer(late))??;
        serde_json::from_slice(&body).map_err(|fault| self.no_answer(fault))
    }

    /// Sends a request and returns the answer's head with its body unread; any status but 2xx is an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn send(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
        headers: &[(&'static str, &str)],
    ) -> Result<http::Response<Incoming>, ClientError> {
        let response = self.exchange(method, target, body, headers).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let problem: Value =
            serde_json::from_slice(&self.read(response.into_body()).await?).unwrap_or_default();
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let detail = match text("detail") {
            detail if detail.is_empty() => {
                format!(
                    "{} answered {status}, and not as a fencegate admin listener does; --server takes the address of `admin.listen`, not of the proxy or the store",
                    self.server
                )
            }
            detail => detail,
        };
        Err(ClientError::Refused {
            status,
            kind: text("type"),
            detail,
            request_id: text("request_id"),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
        headers: &[(&'static str, &str)],
    ) -> Result<http::Response<Incoming>, ClientError> {
        let request = self.request(method, target, body, headers)?;
        let io = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(|fault| self.no_answer(fault))?;
        // Ends with the exchange: the sender is dropped and the answer is read or dropped.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|fault| self.no_answer(fault))
    }

    fn request(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
        headers: &[(&'static str, &str)],
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let host = match &self.place {
            Place::Tcp { authority, .. } => authority,
            Place::Unix(_) => "localhost",
        };
        let mut request = Request::builder().method(method).uri(target).header(HOST, host);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        if body.is_some() {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .header(CONTENT_LENGTH, bytes.len());
        }
        request.body(Full::new(bytes)).map_err(|fault| ClientError::Usage(fault.to_string()))
    }

    async fn connect(&self) -> Result<Box<dyn Io>, ClientError> {
        let connecting = async {
            Ok::<Box<dyn Io>, std::io::Error>(match &self.place {
                Place::Tcp { host, port, .. } => {
                    let bare = host.trim_start_matches('[').trim_end_matches(']');
                    Box::new(TcpStream::connect((bare, *port)).await?)
                }
                Place::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        };
        let connected = tokio::time::timeout(CONNECT_TIME, connecting)
            .await
            .unwrap_or_else(|late| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, late)));
        connected.map_err(|cause| ClientError::Unreachable { server: self.server.clone(), cause })
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, ClientError> {
        let limited = http_body_util::Limited::new(body, MAX_ANSWER);
        let collected = limited.collect().await;
        Ok(collected
            .map_err(|cause| ClientError::NoAnswer { server: self.server.clone(), cause })?
            .to_bytes())
    }

    /// The call was sent, and its answer was lost.
    pub fn no_answer(&self, cause: impl std::error::Error + Send + Sync + 'static) -> ClientError {
        ClientError::NoAnswer { server: self.server.clone(), cause: Box::new(cause) }
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Runs a command's calls to their end on a runtime of its own, and reports how they went.
pub fn block_on(command: impl Future<Output = Result<(), ClientError>>) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("fencegate: no runtime: {error}; check the limit of open files");
            return Exit::Unreachable;
        }
    };
    match runtime.block_on(command) {
        Ok(()) => Exit::Done,
        Err(error) => error.report(),
    }
}

/// `name=value` for a query, with everything but unreserved characters encoded.
pub fn query(pairs: &[(&str, Option<&str>)]) -> String {
    const RESERVED: percent_encoding::AsciiSet = percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b'/');
    let pairs = pairs.iter().filter_map(|(name, value)| {
        value.map(|value| {
            format!("{name}={}", percent_encoding::utf8_percent_encode(value, &RESERVED))
        })
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Text of the server that goes to a terminal: without control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_exit_codes() {
        let cases = [
            (423, "/errors/lease-held", Exit::Refused),
            (412, "/errors/lease-lost", Exit::Refused),
            (401, "/errors/unauthorized", Exit::Refused),
            (404, "/errors/never-leased", Exit::Refused),
            (503, "/errors/draining", Exit::Refused),
            (503, "/errors/lease-unknown", Exit::Unreachable),
            (503, "/errors/shutting-down", Exit::Unreachable),
            (502, "", Exit::Unreachable),
            (400, "/errors/invalid-request", Exit::Usage),
        ];
        for (status, kind, want) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let (detail, request_id) = (String::new(), String::new());
            let error = ClientError::Refused { status, kind: kind.into(), detail, request_id };
            assert_eq!(error.exit(), want, "{status} {kind}");
        }
    }

    #[test]
    fn query_values_are_encoded() {
        let text = query(&[("resource", Some("a b&c=d/é")), ("after", None), ("limit", Some("5"))]);
        assert_eq!(text, "resource=a%20b%26c%3Dd/%C3%A9&limit=5");
    }
}
