//! Test doubles of the two contracts the admin side stands on, and a listener that runs on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use super::guard::Peer;
use super::{
    AdminListener, AdminState, FenceControl, Parts, Readiness, Reloadable, Subscription, listen,
    router,
};
use crate::core::lease::Validation;
use crate::core::{Holder, Resource, Token};
use crate::lease::{Ask, Change, Grade, Grant, LeaseBackend, LeaseError, LeaseEvent, LeaseView};
use crate::pipeline::fence::FenceView;
use crate::pipeline::refusal::Refusal;
use crate::store::secret::SecretSource;
use crate::telemetry::metrics::Metrics;

/// Makes the error that a broken backend answers with.
pub(crate) type Fault = fn(&Resource) -> LeaseError;

/// Leases in memory.
#[derive(Default)]
pub(crate) struct Leases {
    rows: Mutex<BTreeMap<Resource, Row>>,
    changed: Notify,
    /// Calls that wait for another holder.
    pub(crate) waiting: AtomicUsize,
    /// Every call fails like this.
    pub(crate) broken: Mutex<Option<Fault>>,
}

struct Row {
    holder: Holder,
    token: Token,
    ttl: Duration,
    ends: Instant,
    released: bool,
    request_id: Option<String>,
}

/// A fence that does what it is told.
#[derive(Default)]
pub(crate) struct Gate {
    /// What a barrier answers; `None`: it ends at once.
    pub(crate) refusal: Mutex<Option<Refusal>>,
    /// The barriers asked for.
    pub(crate) barriers: Mutex<Vec<(Resource, Token, Duration)>>,
    pub(crate) mark: Mutex<Option<Token>>,
    pub(crate) settled: AtomicUsize,
    pub(crate) reopened: AtomicUsize,
}

/// A running admin listener.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) leases: Arc<Leases>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) readiness: Readiness,
    pub(crate) state: AdminState<Leases, Gate>,
    pub(crate) events: broadcast::Sender<LeaseEvent>,
    pub(crate) stop: Arc<Notify>,
    pub(crate) running: tokio::task::JoinHandle<()>,
}

struct Waiter<'a>(&'a AtomicUsize);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

// === impl Leases ===

impl Leases {
    fn check(&self, resource: &Resource) -> Result<(), LeaseError> {
        self.broken.lock().unwrap().map_or(Ok(()), |fault| Err(fault(resource)))
    }

    fn try_acquire(&self, ask: &Ask) -> Result<Grant, LeaseError> {
        let mut rows = self.rows.lock().unwrap();
        let now = Instant::now();
        if let Some(row) = rows.get(&ask.resource).filter(|row| row.is_live(now)) {
            if ask.request_id.is_some() && row.request_id == ask.request_id {
                return Ok(row.grant(&ask.resource, now));
            }
            return Err(LeaseError::Held {
                resource: ask.resource.clone(),
                holder: row.holder.clone(),
                retry_after: row.ends - now,
            });
        }
        let token = rows.get(&ask.resource).map_or(Token::MIN, |row| row.token.next().unwrap());
        let row = Row {
            holder: ask.holder.clone(),
            token,
            ttl: ask.ttl,
            ends: now + ask.ttl,
            released: false,
            request_id: ask.request_id.clone(),
        };
        let grant = row.grant(&ask.resource, now);
        rows.insert(ask.resource.clone(), row);
        Ok(grant)
    }
}

impl Row {
    fn is_live(&self, now: Instant) -> bool {
        !self.released && now < self.ends
    }

    fn grant(&self, resource: &Resource, now: Instant) -> Grant {
        Grant {
            resource: resource.clone(),
            holder: self.holder.clone(),
            token: self.token,
            ttl: self.ttl,
            expires_in: self.ends - now,
        }
    }

    fn view(&self, resource: &Resource) -> LeaseView {
        let now = Instant::now();
        let live = self.is_live(now);
        LeaseView {
            resource: resource.clone(),
            holder: self.holder.clone(),
            token: self.token,
            live,
            released: self.released,
            expires_in: if live { self.ends - now } else { Duration::ZERO },
        }
    }
}

impl LeaseBackend for Leases {
    async fn acquire(&self, ask: Ask) -> Result<Grant, LeaseError> {
        self.check(&ask.resource)?;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiter = Waiter(&self.waiting);
        let deadline = Instant::now() + ask.wait;
        loop {
            let changed = self.changed.notified();
            match self.try_acquire(&ask) {
                Err(held) if Instant::now() >= deadline => return Err(held),
                Err(_) => drop(tokio::time::timeout_at(deadline, changed).await),
                granted => return granted,
            }
        }
    }

