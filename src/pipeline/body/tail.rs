//! Which part of a body must not leave before the commit point: everything from the last byte of its
//! decoded payload on.
//!
//! Some stores commit an upload as soon as they have its last payload byte, whatever framing follows:
//! seen on SeaweedFS and nanio, which commit at the inner end of an aws-chunked body.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::pipeline::classify::BodyKind;
use crate::pipeline::classify::aws_chunked::{Malformed, Scanner};

/// Most bytes that may follow the last byte of payload (framing, trailers, white space).
const MOST_AFTER: usize = 64 << 10;

/// Finds the payload in the frames of a body.
#[derive(Debug)]
enum Finder {
    /// Every byte counts.
    Plain,
    /// aws-chunked framing.
    AwsChunked(Box<Scanner>),
    /// White space does not count: a reader of JSON or XML may act on the last byte before it.
    NonSpace,
}

/// Holds back the frames of a body that may be its tail.
#[derive(Debug)]
pub struct Tail {
    finder: Finder,
    /// From the frame with the last payload byte seen so far.
    held: VecDeque<Bytes>,
    /// Bytes in `held` behind the first frame.
    after: usize,
    /// Switched off only to see a test fail.
    hold: bool,
}

/// Why a body cannot be forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TailError {
    /// Its framing is broken.
    #[error("the aws-chunked body is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// Too much follows the payload.
    #[error("more than 64 KiB follow the last byte of the payload")]
    TooMuchAfter,
}

// === impl Tail ===

impl Tail {
    /// A tail for a body of this kind.
    pub fn new(kind: BodyKind, hold: bool) -> Tail {
        let finder = match kind {
            BodyKind::Stream | BodyKind::Document => Finder::Plain,
            BodyKind::AwsChunked { decoded_length } => {
                Finder::AwsChunked(Box::new(Scanner::new(decoded_length)))
            }
            BodyKind::RestDocument => Finder::NonSpace,
        };
        Tail { finder, held: VecDeque::new(), after: 0, hold }
    }

    /// Takes the next frame; returns frames that may leave now, oldest first.
    ///
    /// # Errors
    /// [`TailError`] if the body must not be forwarded at all.
    pub fn push(&mut self, frame: Bytes) -> Result<VecDeque<Bytes>, TailError> {
        let has_payload = match &mut self.finder {
            Finder::Plain => !frame.is_empty(),
            Finder::AwsChunked(scanner) => scanner.feed(&frame)?.last_payload.is_some(),
            Finder::NonSpace => frame.iter().any(|byte| !byte.is_ascii_whitespace()),
        };
        if !self.hold {
            return Ok(VecDeque::from([frame]));
        }
        if has_payload {
            self.after = 0;
            return Ok(std::mem::replace(&mut self.held, VecDeque::from([frame])));
        }
        self.after += frame.len();
        if self.after > MOST_AFTER {
            return Err(TailError::TooMuchAfter);
        }
        self.held.push_back(frame);
        Ok(VecDeque::new())
    }

    /// The body is over: checks that its framing is complete.
    ///
    /// # Errors
    /// [`TailError::Malformed`] if it is not.
    pub fn finish(&self) -> Result<(), TailError> {
        match &self.finder {
            Finder::AwsChunked(scanner) => Ok(scanner.finish()?),
            Finder::Plain | Finder::NonSpace => Ok(()),
        }
    }

    /// Whether nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What was held back, in one piece.
    pub fn release(&mut self) -> Bytes {
        match self.held.len() {
            0 => Bytes::new(),
            1 => self.held.pop_front().expect("there is one"),
            _ => {
                let mut whole = BytesMut::with_capacity(self.held.iter().map(Bytes::len).sum());
                self.held.drain(..).for_each(|frame| whole.extend_from_slice(&frame));
                whole.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaves(kind: BodyKind, frames: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let mut tail = Tail::new(kind, true);
        let mut left = Vec::new();
        for frame in frames {
            for out in tail.push(Bytes::copy_from_slice(frame)).unwrap() {
                left.extend_from_slice(&out);
            }
        }
        tail.finish().unwrap();
        (left, tail.release().to_vec())
    }

    const CHUNKED: &[u8] =
        b"5\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:DUoRhQ==\r\n\r\n";

    #[test]
    fn a_plain_body_keeps_its_last_frame() {
        assert_eq!(
            leaves(BodyKind::Stream, &[b"ab", b"cd", b"e"]),
            (b"abcd".to_vec(), b"e".to_vec())
        );
    }

    #[test]
    fn a_document_keeps_what_follows_its_last_character_too() {
        let (left, held) = leaves(BodyKind::RestDocument, &[b"{\"a\":", b"1}", b"\n", b" \n"]);
        assert_eq!((left.as_slice(), held.as_slice()), (&b"{\"a\":"[..], &b"1}\n \n"[..]));
    }

    proptest! {
        #[test]
        fn the_last_payload_byte_of_an_aws_chunked_body_never_leaves(cuts in proptest::collection::btree_set(1..CHUNKED.len(), 0..12)) {
            let kind = BodyKind::AwsChunked { decoded_length: Some(11) };
            let mut frames = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([CHUNKED.len()]) {
                frames.push(&CHUNKED[from..cut]);
                from = cut;
            }
            let (left, held) = leaves(kind, &frames);
            let last_payload = CHUNKED.iter().rposition(|byte| *byte == b'd').unwrap();
            // The `d` of "world": the trailer's name has one, so count from the payload's own place.
            let world = CHUNKED.windows(5).position(|five| five == b"world").unwrap() + 4;
            prop_assert!(last_payload >= world);
            prop_assert!(left.len() <= world, "{} bytes left", left.len());
            prop_assert_eq!([left, held].concat(), CHUNKED);
        }
    }

    #[test]
    fn a_body_with_endless_white_space_is_refused() {
        let mut tail = Tail::new(BodyKind::RestDocument, true);
        tail.push(Bytes::from_static(b"{}")).unwrap();
        let spaces = Bytes::from(vec![b' '; MOST_AFTER]);
        assert_eq!(tail.push(spaces), Ok(VecDeque::new()));
        assert_eq!(tail.push(Bytes::from_static(b" ")), Err(TailError::TooMuchAfter));
    }
}
