//! Integration tests: one program, one module per topic (one program links once).

mod support;

/// Completions and manual pages.
mod completions;
/// `fencegate check` and the files under `config/`.
mod config;
/// What every lease backend and every ledger promises, and what the embedded database adds to it.
mod contract;
/// Links and commands in the README and the docs.
mod docs;
/// The embedded database behind the real program: kills, restores, clocks, trouble with the disk.
mod durable;
/// `fencegate explain`, beside a gate with the same configuration.
mod explain;
/// Takeovers while writes are in flight, on a store that does exactly what it is told.
mod fence;
/// The gate that the other tests start.
mod gate_works;
/// The image's build, as far as it can be followed without a registry.
mod image;
/// Who may use whom, and how long a file may be.
mod layering;
/// What a scrape of the metrics shows, and what it must not.
mod metrics;
/// Safety scenarios against a program without a guard.
#[cfg(feature = "must-fail")]
mod must_fail;
/// The lease API against its OpenAPI document.
mod openapi;
/// `fencegate status`, and what it rests on.
mod status;
/// Takeovers, byte fidelity and odd keys on real stores, with real clients.
mod stores;
/// The starters of real stores, the scripted store, the bare client.
mod support_works;
/// HTTP on the wire: framing, early answers, limits, the end, reloads, secrets.
mod wire;
/// Programs under a lease: `run`, `hold`, `with` and their sidecar.
mod wrap;