    async fn renew(
        &self,
        resource: &Resource,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Grant, LeaseError> {
        self.check(resource)?;
        let mut rows = self.rows.lock().unwrap();
        let now = Instant::now();
        let Some(row) = rows.get_mut(resource) else {
            return Err(LeaseError::NeverLeased { resource: resource.clone() });
        };
        if row.token != token || !row.is_live(now) {
            return Err(LeaseError::Lost { resource: resource.clone(), token });
        }
        row.ttl = ttl.unwrap_or(row.ttl);
        row.ends = now + row.ttl;
        Ok(row.grant(resource, now))
    }

    async fn release(&self, resource: &Resource, token: Token) -> Result<(), LeaseError> {
        self.check(resource)?;
        let mut rows = self.rows.lock().unwrap();
        match rows.get_mut(resource) {
            Some(row) if row.token == token => row.released = true,
            _ => return Err(LeaseError::Lost { resource: resource.clone(), token }),
        }
        self.changed.notify_waiters();
        Ok(())
    }

    async fn validate(&self, _: &Resource, _: Token) -> Result<Validation, LeaseError> {
        unreachable!("the admin side validates through the fences")
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseView>, LeaseError> {
        self.check(resource)?;
        Ok(self.rows.lock().unwrap().get(resource).map(|row| row.view(resource)))
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LeaseView>, LeaseError> {
        let rows = self.rows.lock().unwrap();
        let found = rows.iter().filter(|(resource, _)| {
            resource.as_str().starts_with(prefix) && after.is_none_or(|a| resource.as_str() > a)
        });
        Ok(found.take(limit).map(|(resource, row)| row.view(resource)).collect())
    }

    async fn bump(&self, resource: &Resource, above: Option<Token>) -> Result<Token, LeaseError> {
        self.check(resource)?;
        let mut rows = self.rows.lock().unwrap();
        let Some(row) = rows.get_mut(resource) else {
            return Err(LeaseError::NeverLeased { resource: resource.clone() });
        };
        row.token = above.max(Some(row.token)).and_then(Token::next).unwrap();
        row.released = true;
        Ok(row.token)
    }

    fn grade(&self) -> Grade {
        Grade::EfficiencyOnly
    }
}

// === impl Gate ===

impl FenceControl for Gate {
    async fn barrier(
        &self,
        resource: &Resource,
        token: Token,
        wait: Duration,
    ) -> Result<(), Refusal> {
        self.barriers.lock().unwrap().push((resource.clone(), token, wait));
        self.refusal.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    async fn show(&self, resource: &Resource) -> Result<FenceView, Refusal> {
        let mark = *self.mark.lock().unwrap();
        let resource = resource.clone();
        Ok(FenceView { resource, mark, permits: Vec::new(), waiting: 0, closed: None })
    }

    async fn settle(&self, _: &Resource) -> Result<usize, Refusal> {
        self.settled.fetch_add(1, Ordering::SeqCst);
        Ok(1)
    }

    fn reopen(&self, _: &Resource) {
        self.reopened.fetch_add(1, Ordering::SeqCst);
    }

    fn busy(&self, _: usize) -> Vec<FenceView> {
        Vec::new()
    }
}

// === impl Server ===

impl Server {
    /// A listener on a free loopback port with these bearer tokens.
    pub(crate) async fn start(tokens: &[&str]) -> Server {
        Server::start_on("127.0.0.1:0", tokens, None).await
    }

    /// What opens it.
    pub(crate) fn reloadable(tokens: &[&str]) -> Reloadable {
        let secret = |text: &&str| SecretSource::Text((*text).into()).read().unwrap();
        Reloadable {
            tokens: tokens.iter().map(secret).collect(),
            drain_wait: Duration::from_secs(25),
        }
    }

    /// One whose clients all seem to come from `peer`, if given.
    pub(crate) async fn start_on(address: &str, tokens: &[&str], peer: Option<Peer>) -> Server {
        let (leases, gate) = (Arc::new(Leases::default()), Arc::new(Gate::default()));
        let readiness = Readiness::default();
        let events = broadcast::Sender::new(4);
        let live = events.clone();
        let listener = AdminListener::bind(address).await.unwrap();
        let state = AdminState::new(Parts {
            lease: leases.clone(),
            fences: gate.clone(),
            listen: vec![address.into()],
            readiness: readiness.clone(),
            metrics: Arc::new(Metrics::new(1, &[])),
            reloadable: Server::reloadable(tokens),
            subscribe: Some(Arc::new(move |_, after| Subscription {
                backlog: after.map(|id| event(id + 1, "wal/old")).into_iter().collect(),
                gap: false,
                live: live.subscribe(),
            })),
            backup: Some(Arc::new(|| {
                let mut file = tempfile::tempfile()?;
                std::io::Write::write_all(&mut file, &vec![b'r'; 600_000])?;
                std::io::Seek::rewind(&mut file)?;
                Ok(file)
            })),
            status: Arc::new(|| serde_json::json!({ "rules": [] })),
            health: Arc::new(|| serde_json::json!({ "stores_down": 0 })),
            backends: Arc::new(|| {
                Box::pin(async {
                    serde_json::json!({ "lease": { "state": "up" }, "stores": [], "age_ms": 0 })
                })
            }),
        });
        let mut routes = router(state.clone());
        if let Some(peer) = peer {
            routes = routes.layer(axum::Extension(peer));
        }
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let address = listener.address();
        let running = tokio::spawn(async move {
            listen::run(listener, routes, stopped.notified()).await;
        });
        Server { address, leases, gate, readiness, state, events, stop, running }
    }
}

/// An event of the double.
pub(crate) fn event(id: u64, resource: &str) -> LeaseEvent {
    LeaseEvent {
        id,
        change: Change::Acquired,
        resource: Resource::new(resource).unwrap(),
        holder: Holder::new("a").unwrap(),
    }
}
