//! Bodies on their way up and down: one concrete type each, no boxing, no copying.

mod down;
mod tail;
mod up;

pub use down::DownBody;
pub use tail::{Tail, TailError};
pub use up::{Broken, Cut, Progress, StreamControl, UpBody};
