//! Who may call: peers, bearer tokens, and what keeps web pages out of a loopback API.
//!
//! A browser on this machine can be made to send requests here by any page it shows. Three things
//! stop that: `Origin` must be ours, `Host` must be a name that an attacker cannot point at
//! loopback (DNS rebinding), and a body must be JSON, which a page cannot post elsewhere unasked.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use super::problem::Problem;
use super::state::{AdminState, FenceControl};
use crate::lease::LeaseBackend;
use crate::serve::settings::AdminSettings;
use crate::store::secret::Secret;

/// Where a request came from. Whoever accepts the connection puts it into the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP, from this address.
    Tcp(SocketAddr),
    /// Over a Unix socket: the file's permissions say who may.
    Unix,
    /// Not known. Trusted with nothing.
    Unknown,
}

/// A caller that the guard let pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// Where it is.
    pub(super) peer: Peer,
    /// Whether it showed a bearer token.
    pub(super) bearer: bool,
}

/// Why `[admin]` would let strangers in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "admin.listen = {address:?} is not loopback and admin.tokens is empty: anyone could take and release leases; set admin.tokens or listen on 127.0.0.1"
)]
pub struct Exposed {
    /// The address, as written.
    pub address: String,
}

/// Refuses an admin listener that strangers could reach without a credential.
///
/// # Errors
/// [`Exposed`] names the first address that is neither loopback nor a Unix socket while there are no
/// tokens. A host name other than `localhost` counts as reachable: nobody knows what it resolves to.
pub fn check_exposure(settings: &AdminSettings) -> Result<(), Exposed> {
    if !settings.tokens.is_empty() {
        return Ok(());
    }
    for address in settings.listen.as_slice() {
        let host = host_of(address);
        let is_local = address.starts_with("unix:")
            || host.eq_ignore_ascii_case("localhost")
            || ip_of(host).is_some_and(is_loopback);
        if !is_local {
            return Err(Exposed { address: address.clone() });
        }
    }
    Ok(())
}

/// The layer in front of every handler.
pub(super) async fn guard<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Unknown);
    match admit(peer, &request, &state.now().tokens, &state.listen) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => {
            tracing::info!(
                %peer,
                method = %request.method(),
                path = request.uri().path(),
                status = problem.status.as_u16(),
                "admin request refused"
            );
            problem.into_response()
        }
    }
}

fn admit(
    peer: Peer,
    request: &Request,
    tokens: &[Secret],
    listen: &[String],
) -> Result<Caller, Problem> {
    let headers = request.headers();
    let path = request.uri().path();
    let host = host(request)?;
    let rebindable = tokens.is_empty() || (path == "/" && peer.is_local());
    let is_probe = matches!(path, "/healthz" | "/readyz" | "/metrics" | "/openapi.json");
    // A browser cannot reach a Unix socket, so its Host means nothing.
    if rebindable && !is_probe && peer != Peer::Unix && !is_ours(host, listen) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "misdirected",
            "not this host",
            "Host names neither an IP address, localhost nor admin.listen; call the server by one of these",
        ));
    }
    if !origin_is_ours(headers, host) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "foreign-origin",
            "foreign origin",
            "the request comes from a web page of another origin; this API is not for those",
        ));
    }
    let bearer = bearer(headers).is_some_and(|shown| matches_any(tokens, shown));
    let caller = Caller { peer, bearer };
    if is_probe || path == "/" {
        return Ok(caller);
    }
    if tokens.is_empty() {
        if peer.is_local() {
            return Ok(caller);
        }
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "not from this machine",
            "no admin.tokens are configured, so only this machine may call; set them to call from elsewhere",
        ));
    }
    if bearer {
        return Ok(caller);
    }
    Err(Problem::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "no valid credential",
        "send `Authorization: Bearer TOKEN` with one of admin.tokens (--admin-token-file or FENCEGATE_TOKEN)",
    ))
}

