//! Step 5: the fence. Drives one [`Gate`](crate::core::gate::Gate) per resource against the ledger, and validates tokens.
//!
//! Gates live in shards behind short locks; nothing is held across an await. What a gate asks of the
//! ledger is carried out by tasks of the control runtime, which outlives every request.

mod admission;
mod carry;
mod cell;
mod hold;
mod quarantine;
mod reload;
#[cfg(test)]
mod tests;
mod timers;
mod validate;
mod view;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

pub use admission::{Admission, CutSignal};
pub use quarantine::Quarantines;
pub use reload::Cargo;
pub use validate::Validated;
pub use view::{FenceView, PermitView};

use super::refusal::Refusal;
use crate::core::gate::{
    Action, Admitted, Denied, Entering, Entry, Guards, Incarnation, Kind, Outcome, PermitId,
    Quarantine, Taint, Ticket,
};
use crate::core::{Millis, Resource, Token};
use crate::lease::AnyLease;
use crate::ledger::AnyLedger;
use crate::telemetry::clock;
use crate::telemetry::metrics::{Metrics, Step};
use cell::{Cell, Shard};
use timers::Timers;

/// More than there will be threads; a power of two.
const SHARDS: usize = 64;

/// How one rule wants its resources fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Refuse the latest token too once its lease has run out.
    pub require_live: bool,
    /// Longest wait for older writes to settle.
    pub drain_wait: Duration,
    /// How long an unknown outcome blocks successors.
    pub settle_after: Quarantine,
    /// A validation older than this is repeated before the commit point.
    pub revalidate_after: Duration,
    /// Most requests that wait for one resource.
    pub max_waiting: usize,
}

/// The fences of all resources of this replica. Cheap to clone; shared by all threads.
#[derive(Clone)]
pub struct Fences(Arc<Inner>);

struct Inner {
    lease: AnyLease,
    ledger: AnyLedger,
    /// Longest wait for one backend call.
    timeout: Duration,
    incarnation: Incarnation,
    /// When this process began, on the monotonic clock: permits of earlier incarnations of the same
    /// file are abandoned since then at the latest.
    started: Millis,
    guards: Guards,
    general: Mutex<General>,
    control: tokio::runtime::Handle,
    shards: Box<[Mutex<Shard>]>,
    hasher: hashbrown::DefaultHashBuilder,
    serial: AtomicU64,
    /// The version of the rules in force; what was routed by another one is routed again.
    generation: AtomicU64,
    /// What holds up every resource, if anything does.
    hold_on_all: Mutex<Option<hold::HoldOnAll>>,
    timers: Arc<Timers>,
    metrics: Arc<Metrics>,
}

/// What holds where no rule is named.
struct General {
    policy: Policy,
    quarantines: Quarantines,
}

/// What [`Fences::new`] needs.
pub struct Parts {
    /// The lease backend.
    pub lease: AnyLease,
    /// The ledger.
    pub ledger: AnyLedger,
    /// Longest wait for one call of the lease backend.
    pub timeout: Duration,
    /// This start of this replica.
    pub incarnation: Incarnation,
    /// What `[fence]` says, for operations that name a resource and no rule.
    pub policy: Policy,
    /// How long what an earlier process left behind blocks a resource.
    pub quarantines: Quarantines,
    /// The rules to keep; [`Guards::ALL`] wherever something is at stake.
    pub guards: Guards,
    /// Where waits, taints and takeovers are counted.
    pub metrics: Arc<Metrics>,
}

// === impl Fences ===

