//! L2: the path of one request. One file a step; this is the list of steps.

pub mod classify;
pub mod fence;
pub mod refusal;
pub mod settings;
