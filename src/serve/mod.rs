//! L3: the running server: its threads, its listeners, its end.
//!
//! The calling thread is the control thread: signals, timers of the fences, the admin side. Each further
//! thread serves clients with a runtime, a listener (SO_REUSEPORT) and upstream connections of its own; only
//! the fences are shared.

mod accept;
pub mod admin;
mod client_io;
mod control;
mod health;
mod leftovers;
mod open;
mod reload;
pub mod settings;
pub mod sidecar;

use std::sync::Arc;

use crate::core::rules::RuleTable;
use crate::pipeline::settings::{PipelineSettings, UpstreamSettings};
use crate::{lease, ledger};

pub use control::run;
pub use open::OpenError;

/// Everything the configuration says to a server.
pub struct Setup {
    /// What the request path needs.
    pub pipeline: PipelineSettings,
    /// The compiled rules, in the order of `pipeline.rules`.
    pub rules: RuleTable,
    /// U3 of a store: nothing remains of an upload that was cut.
    pub discards_torn: fn(&UpstreamSettings) -> bool,
    /// Where clients connect.
    pub proxy: settings::ProxySettings,
    /// Where the lease API listens.
    pub admin: settings::AdminSettings,
    /// Who keeps the leases.
    pub lease: lease::Config,
    /// Who keeps marks and permits.
    pub ledger: ledger::Config,
    /// The rules with their levels, for `/v1/status`.
    pub rules_status: serde_json::Value,
}

/// Reads the configuration again; the text is what is wrong with it.
pub type Load = dyn Fn() -> Result<Setup, String> + Send + Sync;

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything in flight was finished.
    Drained,
    /// The time for that was over, or a second signal came.
    Cut,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A file or service could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The rules cannot be used.
    #[error("the rules cannot be used")]
    Rules(#[from] crate::pipeline::rules::RuleSetError),
    /// A listener of the proxy.
    #[error("proxy.listen = {address:?} cannot be bound; check that it is free and may be used")]
    Bind {
        /// The address, as written.
        address: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A listener of the admin side.
    #[error(transparent)]
    Admin(#[from] admin::listen::BindError),
    /// The admin side would be open to the network.
    #[error(transparent)]
    Exposed(#[from] admin::guard::Exposed),
    /// A secret of the admin side.
    #[error("a token of [admin] cannot be read")]
    Secret {
        /// Why.
        #[source]
        cause: crate::store::secret::SecretError,
    },
    /// A thread or runtime could not be made.
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
}

/// The exit code after a second signal.
const EXIT_CUT: i32 = 1;

/// A way to hear that the server should stop, shared by its threads.
type Stop = tokio::sync::watch::Receiver<bool>;

/// The guards of the protocol. A build that exists to see tests fail can switch one off.
fn guards() -> (crate::core::gate::Guards, bool) {
    let all = crate::core::gate::Guards::ALL;
    #[cfg(feature = "must-fail")]
    if let Ok(broken) = std::env::var("FENCEGATE_BREAK") {
        tracing::error!(
            broken,
            "a guard of the protocol is switched off: this program must not serve anything"
        );
        return match broken.as_str() {
            "drain" => (crate::core::gate::Guards { drain: false, ..all }, true),
            "look" => (crate::core::gate::Guards { look: false, ..all }, true),
            "tail" => (crate::core::gate::Guards { commit_check: false, ..all }, false),
            _ => (all, true),
        };
    }
    (all, true)
}

/// Shared state of the control thread and the reload.
struct Shared {
    pipeline: Arc<crate::pipeline::Pipeline>,
    status_rules: arc_swap::ArcSwap<serde_json::Value>,
}
