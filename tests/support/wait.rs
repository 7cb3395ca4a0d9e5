//! Waiting for a fact, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// What a wait allows on a busy machine. Long: it is only used up when a test is about to fail.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Asks `fact` again and again until it holds; panics with `what` when `deadline` has passed.
pub fn wait_for(what: &str, deadline: Duration, mut fact: impl FnMut() -> bool) {
    wait_for_some(what, deadline, || fact().then_some(()));
}

/// Like [`wait_for`], for a fact that comes with a value.
pub fn wait_for_some<T>(what: &str, deadline: Duration, fact: impl FnMut() -> Option<T>) -> T {
    try_wait_for_some(deadline, fact).unwrap_or_else(|| panic!("not within {deadline:?}: {what}"))
}

/// Like [`wait_for_some`]; `None` when `deadline` has passed.
pub fn try_wait_for_some<T>(deadline: Duration, mut fact: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = fact() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Whether the full numbers are asked for (`make test-long`): more rounds, larger bodies, more seeds.
pub fn long() -> bool {
    std::env::var_os("FENCEGATE_LONG").is_some_and(|value| value == "1")
}
