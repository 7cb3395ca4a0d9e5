//! A renewal at the very end of a lease against its successor's acquire: only one finds it its own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencegate::core::Millis;
use fencegate::lease::embedded::EmbeddedLease;
use fencegate::lease::{Ask, LeaseBackend, LeaseError};
use fencegate::store::clock::{Clock, ManualClock};
use fencegate::store::embedded::{Options, Store};

use super::{WALL_US, ask, name};

/// How long each side is given to reach the point where the other one waits for it.
const PATIENCE: Duration = Duration::from_millis(500);
const RENEWER: &str = "renewer";
const WRITER: &str = "fencegate-store";

/// Stops a renewal right after it has read the time, until a successor was judged; and stops the
/// successor's grant right after it was judged, until the renewal has ended. Where the code leaves no
/// such point, patience ends and nothing is stopped.
struct StopClock {
    clock: ManualClock,
    /// The lease runs out at this reading of the writer's, counted down: after it has looked for leases
    /// that ran out, and before it judges the successor.
    runs_out_in: AtomicU32,
    renewal_has_the_time: Sender<()>,
    grant_is_judged: (Sender<()>, Mutex<Receiver<()>>),
    renewal_has_ended: Mutex<Receiver<()>>,
}

fn on_thread(name: &str) -> bool {
    std::thread::current().name() == Some(name)
}

impl Clock for StopClock {
    fn boottime(&self) -> Millis {
        let last = |n: u32| n.checked_sub(1);
        let order = Ordering::SeqCst;
        if on_thread(WRITER) && self.runs_out_in.fetch_update(order, order, last) == Ok(1) {
            self.clock.advance(Duration::from_millis(600));
        }
        let now = self.clock.boottime();
        if on_thread(RENEWER) && self.renewal_has_the_time.send(()).is_ok() {
            let _ = self.grant_is_judged.1.lock().unwrap().recv_timeout(PATIENCE);
        }
        now
    }

    /// The writer reads it for the new token, between its judgement and the commit.
    fn wall_us(&self) -> u64 {
        if on_thread(WRITER) && self.clock.boottime() > Millis(2_000) {
            let _ = self.grant_is_judged.0.send(());
            let _ = self.renewal_has_ended.lock().unwrap().recv_timeout(PATIENCE);
        }
        self.clock.wall_us()
    }
}

#[tokio::test]
async fn a_lease_renewed_at_its_very_end_is_not_granted_to_another() {
    let (renewal_has_the_time, has_the_time) = channel();
    let (judged, is_judged) = channel();
    let (ended, renewal_has_ended) = channel();
    let clock = Arc::new(StopClock {
        clock: ManualClock::new(Millis(1_000), WALL_US),
        runs_out_in: AtomicU32::new(0),
        renewal_has_the_time,
        grant_is_judged: (judged, Mutex::new(is_judged)),
        renewal_has_ended: Mutex::new(renewal_has_ended),
    });
    let dir = tempfile::tempdir().unwrap();
    let options = Options { clock: clock.clone(), ..Options::new(dir.path().join("x.redb")) };
    let lease = EmbeddedLease::new(Store::open(&options).unwrap());
    let short = |holder| Ask { ttl: Duration::from_secs(1), ..ask("wal", holder) };
    let token = lease.acquire(short("a")).await.unwrap().token;

    clock.clock.advance(Duration::from_millis(600));
    let renewer = std::thread::Builder::new().name(RENEWER.into());
    let renewal = renewer.spawn({
        let lease = lease.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let renewed = runtime.unwrap().block_on(lease.renew(&name("wal"), token, None));
            let _ = ended.send(());
            renewed
        }
    });
    has_the_time.recv().unwrap();
    clock.runs_out_in.store(2, Ordering::SeqCst);
    let second = lease.acquire(Ask { wait: Duration::from_millis(100), ..short("b") }).await;
    let renewed = renewal.unwrap().join().unwrap();
    match (&renewed, &second) {
        (Ok(_), Err(LeaseError::Held { .. })) | (Err(LeaseError::Lost { .. }), Ok(_)) => {}
        both => panic!("renewed and granted: {both:?}"),
    }
}
