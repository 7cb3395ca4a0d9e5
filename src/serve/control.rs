//! The control thread: start, signals, end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use super::accept::{self, Listener, Serving};
use super::admin::{self, AdminListener, AdminState, Readiness, listen};
use super::health::Health;
use super::leftovers::Leftovers;
use super::open::{OpenError, Opened, open};
use super::reload::{reload, reloadable};
use super::settings::Address;
use super::{Ended, Load, ServeError, Setup, Shared, guards};
use crate::core::gate::Taint;
use crate::lease::AnyLease;
use crate::pipeline::Pipeline;
use crate::pipeline::fence::{Fences, Parts};
use crate::pipeline::forward::Budget;
use crate::pipeline::refusal::CODES;
use crate::pipeline::rules::RuleSet;
use crate::store::embedded::Store;
use crate::telemetry::metrics::Metrics;

/// Of `shutdown_timeout`, what is kept for giving back permits and closing the database.
const LAST_SECOND: Duration = Duration::from_secs(1);

/// Runs a server until it is told to end.
///
/// # Errors
/// [`ServeError`] if it cannot start; nothing was served then.
pub fn run(setup: Setup, load: Arc<Load>) -> Result<Ended, ServeError> {
    let opened = open(&setup.lease, &setup.ledger)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Thread)?;
    runtime.block_on(Control::start(setup, load, opened, threads))
}

struct Control {
    setup: Setup,
    load: Arc<Load>,
    opened: Opened,
    shared: Arc<Shared>,
    admin: AdminState<AnyLease>,
    leftovers: Leftovers,
    readiness: Readiness,
    stop: watch::Sender<bool>,
    stop_admin: watch::Sender<bool>,
    threads: Vec<std::thread::JoinHandle<bool>>,
}

