//! The embedded database: fixtures for the suites, and what only it promises.

mod events;
mod identity;
mod kill;
mod race;
mod trouble;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencegate::core::{Holder, Millis, Resource, Token};
use fencegate::lease::Ask;
use fencegate::lease::embedded::EmbeddedLease;
use fencegate::ledger::embedded::EmbeddedLedger;
use fencegate::store::clock::ManualClock;
use fencegate::store::embedded::{Options, Store};

use super::lease::Fixture;

/// 2026-12-01 in microseconds: far from zero, as real clocks are.
pub const WALL_US: u64 = 1_796_000_000_000_000;

/// A database in a directory of its own, on a clock that only tests move.
pub struct Embedded {
    pub dir: Arc<tempfile::TempDir>,
    pub clock: Arc<ManualClock>,
    pub store: Store,
    pub lease: EmbeddedLease,
    pub ledger: EmbeddedLedger,
}

pub async fn fixture() -> Embedded {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    Embedded::open(dir, Arc::new(ManualClock::new(Millis(1_000), WALL_US)))
}

pub fn ledger() -> (EmbeddedLedger, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&Options::new(dir.path().join("x.redb"))).unwrap();
    (EmbeddedLedger::new(store), dir)
}

impl Embedded {
    pub fn open(dir: Arc<tempfile::TempDir>, clock: Arc<ManualClock>) -> Embedded {
        let path = dir.path().join("fencegate.redb");
        let store = Store::open(&options(&path, &clock)).unwrap();
        let (lease, ledger) =
            (EmbeddedLease::new(store.clone()), EmbeddedLedger::new(store.clone()));
        Embedded { dir, clock, store, lease, ledger }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("fencegate.redb")
    }

    /// Closes it, lets `meanwhile` do things to the file, opens it again.
    pub fn reopen_after(self, meanwhile: impl FnOnce(&Path)) -> Embedded {
        self.store.close().unwrap();
        let (dir, clock, path) = (self.dir.clone(), self.clock.clone(), self.path());
        drop(self);
        meanwhile(&path);
        Embedded::open(dir, clock)
    }
}

pub fn options(path: &Path, clock: &Arc<ManualClock>) -> Options {
    Options { clock: clock.clone(), open_wait: Duration::ZERO, ..Options::new(path) }
}

impl Fixture for Embedded {
    type Lease = EmbeddedLease;

    fn lease(&self) -> EmbeddedLease {
        self.lease.clone()
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.store.tick().await.unwrap();
    }

    async fn restart(&mut self) {
        self.store.close().unwrap();
        *self = Embedded::open(self.dir.clone(), self.clock.clone());
    }
}

pub fn t(number: u64) -> Token {
    Token::new(number).unwrap()
}

pub fn name(resource: &str) -> Resource {
    Resource::new(resource).unwrap()
}

pub fn ask(resource: &str, holder: &str) -> Ask {
    Ask {
        resource: name(resource),
        holder: Holder::new(holder).unwrap(),
        ttl: Duration::from_secs(10),
        wait: Duration::ZERO,
        request_id: None,
    }
}

pub fn permit(db: &Embedded, serial: u64) -> fencegate::ledger::PermitId {
    fencegate::ledger::PermitId { incarnation: db.store.incarnation(), serial }
}
