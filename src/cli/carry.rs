//! How a command gets its token: the sidecar that adds it, and the variables that say where that is.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;

use super::client::{Client, ClientError};
use crate::core::{Millis, Resource, Token};
use crate::pipeline::upstream::Endpoint;
use crate::serve::sidecar::{Bound, Carrying, Until};

/// Where the sidecar is and what it forwards to.
#[derive(Args, Clone, Debug)]
pub struct CarryArgs {
    /// The proxy: `http://HOST:PORT`, `https://HOST` or `unix:/path` (default: as the server says).
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// Where the sidecar listens (default: a free port of 127.0.0.1).
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Set a variable of the command; {proxy} becomes the sidecar's URL, {token} the token.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
}

/// Variables of a command: names and values.
pub type Variables = Vec<(OsString, OsString)>;

/// A sidecar that has its address and knows where to forward, but no token yet.
pub struct Ready {
    bound: Bound,
    endpoint: Endpoint,
    env: Vec<(String, String)>,
}

// === impl CarryArgs ===

impl CarryArgs {
    /// Binds the sidecar and finds the proxy.
    ///
    /// # Errors
    /// [`ClientError`] for an address that is taken, not on loopback, or no address, and if the server does not
    /// say where its proxy is.
    pub async fn ready(&self, client: &Client) -> Result<Ready, ClientError> {
        let listen = self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        if !listen.ip().to_canonical().is_loopback() {
            return Err(ClientError::Usage(format!(
                "--listen {listen}: whoever reaches the sidecar writes with its token, so it listens on loopback only"
            )));
        }
        let mut env = Vec::new();
        for pair in &self.env {
            match pair.split_once('=') {
                Some((name, value)) if !name.is_empty() => env.push((name.into(), value.into())),
                _ => return Err(ClientError::Usage(format!("--env {pair:?}: write NAME=VALUE"))),
            }
        }
        let bound = Bound::bind(listen).map_err(|cause| {
            ClientError::Usage(format!("the sidecar cannot listen on {listen}: {cause}"))
        })?;
        let proxy = match &self.proxy {
            Some(proxy) => proxy.clone(),
            None => client.proxy_url().await?,
        };
        let endpoint = Endpoint::parse(&proxy).map_err(|fault| {
            ClientError::Usage(format!(
                "--proxy: {}",
                crate::telemetry::log::chain(&fault).replace("of a store", "of a proxy")
            ))
        })?;
        Ok(Ready { bound, endpoint, env })
    }
}

// === impl Ready ===

impl Ready {
    /// Starts the sidecar; the variables for the command.
    ///
    /// * `resource` — known under `run` only.
    /// * `until` — from then on everything is refused.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn start(
        self,
        token: Token,
        resource: Option<&Resource>,
        until: Millis,
    ) -> std::io::Result<(Arc<Until>, Variables)> {
        let url = format!("http://{}", self.bound.address());
        let until = Arc::new(Until::new(until));
        let mut env: Variables = vec![
            ("FENCING_TOKEN".into(), token.to_string().into()),
            ("FENCEGATE_PROXY".into(), (&url).into()),
        ];
        if let Some(resource) = resource {
            env.push(("FENCING_RESOURCE".into(), resource.as_str().into()));
        }
        for (name, value) in self.env {
            let value = value.replace("{proxy}", &url).replace("{token}", &token.to_string());
            env.push((name.into(), value.into()));
        }
        self.bound.serve(Carrying {
            endpoint: self.endpoint,
            token,
            resource: resource.cloned(),
            until: Arc::clone(&until),
        })?;
        Ok((until, env))
    }
}