impl Control {
    async fn start(
        setup: Setup,
        load: Arc<Load>,
        opened: Opened,
        threads: usize,
    ) -> Result<Ended, ServeError> {
        let mut signals = Signals::new().map_err(ServeError::Thread)?;
        admin::guard::check_exposure(&setup.admin)?;
        let reloadable = reloadable(&setup).map_err(|cause| ServeError::Secret { cause })?;
        // One lane for each thread of the data path, and one for this one.
        let metrics = Arc::new(Metrics::new(threads + 1, CODES));
        let rules = RuleSet::new(
            &setup.pipeline,
            setup.rules.clone(),
            setup.discards_torn,
            None,
            &metrics,
        )?;
        let (guards, hold_tail) = guards();
        let fences = Fences::new(Parts {
            lease: opened.lease.clone(),
            ledger: opened.ledger.clone(),
            timeout: setup.lease.timeout.0,
            incarnation: opened.incarnation,
            policy: rules.policy,
            quarantines: rules.quarantines(),
            guards,
            metrics: Arc::clone(&metrics),
        });
        let leftovers =
            Leftovers::begin(opened.stores[0].clone(), fences.clone(), opened.incarnation, &rules)
                .await
                .map_err(OpenError)?;
        let pipeline = Arc::new(Pipeline {
            rules: arc_swap::ArcSwap::from_pointee(rules),
            fences: fences.clone(),
            budget: Budget::default(),
            metrics: Arc::clone(&metrics),
            draining: false.into(),
            hold_tail,
        });
        let shared = Arc::new(Shared {
            pipeline,
            status_rules: arc_swap::ArcSwap::from_pointee(setup.rules_status.clone()),
        });
        let readiness = Readiness::default();
        let health = Health::new(Arc::clone(&shared), opened.lease.clone());
        let admin = AdminState::new(admin::Parts {
            lease: Arc::new(opened.lease.clone()),
            fences: Arc::new(fences),
            reloadable,
            listen: setup.admin.listen.as_slice().to_vec(),
            readiness: readiness.clone(),
            metrics,
            subscribe: Some(subscribe(&opened)),
            backup: Some(backup(&opened)),
            status: status(&shared, &opened),
            health: Arc::new({
                let health = health.clone();
                move || health.counted()
            }),
            backends: Arc::new(move || {
                let health = health.clone();
                Box::pin(async move { health.told().await })
            }),
        });
        let (stop, stopped) = watch::channel(false);
        let (stop_admin, admin_stopped) = watch::channel(false);
        let (listeners, proxy) = bind(&setup, threads)?;
        let mut admins = Vec::new();
        for address in setup.admin.listen.as_slice() {
            admins.push(AdminListener::bind(address).await?);
        }
        let mut control = Control {
            setup,
            load,
            opened,
            shared,
            admin,
            leftovers,
            readiness,
            stop,
            stop_admin,
            threads: Vec::new(),
        };
        control.spawn_threads(listeners, &stopped)?;
        let mut serving_admin = tokio::task::JoinSet::new();
        for listener in admins {
            tracing::info!(address = listener.address(), "admin side listens");
            let mut stopped = admin_stopped.clone();
            let router = admin::router(control.admin.clone());
            let stop = async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            serving_admin.spawn(listen::run(listener, router, stop));
        }
        control.readiness.set(|ready| {
            ready.configured = true;
            ready.ledger_open = true;
            ready.bound = true;
            ready.proxy = proxy.clone();
        });
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, proxy, threads, incarnation = ?control.opened.incarnation, "fencegate serves");
        control.wait(&mut signals).await;
        control.end(signals, serving_admin).await
    }

    fn spawn_threads(
        &mut self,
        listeners: Vec<Vec<Listener>>,
        stopped: &super::Stop,
    ) -> Result<(), ServeError> {
        let connections = self.setup.pipeline.limits.connections;
        let slots = Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS)));
        let patience = self.setup.proxy.shutdown_timeout.0.saturating_sub(LAST_SECOND);
        for (at, mine) in listeners.into_iter().enumerate() {
            let serving = Serving {
                pipeline: Arc::clone(&self.shared.pipeline),
                slots: Arc::clone(&slots),
                stop: stopped.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("data-{at}"));
            let run = move || match accept::run(serving, mine, patience) {
                Ok(drained) => drained,
                Err(error) => {
                    tracing::error!(%error, "a thread of the data path could not start");
                    false
                }
            };
            self.threads.push(thread.spawn(run).map_err(ServeError::Thread)?);
        }
        Ok(())
    }

    /// Until the first signal to end.
    async fn wait(&mut self, signals: &mut Signals) {
        loop {
            match signals.next().await {
                Told::End => return,
                Told::Reload => {
                    let Control { load, shared, admin, leftovers, setup, .. } = self;
                    reload(&**load, shared, admin, leftovers, setup).await;
                }
            }
        }
    }

    /// Stop accepting, finish, give back permits, close, exit; a second signal ends at once.
    async fn end(
        self,
        mut signals: Signals,
        mut admins: tokio::task::JoinSet<()>,
    ) -> Result<Ended, ServeError> {
        tracing::info!("told to end: finishing what is in flight");
        self.readiness.set(|ready| ready.draining = true);
        self.shared.pipeline.draining.store(true, Ordering::SeqCst);
        self.stop.send_replace(true);
        let threads = self.threads;
        let finished = tokio::task::spawn_blocking(move || {
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(false))
                .fold(true, |all, one| all & one)
        });
        let drained = tokio::select! {
            () = signals.end() => {
                tracing::warn!("told to end again: ending now");
                std::process::exit(super::EXIT_CUT);
            }
            finished = finished => finished.unwrap_or(false),
        };
        // Renewals go on while writes drain; the admin side ends last.
        self.stop_admin.send_replace(true);
        let _ = tokio::time::timeout(LAST_SECOND / 2, async {
            while admins.join_next().await.is_some() {}
        })
        .await;
        self.shared.pipeline.fences.retire(LAST_SECOND / 2).await;
        for store in &self.opened.stores {
            if let Err(error) = store.close() {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the database was not closed cleanly"
                );
            }
        }
        if drained {
            tracing::info!("ended");
            Ok(Ended::Drained)
        } else {
            tracing::warn!(
                "ended with requests in flight: their outcomes are unknown to the next start"
            );
            Ok(Ended::Cut)
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

#[derive(PartialEq, Eq)]
enum Told {
    End,
    Reload,
}

/// Binds every address for every thread. Returns the first one as a URL too.
fn bind(setup: &Setup, threads: usize) -> Result<(Vec<Vec<Listener>>, Option<String>), ServeError> {
    let mut listeners: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    let mut first = None;
    for text in setup.proxy.listen.as_slice() {
        let fault = |cause| ServeError::Bind { address: text.clone(), cause };
        let address = Address::parse(text).ok_or_else(|| {
            fault(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not an address"))
        })?;
        let bound = accept::bind(&address, threads).map_err(fault)?;
        first = first.or_else(|| match bound[0].first() {
            Some(Listener::Tcp(listener)) => {
                listener.local_addr().ok().map(|address| format!("http://{address}"))
            }
            _ => Some(text.clone()),
        });
        for (all, mut mine) in listeners.iter_mut().zip(bound) {
            all.append(&mut mine);
        }
    }
    Ok((listeners, first))
}

fn subscribe(opened: &Opened) -> Arc<admin::state::Subscribe> {
    let lease = opened.embedded.clone();
    Arc::new(move |prefix, after| {
        let (backlog, gap, live) = lease.subscribe(prefix, after).into_parts();
        admin::Subscription { backlog, gap, live }
    })
}

fn backup(opened: &Opened) -> Arc<admin::state::BackupSource> {
    let store = opened.stores[0].clone();
    Arc::new(move || store.backup_file().map_err(std::io::Error::other))
}

/// What `/v1/status` says of the service, beside the fences.
fn status(shared: &Arc<Shared>, opened: &Opened) -> Arc<admin::state::StatusSource> {
    let shared = Arc::clone(shared);
    let incarnation = format!("{:?}", opened.incarnation);
    let stores = opened.stores.clone();
    Arc::new(move || {
        let rules = shared.pipeline.rules.load();
        serde_json::json!({
            "incarnation": incarnation,
            "rules_generation": rules.generation,
            "rules": &**shared.status_rules.load(),
            "revoked": stores.iter().find_map(Store::revoked),
            "held_on_all": held(&shared.pipeline.fences),
            "withheld_bytes": shared.pipeline.budget.used(),
            "exchanges": shared.pipeline.fences.unsettled(),
        })
    })
}

/// The hold on every resource: for how long still, without an end if an operator ends it.
fn held(fences: &Fences) -> serde_json::Value {
    let left = |ends| crate::telemetry::clock::monotonic().until(ends).as_millis() as u64;
    match fences.held_on_all() {
        None => serde_json::Value::Null,
        Some(Taint::Until(ends)) => serde_json::json!({ "ends_in_ms": left(ends) }),
        Some(_) => serde_json::json!({}),
    }
}
