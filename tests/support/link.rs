//! Something between the command line and the server that can break: a network, a balancer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

/// What the link does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards it.
    Pass,
    /// Takes the request and never answers.
    Silent,
    /// Answers 503 itself.
    Unavailable,
    /// Closes with the request read and unanswered.
    Close,
    /// Forwards one request and loses its answer, then passes.
    LoseOne,
}

/// A link for one request a connection, as the command line makes them.
pub struct Link {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    mode: Mode,
    /// When each renewal arrived that was answered with 200.
    renewed: Vec<SystemTime>,
    /// Kept open for ever: the other side must not notice.
    silenced: Vec<TcpStream>,
}

// === impl Link ===

impl Link {
    /// A link to `to`, passing.
    pub fn start(to: SocketAddr) -> Link {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { mode: Mode::Pass, renewed: Vec::new(), silenced: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || connection(stream, to, &shared));
            }
        });
        Link { address, state }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From the next connection on.
    pub fn set(&self, mode: Mode) {
        self.state.lock().unwrap().mode = mode;
    }

    /// How many requests were taken and not answered.
    pub fn silenced(&self) -> usize {
        self.state.lock().unwrap().silenced.len()
    }

    /// When each renewal arrived that was answered with 200.
    pub fn renewed(&self) -> Vec<SystemTime> {
        self.state.lock().unwrap().renewed.clone()
    }
}

fn connection(mut client: TcpStream, to: SocketAddr, state: &Mutex<State>) {
    let arrived = SystemTime::now();
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match client.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let mut guard = state.lock().unwrap();
    let lose = guard.mode == Mode::LoseOne;
    match guard.mode {
        Mode::Pass => {}
        Mode::LoseOne => guard.mode = Mode::Pass,
        Mode::Silent => return guard.silenced.push(client),
        Mode::Close => return,
        Mode::Unavailable => {
            let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
            return client.write_all(answer).unwrap_or(());
        }
    }
    drop(guard);
    let Ok(mut server) = TcpStream::connect(to) else { return };
    if server.write_all(&head).is_err() {
        return;
    }
    let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut up, &mut down));
    let mut first = true;
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        if first
            && head.starts_with(b"POST /v1/lease/renew ")
            && buffer.starts_with(b"HTTP/1.1 200 ")
        {
            state.lock().unwrap().renewed.push(arrived);
        }
        first = false;
        if lose {
            break;
        }
        if client.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
}
