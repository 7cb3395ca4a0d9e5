//! Lease backend on the embedded database: tokens are max(counter + 1, clock), durable on its disk.
//!
//! Waiting and watching are here; what is granted to whom is decided by the database's one writer.
//! Usable from several single-threaded runtimes at once.

mod waiters;

use std::sync::Arc;
use std::time::Duration;

use super::watch::{Subscription, Watch};
use super::{Ask, Change, Grade, Grant, LeaseBackend, LeaseError, LeaseEvent, LeaseView};
use crate::core::lease::{Asked, Phase, Record, Validation};
use crate::core::{Holder, Millis, Resource, Token};
use crate::store::embedded::{Acquired, LeaseChange, Observer, Store, StoreError, Want};

use waiters::Waiters;

const NAME: &str = "embedded";
const TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Most leases of one listing, whatever the caller asks for: bounds the time on the file.
const MAX_LISTED: usize = 10_000;

/// The leases of one database. Make one and clone it: the queues of waiters belong to it.
#[derive(Clone)]
pub struct EmbeddedLease {
    store: Store,
    shared: Arc<Shared>,
}

struct Shared {
    waiters: Arc<Waiters>,
    watch: Watch,
}

// === impl EmbeddedLease ===

impl EmbeddedLease {
    /// The leases of `store`.
    pub fn new(store: Store) -> EmbeddedLease {
        let watch = Watch::new(store.clock().wall_us());
        let shared = Arc::new(Shared { waiters: Arc::default(), watch });
        store.observe(shared.clone());
        EmbeddedLease { store, shared }
    }

    /// Changes of leases whose resource starts with `prefix`: those after the event with the id
    /// `after` that are still in the ring of the last 1,024, and all to come. Without `after` from now on.
    pub fn subscribe(&self, prefix: &str, after: Option<u64>) -> Subscription {
        self.shared.watch.subscribe(prefix, after)
    }

    /// How many callers wait for a lease.
    pub fn waiting(&self, resource: &Resource) -> usize {
        self.shared.waiters.waiting(resource)
    }

    async fn try_once(&self, ask: &Ask, ttl_ms: u32) -> Result<Grant, LeaseError> {
        let want = Want {
            name: ask.resource.clone(),
            holder: ask.holder.clone(),
            ttl_ms,
            request_id: ask.request_id.as_deref().map(Box::from),
        };
        let acquired = self.store.acquire(want).await.map_err(|e| failed(&ask.resource, e))?;
        match acquired {
            Acquired::Granted(mut claim) => {
                claim.keep();
                let ttl = Duration::from_millis(ttl_ms.into());
                Ok(Grant {
                    resource: ask.resource.clone(),
                    holder: ask.holder.clone(),
                    token: claim.token,
                    ttl,
                    expires_in: ttl,
                })
            }
            Acquired::Replayed(record, now) => Ok(grant(&ask.resource, &record, now)),
            Acquired::Held(record, now) => Err(held(&ask.resource, &record, now)),
            Acquired::Exhausted => Err(LeaseError::Exhausted { resource: ask.resource.clone() }),
        }
    }

    async fn wait_and_acquire(&self, ask: &Ask, ttl_ms: u32) -> Result<Grant, LeaseError> {
        let deadline = tokio::time::Instant::now() + ask.wait;
        let ticket = self.shared.waiters.join(&ask.resource).map_err(|waiting| {
            LeaseError::TooManyWaiters { resource: ask.resource.clone(), waiting }
        })?;
        loop {
            // Only the waiting is under the deadline: an ask under way is let finish.
            if tokio::time::timeout_at(deadline, ticket.turn()).await.is_err() {
                return Err(self.held_now(ask));
            }
            match self.try_once(ask, ttl_ms).await {
                Err(LeaseError::Held { .. }) => {}
                done => return done,
            }
        }
    }

    /// Why nothing was granted by now.
    fn held_now(&self, ask: &Ask) -> LeaseError {
        match self.store.record(&ask.resource) {
            Ok(Some((record, now))) => held(&ask.resource, &record, now),
            // Somebody is about to get its first lease ever.
            Ok(None) => LeaseError::Held {
                resource: ask.resource.clone(),
                holder: ask.holder.clone(),
                retry_after: Duration::from_secs(1),
            },
            Err(error) => failed(&ask.resource, error),
        }
    }
}

fn grant(resource: &Resource, record: &Record, now: Millis) -> Grant {
    Grant {
        resource: resource.clone(),
        holder: record.holder.clone(),
        token: record.token,
        ttl: Duration::from_millis(record.ttl_ms.into()),
        expires_in: record.left(now),
    }
}

fn held(resource: &Resource, record: &Record, now: Millis) -> LeaseError {
    LeaseError::Held {
        resource: resource.clone(),
        holder: record.holder.clone(),
        retry_after: record.left(now),
    }
}

fn view(resource: &Resource, record: &Record, now: Millis) -> LeaseView {
    LeaseView {
        resource: resource.clone(),
        holder: record.holder.clone(),
        token: record.token,
        live: record.runs(now),
        released: record.phase == Phase::Released,
        expires_in: record.left(now),
    }
}

