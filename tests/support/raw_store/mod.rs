//! A scripted store on a bare socket: it records every byte and does exactly what it is told, no more.
//!
//! Unscripted requests are applied to a map and answered, as a well-behaved store would. A script
//! is a list of steps for the next request to one path; where it says [`Step::Hold`] the store
//! stops until [`RawStore::release`].

mod connection;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::wait::DEADLINE;
use connection::Connection;

/// What the store does with one request, after it has read the head.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read the body to its end.
    ReadBody,
    /// Read until at least this many raw bytes of the body are there.
    ReadAtLeast(usize),
    /// Make the effect visible.
    Apply,
    /// Wait until [`RawStore::release`] is called for the path.
    Hold,
    /// Send the answer of a well-behaved store.
    Answer,
    /// Send these bytes as they are.
    Send(Vec<u8>),
    /// Let this much time go by: a slow store, never a way to wait for somebody.
    Pause(Duration),
    /// Read until the other side ends the connection; see [`Seen::ended`].
    AwaitEnd,
    /// Close in order.
    Close,
    /// Close with RST.
    Reset,
}

/// Ready-made scripts.
pub mod script {
    use super::Step::{self, *};

    /// Applies, and answers only when released.
    pub fn hold() -> Vec<Step> {
        vec![ReadBody, Apply, Hold, Answer]
    }

    /// Takes the request; applies and answers only when released.
    pub fn late() -> Vec<Step> {
        vec![ReadBody, Hold, Apply, Answer]
    }

    /// Applies, and closes without an answer.
    pub fn applied_without_answer() -> Vec<Step> {
        vec![ReadBody, Apply, Close]
    }

    /// Answers with these bytes right after the head, body unread, and closes.
    pub fn early(answer: &[u8]) -> Vec<Step> {
        vec![Send(answer.to_vec()), Close]
    }

    /// Reads the request, answers with these bytes instead of applying it; the connection stays open.
    pub fn answer(answer: &[u8]) -> Vec<Step> {
        vec![ReadBody, Send(answer.to_vec())]
    }

    /// Answers twice.
    pub fn twice() -> Vec<Step> {
        vec![ReadBody, Apply, Answer, Answer]
    }

    /// Resets right after the head.
    pub fn reset_after_head() -> Vec<Step> {
        vec![Reset]
    }

    /// Applies, and resets without an answer.
    pub fn reset_after_body() -> Vec<Step> {
        vec![ReadBody, Apply, Reset]
    }
}

/// One request as the store saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which connection, counted from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The target as sent, query included.
    pub target: String,
    /// The head as sent, with its empty line.
    pub head: Vec<u8>,
    /// The body as sent, framing included, as far as it was read.
    pub raw_body: Vec<u8>,
    /// The body without HTTP chunking, once complete.
    pub body: Vec<u8>,
    /// When the head was there.
    pub head_at: Instant,
    /// When the body was there to its end.
    pub complete_at: Option<Instant>,
    /// When it took effect.
    pub applied_at: Option<Instant>,
    /// When an answer had been sent.
    pub answered_at: Option<Instant>,
    /// The other side closed or reset before the body was complete.
    pub torn: bool,
    /// How the other side ended the connection, if the store was reading then.
    pub ended: Option<Ended>,
}

/// How the other side ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// In order: everything it had sent before has arrived.
    Closed,
    /// By a reset.
    Reset,
}

// === impl Seen ===

impl Seen {
    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The first value of a header; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.head);
        head.split("\r\n").skip(1).filter_map(|line| line.split_once(':')).find_map(
            |(have, value)| have.eq_ignore_ascii_case(name).then(|| value.trim().to_owned()),
        )
    }
}