// === impl Peer ===

impl Peer {
    /// Whether only this machine's users can be behind it.
    pub fn is_local(self) -> bool {
        match self {
            Peer::Tcp(address) => is_loopback(address.ip()),
            Peer::Unix => true,
            Peer::Unknown => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}

// === impl Caller ===

impl Caller {
    /// Whether it may be told tokens.
    pub(super) fn may_see_tokens(self) -> bool {
        self.bearer || self.peer.is_local()
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The one Host of a request, which an absolute target must repeat.
fn host(request: &Request) -> Result<&str, Problem> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::invalid("the request needs exactly one Host"));
    };
    let host = host.to_str().map_err(|_| Problem::invalid("Host is not a host name"))?;
    match request.uri().authority() {
        Some(authority) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(Problem::invalid("the target names another host than Host"))
        }
        _ => Ok(host),
    }
}

/// Whether no attacker can have made a browser send this Host to a loopback address.
fn is_ours(host: &str, listen: &[String]) -> bool {
    let name = host_of(host).trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || ip_of(name).is_some()
        || listen.iter().any(|address| {
            !address.starts_with("unix:") && host_of(address).eq_ignore_ascii_case(name)
        })
}

/// Whether there is no Origin, or the one that a page of ours has.
fn origin_is_ours(headers: &HeaderMap, host: &str) -> bool {
    headers.get_all(ORIGIN).iter().all(|origin| {
        let authority = origin.to_str().ok().and_then(|text| {
            text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))
        });
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    })
}

/// `example:80` to `example`, `[::1]:80` to `[::1]`.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

fn ip_of(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

/// What follows `Bearer` in the one Authorization header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, rest) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
}

/// Compares with every token, so that the time taken does not tell which one was close.
fn matches_any(tokens: &[Secret], shown: &[u8]) -> bool {
    tokens.iter().fold(false, |found, token| token.matches(shown) | found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::Listen;
    use crate::store::secret::SecretSource;

    #[test]
    fn hosts_that_dns_can_rebind_are_not_ours() {
        let listen = ["admin.internal:8081".to_owned(), "unix:/run/x.sock".to_owned()];
        let cases = [
            ("127.0.0.1:8081", true),
            ("127.0.0.1", true),
            ("[::1]:8081", true),
            ("localhost:8081", true),
            ("LOCALHOST", true),
            ("localhost.", true),
            ("admin.internal:9", true),
            ("evil.example:8081", false),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("unix:/run/x.sock", false),
            ("", false),
        ];
        for (host, want) in cases {
            assert_eq!(is_ours(host, &listen), want, "{host:?}");
        }
    }

    #[test]
    fn a_listener_that_strangers_reach_needs_tokens() {
        let cases = [
            ("127.0.0.1:8081", true),
            ("[::1]:8081", true),
            ("localhost:8081", true),
            ("unix:/run/admin.sock", true),
            ("0.0.0.0:8081", false),
            ("[::]:8081", false),
            ("10.0.0.1:8081", false),
            ("admin.internal:8081", false),
        ];
        for (address, local) in cases {
            let listen = Listen::Several(vec!["127.0.0.1:1".into(), address.into()]);
            let mut settings = AdminSettings { listen, tokens: Vec::new() };
            assert_eq!(check_exposure(&settings).is_ok(), local, "{address}");
            settings.tokens.push(SecretSource::Text("s".into()));
            assert_eq!(check_exposure(&settings), Ok(()), "{address}");
        }
    }

    #[test]
    fn an_ipv4_peer_on_a_dual_stack_socket_is_judged_by_its_ipv4_address() {
        for (address, want) in
            [("[::ffff:127.0.0.1]:1", true), ("[::ffff:10.0.0.1]:1", false), ("[::1]:1", true)]
        {
            assert_eq!(Peer::Tcp(address.parse().unwrap()).is_local(), want, "{address}");
        }
    }
}
