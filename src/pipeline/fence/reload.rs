//! A reload while writes are in flight: exchanges belong to the rules they were admitted with, and a
//! resource that is given one of their keys waits until they have settled.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::cell::Cell;
use super::{Fences, Turned, lock};
use crate::core::gate::{ExchangeId, HoldId, Outcome, Taint};
use crate::core::{Millis, Resource};

/// What an admitted write writes, to see which resource its keys belong to after a reload.
#[derive(Clone, Debug, Default)]
pub struct Cargo {
    /// The version of the rules that routed it.
    pub generation: u64,
    /// Its method: rules may ask for it.
    pub method: String,
    /// Its keys, as decoded.
    pub keys: Vec<String>,
}

/// The exchanges of one resource whose end a reload may have to wait for.
#[derive(Default)]
pub(super) struct Manifest {
    open: HashMap<ExchangeId, (Cargo, Vec<(Resource, HoldId)>)>,
    /// Settled with an unknown outcome.
    unknown: Vec<(Cargo, Taint)>,
}

/// What has to be told to other resources when an exchange is settled.
pub(super) type Releases = Vec<(Resource, HoldId, Taint)>;

// === impl Manifest ===

impl Manifest {
    pub fn add(&mut self, exchange: ExchangeId, cargo: Cargo) {
        self.open.insert(exchange, (cargo, Vec::new()));
    }

    /// The exchange is settled. Returns the holds that end with it.
    pub fn settle(
        &mut self,
        now: Millis,
        exchange: ExchangeId,
        outcome: Outcome,
        taint: Taint,
    ) -> Releases {
        self.unknown.retain(|(_, taint)| !taint.is_over(now));
        let Some((cargo, holds)) = self.open.remove(&exchange) else { return Vec::new() };
        let taint = if outcome == Outcome::Unknown { taint } else { Taint::Clear };
        if taint != Taint::Clear {
            self.unknown.push((cargo, taint));
        }
        holds.into_iter().map(|(resource, hold)| (resource, hold, taint)).collect()
    }

    /// An operator says that nothing unknown will land any more.
    pub fn settle_all(&mut self) {
        self.unknown.clear();
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self, now: Millis) -> bool {
        self.open.is_empty() && self.unknown.iter().all(|(_, taint)| taint.is_over(now))
    }
}

// === impl Fences ===

impl Fences {
    /// Changes to the rules of `generation`, which give each key the resource that `owner` says.
    ///
    /// Requests that wait are routed again. Call it after the new rules were published: whatever enters
    /// later under the old ones is turned away by its generation.
    pub fn adopt(&self, generation: u64, owner: impl Fn(&str, &str) -> Option<Resource>) {
        self.0.generation.store(generation, Ordering::SeqCst);
        let mut held: Vec<(Resource, HoldId, Taint)> = Vec::new();
        for shard in &self.0.shards {
            for (resource, cell) in &mut lock(shard).cells {
                self.reroute_waiting(cell);
                for (cargo, holds) in cell.manifest.open.values_mut() {
                    for other in owners(cargo, resource, &owner) {
                        let hold = self.new_hold();
                        holds.push((other.clone(), hold));
                        held.push((other, hold, Taint::Clear));
                    }
                }
                for (cargo, taint) in &cell.manifest.unknown {
                    held.extend(
                        owners(cargo, resource, &owner)
                            .map(|other| (other, self.new_hold(), *taint)),
                    );
                }
            }
        }
        for (resource, hold, taint) in held {
            tracing::info!(%resource, "a write under the rules before the reload holds up this resource until it is settled");
            self.with(&resource, |cell, now, fresh| {
                cell.gate.hold(hold);
                cell.gate.release(now, hold, taint, fresh);
            });
            // Settled between the two critical sections: its release came before the hold.
            self.release_if_gone(&resource, hold);
        }
    }

    fn reroute_waiting(&self, cell: &mut Cell) {
        for (ticket, sender) in cell.waiting.drain() {
            cell.gate.leave(ticket);
            // Whoever waited has gone if it cannot be told.
            let _ = sender.send(Err(Turned::Rerouted));
        }
    }

    fn new_hold(&self) -> HoldId {
        HoldId(self.0.serial.fetch_add(1, Ordering::Relaxed))
    }

    fn release_if_gone(&self, resource: &Resource, hold: HoldId) {
        let early = self
            .0
            .early_releases
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&hold);
        if let Some(taint) = early {
            self.with(resource, |cell, now, fresh| cell.gate.release(now, hold, taint, fresh));
        }
    }

    /// Tells other resources that what held them up is settled.
    pub(super) fn release(&self, releases: Releases) {
        for (resource, hold, taint) in releases {
            let known = self.with(&resource, |cell, now, fresh| {
                let known = cell.gate.is_held_by(hold);
                cell.gate.release(now, hold, taint, fresh);
                known
            });
            if !known {
                let mut early =
                    self.0.early_releases.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                early.insert(hold, taint);
                drop(early);
                if self.with(&resource, |cell, _, _| cell.gate.is_held_by(hold)) {
                    self.release_if_gone(&resource, hold);
                }
            }
        }
    }
}

/// The other resources that the keys of an exchange belong to now.
fn owners<'a>(
    cargo: &'a Cargo,
    resource: &'a Resource,
    owner: &'a impl Fn(&str, &str) -> Option<Resource>,
) -> impl Iterator<Item = Resource> + 'a {
    cargo
        .keys
        .iter()
        .filter_map(|key| owner(&cargo.method, key))
        .filter(move |other| other != resource)
}
