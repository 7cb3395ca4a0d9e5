//! A hold on every resource: after a start that cannot tell which of them a write of before may still touch.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use hashbrown::HashSet;

use super::{Fences, lock};
use crate::core::gate::{Gate, HoldId, PermitId, Quarantine, Taint};
use crate::core::{Millis, Resource};

/// Ids of other holds start at 1.
const ON_ALL: HoldId = HoldId(0);

/// What holds up every resource.
pub(super) struct HoldOnAll {
    taint: Taint,
    /// Resources that an operator declared settled.
    settled: HashSet<Resource>,
}

// === impl Fences ===

impl Fences {
    /// Holds up every resource until `quarantine` has passed since the process began, or
    /// [`lift_hold_on_all`](Fences::lift_hold_on_all). Call it before anything is served.
    pub fn hold_all(&self, quarantine: Quarantine) {
        let taint = Taint::from(self.0.started, quarantine);
        self.change_hold(|hold| *hold = Some(HoldOnAll { taint, settled: HashSet::new() }));
    }

    /// Nothing of before can land any more.
    pub fn lift_hold_on_all(&self) {
        self.change_hold(|hold| *hold = None);
        let mut held = Vec::new();
        for shard in &self.0.shards {
            let shard = lock(shard);
            let cells = shard.cells.iter().filter(|(_, cell)| cell.gate.is_held_by(ON_ALL));
            held.extend(cells.map(|(name, _)| name.clone()));
        }
        for resource in held {
            self.with(&resource, |cell, now, fresh| {
                cell.gate.release(now, ON_ALL, Taint::Clear, fresh);
            });
        }
    }

    /// How long the hold on every resource goes on; `None` if there is none.
    pub fn held_on_all(&self) -> Option<Taint> {
        self.change_hold(|hold| hold.as_ref().map(|hold| hold.taint))
    }

    /// When a quarantine ends that is counted from the start of the process; `None`: an operator ends it.
    pub fn quarantine_from_start(&self, quarantine: Quarantine) -> Option<Millis> {
        match Taint::from(self.0.started, quarantine) {
            Taint::Until(ends) => Some(ends),
            Taint::Clear => Some(self.0.started),
            Taint::Forever => None,
        }
    }

    /// Permits of this process that were asked for before this call have lower serials; later ones do not.
    pub fn next_serial(&self) -> u64 {
        self.0.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// The hold is not on this resource any more: an operator says that nothing of before will land.
    pub(super) fn hold_no_more(&self, resource: &Resource) {
        self.change_hold(|hold| {
            if let Some(hold) = hold {
                hold.settled.insert(resource.clone());
            }
        });
    }

    /// A gate that knows nothing yet but what holds it up.
    pub(super) fn new_gate(&self, resource: &Resource, now: Millis, fresh: PermitId) -> Gate {
        let mut gate = Gate::new(self.0.guards);
        let taint = self.change_hold(|hold| {
            let hold = hold.as_ref().filter(|hold| !hold.settled.contains(resource))?;
            Some(hold.taint).filter(|taint| !taint.is_over(now))
        });
        if let Some(taint) = taint {
            gate.hold(ON_ALL);
            gate.release(now, ON_ALL, taint, fresh);
        }
        gate
    }

    // Always the last lock to be taken, so that it may be taken inside a shard's.
    fn change_hold<T>(&self, change: impl FnOnce(&mut Option<HoldOnAll>) -> T) -> T {
        change(&mut self.0.hold_on_all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
