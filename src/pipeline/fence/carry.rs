//! Carries out what gates ask of the ledger.

use super::{Fences, Refusal};
use crate::core::gate::{Action, Quarantine, Sighting, Taint};
use crate::core::{Resource, Token};
use crate::ledger::{Ledger, LedgerError, PermitRecord};

// === impl Fences ===

impl Fences {
    /// Starts one ledger step; its answer goes back to the gate. Runs on the control runtime, so that
    /// it ends even if the thread that asked is gone.
    pub(super) fn carry_out(&self, resource: &Resource, action: Action) {
        let fences = self.clone();
        let resource = resource.clone();
        self.0.control.spawn(async move {
            match action {
                Action::Raise { token } => fences.raise(&resource, token).await,
                Action::Look { token } => fences.look(&resource, token).await,
                Action::Take { id, token } => {
                    let taken = fences.0.ledger.take(&resource, id, token).await.map_err(warn).ok();
                    fences
                        .with(&resource, |cell, now, fresh| cell.gate.taken(now, id, taken, fresh));
                }
                Action::GiveBack { id } => {
                    let confirmed =
                        fences.0.ledger.give_back(&resource, id).await.map_err(warn).is_ok();
                    fences.with(&resource, |cell, now, fresh| {
                        cell.gate.given_back(now, id, confirmed, fresh)
                    });
                }
                Action::Admit { .. } | Action::Refuse { .. } | Action::Cut { .. } => {
                    unreachable!("done inside the critical section")
                }
            }
        });
    }

    async fn raise(&self, resource: &Resource, token: Token) {
        let mark = self.0.ledger.raise(resource, token).await.map_err(warn).ok();
        self.with(resource, |cell, now, fresh| cell.gate.raised(now, mark, fresh));
    }

    async fn look(&self, resource: &Resource, token: Token) {
        let found = self.0.ledger.look(resource, token).await.map_err(warn).ok();
        let someone = found.as_ref().is_some_and(|found| !found.is_empty());
        let quarantine = if someone { self.quarantine(resource) } else { Quarantine::Never };
        self.with(resource, |cell, now, fresh| {
            // A later incarnation holds the lock of the same local file: proof that the owner of an
            // earlier one is dead. What it had sent was abandoned before this process began.
            let sight = |permit: PermitRecord| Sighting {
                id: permit.id,
                token: permit.token,
                taint: Taint::from(self.0.started, quarantine),
            };
            let found = found.map(|found| found.into_iter().map(sight).collect::<Vec<_>>());
            cell.gate.looked(now, token, found.as_deref(), fresh);
        });
    }

    /// Drops every permit of earlier incarnations: on an operator's word, or after their quarantine. Returns
    /// how many there were.
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger did not take it.
    pub async fn drop_foreign(&self, resource: &Resource) -> Result<usize, Refusal> {
        let failed = |cause: LedgerError| {
            warn(cause);
            Refusal::FenceUnavailable {
                resource: resource.clone(),
                why: "the ledger did not take it; try again".into(),
            }
        };
        let permits = self.0.ledger.permits(resource).await.map_err(failed)?;
        let foreign =
            permits.into_iter().filter(|permit| permit.id.incarnation != self.0.incarnation);
        let mut dropped = 0;
        for permit in foreign {
            self.0.ledger.give_back(resource, permit.id).await.map_err(failed)?;
            self.with(resource, |cell, now, fresh| {
                cell.gate.given_back(now, permit.id, true, fresh)
            });
            dropped += 1;
        }
        Ok(dropped)
    }
}

fn warn(cause: LedgerError) -> LedgerError {
    tracing::warn!(error = &cause as &dyn std::error::Error, "ledger step not confirmed");
    cause
}
