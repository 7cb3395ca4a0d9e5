//! What the handlers work on: the lease backend, the fences, readiness, and the seams to the rest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::core::{Resource, Token};
use crate::lease::{LeaseBackend, LeaseEvent};
use crate::pipeline::fence::{FenceView, Fences};
use crate::pipeline::refusal::Refusal;
use crate::store::secret::Secret;
use crate::telemetry::metrics::Metrics;

/// What of the fences the admin side uses. [`Fences`] is the one that serves.
pub trait FenceControl: Send + Sync + 'static {
    /// See [`Fences::barrier`].
    ///
    /// # Errors
    /// The refusal that a write with this token would get.
    fn barrier(
        &self,
        resource: &Resource,
        token: Token,
        wait: Duration,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// See [`Fences::show`].
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger cannot be read.
    fn show(&self, resource: &Resource) -> impl Future<Output = Result<FenceView, Refusal>> + Send;

    /// See [`Fences::settle`].
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger did not take it.
    fn settle(&self, resource: &Resource) -> impl Future<Output = Result<usize, Refusal>> + Send;

    /// See [`Fences::reopen`].
    fn reopen(&self, resource: &Resource);

    /// See [`Fences::busy`].
    fn busy(&self, limit: usize) -> Vec<FenceView>;
}

/// Events that happened, and those to come.
pub struct Subscription {
    /// Events after the one asked for, oldest first.
    pub backlog: Vec<LeaseEvent>,
    /// Whether some after the one asked for are no longer known.
    pub gap: bool,
    /// What happens from now on; filtered by prefix once more before it goes out.
    pub live: broadcast::Receiver<LeaseEvent>,
}

/// Subscribes to lease events of names that start with a prefix, after an event id.
pub type Subscribe = dyn Fn(&str, Option<u64>) -> Subscription + Send + Sync;

/// Writes a consistent copy of the ledger and opens it at its start. Blocking; called on a thread
/// for that. The file should have no name any more, so that nothing is left behind.
pub type BackupSource = dyn Fn() -> io::Result<std::fs::File> + Send + Sync;

/// What the service says of itself in `/v1/status`: rules, levels, marks.
pub type StatusSource = dyn Fn() -> serde_json::Value + Send + Sync;

/// How backends and stores are; may have to ask them first.
pub type BackendSource = dyn Fn() -> BoxFuture<'static, serde_json::Value> + Send + Sync;

/// What an [`AdminState`] is made of.
pub struct Parts<B, F> {
    /// The lease backend.
    pub lease: Arc<B>,
    /// The fences.
    pub fences: Arc<F>,
    /// What a reload may change.
    pub reloadable: Reloadable,
    /// The addresses of `[admin] listen`, as written: `Host` may name them.
    pub listen: Vec<String>,
    /// What `/readyz` says.
    pub readiness: Readiness,
    /// What `/metrics` says.
    pub metrics: Arc<Metrics>,
    /// The events of `/v1/leases/watch`; `None`: 404.
    pub subscribe: Option<Arc<Subscribe>>,
    /// The copy of `/v1/fence/backup`; `None`: 404.
    pub backup: Option<Arc<BackupSource>>,
    /// The rest of `/v1/status`.
    pub status: Arc<StatusSource>,
    /// How backends and stores are, for `/readyz`. Anyone may read it: no names, no addresses.
    pub health: Arc<StatusSource>,
    /// The same for `/v1/status`, in full.
    pub backends: Arc<BackendSource>,
}

/// Shared by all handlers; cheap to clone.
pub struct AdminState<B, F = Fences>(Arc<Inner<B, F>>);

struct Inner<B, F> {
    parts: Parts<B, F>,
    reloaded: ArcSwap<Reloadable>,
    /// Marks the event ids of this process: another process counts from 1 again.
    stream: String,
}

/// What a reload of the configuration may change.
#[derive(Clone)]
pub struct Reloadable {
    /// Bearer tokens; any of them opens everything. Empty: only loopback and Unix peers.
    pub tokens: Vec<Secret>,
    /// Longest wait of a barrier: `[fence] drain_wait`.
    pub drain_wait: Duration,
}

