//! L2: the path of one request. One file a step; this is the list of steps.

pub mod body;
pub mod classify;
pub mod fence;
pub mod frame;
pub mod reaper;
pub mod refusal;
pub mod respond;
pub mod route;
pub mod rules;
pub mod settings;
pub mod token;
pub mod upstream;
pub mod worker;
