//! Validation: is this token the latest of its resource, and may it still write?

use std::time::Duration;

use super::{Fences, Policy, Refusal};
use crate::core::lease::Verdict;
use crate::core::{Millis, Resource, Token};
use crate::lease::LeaseBackend;
use crate::ledger::Ledger;
use crate::telemetry::clock;

/// A validation that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validated {
    /// When its read was *sent*, on the monotonic clock.
    pub sent: Millis,
    /// The mark before that; `None` if there was none.
    pub mark: Option<Token>,
}

/// The age of a validation that costs nothing to repeat: one tick of the clock it is measured by.
const FREE: Duration = Duration::from_millis(1);

// === impl Fences ===

impl Fences {
    /// The oldest validation that a commit point may rely on, whatever the rule allows: where leases are
    /// kept in this process, a look at them costs less than a write that came too late.
    pub(super) fn freshest(&self) -> Duration {
        if self.0.lease.is_local() { FREE } else { Duration::MAX }
    }

    /// Asks the lease backend for a verdict on `token`.
    ///
    /// # Errors
    /// [`Refusal::StaleToken`], [`Refusal::LeaseReleased`], [`Refusal::LeaseExpired`] if the policy demands
    /// a running lease, [`Refusal::UnknownToken`]; [`Refusal::FenceUnavailable`] if there is no sure answer,
    /// or if the backend's answer is below what was durable when it was asked.
    /// # Cancel safety
    /// Cancel safe: it changes nothing but, on a regress, the gate.
    pub async fn validate(
        &self,
        resource: &Resource,
        token: Token,
        policy: &Policy,
    ) -> Result<Validated, Refusal> {
        let unsure = |why: &str| Refusal::FenceUnavailable {
            resource: resource.clone(),
            why: why.to_owned(),
        };
        // Read *before* the question is sent: a mark that rose since is no sign of a regress.
        let mark = match self.known_mark(resource) {
            Some(mark) => Some(mark),
            None => self.0.ledger.mark(resource).await.map_err(|cause| {
                tracing::warn!(error = &cause as &dyn std::error::Error, "mark not read");
                unsure("the mark could not be read; nothing was forwarded, try again")
            })?,
        };
        let sent = clock::monotonic();
        let answer =
            tokio::time::timeout(self.0.timeout, self.0.lease.validate(resource, token)).await;
        let validation = match answer {
            Ok(Ok(validation)) => validation,
            Ok(Err(cause)) => {
                tracing::warn!(error = &cause as &dyn std::error::Error, "token not validated");
                return Err(unsure(
                    "the lease backend gave no sure answer; nothing was forwarded, try again",
                ));
            }
            Err(_) => {
                tracing::warn!(%resource, waited = ?self.0.timeout, "token not validated: no answer from the lease backend");
                return Err(unsure(
                    "the lease backend did not answer in time; nothing was forwarded, try again",
                ));
            }
        };
        if validation.latest < mark {
            tracing::error!(
                %resource, latest = ?validation.latest, ?mark,
                "the lease backend has lost tokens that were in use: the resource fails closed; raise its tokens with `fencegate fence bump`"
            );
            self.with(resource, |cell, _, _| cell.gate.close());
            return Err(closed(resource.clone()));
        }
        let resource = || resource.clone();
        match validation.verdict {
            Verdict::Live => Ok(Validated { sent, mark }),
            Verdict::Expired if !policy.require_live => Ok(Validated { sent, mark }),
            Verdict::Expired => {
                Err(Refusal::LeaseExpired { resource: resource(), presented: token })
            }
            Verdict::Released => {
                Err(Refusal::LeaseReleased { resource: resource(), presented: token })
            }
            Verdict::Stale => Err(Refusal::StaleToken { resource: resource(), presented: token }),
            Verdict::NeverIssued => {
                Err(Refusal::UnknownToken { resource: resource(), presented: token })
            }
        }
    }
}

/// The refusal of a resource that fails closed.
pub(super) fn closed(resource: Resource) -> Refusal {
    let why = format!(
        "the lease backend has lost tokens of {resource} that were in use (a restored snapshot, a flushed database); \
         an operator has to run `fencegate fence bump`"
    );
    Refusal::FenceUnavailable { resource, why }
}