impl Fences {
    /// Fences over a backend and a ledger. Call it in the control runtime: its tasks carry out what
    /// gates ask for, and wake them when time is up.
    pub fn new(parts: Parts) -> Fences {
        let Parts { lease, ledger, timeout, incarnation, policy, quarantines, guards, metrics } =
            parts;
        let timers = Arc::<Timers>::default();
        let fences = Fences(Arc::new(Inner {
            lease,
            ledger,
            timeout,
            incarnation,
            started: clock::monotonic(),
            guards,
            general: Mutex::new(General { policy, quarantines }),
            control: tokio::runtime::Handle::current(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: hashbrown::DefaultHashBuilder::default(),
            serial: AtomicU64::new(1),
            generation: AtomicU64::new(1),
            hold_on_all: Mutex::default(),
            timers: Arc::clone(&timers),
            metrics,
        }));
        let weak = Arc::downgrade(&fences.0);
        tokio::spawn(timers::run(weak, timers));
        fences
    }

    /// Enters the fence with a validated token: raises the mark, waits until no older operation is
    /// left, takes a permit if it is a write. From memory if that was done before for this token.
    ///
    /// * `validated` — the validation of `token`.
    /// * `cargo` — what a write writes; a read has none.
    ///
    /// # Errors
    /// [`Turned::Rerouted`] if the rules changed since the request was routed: route it again.
    /// [`Turned::Refused`] with [`Refusal::StaleToken`], [`Refusal::Draining`], [`Refusal::Busy`] or
    /// [`Refusal::FenceUnavailable`].
    /// # Cancel safety
    /// A dropped call leaves the queue and holds nothing; the mark may stay raised.
    pub async fn enter(
        &self,
        resource: &Resource,
        token: Token,
        policy: &Policy,
        kind: Kind,
        validated: Validated,
        cargo: Cargo,
    ) -> Result<Admission, Turned> {
        let ticket = Ticket(self.0.serial.fetch_add(1, Ordering::Relaxed));
        let generation = cargo.generation;
        let mut cargo = Some(cargo);
        let waiting = self.with(resource, |cell, now, fresh| {
            // Read inside the critical section: a reload that is under way looks into this cell later.
            let current = self.0.generation.load(Ordering::SeqCst);
            if generation != current || current == reload::RELOADING {
                return Ok(Err(Turned::Rerouted));
            }
            let request = Entering {
                ticket,
                token,
                kind,
                deadline: now + policy.drain_wait,
                max_waiting: policy.max_waiting,
                settle_after: policy.settle_after,
            };
            match cell.gate.enter(now, request, fresh) {
                Entry::Admitted(Admitted::Write(exchange)) => {
                    cell.manifest.add(exchange, cargo.take().unwrap_or_default());
                    Ok(Ok(Admitted::Write(exchange)))
                }
                Entry::Admitted(Admitted::Pass) => Ok(Ok(Admitted::Pass)),
                Entry::Denied(denied) => Ok(Err(Turned::Denied(denied))),
                Entry::Waiting => {
                    if validated.mark.is_some_and(|mark| mark < token) {
                        cell.takeover.begin(now, token, cell.gate.mark());
                    }
                    let (sender, receiver) = oneshot::channel();
                    cell.waiting.insert(ticket, sender);
                    cell.cargo.insert(ticket, cargo.take().unwrap_or_default());
                    Err(receiver)
                }
            }
        });
        let verdict = match waiting {
            Ok(verdict) => verdict,
            Err(receiver) => {
                // Leaves the queue if this future is dropped while it waits.
                Place { fences: self, resource, ticket, verdict: Some(receiver) }.wait().await
            }
        };
        match verdict {
            Ok(admitted) => Ok(Admission::new(self, resource, admitted, policy)),
            Err(Turned::Denied(denied)) => {
                Err(Turned::Refused(refusal_of(denied, resource, token)))
            }
            Err(turned) => Err(turned),
        }
    }

    /// The barrier: validates `token`, raises the mark to it and waits until every older write of the
    /// resource has settled, at most `wait`.
    ///
    /// # Errors
    /// The refusal that a write with this token would get.
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves the queue; the mark may stay raised.
    pub async fn barrier(
        &self,
        resource: &Resource,
        token: Token,
        wait: Duration,
    ) -> Result<(), Refusal> {
        let policy = Policy { drain_wait: wait, ..self.policy() };
        loop {
            let validated = self.validate(resource, token, &policy).await?;
            let generation = self.0.generation.load(Ordering::SeqCst);
            let cargo = Cargo { generation, ..Cargo::default() };
            match self.enter(resource, token, &policy, Kind::Pass, validated, cargo).await {
                Ok(_) => return Ok(()),
                Err(Turned::Refused(refusal)) => return Err(refusal),
                // The reload is under way on another thread.
                Err(Turned::Rerouted | Turned::Denied(_)) => tokio::task::yield_now().await,
            }
        }
    }

    /// How operations are fenced that name a resource and no rule: what `[fence]` says.
    pub fn policy(&self) -> Policy {
        self.general().policy
    }

    /// Replaces it and the quarantines, at a reload.
    pub fn set_policy(&self, policy: Policy, quarantines: Quarantines) {
        *self.general() = General { policy, quarantines };
    }

    /// How long what an earlier process left behind blocks a resource, counted from this start.
    fn quarantine(&self, resource: &Resource) -> Quarantine {
        self.general().quarantines.of(resource)
    }

    fn general(&self) -> MutexGuard<'_, General> {
        self.0.general.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operator's override: declares every unknown outcome of the resource settled and every permit
    /// of an earlier incarnation gone. Returns how many permits that freed.
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger did not take it.
    pub async fn settle(&self, resource: &Resource) -> Result<usize, Refusal> {
        self.hold_no_more(resource);
        let mine = self.with(resource, |cell, now, fresh| {
            cell.manifest.settle_all();
            cell.gate.settle_all(now, fresh)
        });
        let foreign = self.drop_foreign(resource).await?;
        Ok(mine.max(foreign))
    }

    /// Reopens a resource that failed closed: its tokens were raised above its mark.
    pub fn reopen(&self, resource: &Resource) {
        self.with(resource, |cell, _, _| cell.gate.reopen());
    }

    /// The process is ending: gives back every permit that nothing needs any more, so that the next start
    /// finds nothing to wait for. Returns when the ledger has confirmed it, at most after `wait`.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not confirmed is found by the next start.
    pub async fn retire(&self, wait: Duration) {
        let over = clock::monotonic() + wait;
        loop {
            let names: Vec<Resource> = self
                .0
                .shards
                .iter()
                .flat_map(|shard| lock(shard).cells.keys().cloned().collect::<Vec<_>>())
                .collect();
            let mut left = false;
            for resource in &names {
                self.with(resource, |cell, _, _| {
                    cell.gate.retire();
                    left |= cell.gate.permits().any(|permit| permit.taint == Taint::Clear);
                });
            }
            if !left || clock::monotonic() >= over {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How many exchanges of all resources are not settled.
    pub fn unsettled(&self) -> usize {
        let count = |shard: &Mutex<Shard>| {
            lock(shard).cells.values().map(|cell| cell.gate.unsettled()).sum::<usize>()
        };
        self.0.shards.iter().map(count).sum()
    }

    /// Runs one step of a resource's gate in its critical section, and has carried out what follows.
    fn with<T>(
        &self,
        resource: &Resource,
        step: impl FnOnce(&mut Cell, Millis, PermitId) -> T,
    ) -> T {
        let now = clock::monotonic();
        let fresh = self.fresh();
        let mut shard = lock(self.shard(resource));
        let cell = shard.cell(resource, || self.new_gate(resource, now, fresh));
        let result = step(cell, now, fresh);
        let (todo, wake) = cell.drain(now, || self.fresh());
        self.publish(cell, now);
        drop(shard);
        self.follow(resource, todo, wake);
        result
    }

    /// Does what a critical section left to do outside it.
    fn follow(&self, resource: &Resource, todo: Vec<Action>, wake: Option<Millis>) {
        if let Some(at) = wake {
            self.0.timers.push(at, resource);
        }
        for action in todo {
            self.carry_out(resource, action);
        }
    }

    /// Tells the metrics what a step changed. A few relaxed adds, and none in the steady state.
    fn publish(&self, cell: &mut Cell, now: Millis) {
        for (level, by) in cell.gauge(now).into_iter().filter(|(_, by)| *by != 0) {
            self.0.metrics.shift(level, by);
        }
        if let Some(took) = cell.takeover.take_finished() {
            self.0.metrics.record(Step::Takeover, took);
        }
    }

    fn shard(&self, resource: &Resource) -> &Mutex<Shard> {
        let hash = self.0.hasher.hash_one(resource);
        &self.0.shards[hash as usize % SHARDS]
    }

    fn fresh(&self) -> PermitId {
        let serial = self.0.serial.fetch_add(1, Ordering::Relaxed);
        PermitId { incarnation: self.0.incarnation, serial }
    }

    /// The mark as far as this replica knows that it is durable, without asking the ledger.
    fn known_mark(&self, resource: &Resource) -> Option<Token> {
        lock(self.shard(resource)).cells.get(resource).and_then(|cell| cell.gate.mark())
    }
}

/// A shard's lock. A panic inside a critical section poisons it; what the gate then holds may be half a
/// step, so the process must not go on with it.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(|_| std::process::abort())
}

/// A place in a queue of waiting requests.
struct Place<'a> {
    fences: &'a Fences,
    resource: &'a Resource,
    ticket: Ticket,
    /// Taken once it was received.
    verdict: Option<oneshot::Receiver<Verdict>>,
}

// === impl Place ===

impl Place<'_> {
    async fn wait(mut self) -> Verdict {
        let verdict = self.verdict.as_mut().expect("not received yet").await;
        self.verdict = None;
        verdict.unwrap_or(Err(Turned::Denied(Denied::Ledger)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(mut verdict) = self.verdict.take() else { return };
        let releases = self.fences.with(self.resource, |cell, now, fresh| {
            cell.leave(self.ticket);
            // Admitted, and gone before it heard of it: nothing of it has been sent.
            let Ok(Ok(Admitted::Write(exchange))) = verdict.try_recv() else { return Vec::new() };
            let taint = cell.gate.settle(now, exchange, Outcome::NotSent, fresh);
            cell.manifest.settle(now, exchange, taint)
        });
        self.fences.release(releases);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timers.stop();
    }
}

fn refusal_of(denied: Denied, resource: &Resource, token: Token) -> Refusal {
    let resource = resource.clone();
    match denied {
        Denied::Stale => Refusal::StaleToken { resource, presented: token },
        Denied::Full => Refusal::Busy {
            what: "the queue of this resource",
            retry_after: Duration::from_secs(1),
        },
        Denied::Drain { ends, unknown } => {
            let left = ends.map_or(Duration::ZERO, |ends| clock::monotonic().until(ends));
            let why = match (unknown, ends) {
                (false, _) => "older writes have not been answered yet",
                (true, Some(_)) => {
                    "the outcome of an older write is unknown; it is waited for until it cannot land any more"
                }
                (true, None) => {
                    "the outcome of an older write is unknown and nothing bounds it; see `fencegate fence show` and `fencegate fence settle`"
                }
            };
            Refusal::Draining {
                resource,
                retry_after: left.max(Duration::from_secs(1)),
                why: why.to_owned(),
            }
        }
        Denied::Ledger => Refusal::FenceUnavailable {
            resource,
            why: "the ledger did not confirm a step; nothing was forwarded, try again".to_owned(),
        },
        Denied::Closed => validate::closed(resource),
    }
}

/// Why a request did not enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turned {
    /// For good.
    Refused(Refusal),
    /// The rules changed: route it again.
    Rerouted,
    /// The gate's own word; [`Fences::enter`] makes a refusal of it.
    Denied(Denied),
}

/// A verdict on a waiting request.
type Verdict = Result<Admitted, Turned>;
