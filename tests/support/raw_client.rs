//! A client on a bare socket: sends exact bytes, half-closes, resets, reads one answer at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::clients::Answer;
use super::wait::DEADLINE;

/// One connection.
pub struct RawClient {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A request with exactly these headers, `Host` and `Content-Length` first; `headers` are whole lines.
pub fn request(method: &str, target: &str, host: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    if !body.is_empty() || matches!(method, "PUT" | "POST") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

// === impl RawClient ===

impl RawClient {
    /// Connects.
    pub fn connect(address: SocketAddr) -> RawClient {
        let stream = TcpStream::connect_timeout(&address, DEADLINE).unwrap();
        stream.set_nodelay(true).unwrap();
        RawClient { stream, unread: Vec::new() }
    }

    /// Sends these bytes, all of them.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends what the other side takes; `false` if it closed or reset meanwhile.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Ends the sending side only.
    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Closes with RST: the other side sees "connection reset".
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Reads the next final answer; interim ones (100) are skipped.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    /// Reads the next final answer to a request of `method`: one to HEAD has no body.
    #[track_caller]
    pub fn answer_to(&mut self, method: &str) -> Answer {
        loop {
            let head = self.head();
            let mut answer = Answer::parse_head(&head);
            if (100..200).contains(&answer.status) {
                continue;
            }
            if method != "HEAD" && !matches!(answer.status, 204 | 304) {
                answer.body = self.body_of(&answer);
            }
            return answer;
        }
    }

    /// Reads one head, an interim answer's too.
    #[track_caller]
    pub fn head(&mut self) -> Vec<u8> {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                return self.unread.drain(..at + 4).collect();
            }
            assert!(self.fill(end), "closed before a head ended: {:?}", self.seen());
        }
    }

    /// Everything until the other side closes or resets.
    pub fn rest(&mut self) -> Vec<u8> {
        let end = Instant::now() + DEADLINE;
        while self.fill(end) {}
        std::mem::take(&mut self.unread)
    }

    /// Reads on until this text has arrived; `false` if the other side ends before.
    pub fn event_with(&mut self, text: &str) -> bool {
        let end = Instant::now() + DEADLINE;
        loop {
            if find(&self.unread, text.as_bytes()).is_some() {
                return true;
            }
            if !self.fill(end) {
                return false;
            }
        }
    }

    /// Whether nothing arrives for this long: neither a byte nor a close.
    pub fn silent_for(&mut self, span: Duration) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        self.stream.set_read_timeout(Some(span)).unwrap();
        let mut byte = [0];
        match self.stream.peek(&mut byte) {
            Ok(_) => false,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// The next piece of a chunked body, as the other side framed it; empty at the end.
    #[track_caller]
    pub fn chunk(&mut self) -> Vec<u8> {
        let end = Instant::now() + DEADLINE;
        let line = self.line(end);
        let size = usize::from_str_radix(line.trim(), 16).expect("a chunk size");
        let chunk = self.exactly(size, end);
        self.line(end);
        chunk
    }

    fn body_of(&mut self, answer: &Answer) -> Vec<u8> {
        let end = Instant::now() + DEADLINE;
        let chunked = answer.header("transfer-encoding").is_some_and(|value| value == "chunked");
        if chunked {
            let mut body = Vec::new();
            loop {
                let line = self.line(end);
                let digits = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(digits, 16).expect("a chunk size");
                if size == 0 {
                    while !self.line(end).is_empty() {}
                    return body;
                }
                body.extend(self.exactly(size, end));
                self.line(end);
            }
        }
        match answer.header("content-length") {
            Some(length) => self.exactly(length.parse().expect("a length"), end),
            None => self.rest(),
        }
    }

    fn exactly(&mut self, count: usize, end: Instant) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.fill(end), "closed inside a body: {:?}", self.seen());
        }
        self.unread.drain(..count).collect()
    }

    fn line(&mut self, end: Instant) -> String {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..at + 2).collect();
                return String::from_utf8_lossy(&line[..at]).into_owned();
            }
            assert!(self.fill(end), "closed inside a line: {:?}", self.seen());
        }
    }

    /// Reads more; `false` at the end of the stream or a reset. Panics at the deadline.
    fn fill(&mut self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nothing more within {DEADLINE:?}, after {:?}", self.seen());
        self.stream.set_read_timeout(Some(left)).unwrap();
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing more within {DEADLINE:?}, after {:?}", self.seen())
            }
            Err(_) => false,
        }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.unread).into_owned()
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
