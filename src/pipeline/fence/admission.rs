//! What an admitted request holds: commit, and settle exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::{Fences, Policy, Validated};
use crate::core::gate::{Admitted, Commit, ExchangeId, Outcome};
use crate::core::{Resource, Token};
use crate::pipeline::refusal::Refusal;
use crate::telemetry::metrics::{Event, Level, RuleCounters, Settled};

/// An admitted request. Forwarding demands one, so the fence cannot be skipped.
///
/// Dropped unsettled (a panic, a bug), it settles as the worst it may be: unknown if bytes of it have
/// left, not sent otherwise.
pub struct Admission {
    fences: Fences,
    resource: Resource,
    policy: Policy,
    exchange: Option<ExchangeId>,
    touched: bool,
    /// Past its commit point, and so in the metrics as in flight.
    counted: bool,
    /// Counts its outcome.
    counters: Option<Arc<RuleCounters>>,
}

/// Tells a streaming exchange, on whichever thread it runs, that it was cut.
#[derive(Default)]
pub struct CutSignal {
    cut: AtomicBool,
    waker: AtomicWaker,
}

// === impl Admission ===

impl Admission {
    pub(super) fn new(
        fences: &Fences,
        resource: &Resource,
        admitted: Admitted,
        policy: &Policy,
    ) -> Admission {
        let exchange = match admitted {
            Admitted::Write(exchange) => Some(exchange),
            Admitted::Pass => None,
        };
        Admission {
            fences: fences.clone(),
            resource: resource.clone(),
            policy: *policy,
            exchange,
            touched: false,
            counted: false,
            counters: None,
        }
    }

    /// Its outcome will be counted for this rule.
    pub fn belongs_to(&mut self, counters: &Arc<RuleCounters>) {
        self.counters = Some(Arc::clone(counters));
    }

    /// The resource that was entered.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Bytes of the body are about to leave: from now on a drop is an unknown outcome.
    pub fn touch(&mut self) {
        self.touched = true;
    }

    /// May the tail leave? [`Commit::Go`] counts the exchange; a read is always free to go.
    pub fn commit(&mut self, validated: Validated) -> Commit {
        let Some(exchange) = self.exchange else { return Commit::Go };
        let age = self.policy.revalidate_after.min(self.fences.freshest());
        let commit = self.fences.with(&self.resource, |cell, now, _| {
            cell.gate.commit(now, exchange, validated.sent, age)
        });
        if commit == Commit::Go {
            self.touched = true;
            self.counted = true;
            self.fences.0.metrics.raise(Level::InFlight);
        }
        commit
    }

    /// Validates `token` again, for a commit point that asks for it.
    ///
    /// # Errors
    /// As [`Fences::validate`].
    /// # Cancel safety
    /// Cancel safe.
    pub async fn revalidate(&self, token: Token) -> Result<Validated, Refusal> {
        self.fences.validate(&self.resource, token, &self.policy).await
    }

    /// A signal that fires when the exchange is cut; at once if it was cut already.
    pub fn cut_signal(&self) -> Arc<CutSignal> {
        let signal = Arc::new(CutSignal::default());
        if let Some(exchange) = self.exchange {
            self.fences.with(&self.resource, |cell, _, _| {
                if cell.gate.is_cut(exchange) {
                    signal.cut();
                } else {
                    cell.cuts.insert(exchange, Arc::clone(&signal));
                }
            });
        }
        signal
    }

    /// The exchange is over. For [`Outcome::Unknown`] its connection has been abandoned by now.
    pub fn settle(mut self, outcome: Outcome) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: Outcome) {
        if let Some(exchange) = self.exchange.take() {
            self.count(outcome);
            let releases = self.fences.with(&self.resource, |cell, now, fresh| {
                cell.cuts.remove(&exchange);
                let taint = cell.gate.settle(now, exchange, outcome, fresh);
                cell.manifest.settle(now, exchange, taint)
            });
            self.fences.release(releases);
        }
    }

    fn count(&mut self, outcome: Outcome) {
        let metrics = &self.fences.0.metrics;
        if std::mem::take(&mut self.counted) {
            metrics.lower(Level::InFlight);
        }
        let settled = match outcome {
            Outcome::NotSent => Settled::NotSent,
            Outcome::Answered { .. } => Settled::Answered,
            Outcome::Unknown => Settled::Unknown,
        };
        if settled == Settled::Unknown {
            metrics.count(Event::Tainted);
        }
        if let Some(counters) = &self.counters {
            counters.settle(settled);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.finish(if self.touched { Outcome::Unknown } else { Outcome::NotSent });
    }
}

// === impl CutSignal ===

impl CutSignal {
    /// Fires it.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it has fired.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Ready once it has fired.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_cut() {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        if self.is_cut() { Poll::Ready(()) } else { Poll::Pending }
    }
}
