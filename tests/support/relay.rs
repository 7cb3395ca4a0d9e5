//! Stands between a gate and a real store: passes every byte on, and knows how many went up.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::wait::{DEADLINE, wait_for};

/// A running relay; its threads end with their connections.
pub struct Relay {
    address: SocketAddr,
    up: Arc<AtomicUsize>,
}

// === impl Relay ===

impl Relay {
    /// Stands before the store at `url` (`http://127.0.0.1:PORT`).
    pub fn start(url: &str) -> Relay {
        Relay::far(url, Duration::ZERO)
    }

    /// The same, but every byte is `delay` on its way in either direction. At most 4 MiB are.
    pub fn far(url: &str, delay: Duration) -> Relay {
        let store: SocketAddr = url.strip_prefix("http://").expect("http").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let up = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&up);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // A store that is gone closes the connection, as it would without a relay.
                let Ok(far) = TcpStream::connect_timeout(&store, DEADLINE) else { continue };
                let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let count = Arc::clone(&count);
                if delay.is_zero() {
                    thread::spawn(move || pass(near, far, Some(&count)));
                    thread::spawn(move || pass(far_back, near_back, None));
                } else {
                    carry(near, far, delay, Some(count));
                    carry(far_back, near_back, delay, None);
                }
            }
        });
        Relay { address, up }
    }

    /// Where the gate has to connect to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes that the store was sent so far.
    pub fn sent(&self) -> usize {
        self.up.load(Ordering::SeqCst)
    }

    /// Waits until the store has been sent `more` bytes beyond `before`.
    #[track_caller]
    pub fn wait_sent(&self, before: usize, more: usize) {
        wait_for(&format!("{more} bytes upstream"), DEADLINE, || self.sent() >= before + more);
    }
}

/// Takes bytes at once and hands them on when `delay` is over. What is on its way arrives even if the
/// other direction has ended.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration, count: Option<Arc<AtomicUsize>>) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(256);
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            while let Some(left) = due.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
            if to.write_all(&bytes).is_err() {
                return;
            }
            if let Some(count) = &count {
                count.fetch_add(bytes.len(), Ordering::SeqCst);
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Until one side ends; a reset is passed on as a close, which a store takes for the same.
fn pass(mut from: TcpStream, mut to: TcpStream, count: Option<&AtomicUsize>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        if let Some(count) = count {
            count.fetch_add(read, Ordering::SeqCst);
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
