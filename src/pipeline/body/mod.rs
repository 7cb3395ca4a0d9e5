//! Bodies on their way up and down: one concrete type each, no boxing, no copying.

mod down;
mod tail;
mod up;

pub(in crate::pipeline) use down::strip_token;
pub use down::{DownBody, ReadBody, Relay, Torn};
pub use tail::{Tail, TailError};
pub use up::{Broken, Cut, Progress, StreamControl, UpBody, Whole};
