//! Reads server-sent events out of bytes that arrive in any pieces.
//!
//! Reference: WHATWG HTML, section 9.2.6, "Interpreting an event stream"; only what the admin
//! listener sends: no `retry`, no lone CR as a line end.

use std::collections::VecDeque;

/// Most bytes of one event; the largest real one is two names and some words.
const MAX_EVENT: usize = 64 << 10;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Its name; `message` if it has none.
    pub event: String,
    /// Its data; lines joined with LF.
    pub data: String,
}

/// A stream being read.
#[derive(Debug, Default)]
pub struct Events {
    rest: Vec<u8>,
    id: Option<String>,
    event: String,
    data: Vec<String>,
    size: usize,
    ready: VecDeque<Message>,
}

// === impl Message ===

impl Message {
    /// What the server says when events were missed.
    pub fn gap() -> Message {
        Message { id: None, event: "gap".into(), data: String::new() }
    }
}

// === impl Events ===

impl Events {
    /// Takes the next piece of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.rest);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                self.line(&String::from_utf8_lossy(line));
            } else if self.rest.len() < MAX_EVENT {
                self.rest.push(byte);
            }
        }
    }

    /// The next whole event.
    #[allow(clippy::should_implement_trait)] // None is not the end: more may be pushed.
    pub fn next(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let (id, event, data) =
                (self.id.take(), std::mem::take(&mut self.event), std::mem::take(&mut self.data));
            self.size = 0;
            if !data.is_empty() {
                let event = if event.is_empty() { "message".into() } else { event };
                self.ready.push_back(Message { id, event, data: data.join("\n") });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        self.size += value.len();
        match field {
            "id" => self.id = Some(value.into()),
            "event" => self.event = value.into(),
            "data" if self.size <= MAX_EVENT => self.data.push(value.into()),
            // Comments (an empty field name) keep the connection alive; others are for later versions.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_arrive() {
        let text = ": alive\n\nid: s.7\nevent: acquired\ndata: {\"a\":1}\n\ndata:x\r\ndata: y\r\n\r\nid: 9\n\n";
        let want = [
            Message { id: Some("s.7".into()), event: "acquired".into(), data: "{\"a\":1}".into() },
            Message { id: None, event: "message".into(), data: "x\ny".into() },
        ];
        for size in 1..text.len() {
            let mut events = Events::default();
            text.as_bytes().chunks(size).for_each(|piece| events.push(piece));
            let got: Vec<_> = std::iter::from_fn(|| events.next()).collect();
            assert_eq!(got, want, "pieces of {size}");
        }
    }
}