#[derive(Default)]
struct State {
    scripts: HashMap<String, VecDeque<Vec<Step>>>,
    released: HashMap<String, usize>,
    seen: Vec<Seen>,
    applied: Vec<(String, Vec<u8>)>,
    objects: BTreeMap<String, Vec<u8>>,
    connections: usize,
    open: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The store. It runs until the test process ends.
#[derive(Clone)]
pub struct RawStore {
    address: SocketAddr,
    shared: Arc<Shared>,
}

// === impl RawStore ===

impl RawStore {
    /// Listens on a free port.
    pub fn start() -> RawStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let store = RawStore { address, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                shared.change(|state| state.open += 1);
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // A look at the store's health connects, says nothing and goes.
                    if stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
                        let number = shared.change(|state| {
                            state.connections += 1;
                            state.connections - 1
                        });
                        let unread = Vec::new();
                        Connection { stream, number, unread, shared: &shared, ended: None }.serve();
                    }
                    shared.change(|state| state.open -= 1);
                });
            }
        });
        store
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the script of the next unscripted request to `path` (no query); several queue up.
    pub fn next(&self, path: &str, steps: Vec<Step>) {
        self.shared
            .change(|state| state.scripts.entry(path.to_owned()).or_default().push_back(steps));
    }

    /// Lets one [`Step::Hold`] of `path` go on, now or when it gets there.
    pub fn release(&self, path: &str) {
        self.shared.change(|state| *state.released.entry(path.to_owned()).or_default() += 1);
    }

    /// Puts an object without a request.
    pub fn put_object(&self, path: &str, body: &[u8]) {
        self.shared.change(|state| state.objects.insert(path.to_owned(), body.to_vec()));
    }

    /// What is stored under `path`.
    pub fn object(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.lock().objects.get(path).cloned()
    }

    /// Every request so far, in the order of their heads.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// The requests to one path.
    pub fn seen_at(&self, path: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.path() == path).collect()
    }

    /// `METHOD /path` and body of every write that took effect, in order.
    pub fn applied(&self) -> Vec<(String, Vec<u8>)> {
        self.shared.lock().applied.clone()
    }

    /// On how many connections something was ever said.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// How many of them the store still has open.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open
    }

    /// Waits until a request to `path` is such.
    #[track_caller]
    pub fn wait_seen(&self, path: &str, what: &str, is: impl Fn(&Seen) -> bool) -> Seen {
        let end = Instant::now() + DEADLINE;
        let mut state = self.shared.lock();
        loop {
            if let Some(seen) = state.seen.iter().find(|seen| seen.path() == path && is(seen)) {
                return seen.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let heads: Vec<_> =
                    state.seen.iter().map(|s| format!("{} {}", s.method, s.target)).collect();
                drop(state);
                panic!(
                    "the store saw no {what} request to {path} within {DEADLINE:?}; it saw {heads:?}"
                );
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Waits until the head of a request to `path` is there.
    #[track_caller]
    pub fn wait_head(&self, path: &str) -> Seen {
        self.wait_seen(path, "begun", |_| true)
    }

    /// Waits until a request to `path` is there to its last byte.
    #[track_caller]
    pub fn wait_complete(&self, path: &str) -> Seen {
        self.wait_seen(path, "complete", |seen| seen.complete_at.is_some())
    }

    /// Waits until a write to `path` has taken effect.
    #[track_caller]
    pub fn wait_applied(&self, path: &str) -> Seen {
        self.wait_seen(path, "applied", |seen| seen.applied_at.is_some())
    }

    /// Waits until the other side ended the connection on which `path` was asked for; how.
    #[track_caller]
    pub fn wait_ended(&self, path: &str) -> Ended {
        self.wait_seen(path, "ended", |seen| seen.ended.is_some()).ended.expect("waited for")
    }

    /// Waits until an upload to `path` ended before its last byte.
    #[track_caller]
    pub fn wait_torn(&self, path: &str) -> Seen {
        self.wait_seen(path, "torn", |seen| seen.torn)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }
}

impl State {
    fn apply(&mut self, nth: usize) {
        let seen = &mut self.seen[nth];
        let path = seen.path().to_owned();
        match seen.method.as_str() {
            "GET" | "HEAD" | "OPTIONS" => return,
            "DELETE" => {
                self.objects.remove(&path);
            }
            _ => {
                self.objects.insert(path.clone(), seen.body.clone());
            }
        }
        seen.applied_at = Some(Instant::now());
        self.applied.push((format!("{} {path}", seen.method), seen.body.clone()));
    }

    fn answer(&self, nth: usize) -> Vec<u8> {
        let seen = &self.seen[nth];
        let reading = matches!(seen.method.as_str(), "GET" | "HEAD");
        match (reading, self.objects.get(seen.path())) {
            (true, None) => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
            (true, Some(object)) => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", object.len());
                let body: &[u8] = if seen.method == "HEAD" { &[] } else { object };
                [head.as_bytes(), body].concat()
            }
            (false, _) if seen.method == "DELETE" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            (false, _) => b"HTTP/1.1 200 OK\r\nETag: \"raw\"\r\nContent-Length: 0\r\n\r\n".to_vec(),
        }
    }
}
