//! What an operator sees of fences.

use super::{Fences, Refusal, lock};
use crate::core::gate::{Gate, PermitState, Taint};
use crate::core::{Millis, Resource, Token};
use crate::ledger::{Ledger, LedgerError};
use crate::telemetry::clock;

/// One permit as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PermitView {
    /// Its id: incarnation and serial.
    pub id: String,
    /// Its token.
    pub token: Token,
    /// Whether this process took it.
    pub mine: bool,
    /// Exchanges past their commit point.
    pub counted: usize,
    /// Exchanges admitted, not past their commit point.
    pub streaming: usize,
    /// Whether an outcome under it is unknown.
    pub tainted: bool,
    /// When the taint ends by itself; absent if only an operator ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clears_in_ms: Option<u64>,
}

/// One resource's fence as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FenceView {
    /// Whose fence.
    pub resource: Resource,
    /// The highest token a fenced operation was admitted with.
    pub mark: Option<Token>,
    /// Every permit of the ledger.
    pub permits: Vec<PermitView>,
    /// Requests that wait for older writes to settle.
    pub waiting: usize,
    /// Why the resource fails closed, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

// === impl Fences ===

impl Fences {
    /// What the fence of a resource looks like now.
    ///
    /// # Errors
    /// [`Refusal::FenceUnavailable`] if the ledger cannot be read.
    pub async fn show(&self, resource: &Resource) -> Result<FenceView, Refusal> {
        let failed = |cause: LedgerError| {
            tracing::warn!(error = &cause as &dyn std::error::Error, "fence not read");
            Refusal::FenceUnavailable {
                resource: resource.clone(),
                why: "the ledger cannot be read; try again".into(),
            }
        };
        let mark = self.0.ledger.mark(resource).await.map_err(failed)?;
        let recorded = self.0.ledger.permits(resource).await.map_err(failed)?;
        let mut view = self.in_memory(resource);
        view.mark = view.mark.max(mark);
        for permit in recorded {
            let id = permit.id.to_string();
            if view.permits.iter().any(|known| known.id == id) {
                continue;
            }
            let mine = permit.id.incarnation == self.0.incarnation;
            // An earlier incarnation's outcomes are unknown until the quarantine, counted from this start.
            let taint = if mine {
                Taint::Clear
            } else {
                Taint::from(self.0.started, self.quarantine(resource))
            };
            let state =
                PermitState { id: permit.id, token: permit.token, counted: 0, open: 0, taint };
            view.permits.push(permit_view(&state, mine));
        }
        Ok(view)
    }

    /// Every resource with a permit, a waiter or a reason to fail closed, by name, at most `limit`.
    pub fn busy(&self, limit: usize) -> Vec<FenceView> {
        let mut names: Vec<Resource> = Vec::new();
        for shard in &self.0.shards {
            names.extend(
                lock(shard)
                    .cells
                    .iter()
                    .filter(|(_, cell)| !cell.gate.is_idle())
                    .map(|(name, _)| name.clone()),
            );
        }
        names.sort();
        names.truncate(limit);
        names.iter().map(|resource| self.in_memory(resource)).collect()
    }

    pub(super) fn in_memory(&self, resource: &Resource) -> FenceView {
        let shard = lock(self.shard(resource));
        let gate = shard.cells.get(resource).map(|cell| &cell.gate);
        FenceView {
            resource: resource.clone(),
            mark: gate.and_then(|gate| gate.mark()),
            permits: gate.map(permits_of).unwrap_or_default(),
            waiting: gate.map_or(0, |gate| gate.waiting()),
            closed: gate
                .filter(|gate| gate.is_closed())
                .map(|_| "the lease backend has lost tokens".to_owned()),
        }
    }
}

fn permits_of(gate: &Gate) -> Vec<PermitView> {
    let ours = gate.permits().map(|state| permit_view(&state, true));
    ours.chain(gate.foreign().map(|state| permit_view(&state, false))).collect()
}

fn permit_view(state: &PermitState, mine: bool) -> PermitView {
    let now = clock::monotonic();
    let clears = |ends: Millis| u64::try_from(now.until(ends).as_millis()).unwrap_or(u64::MAX);
    PermitView {
        id: state.id.to_string(),
        token: state.token,
        mine,
        counted: state.counted,
        streaming: state.open,
        tainted: !state.taint.is_over(now),
        clears_in_ms: match state.taint {
            Taint::Until(ends) if ends > now => Some(clears(ends)),
            _ => None,
        },
    }
}
