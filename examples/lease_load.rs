//! Measures the embedded lease backend: cycles per second, memory per resource, time to open.
//!
//! `cargo run --release --example lease_load [RESOURCES [DIRECTORY]]`; 1,000,000 in a temporary
//! directory by default. Figures are of this machine and its disk, which each cycle waits for.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fencegate::core::{Holder, Resource};
use fencegate::lease::embedded::EmbeddedLease;
use fencegate::lease::{Ask, LeaseBackend};
use fencegate::store::embedded::{Options, Store};

const CLIENTS: usize = 64;
const CYCLES: Duration = Duration::from_secs(5);
/// Tells the second process which file to open.
const MEASURE_OPEN: &str = "LEASE_LOAD_OPEN";

fn ask(resource: &str, holder: &str) -> Ask {
    Ask {
        resource: Resource::new(resource).expect("a plain name"),
        holder: Holder::new(holder).expect("a plain name"),
        ttl: Duration::from_secs(24 * 60 * 60),
        wait: Duration::ZERO,
        request_id: None,
    }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

fn open(path: &Path) -> (Store, Duration) {
    let begun = Instant::now();
    let store = Store::open(&Options::new(path)).expect("the database opens");
    (store, begun.elapsed())
}

async fn cycles(lease: &EmbeddedLease) -> usize {
    let until = Instant::now() + CYCLES;
    let clients = (0..CLIENTS).map(|n| {
        let lease = lease.clone();
        tokio::spawn(async move {
            let (resource, mut cycles) = (format!("load/{n}"), 0);
            while Instant::now() < until {
                let grant = lease.acquire(ask(&resource, "bench")).await.expect("a grant");
                lease.release(&grant.resource, grant.token).await.expect("a release");
                cycles += 1;
            }
            cycles
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut total = 0;
    for client in clients {
        total += client.await.expect("a client");
    }
    total
}

async fn fill(lease: &EmbeddedLease, resources: u64) {
    let clients = (0..1_024_u64).map(|n| {
        let lease = lease.clone();
        tokio::spawn(async move {
            for resource in (n..resources).step_by(1_024) {
                // Holders differ, as they would: nothing is shared by luck.
                let ask =
                    ask(&format!("wal/cluster-{resource:07}"), &format!("host-{resource:07}"));
                lease.acquire(ask).await.expect("a grant");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("a client");
    }
}

fn measure_open(path: &Path, resources: u64) {
    let before = resident();
    let (store, took) = open(path);
    let lease = EmbeddedLease::new(store.clone());
    println!("opened in {:.2} s", took.as_secs_f64());
    let used = resident().saturating_sub(before);
    println!("memory: {} bytes per resource, the page cache of redb included", used / resources);
    drop((store, lease));
}

fn main() {
    let mut args = std::env::args().skip(1);
    let resources = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    if let Some(path) = std::env::var_os(MEASURE_OPEN) {
        return measure_open(Path::new(&path), resources);
    }
    let directory = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("lease-load-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("fencegate.redb");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");

    let (store, _) = open(&path);
    let lease = EmbeddedLease::new(store.clone());
    let total = runtime.block_on(cycles(&lease));
    println!(
        "{CLIENTS} clients: {:.0} acquire+release cycles/s",
        total as f64 / CYCLES.as_secs_f64()
    );

    let begun = Instant::now();
    runtime.block_on(fill(&lease, resources));
    println!("{resources} leases granted in {:.1} s", begun.elapsed().as_secs_f64());
    store.close().expect("a clean end");
    drop((store, lease));
    let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    println!("file: {} bytes per resource", bytes / resources);

    // In a process of its own, so that memory freed by the filling does not count.
    let me = std::env::current_exe().expect("this program");
    let mut open = std::process::Command::new(me);
    let status = open.env(MEASURE_OPEN, &path).arg(resources.to_string()).status();
    assert!(status.expect("a second process").success());
    std::fs::remove_dir_all(&directory).expect("removed");
}
