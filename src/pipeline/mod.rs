//! L2: the path of one request. One file a step; [`Pipeline::serve`] is the list of them.
//!
//! 1. [`frame`]: one well-formed request, meant for us. 2. [`classify`]: what it does, which keys it
//!    touches. 3. [`route`]: the rule and the resource. 4. [`token`]: the token it carries. 5. [`fence`]:
//!    validate, raise, look, take. 6. [`forward`]: to the store, the tail withheld. 7. [`settle`]: what became
//!    of it. Whatever is not certain is a [`refusal`].

pub mod body;
pub mod buffers;
pub mod classify;
pub mod client;
pub mod fence;
pub mod forward;
pub mod frame;
mod plan;
pub mod reaper;
pub mod refusal;
pub mod respond;
pub mod route;
pub mod rules;
mod serve;
pub mod settings;
pub mod settle;
pub mod token;
pub mod upstream;
pub mod worker;

pub use client::{Client, Peer};
pub use plan::{Plan, plan};
pub use serve::Pipeline;
