//! Signals that are passed on to a command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What is passed on.
pub(super) const FORWARDED: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals of this process that are to be passed on, as they arrive.
pub(super) struct Signals(Vec<(Signal, Stream)>);

// === impl Signals ===

impl Signals {
    /// Takes them over. One that was ignored from the start (`nohup`, a shell's background) stays ignored.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub(super) fn new() -> io::Result<Signals> {
        let wanted = FORWARDED.into_iter().filter(|number| !is_ignored(*number));
        let streams = wanted.map(|number| {
            signal(SignalKind::from_raw(number as i32)).map(|stream| (number, stream))
        });
        streams.collect::<io::Result<_>>().map(Signals)
    }

    /// The next one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (number, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether this process was started with the signal ignored. Reads it from the kernel: to ask `sigaction` is
/// unsafe in Rust. Not to be asked once a handler is installed.
///
/// # Reference
/// proc(5), `SigIgn` of /proc/PID/status.
pub(super) fn is_ignored(number: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) >> (number as u32 - 1) & 1 == 1
}

fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_is_ignored() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored(status), 1 << 12 | 1);
        // Rust ignores SIGPIPE from the start.
        assert!(is_ignored(Signal::SIGPIPE) && !is_ignored(Signal::SIGTERM));
    }
}