/// Whether the process may be sent work: what `/readyz` answers. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Readiness(Arc<watch::Sender<Ready>>);

/// The parts of readiness. Backends and stores are no part of it: their hiccup must not stop renewals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ready {
    /// The configuration was read and is valid.
    pub configured: bool,
    /// The ledger's file is open and its lock is ours.
    pub ledger_open: bool,
    /// Every listener is bound.
    pub bound: bool,
    /// Told to stop.
    pub draining: bool,
    /// The first `[proxy] listen` address as a URL; a wildcard address stays one.
    pub proxy: Option<String>,
}

// === impl FenceControl ===

impl FenceControl for Fences {
    fn barrier(
        &self,
        resource: &Resource,
        token: Token,
        wait: Duration,
    ) -> impl Future<Output = Result<(), Refusal>> + Send {
        Fences::barrier(self, resource, token, wait)
    }

    fn show(&self, resource: &Resource) -> impl Future<Output = Result<FenceView, Refusal>> + Send {
        Fences::show(self, resource)
    }

    fn settle(&self, resource: &Resource) -> impl Future<Output = Result<usize, Refusal>> + Send {
        Fences::settle(self, resource)
    }

    fn reopen(&self, resource: &Resource) {
        Fences::reopen(self, resource);
    }

    fn busy(&self, limit: usize) -> Vec<FenceView> {
        Fences::busy(self, limit)
    }
}

// === impl AdminState ===

impl<B: LeaseBackend, F: FenceControl> AdminState<B, F> {
    /// The state of one process.
    pub fn new(parts: Parts<B, F>) -> AdminState<B, F> {
        let reloaded = ArcSwap::from_pointee(parts.reloadable.clone());
        AdminState(Arc::new(Inner { parts, reloaded, stream: random_id() }))
    }

    /// Changes what may change; requests that have begun go on with what they began with.
    pub fn reload(&self, reloadable: Reloadable) {
        self.0.reloaded.store(Arc::new(reloadable));
    }
}

impl<B, F> Clone for AdminState<B, F> {
    fn clone(&self) -> AdminState<B, F> {
        AdminState(self.0.clone())
    }
}

impl<B, F> std::ops::Deref for AdminState<B, F> {
    type Target = Parts<B, F>;

    fn deref(&self) -> &Parts<B, F> {
        &self.0.parts
    }
}

impl<B, F> AdminState<B, F> {
    /// What holds for a request that begins now.
    pub(super) fn now(&self) -> Arc<Reloadable> {
        self.0.reloaded.load_full()
    }

    pub(super) fn stream(&self) -> &str {
        &self.0.stream
    }
}

// === impl Readiness ===

impl Default for Readiness {
    fn default() -> Readiness {
        Readiness(Arc::new(watch::Sender::new(Ready::default())))
    }
}

impl Readiness {
    /// Changes it: `readiness.set(|ready| ready.bound = true)`.
    pub fn set(&self, change: impl FnOnce(&mut Ready)) {
        self.0.send_modify(change);
    }

    /// What it is now.
    pub fn get(&self) -> Ready {
        self.0.borrow().clone()
    }

    /// Returns when the process was told to stop. Cancel safe.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ready = self.0.subscribe();
        async move {
            if ready.wait_for(|ready| ready.draining).await.is_err() {
                // Nobody is left to tell: this process is being torn down.
            }
        }
    }
}

impl Ready {
    /// Whether `/readyz` answers 200.
    pub fn is_ready(&self) -> bool {
        self.configured && self.ledger_open && self.bound && !self.draining
    }
}

/// 64 random bits in hex: unique enough to find one request in a log.
pub(super) fn random_id() -> String {
    let mut bytes = [0; 8];
    // The kernel's generator does not fail once it is seeded, and this runs long after boot.
    getrandom::fill(&mut bytes).expect("the kernel has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
