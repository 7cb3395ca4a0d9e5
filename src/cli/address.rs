//! Addresses of servers as written on the command line, and of the proxy as the server says it.

use std::path::PathBuf;

use super::client::ClientError;

/// Where an admin listener is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// `http://HOST:PORT`.
    Tcp { authority: String, host: String, port: u16 },
    /// `unix:/path`.
    Unix(PathBuf),
}

// === impl Place ===

impl Place {
    /// Reads what `--server` says.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if it is neither.
    pub(super) fn parse(server: &str) -> Result<Place, ClientError> {
        if let Some(path) = server.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Place::Unix(path.into()));
        }
        let fault = || {
            ClientError::Usage(format!(
                "{server:?} is not a server address; write http://HOST:PORT or unix:/path"
            ))
        };
        let authority = server.strip_prefix("http://").ok_or_else(fault)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let parsed: http::uri::Authority = authority.parse().map_err(|_| fault())?;
        if authority.contains('@') || parsed.host().is_empty() {
            return Err(fault());
        }
        let port = match parsed.port() {
            Some(port) => port.as_u16(),
            None if authority == parsed.host() => 80,
            None => return Err(fault()),
        };
        Ok(Place::Tcp { authority: authority.into(), host: parsed.host().into(), port })
    }
}

/// `http://0.0.0.0:8080` as seen from a machine that knows the server as `host`.
pub(super) fn without_wildcard(url: &str, host: &str) -> String {
    for wildcard in ["http://0.0.0.0", "https://0.0.0.0", "http://[::]", "https://[::]"] {
        if let Some(rest) = url.strip_prefix(wildcard)
            && (rest.is_empty() || rest.starts_with([':', '/']))
        {
            let scheme = wildcard.split("//").next().unwrap_or("http:");
            return format!("{scheme}//{host}{rest}");
        }
    }
    url.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_http_with_host_and_port_or_a_unix_path() {
        let cases = [
            ("http://127.0.0.1:8081", Some(("127.0.0.1", 8081))),
            ("http://[::1]:8081/", Some(("[::1]", 8081))),
            ("http://admin.internal", Some(("admin.internal", 80))),
            ("https://127.0.0.1:8081", None),
            ("127.0.0.1:8081", None),
            ("http://", None),
            ("http://a:b@c:1", None),
            ("http://a:99999", None),
            ("http://a:1/path", None),
            ("unix:", None),
        ];
        for (server, want) in cases {
            let got = match Place::parse(server) {
                Ok(Place::Tcp { host, port, .. }) => Some((host, port)),
                Ok(Place::Unix(path)) => panic!("{path:?}"),
                Err(_) => None,
            };
            assert_eq!(got.as_ref().map(|(host, port)| (host.as_str(), *port)), want, "{server}");
        }
        assert!(
            matches!(Place::parse("unix:/run/x"), Ok(Place::Unix(path)) if path.as_os_str() == "/run/x")
        );
    }

    #[test]
    fn a_wildcard_proxy_address_becomes_the_servers_host() {
        let cases = [
            ("http://0.0.0.0:8080", "http://h:8080"),
            ("https://[::]:8080", "https://h:8080"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://0.0.0.0.example:8080", "http://0.0.0.0.example:8080"),
        ];
        for (url, want) in cases {
            assert_eq!(without_wildcard(url, "h"), want);
        }
    }
}
