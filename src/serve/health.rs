//! Whether the lease backend and the stores answer: asked for when somebody wants to know, remembered for
//! a few seconds. Never a reason to be not ready: a store's hiccup must not stop renewals.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::Shared;
use crate::core::Millis;
use crate::lease::{AnyLease, LeaseBackend};
use crate::pipeline::settings::StoreKind;
use crate::telemetry::clock;
use crate::telemetry::log::chain;

/// What was seen is told for this long before it is looked for again.
const FRESH: Duration = Duration::from_secs(5);

/// Longest time for one probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks after backends and stores. Cheap to clone.
#[derive(Clone)]
pub(super) struct Health(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    lease: AnyLease,
    seen: Mutex<Option<Seen>>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Seen {
    at: Millis,
    lease: Probe,
    stores: Vec<StoreProbe>,
}

/// How one of them was.
#[derive(Clone, Serialize)]
struct Probe {
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Up,
    Down,
}

#[derive(Clone, Serialize)]
struct StoreProbe {
    /// Its name in the file: `upstream`, or what follows `upstreams.`
    name: String,
    kind: StoreKind,
    url: String,
    #[serde(flatten)]
    probe: Probe,
}

// === impl Health ===

impl Health {
    pub fn new(shared: Arc<Shared>, lease: AnyLease) -> Health {
        let (seen, looking) = (Mutex::default(), tokio::sync::Mutex::default());
        Health(Arc::new(Inner { shared, lease, seen, looking }))
    }

    /// Everything, for operators. Waits for a look, unless the last one is fresh.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn told(&self) -> Value {
        let seen = self.look().await;
        json!({ "lease": seen.lease, "stores": seen.stores, "age_ms": seen.age() })
    }

    /// What anyone may know: no names, no addresses. At once, from the last look; begins another one
    /// if that is not fresh any more.
    pub fn counted(&self) -> Value {
        let seen = self.seen();
        if !seen.as_ref().is_some_and(Seen::is_fresh) {
            let health = self.clone();
            tokio::spawn(async move { drop(health.look().await) });
        }
        let stores = seen.iter().flat_map(|seen| &seen.stores);
        let up = stores.clone().filter(|store| store.probe.state == State::Up).count();
        json!({
            "lease": seen.as_ref().map(|seen| seen.lease.state),
            "stores_up": up,
            "stores_down": stores.count() - up,
            "age_ms": seen.as_ref().map(Seen::age),
        })
    }

    fn seen(&self) -> Option<Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn look(&self) -> Seen {
        let _one = self.0.looking.lock().await;
        if let Some(seen) = self.seen().filter(Seen::is_fresh) {
            return seen;
        }
        let rules = self.0.shared.pipeline.rules.load_full();
        let stores = rules.stores().map(|(name, store)| async move {
            let answer = store.endpoint.probe(PATIENCE.min(store.connect_timeout)).await;
            let probe = Probe::of(answer.err().map(|error| chain(&error)));
            let (name, kind, url) = (name.to_owned(), store.kind, store.url().to_owned());
            StoreProbe { name, kind, url, probe }
        });
        let (lease, stores) =
            tokio::join!(self.ask_lease(), futures_util::future::join_all(stores));
        let seen = Seen { at: clock::monotonic(), lease, stores };
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen.clone());
        seen
    }

    async fn ask_lease(&self) -> Probe {
        let answer = tokio::time::timeout(PATIENCE, self.0.lease.list("", None, 1)).await;
        Probe::of(match answer {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some(format!("no answer within {PATIENCE:?}")),
        })
    }
}

// === impl Seen ===

impl Seen {
    fn is_fresh(&self) -> bool {
        self.at.until(clock::monotonic()) < FRESH
    }

    fn age(&self) -> u64 {
        u64::try_from(self.at.until(clock::monotonic()).as_millis()).unwrap_or(u64::MAX)
    }
}

// === impl Probe ===

impl Probe {
    fn of(error: Option<String>) -> Probe {
        let state = if error.is_none() { State::Up } else { State::Down };
        Probe { state, error }
    }
}
