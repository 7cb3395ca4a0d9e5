//! What an earlier process left open, and under which rules: whether this one can tell whom it concerns.
//!
//! A permit in the ledger holds up the successors on *its* resource. That is enough as long as keys belong
//! to the same resources as when it was taken. So the ledger keeps a hash of the rules under which all of
//! its permits were taken, or that nobody can say; and where rules have moved, or permits may be missing
//! because the file was restored or lost, every resource is held until what was open must have settled.

use std::time::Duration;

use crate::core::gate::{Incarnation, PermitId, Quarantine};
use crate::pipeline::fence::Fences;
use crate::pipeline::rules::RuleSet;
use crate::store::embedded::{Store, StoreError};
use crate::telemetry::clock;

/// How often it is looked whether the permits of before are gone.
const POLL: Duration = Duration::from_millis(200);

/// Watches over what was left open; at most one task at a time.
pub(super) struct Leftovers {
    store: Store,
    fences: Fences,
    incarnation: Incarnation,
    watching: Option<tokio::task::JoinHandle<()>>,
}

// === impl Leftovers ===

impl Leftovers {
    /// Looks at what earlier processes left in the ledger `store`, and holds every resource if that may
    /// concern any of them under `rules`. Call it before anything is served.
    ///
    /// # Errors
    /// [`StoreError`] if the ledger cannot be written.
    pub async fn begin(
        store: Store,
        fences: Fences,
        incarnation: Incarnation,
        rules: &RuleSet,
    ) -> Result<Leftovers, StoreError> {
        let mut leftovers = Leftovers { store, fences, incarnation, watching: None };
        let mapping = rules.mapping();
        let same = leftovers.store.mapping_at_open() == Some(mapping);
        let open = leftovers.of_others();
        let doubt = leftovers.store.in_doubt_at_open();
        let longest = rules.longest_quarantine();
        if doubt || (open > 0 && !same) {
            let why = match doubt {
                true => "the ledger was restored, copied or lost, so permits may be missing in it",
                false => "the rules have changed since an earlier process left writes open",
            };
            let ends = match longest {
                Quarantine::For(after) => format!("for {after:?}, the longest settle_after"),
                Quarantine::Never => {
                    "until `fencegate fence settle` (settle_after is \"never\")".to_owned()
                }
            };
            tracing::warn!(
                permits = open,
                ends,
                "every resource is held: {why}, and any of them may be concerned"
            );
            leftovers.fences.hold_all(longest);
            // Another crash, and a start under the very rules of before, must find out as well.
            leftovers.store.set_mapping(None).await?;
            leftovers.watch(longest, Some(mapping), doubt, 0);
        } else {
            if !same {
                leftovers.store.set_mapping(Some(mapping)).await?;
            }
            if open > 0 {
                leftovers.watch(longest, None, false, 0);
            }
        }
        Ok(leftovers)
    }

    /// The rules are about to change: from now on permits of both are in the ledger.
    ///
    /// # Errors
    /// [`StoreError`] if the ledger cannot be written: then the rules must not change.
    pub async fn changing(&mut self) -> Result<(), StoreError> {
        // First of all: it would say, after this, what is not true any more.
        if let Some(task) = self.watching.take() {
            task.abort();
            let _ = task.await;
        }
        self.store.set_mapping(None).await
    }

    /// They have changed to `rules`, and every request was routed again that has no permit yet. Says so in
    /// the ledger once no permit of before is left in it.
    pub fn changed(&mut self, rules: &RuleSet) {
        let doubt = self.store.in_doubt_at_open() && self.fences.held_on_all().is_some();
        let first_after = self.fences.next_serial();
        self.watch(rules.longest_quarantine(), Some(rules.mapping()), doubt, first_after);
    }

    fn of_others(&self) -> usize {
        self.store.with_permits(|id| id.incarnation != self.incarnation).len()
    }

    /// Until no permit of earlier processes is left, nor one of ours with a serial below `first_after`; in
    /// doubt, until the quarantine from the start is over, too. Then says so with `mapping`.
    fn watch(&mut self, longest: Quarantine, mapping: Option<u128>, doubt: bool, first_after: u64) {
        let (store, fences) = (self.store.clone(), self.fences.clone());
        let incarnation = self.incarnation;
        let ends = fences.quarantine_from_start(longest);
        let of_before =
            move |id: PermitId| id.incarnation != incarnation || id.serial < first_after;
        let task = async move {
            loop {
                let over = ends.is_some_and(|ends| ends <= clock::monotonic());
                if over {
                    sweep(&store, &fences, incarnation).await;
                }
                if (over || !doubt) && store.with_permits(of_before).is_empty() {
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
            if let Some(mapping) = mapping {
                settled(&store, &fences, mapping).await;
            }
        };
        self.watching = Some(tokio::spawn(task));
    }
}

/// Drops the permits of earlier processes once their quarantine is over: nobody needs them, and a later
/// start would count it anew.
async fn sweep(store: &Store, fences: &Fences, incarnation: Incarnation) {
    for resource in store.with_permits(|id| id.incarnation != incarnation) {
        // What the ledger does not take is tried again.
        if fences.drop_foreign(&resource).await.is_err() {
            return;
        }
        tracing::info!(%resource, "permits of an earlier process are over and dropped");
    }
}

async fn settled(store: &Store, fences: &Fences, mapping: u128) {
    if store.set_mapping(Some(mapping)).await.is_ok() {
        if fences.held_on_all().is_some() {
            tracing::info!("nothing of an earlier process is open any more: no resource is held");
        }
        fences.lift_hold_on_all();
    }
}
