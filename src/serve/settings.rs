//! What `[proxy]` (its listeners) and `[admin]` say.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::units::Span;
use crate::store::secret::SecretSource;

/// One address or several: `"127.0.0.1:8080"`, `"[::1]:8080"`, `"unix:/run/fencegate/s3.sock"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Listen {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Listen {
    /// The addresses, in order.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Listen::One(address) => std::slice::from_ref(address),
            Listen::Several(addresses) => addresses,
        }
    }
}

/// One parsed address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// `127.0.0.1:8080`, `[::1]:8080`; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// `unix:/run/fencegate/s3.sock`, always absolute.
    Unix(PathBuf),
}

impl Address {
    /// Reads an address; `None` if it is neither an IP address and a port nor `unix:` and an absolute path.
    pub fn parse(text: &str) -> Option<Address> {
        match text.strip_prefix("unix:") {
            Some(path) => {
                (path.len() > 1 && path.starts_with('/')).then(|| Address::Unix(path.into()))
            }
            None => text.parse().ok().map(Address::Tcp),
        }
    }

    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        }
    }

    /// Whether it stands for every address of the machine.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Address::Tcp(address) if address.ip().to_canonical().is_unspecified())
    }
}

/// The listening side of `[proxy]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// Where clients connect.
    pub listen: Listen,
    /// Longest time between the signal to stop and the end.
    pub shutdown_timeout: Span,
}

/// `[admin]`: the lease API, health and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSettings {
    /// Where it listens. Without tokens only loopback addresses and Unix sockets are allowed.
    pub listen: Listen,
    /// Bearer tokens; any of them opens everything.
    pub tokens: Vec<SecretSource>,
}

impl Default for AdminSettings {
    fn default() -> AdminSettings {
        AdminSettings { listen: Listen::One("127.0.0.1:8081".into()), tokens: Vec::new() }
    }
}

/// Default of `shutdown_timeout`: below the 30 s after which most service managers kill.
pub const SHUTDOWN_TIMEOUT: Span = Span(Duration::from_secs(25));
