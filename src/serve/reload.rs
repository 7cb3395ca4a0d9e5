//! SIGHUP: a new configuration without dropping a request; a bad one changes nothing.

use std::sync::Arc;

use super::admin::{AdminState, Reloadable};
use super::leftovers::Leftovers;
use super::{Load, Setup, Shared};
use crate::lease::AnyLease;
use crate::pipeline::rules::RuleSet;
use crate::store::secret::{Secret, SecretError};

/// Reads the configuration again and puts it in force.
pub(super) async fn reload(
    load: &Load,
    shared: &Shared,
    admin: &AdminState<AnyLease>,
    leftovers: &mut Leftovers,
    first: &Setup,
) {
    let setup = match load() {
        Ok(setup) => setup,
        Err(faults) => {
            tracing::error!(%faults, "the configuration was not reloaded: it is bad, the old one stays in force");
            return;
        }
    };
    let before = shared.pipeline.rules.load_full();
    let rules = RuleSet::new(
        &setup.pipeline,
        setup.rules.clone(),
        setup.discards_torn,
        Some(&before),
        &shared.pipeline.metrics,
    );
    let (rules, reloadable) = match (rules, reloadable(&setup)) {
        (Ok(rules), Ok(reloadable)) => (Arc::new(rules), reloadable),
        (Err(error), _) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "the configuration was not reloaded: the old one stays in force"
            );
            return;
        }
        (_, Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "the configuration was not reloaded: the old one stays in force"
            );
            return;
        }
    };
    for (what, changed) in [
        ("proxy.listen", setup.proxy.listen != first.proxy.listen),
        ("admin.listen", setup.admin.listen != first.admin.listen),
        ("lease", setup.lease != first.lease),
        ("ledger", setup.ledger != first.ledger),
    ] {
        if changed {
            tracing::warn!(
                what,
                "changed in the configuration, but takes effect only after a restart"
            );
        }
    }
    let pipeline = &shared.pipeline;
    let moved = rules.mapping() != before.mapping();
    if moved && let Err(error) = leftovers.changing().await {
        let error = &error as &dyn std::error::Error;
        tracing::error!(error, "the configuration was not reloaded: the old one stays in force");
        return;
    }
    pipeline.rules.store(Arc::clone(&rules));
    pipeline.fences.set_policy(rules.policy, rules.quarantines());
    pipeline.fences.adopt(rules.generation, |method, key| {
        rules.table.lookup(method, key).ok().flatten().and_then(|found| found.resource)
    });
    if moved {
        leftovers.changed(&rules);
    }
    admin.reload(reloadable);
    shared.status_rules.store(Arc::new(setup.rules_status));
    tracing::info!(
        generation = rules.generation,
        rules = rules.rules.len(),
        rules_before = before.rules.len(),
        keys_moved = moved,
        "configuration reloaded"
    );
}

/// What the admin side takes from the configuration, its secrets read.
pub(super) fn reloadable(setup: &Setup) -> Result<Reloadable, SecretError> {
    let tokens: Result<Vec<Secret>, SecretError> =
        setup.admin.tokens.iter().map(|token| token.read()).collect();
    Ok(Reloadable { tokens: tokens?, drain_wait: setup.pipeline.fence.drain_wait.0 })
}
