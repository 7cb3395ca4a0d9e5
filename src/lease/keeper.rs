//! Keeps one lease: renews ahead of the deadline, publishes what is known on a watch channel.
//!
//! Timers only wake the task; every judgement is made by reading CLOCK_BOOTTIME. A machine that slept, or a
//! process that was stopped, sees on waking that its time is over, whatever its timers say.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

use crate::core::keeper::{Deadlines, Keeper, Lost, Renewal, Step};
use crate::store::clock::Clock;

/// Longest time without reading the clock: timers stand still while the machine sleeps.
const LOOK: Duration = Duration::from_millis(250);

/// What a holder knows of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// It runs; without another renewal, until then.
    Held(Deadlines),
    /// It is over.
    Lost(Lost),
}

/// Renews until the lease is lost or nobody listens any more.
///
/// * `renew` — makes one call. It is dropped when it takes too long.
///
/// # Cancel safety
/// Cancel safe: a dropped keeper stops renewing, and the lease ends by itself.
pub async fn keep<C, F, Renewing>(
    mut keeper: Keeper,
    clock: C,
    mut renew: F,
    publish: watch::Sender<Holding>,
) where
    C: Clock,
    F: FnMut() -> Renewing,
    Renewing: Future<Output = Renewal>,
{
    let mut call: Option<Pin<Box<Renewing>>> = None;
    while !publish.is_closed() {
        match keeper.poll(clock.boottime()) {
            Step::Renew => {
                keeper.sent(clock.boottime());
                call = Some(Box::pin(renew()));
            }
            Step::GiveUp => call = None,
            Step::Lost(lost) => {
                publish.send_replace(Holding::Lost(lost));
                return;
            }
            Step::Wait { until } => {
                let nap = clock.boottime().until(until).min(LOOK);
                tokio::select! {
                    renewal = under_way(&mut call) => {
                        call = None;
                        keeper.answered(renewal, clock.boottime());
                        if renewal == Renewal::Kept {
                            publish.send_replace(Holding::Held(keeper.deadlines()));
                        }
                    }
                    () = tokio::time::sleep(nap) => {}
                }
            }
        }
    }
}

async fn under_way<Renewing: Future<Output = Renewal>>(
    call: &mut Option<Pin<Box<Renewing>>>,
) -> Renewal {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::Instant;

    use super::*;
    use crate::core::Millis;
    use crate::core::keeper::Why;

    const TTL: Duration = Duration::from_secs(30);

    /// Tokio's paused time, from 0.
    #[derive(Clone, Copy)]
    struct Paused(Instant);

    impl Clock for Paused {
        fn boottime(&self) -> Millis {
            Millis(0) + self.0.elapsed()
        }

        fn wall_us(&self) -> u64 {
            0
        }
    }

    /// Keeps a lease whose nth renewal takes so long and comes to that; the last one repeats. Tells when each
    /// was sent, and how it ended.
    async fn kept(script: &[(u64, Renewal)]) -> (Vec<u64>, Option<Lost>) {
        let clock = Paused(Instant::now());
        let sent = RefCell::new(Vec::new());
        let renew = || {
            let nth = sent.borrow().len();
            sent.borrow_mut().push(clock.boottime().0);
            let (ms, renewal) = script[nth.min(script.len() - 1)];
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                renewal
            }
        };
        let keeper = Keeper::new(TTL, clock.boottime());
        let (publish, mut holding) = watch::channel(Holding::Held(keeper.deadlines()));
        let keeping = keep(keeper, clock, renew, publish);
        // Between two renewals, so that it is certain which ones it saw.
        let _ = tokio::time::timeout(Duration::from_secs(295), keeping).await;
        let lost = match *holding.borrow_and_update() {
            Holding::Lost(lost) => Some(lost),
            Holding::Held(_) => None,
        };
        (sent.into_inner(), lost)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_renewed_is_kept() {
        let (sent, lost) = kept(&[(1_000, Renewal::Kept)]).await;
        assert_eq!((sent.len(), &sent[..3]), (29, &[10_000, 20_000, 30_000][..]));
        assert_eq!(lost, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_or_always_fails_loses_the_lease_in_time() {
        let gone_by = Millis(27_000);
        for (ms, renewal) in [(1_000_000, Renewal::Kept), (0, Renewal::Unknown)] {
            let (sent, lost) = kept(&[(ms, renewal)]).await;
            assert_eq!(lost, Some(Lost { why: Why::Unrenewed, gone_by }), "{ms} {renewal:?}");
            assert!(sent.len() >= 2 && *sent.last().unwrap() < 20_000, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_failure_is_made_up_for() {
        let (_, lost) = kept(&[(100_000, Renewal::Kept), (0, Renewal::Kept)]).await;
        assert_eq!(lost, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_it_at_once() {
        let (sent, lost) = kept(&[(500, Renewal::Refused)]).await;
        assert_eq!(sent, [10_000]);
        assert_eq!(lost, Some(Lost { why: Why::Refused, gone_by: Millis(17_500) }));
    }
}
