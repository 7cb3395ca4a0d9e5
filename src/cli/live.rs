//! `fencegate check --live`: looks whether what the configuration names is there.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::config::Config;
use crate::pipeline::settings::UpstreamSettings;
use crate::pipeline::upstream::Endpoint;
use crate::store::embedded::{Place, look};
use crate::telemetry::log::chain;

/// What one look found.
#[derive(Debug, Serialize)]
pub(super) struct Look {
    /// What was looked at: `upstream`, `upstreams.NAME`, or a file.
    what: String,
    /// Whether a server could work with it now.
    pub(super) ok: bool,
    /// What was seen, or what is wrong.
    seen: String,
}

/// Connects to every store and looks at every database. Sends no request and changes nothing.
pub(super) fn all(config: &Config) -> Vec<Look> {
    let settings = &config.pipeline;
    let named = settings.upstreams.iter().map(|(name, store)| (format!("upstreams.{name}"), store));
    let stores = std::iter::once(("upstream".to_owned(), &settings.upstream)).chain(named);
    let mut looks: Vec<Look> = stores.map(|(name, store)| store_of(name, store)).collect();
    let files: BTreeSet<_> =
        std::iter::once(&config.lease.path).chain(&config.ledger.path).collect();
    looks.extend(files.into_iter().map(|file| {
        let what = file.display().to_string();
        match look(file) {
            Ok(Place::Absent) => {
                Look { what, ok: true, seen: "not there yet; it will be made".into() }
            }
            Ok(Place::Free) => {
                Look { what, ok: true, seen: "there, and nobody has it open".into() }
            }
            Ok(Place::InUse { holder }) => {
                Look { what, ok: true, seen: format!("in use by {holder}") }
            }
            Err(error) => Look { what, ok: false, seen: chain(&error) },
        }
    }));
    looks
}

fn store_of(what: String, store: &UpstreamSettings) -> Look {
    let probe = || -> Result<(), String> {
        let endpoint = Endpoint::parse(&store.url).map_err(|error| chain(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(endpoint.probe(store.connect_timeout.0)).map_err(|error| chain(&error))
    };
    match probe() {
        Ok(()) => Look { what, ok: true, seen: "takes connections".into() },
        Err(why) => Look {
            what,
            ok: false,
            seen: format!("{why}; is the store running, and is its url right?"),
        },
    }
}

/// The looks as people read them.
pub(super) fn people(looks: &[Look]) -> String {
    let mut text = String::from("\nlive\n");
    for Look { what, ok, seen } in looks {
        let mark = if *ok { "ok" } else { "BAD" };
        text.push_str(&format!("  {mark:<4} {what}: {seen}\n"));
    }
    text
}