fn failed(resource: &Resource, cause: StoreError) -> LeaseError {
    LeaseError::Backend { backend: NAME, resource: resource.clone(), cause: Box::new(cause) }
}

fn invalid(what: impl Into<String>) -> LeaseError {
    LeaseError::Invalid { what: what.into() }
}

fn checked_ttl(ttl: Duration) -> Result<u32, LeaseError> {
    if !TTL.contains(&ttl) {
        return Err(invalid(format!("ttl is {ttl:?}; it must be between 1s and 24h")));
    }
    Ok(u32::try_from(ttl.as_millis()).expect("24 h in milliseconds fit"))
}

fn check(ask: &Ask) -> Result<u32, LeaseError> {
    if ask.wait > MAX_WAIT {
        return Err(invalid(format!("wait is {:?}; it must be at most 60s", ask.wait)));
    }
    if let Some(id) = &ask.request_id {
        let printable = id.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !printable || !(1..=128).contains(&id.len()) {
            return Err(invalid("request_id must be 1 to 128 printable ASCII characters"));
        }
    }
    checked_ttl(ask.ttl)
}

impl LeaseBackend for EmbeddedLease {
    /// As the trait says. A call dropped after its grant was made releases it again, unless the ask
    /// has a `request_id`: then the grant stands for whoever repeats the ask.
    async fn acquire(&self, ask: Ask) -> Result<Grant, LeaseError> {
        let ttl_ms = check(&ask)?;
        let (asked, record) = self
            .store
            .asked(&ask.resource, &ask.holder, ask.request_id.as_deref())
            .map_err(|error| failed(&ask.resource, error))?;
        match (asked, record) {
            // The answer got lost: it must not wait behind others for what it has.
            (Asked::Replay, Some((record, now))) => Ok(grant(&ask.resource, &record, now)),
            (Asked::Held { .. }, Some((record, now))) if ask.wait.is_zero() => {
                Err(held(&ask.resource, &record, now))
            }
            _ if !ask.wait.is_zero() => self.wait_and_acquire(&ask, ttl_ms).await,
            // It is free, but others came first.
            _ if self.waiting(&ask.resource) > 0 => Err(self.held_now(&ask)),
            _ => self.try_once(&ask, ttl_ms).await,
        }
    }

    async fn renew(
        &self,
        resource: &Resource,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Grant, LeaseError> {
        let ttl_ms = ttl.map(checked_ttl).transpose()?;
        let renewed = self.store.renew(resource, token, ttl_ms).await;
        match renewed.map_err(|error| failed(resource, error))? {
            Some((record, now)) => Ok(grant(resource, &record, now)),
            None => Err(LeaseError::Lost { resource: resource.clone(), token }),
        }
    }

    async fn release(&self, resource: &Resource, token: Token) -> Result<(), LeaseError> {
        match self.store.release(resource, token).await.map_err(|e| failed(resource, e))? {
            true => Ok(()),
            false => Err(LeaseError::Lost { resource: resource.clone(), token }),
        }
    }

    async fn validate(&self, resource: &Resource, token: Token) -> Result<Validation, LeaseError> {
        self.store.validate(resource, token).map_err(|error| failed(resource, error))
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseView>, LeaseError> {
        let record = self.store.record(resource).map_err(|error| failed(resource, error))?;
        Ok(record.map(|(record, now)| view(resource, &record, now)))
    }

    /// Names come from the file, states from memory.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LeaseView>, LeaseError> {
        // An error has to name some resource.
        let about = Resource::new(prefix)
            .unwrap_or_else(|_| Resource::new("all resources").expect("a plain name"));
        let (store, limit) = (self.store.clone(), limit.min(MAX_LISTED));
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let listed = tokio::task::spawn_blocking(move || {
            let names = store.names(&prefix, after.as_deref(), limit)?;
            let view = |name: &Resource| {
                let record = store.record(name)?;
                Ok(record.map(|(record, now)| view(name, &record, now)))
            };
            names.iter().filter_map(|name| view(name).transpose()).collect()
        });
        let listed = listed
            .await
            .unwrap_or_else(|_| Err(StoreError::Closed { path: self.store.path().to_owned() }));
        listed.map_err(|error| failed(&about, error))
    }

    async fn bump(&self, resource: &Resource, above: Option<Token>) -> Result<Token, LeaseError> {
        let token = self.store.bump(resource, above).await.map_err(|e| failed(resource, e))?;
        token.ok_or_else(|| LeaseError::Exhausted { resource: resource.clone() })
    }

    fn grade(&self) -> Grade {
        Grade::SingleNodeDurable
    }

    fn is_local(&self) -> bool {
        true
    }
}

// === impl Shared ===

impl Observer for Shared {
    fn changed(&self, change: LeaseChange, resource: &Resource, holder: &Holder) {
        let change = match change {
            LeaseChange::Granted => Change::Acquired,
            LeaseChange::Released => Change::Released,
            LeaseChange::Expired => Change::Expired,
            LeaseChange::Revoked => Change::Revoked,
        };
        if change != Change::Acquired {
            self.waiters.wake(resource);
        }
        let (resource, holder) = (resource.clone(), holder.clone());
        self.watch.tell(|id| LeaseEvent { id, change, resource, holder });
    }
}
