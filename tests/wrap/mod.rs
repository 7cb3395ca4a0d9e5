//! Programs under a lease: `fencegate run`, `hold`, `with`, and the sidecar between them and the proxy.

/// Real programs under `run` and `with`.
mod clients;
/// `hold` and `with`: a term that somebody keeps, and commands that use its token.
mod hold;
/// `run` when the lease is lost, in every way, and what is left then: nothing.
mod lost;
/// What was stopped for longer than its lease, on waking.
mod paused;
/// `run`: statuses, signals, the lease and what runs under it.
mod run;
/// The sidecar of `run` and `with`.
mod sidecar;
