//! A reload while writes are in flight: exchanges belong to the rules they were admitted with, and a
//! resource that is given one of their keys waits until they have settled.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::cell::Cell;
use super::{Fences, Turned, lock};
use crate::core::gate::{ExchangeId, HoldId, Taint};
use crate::core::{Millis, Resource};
use crate::telemetry::clock;

/// What an admitted write writes, to see which resource its keys belong to after a reload.
#[derive(Clone, Debug, Default)]
pub struct Cargo {
    /// The version of the rules that routed it.
    pub generation: u64,
    /// Its method: rules may ask for it.
    pub method: http::Method,
    /// Its keys, as decoded.
    pub keys: Vec<String>,
}

/// The exchanges of one resource whose end a reload may have to wait for.
#[derive(Default)]
pub(super) struct Manifest {
    open: HashMap<ExchangeId, (Cargo, Vec<(Resource, HoldId)>)>,
    /// Settled with an unknown outcome.
    unknown: Vec<(ExchangeId, Cargo, Taint)>,
}

/// What has to be told to other resources when an exchange is settled.
pub(super) type Releases = Vec<(Resource, HoldId, Taint)>;

// === impl Manifest ===

impl Manifest {
    pub fn add(&mut self, exchange: ExchangeId, cargo: Cargo) {
        self.open.insert(exchange, (cargo, Vec::new()));
    }

    /// The exchange is settled and leaves this behind. Returns the holds that end with it.
    pub fn settle(&mut self, now: Millis, exchange: ExchangeId, taint: Taint) -> Releases {
        self.unknown.retain(|(_, _, taint)| !taint.is_over(now));
        let Some((cargo, holds)) = self.open.remove(&exchange) else { return Vec::new() };
        if taint != Taint::Clear {
            self.unknown.push((exchange, cargo, taint));
        }
        holds.into_iter().map(|(resource, hold)| (resource, hold, taint)).collect()
    }

    /// An operator says that nothing unknown will land any more.
    pub fn settle_all(&mut self) {
        self.unknown.clear();
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self, now: Millis) -> bool {
        self.open.is_empty() && self.unknown.iter().all(|(_, _, taint)| taint.is_over(now))
    }

    /// Every exchange that may still land, with what it writes.
    fn pending(&self) -> impl Iterator<Item = (ExchangeId, &Cargo)> {
        let open = self.open.iter().map(|(exchange, (cargo, _))| (*exchange, cargo));
        open.chain(self.unknown.iter().map(|(exchange, cargo, _)| (*exchange, cargo)))
    }

    /// Has a hold end with an exchange; what the exchange left behind if it is settled already.
    fn attach(&mut self, exchange: ExchangeId, other: &Resource, hold: HoldId) -> Option<Taint> {
        if let Some((_, holds)) = self.open.get_mut(&exchange) {
            holds.push((other.clone(), hold));
            return None;
        }
        let left = self.unknown.iter().find(|(unknown, ..)| *unknown == exchange);
        Some(left.map_or(Taint::Clear, |(_, _, taint)| *taint))
    }
}

// === impl Fences ===

/// Not a generation: everything is turned away until the next one is in force.
pub(super) const RELOADING: u64 = 0;

impl Fences {
    /// Changes to the rules of `generation`, which give each key the resource that `owner` says.
    ///
    /// Requests that wait are routed again. Call it after the new rules were published: what enters
    /// meanwhile is turned away by its generation, under the old rules because its keys may have moved,
    /// under the new ones because not every resource knows yet what it has to wait for.
    pub fn adopt(&self, generation: u64, owner: impl Fn(&str, &str) -> Option<Resource>) {
        self.0.generation.store(RELOADING, Ordering::SeqCst);
        let mut moved: Vec<(Resource, ExchangeId, Resource)> = Vec::new();
        for shard in &self.0.shards {
            for (resource, cell) in &mut lock(shard).cells {
                reroute_waiting(cell);
                self.publish(cell, clock::monotonic());
                for (exchange, cargo) in cell.manifest.pending() {
                    let others = owners(cargo, resource, &owner).into_iter();
                    moved.extend(others.map(|other| (resource.clone(), exchange, other)));
                }
            }
        }
        for (resource, exchange, other) in moved {
            tracing::info!(resource = %other, from = %resource, "a write under the rules before the reload holds up this resource until it is settled");
            let hold = HoldId(self.0.serial.fetch_add(1, Ordering::Relaxed));
            self.with(&other, |cell, _, _| cell.gate.hold(hold));
            // It may have been settled since it was listed.
            let settled =
                self.with(&resource, |cell, _, _| cell.manifest.attach(exchange, &other, hold));
            if let Some(taint) = settled {
                self.release(vec![(other, hold, taint)]);
            }
        }
        self.0.generation.store(generation, Ordering::SeqCst);
    }

    /// Tells other resources that what held them up is settled.
    pub(super) fn release(&self, releases: Releases) {
        for (resource, hold, taint) in releases {
            self.with(&resource, |cell, now, fresh| cell.gate.release(now, hold, taint, fresh));
        }
    }
}

fn reroute_waiting(cell: &mut Cell) {
    cell.cargo.clear();
    for (ticket, sender) in cell.waiting.drain() {
        cell.gate.leave(ticket);
        // Whoever waited has gone if it cannot be told.
        let _ = sender.send(Err(Turned::Rerouted));
    }
}

/// The other resources that the keys of an exchange belong to now.
fn owners(
    cargo: &Cargo,
    resource: &Resource,
    owner: impl Fn(&str, &str) -> Option<Resource>,
) -> Vec<Resource> {
    let mut others: Vec<Resource> = Vec::new();
    for other in cargo.keys.iter().filter_map(|key| owner(cargo.method.as_str(), key)) {
        if other != *resource && !others.contains(&other) {
            others.push(other);
        }
    }
    others
}
