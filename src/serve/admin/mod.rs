//! The admin listener: lease API, fence API, health, metrics, one page for people.
//!
//! [`router`] is the whole of it; [`listen`] runs it on a TCP or Unix socket. Every error is an
//! RFC 9457 problem, rendered in one place ([`problem`]), and no request reaches a handler before
//! [`guard`] has let it pass.

mod audit;
mod extract;
mod fence;
pub mod guard;
mod health;
mod lease;
pub mod listen;
pub mod openapi;
mod page;
pub mod problem;
pub mod state;
mod watch;

#[cfg(test)]
pub(crate) mod double;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::lease::LeaseBackend;

pub use listen::AdminListener;
pub use state::{AdminState, FenceControl, Parts, Readiness, Reloadable, Subscription};

/// The routes of the admin listener.
///
/// Every request must carry a [`guard::Peer`] extension; [`listen::run`] sets it. A request without
/// one counts as coming from far away.
pub fn router<B: LeaseBackend, F: FenceControl>(state: AdminState<B, F>) -> Router {
    Router::new()
        .route("/v1/lease/acquire", post(lease::acquire::<B, F>))
        .route("/v1/lease/renew", post(lease::renew::<B, F>))
        .route("/v1/lease/release", post(lease::release::<B, F>))
        .route("/v1/lease", get(lease::show::<B, F>))
        .route("/v1/leases", get(lease::list::<B, F>))
        .route("/v1/leases/watch", get(watch::watch::<B, F>))
        .route("/v1/fence/raise", post(fence::raise::<B, F>))
        .route("/v1/fence/bump", post(fence::bump::<B, F>))
        .route("/v1/fence/settle", post(fence::settle::<B, F>))
        .route("/v1/fence", get(fence::show::<B, F>))
        .route("/v1/fence/backup", get(fence::backup::<B, F>))
        .route("/v1/status", get(health::status::<B, F>))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz::<B, F>))
        .route("/metrics", get(health::metrics::<B, F>))
        .route("/openapi.json", get(openapi::openapi))
        .route("/", get(page::page::<B, F>))
        .fallback(problem::no_such_route)
        .layer(from_fn_with_state(state.clone(), guard::guard::<B, F>))
        .layer(axum::middleware::from_fn(problem::render))
        .with_state(state)
}
