//! Opens what has to be durable: the database of the leases, and that of marks and permits.

use crate::core::gate::Incarnation;
use crate::lease::AnyLease;
use crate::lease::embedded::EmbeddedLease;
use crate::ledger::AnyLedger;
use crate::ledger::embedded::EmbeddedLedger;
use crate::store::embedded::{Options, Store, StoreError};
use crate::{lease, ledger};

/// Why one of them could not be opened.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct OpenError(#[from] pub StoreError);

/// The open databases and what works on them.
pub(super) struct Opened {
    pub lease: AnyLease,
    pub embedded: EmbeddedLease,
    pub ledger: AnyLedger,
    pub incarnation: Incarnation,
    /// The one with marks and permits first; the leases' own if it is another.
    pub stores: Vec<Store>,
}

/// Opens them. Blocks for as long as `open_wait` says.
pub(super) fn open(lease: &lease::Config, ledger: &ledger::Config) -> Result<Opened, OpenError> {
    let open = |path: &std::path::Path| {
        Store::open(&Options { open_wait: lease.open_wait.0, ..Options::new(path) })
    };
    let leases = open(&lease.path)?;
    let mut stores = Vec::new();
    let marks = match &ledger.path {
        Some(path) if *path != lease.path => {
            let marks = open(path)?;
            stores.push(marks.clone());
            marks
        }
        _ => leases.clone(),
    };
    stores.push(leases.clone());
    let embedded = EmbeddedLease::new(leases);
    Ok(Opened {
        lease: AnyLease::Embedded(embedded.clone()),
        embedded,
        incarnation: marks.incarnation(),
        ledger: AnyLedger::Embedded(EmbeddedLedger::new(marks)),
        stores,
    })
}
