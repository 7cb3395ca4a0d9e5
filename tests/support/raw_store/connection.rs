//! One connection of the scripted store: reads requests byte for byte and does their steps.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Ended, Seen, Shared, Step};

/// One accepted connection.
pub struct Connection<'a> {
    pub stream: TcpStream,
    pub number: usize,
    pub unread: Vec<u8>,
    pub shared: &'a Shared,
    pub ended: Option<Ended>,
}

// === impl Connection ===

impl Connection<'_> {
    /// Serves requests until the script or the client ends it.
    pub fn serve(&mut self) {
        while let Some(nth) = self.head() {
            let path = self.shared.lock().seen[nth].path().to_owned();
            let scripted = self.shared.change(|state| state.scripts.get_mut(&path)?.pop_front());
            let steps = scripted.unwrap_or_else(|| vec![Step::ReadBody, Step::Apply, Step::Answer]);
            for step in steps {
                if !self.take(nth, &path, step) {
                    return;
                }
            }
            // The next head begins only after this body's end.
            if self.shared.lock().seen[nth].complete_at.is_none() && !self.body(nth, usize::MAX) {
                return;
            }
        }
    }

    /// Does one step; `false` when the connection is over.
    fn take(&mut self, nth: usize, path: &str, step: Step) -> bool {
        match step {
            Step::ReadBody => self.body(nth, usize::MAX),
            Step::ReadAtLeast(count) => self.body(nth, count),
            Step::Apply => {
                self.shared.change(|state| state.apply(nth));
                true
            }
            Step::Hold => {
                let mut state = self.shared.lock();
                while state.released.get(path).is_none_or(|count| *count == 0) {
                    state = self.shared.changed.wait(state).unwrap();
                }
                state.released.entry(path.to_owned()).and_modify(|count| *count -= 1);
                true
            }
            Step::Answer => {
                let answer = self.shared.lock().answer(nth);
                self.send(nth, &answer)
            }
            Step::Send(bytes) => self.send(nth, &bytes),
            Step::Pause(span) => {
                // Nobody unparks this thread.
                std::thread::park_timeout(span);
                true
            }
            Step::AwaitEnd => {
                while self.fill() {}
                self.shared.change(|state| state.seen[nth].ended = self.ended);
                false
            }
            Step::Close => false,
            Step::Reset => {
                SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).ok();
                false
            }
        }
    }

    fn send(&mut self, nth: usize, bytes: &[u8]) -> bool {
        let sent = self.stream.write_all(bytes).is_ok();
        self.shared.change(|state| state.seen[nth].answered_at = Some(Instant::now()));
        sent
    }

    fn head(&mut self) -> Option<usize> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill() {
                return None;
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut words = text.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let seen = Seen {
            connection: self.number,
            method,
            target,
            head,
            raw_body: Vec::new(),
            body: Vec::new(),
            head_at: Instant::now(),
            complete_at: None,
            applied_at: None,
            answered_at: None,
            torn: false,
            ended: None,
        };
        Some(self.shared.change(|state| {
            state.seen.push(seen);
            state.seen.len() - 1
        }))
    }

    /// Reads the body to its end, or until `at_least` raw bytes of it are there.
    fn body(&mut self, nth: usize, at_least: usize) -> bool {
        let framing = Framing::of(&self.shared.lock().seen[nth]);
        loop {
            let mut raw = std::mem::take(&mut self.shared.lock().seen[nth].raw_body);
            raw.append(&mut self.unread);
            let complete = framing.split(&raw);
            if let Some((end, _)) = complete {
                self.unread = raw.split_off(end);
            }
            let enough = raw.len() >= at_least;
            self.shared.change(|state| {
                let seen = &mut state.seen[nth];
                seen.raw_body = raw;
                if let Some((_, body)) = complete {
                    seen.body = body;
                    seen.complete_at.get_or_insert_with(Instant::now);
                }
            });
            if enough || self.shared.lock().seen[nth].complete_at.is_some() {
                return true;
            }
            if !self.fill() {
                self.shared.change(|state| {
                    state.seen[nth].torn = true;
                    state.seen[nth].ended = self.ended;
                });
                return false;
            }
        }
    }

    fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => {
                self.ended = Some(Ended::Closed);
                false
            }
            Err(_) => {
                self.ended = Some(Ended::Reset);
                false
            }
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                true
            }
        }
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

// === impl Framing ===

impl Framing {
    fn of(seen: &Seen) -> Framing {
        if seen.header("transfer-encoding").is_some() {
            return Framing::Chunked;
        }
        let length = seen.header("content-length").map(|value| value.parse().expect("a length"));
        Framing::Length(length.unwrap_or(0))
    }

    /// Where the body ends in `raw` and what it says, once it is complete.
    fn split(&self, raw: &[u8]) -> Option<(usize, Vec<u8>)> {
        let Framing::Length(length) = self else {
            return split_chunks(raw);
        };
        raw.get(..*length).map(|body| (*length, body.to_vec()))
    }
}

fn split_chunks(raw: &[u8]) -> Option<(usize, Vec<u8>)> {
    let line = |from: usize| {
        raw.get(from..)?.windows(2).position(|two| two == b"\r\n").map(|at| from + at)
    };
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let end = line(at)?;
        let digits = String::from_utf8_lossy(&raw[at..end]);
        let size =
            usize::from_str_radix(digits.split(';').next()?.trim(), 16).expect("a chunk size");
        at = end + 2;
        if size == 0 {
            loop {
                let end = line(at)?;
                let empty = end == at;
                at = end + 2;
                if empty {
                    return Some((at, body));
                }
            }
        }
        body.extend_from_slice(raw.get(at..at + size)?);
        at += size + 2;
    }
}
