//! Finds the last byte of payload, and the end, in an aws-chunked body as it streams by.
//!
//! The inner framing of S3 uploads: chunks of `size[;chunk-signature=…]CRLF payload CRLF`, a chunk of size 0,
//! trailers, CRLF. Some stores commit when they have read the *inner* end, so the point up to which a
//! body may be sent ahead lies inside it. Nothing is copied or decoded, payload is skipped by length.
//!
//! Reference: "Signature calculations for the Authorization header: transferring payload in multiple
//! chunks", with and without trailing headers, in the S3 API reference. The grammar bounds a chunk header
//! to 16 digits and one signature.

use crate::pipeline::refusal::Refusal;

/// Most bytes of all trailers together.
pub const MAX_TRAILERS: usize = 8 << 10;
/// Largest chunk; S3's largest object is 5 TiB, but no part or single upload is above 5 GiB.
pub const MAX_CHUNK: u64 = 1 << 40;

/// What one frame held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Offset in this frame of its last byte of decoded payload; `None` if it is all framing. A body
    /// without payload never has one, and is withheld whole.
    pub last_payload: Option<usize>,
    /// Whether the framing is complete: last chunk, trailers and final CRLF have been read. One client's
    /// trailers look complete once before they are: only the body's own end and [`Scanner::finish`] tell.
    pub complete: bool,
}

/// The framing is not what it must be. The body cannot be sent on: stores would disagree about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the aws-chunked body {why} at its byte {at}; send it again with correct framing")]
pub struct Malformed {
    /// Offset in the whole body.
    pub at: u64,
    /// What is wrong.
    pub why: &'static str,
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        Refusal::InvalidRequest { why: malformed.to_string() }
    }
}

/// Reads the framing of one body, frame by frame. After an error it must not be used again.
#[derive(Clone, Debug)]
pub struct Scanner {
    state: State,
    /// Bytes read.
    at: u64,
    /// Bytes of payload announced by the chunk headers so far.
    announced: u64,
    /// Bytes of payload read.
    decoded: u64,
    /// `x-amz-decoded-content-length`.
    declared: Option<u64>,
    /// Whether chunks are signed, once the first one is known.
    signed: Option<bool>,
    trailer_bytes: usize,
    /// A trailer ended with LF alone. One widespread client does so, and sends one more block then.
    bare_lf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the digits of a chunk's size.
    Size {
        digits: u8,
        size: u64,
    },
    /// In `;chunk-signature=`; `matched` bytes of it.
    Name {
        matched: usize,
        size: u64,
    },
    /// In the value of the signature.
    Signature {
        digits: usize,
        size: u64,
    },
    /// After CR of a chunk header.
    HeaderLf {
        size: u64,
    },
    /// In payload.
    Payload {
        left: u64,
    },
    /// After payload.
    PayloadCr,
    PayloadLf,
    /// At the start of a trailer line, or of the final CRLF.
    LineStart,
    /// In the name of a trailer.
    TrailerName,
    /// In the value of a trailer.
    TrailerValue,
    /// After CR in a trailer.
    TrailerLf,
    /// After CR of the final CRLF.
    FinalLf,
    /// Complete.
    Done,
}

const SIGNATURE: &[u8] = b";chunk-signature=";

// === impl Scanner ===

impl Scanner {
    /// A scanner for one body.
    ///
    /// * `declared`: the value of `x-amz-decoded-content-length` in bytes, if it was sent.
    pub fn new(declared: Option<u64>) -> Scanner {
        Scanner {
            state: State::Size { digits: 0, size: 0 },
            at: 0,
            announced: 0,
            decoded: 0,
            declared,
            signed: None,
            trailer_bytes: 0,
            bare_lf: false,
        }
    }

    /// Bytes of payload read so far.
    pub fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Reads the next bytes of the body, in time proportional to the framing in them, not to the payload.
    ///
    /// # Errors
    /// [`Malformed`] at the first byte that breaks the grammar, exceeds a bound or the declared length, or
    /// follows the end.
    pub fn feed(&mut self, frame: &[u8]) -> Result<Scanned, Malformed> {
        let mut last_payload = None;
        let mut next = 0;
        while let Some(&byte) = frame.get(next) {
            if let State::Payload { left } = self.state {
                let here = left.min((frame.len() - next) as u64);
                next += usize::try_from(here).expect("no more than the frame's length");
                last_payload = Some(next - 1);
                self.at += here;
                self.decoded += here;
                self.state = match left - here {
                    0 => State::PayloadCr,
                    left => State::Payload { left },
                };
                continue;
            }
            self.state = self.step(byte).map_err(|why| Malformed { at: self.at, why })?;
            self.at += 1;
            next += 1;
        }
        Ok(Scanned { last_payload, complete: self.state == State::Done })
    }

    /// Checks that the body ended where its framing does.
    ///
    /// # Errors
    /// [`Malformed`] if it ended early, or with less payload than declared.
    pub fn finish(&self) -> Result<(), Malformed> {
        match self.declared {
            _ if self.state != State::Done => {
                Err(Malformed { at: self.at, why: "ends before its framing does" })
            }
            Some(declared) if declared != self.decoded => Err(Malformed {
                at: self.at,
                why: "has another length than x-amz-decoded-content-length says",
            }),
            _ => Ok(()),
        }
    }

    fn step(&mut self, byte: u8) -> Result<State, &'static str> {
        Ok(match (self.state, byte) {
            (State::Size { digits, size }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                if digits == 16 {
                    return Err("has a chunk size of more than 16 digits");
                }
                let size = size << 4 | digit;
                if size > MAX_CHUNK {
                    return Err("has a chunk above the largest size");
                }
                State::Size { digits: digits + 1, size }
            }
            (State::Size { digits: 0, .. }, _) => return Err("has a chunk without a size"),
            (State::Size { size, .. }, b';') => State::Name { matched: 1, size },
            (State::Size { size, .. }, b'\r') => {
                self.sign(false)?;
                State::HeaderLf { size }
            }
            (State::Name { matched, size }, _) if SIGNATURE.get(matched) == Some(&byte) => {
                match matched + 1 {
                    whole if whole == SIGNATURE.len() => State::Signature { digits: 0, size },
                    matched => State::Name { matched, size },
                }
            }
            // SigV4: 64 hexadecimal digits. SigV4A: up to 144, padded with `*`.
            (State::Signature { digits, size }, _)
                if digits < 144 && (byte.is_ascii_hexdigit() || byte == b'*' && digits >= 64) =>
            {
                State::Signature { digits: digits + 1, size }
            }
            (State::Signature { digits: 64.., size }, b'\r') => {
                self.sign(true)?;
                State::HeaderLf { size }
            }
            (State::HeaderLf { size: 0 }, b'\n') => State::LineStart,
            (State::HeaderLf { size }, b'\n') => {
                self.announced = self.announced.saturating_add(size);
                if self.declared.is_some_and(|declared| self.announced > declared) {
                    return Err("has more payload than x-amz-decoded-content-length says");
                }
                State::Payload { left: size }
            }
            (State::PayloadCr, b'\r') => State::PayloadLf,
            (State::PayloadLf, b'\n') => State::Size { digits: 0, size: 0 },
            (State::LineStart, b'\r') => State::FinalLf,
            (State::LineStart | State::TrailerName, _) if is_name(byte) => {
                self.trailer()?;
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                self.trailer()?;
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, b'\n') => {
                self.bare_lf = true;
                State::LineStart
            }
            (State::TrailerValue, b'\t' | b' '..=b'~') => {
                self.trailer()?;
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => State::LineStart,
            (State::FinalLf, b'\n') => State::Done,
            // minio-go: `name:value LF CRLF x-amz-trailer-signature:… CRLF CRLF`.
            (State::Done, b'x') if self.bare_lf && self.signed == Some(true) => {
                self.bare_lf = false;
                self.trailer()?;
                State::TrailerName
            }
            (State::Done, _) => return Err("goes on after its end"),
            (State::Size { .. } | State::Name { .. } | State::Signature { .. }, _) => {
                return Err("has a chunk header that is not `size[;chunk-signature=…]`");
            }
            _ => return Err("lacks a line end, or has something else in its place"),
        })
    }

    /// Either every chunk is signed or none is.
    fn sign(&mut self, signed: bool) -> Result<(), &'static str> {
        match *self.signed.get_or_insert(signed) == signed {
            true => Ok(()),
            false => Err("mixes signed and unsigned chunks"),
        }
    }

    fn trailer(&mut self) -> Result<(), &'static str> {
        self.trailer_bytes += 1;
        match self.trailer_bytes > MAX_TRAILERS {
            true => Err("has trailers above the limit"),
            false => Ok(()),
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIG: &str = "a83d922f95498268e3bf9192f034787f7e239c1924cc98f64840bfee704fb50f";

    fn scan(body: &[u8], declared: Option<u64>) -> Result<Scanned, Malformed> {
        let mut scanner = Scanner::new(declared);
        let scanned = scanner.feed(body)?;
        scanner.finish()?;
        Ok(scanned)
    }

    /// The five shapes in which payload `p` is sent, and the offset of its last byte.
    fn shapes(p: &str) -> Vec<(String, Option<usize>)> {
        let n = p.len();
        let chunk = |signature: &str| match n {
            0 => String::new(),
            _ => format!("{n:x}{signature}\r\n{p}\r\n"),
        };
        let signature = format!(";chunk-signature={SIG}");
        let signed = chunk(&signature);
        let unsigned = chunk("");
        let last = |framed: &str| (n > 0).then(|| framed.len() - 3);
        vec![
            (format!("{unsigned}0\r\n\r\n"), last(&unsigned)),
            (format!("{unsigned}0\r\nx-amz-checksum-crc32:f+XiUQ==\r\n\r\n"), last(&unsigned)),
            (format!("{signed}0{signature}\r\n\r\n"), last(&signed)),
            (
                format!(
                    "{signed}0{signature}\r\nx-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:{SIG}\r\n\r\n"
                ),
                last(&signed),
            ),
            (
                format!(
                    "{signed}0{signature}\r\nx-amz-checksum-crc32c:sOO8/Q==\n\r\nx-amz-trailer-signature:{SIG}\r\n\r\n"
                ),
                last(&signed),
            ),
        ]
    }

    #[test]
    fn the_last_payload_byte_and_the_end_are_found_in_every_shape() {
        for payload in ["", "x", "hello\r\n0\r\n\r\n boto3"] {
            for (body, last_payload) in shapes(payload) {
                let want = Ok(Scanned { last_payload, complete: true });
                assert_eq!(scan(body.as_bytes(), Some(payload.len() as u64)), want, "{body:?}");
                assert_eq!(scan(body.as_bytes(), None), want, "{body:?}");
                if let Some(at) = last_payload {
                    assert_eq!(body.as_bytes()[at], *payload.as_bytes().last().unwrap());
                }
            }
        }
    }

    #[test]
    fn a_body_is_not_complete_before_its_last_byte_nor_right_with_another_length() {
        for (body, _) in shapes("payload") {
            for cut in 0..body.len() {
                let mut scanner = Scanner::new(Some(7));
                let scanned = scanner.feed(&body.as_bytes()[..cut]).unwrap();
                // The one shape with a block after the first blank line looks complete there too.
                if !body[..cut].ends_with("\n\r\n") {
                    assert!(!scanned.complete && scanner.finish().is_err(), "{:?}", &body[..cut]);
                }
            }
            assert!(scan(body.as_bytes(), Some(6)).is_err());
            assert!(scan(body.as_bytes(), Some(8)).is_err());
            for after in ["\r", "\n", "0", "y"] {
                assert!(scan(format!("{body}{after}").as_bytes(), None).is_err(), "{after:?}");
            }
        }
    }

    #[test]
    fn odd_framing_is_refused() {
        let short = &SIG[1..];
        let long = "0".repeat(17);
        let many = format!("0\r\nx:{}\r\n\r\n", "y".repeat(MAX_TRAILERS));
        let mixed = format!("1;chunk-signature={SIG}\r\nx\r\n0\r\n\r\n");
        let no_signature = format!("0;chunk-signature={short}\r\n\r\n");
        let padded = format!("0;chunk-signature={}\r\n\r\n", "0".repeat(145));
        let long_size = format!("{long}\r\n\r\n");
        let bad = [
            "\r\n",
            "0x1\r\nx\r\n0\r\n\r\n",
            "+1\r\nx\r\n0\r\n\r\n",
            "-1\r\n",
            " 1\r\nx\r\n0\r\n\r\n",
            "1 \r\nx\r\n0\r\n\r\n",
            "1\nx\n0\n\n",
            "1\r\nxx\r\n0\r\n\r\n",
            "2\r\nx\r\n0\r\n\r\n",
            "1;a=b\r\nx\r\n0\r\n\r\n",
            "1;chunk-signature=\r\nx\r\n0\r\n\r\n",
            "1\rx\r\n0\r\n\r\n",
            "0\r\n\n",
            "0\r\n:v\r\n\r\n",
            "0\r\nname\r\n\r\n",
            "0\r\na:b\rc\r\n\r\n",
            "0\r\na:b\0\r\n\r\n",
            "0\r\na:b\n\r\nx-amz-trailer-signature:0\r\n\r\n",
            &many,
            &mixed,
            &no_signature,
            &padded,
            &long_size,
        ];
        for body in bad {
            assert!(scan(body.as_bytes(), None).is_err(), "{body:?}");
        }
    }

    #[test]
    fn a_chunk_is_within_the_largest_size_and_the_declared_length() {
        assert!(Scanner::new(None).feed(b"10000000000\r\nx").is_ok());
        assert!(Scanner::new(None).feed(b"10000000001").is_err());
        assert!(Scanner::new(Some(7)).feed(b"7\r\n").is_ok());
        assert!(
            Scanner::new(Some(7)).feed(b"8\r\n").is_err(),
            "before any payload of it is sent on"
        );
    }

    proptest! {
        #[test]
        fn no_frame_panics(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let mut scanner = Scanner::new(None);
            for frame in frames {
                if scanner.feed(&frame).is_err() {
                    break;
                }
            }
            let _ = scanner.finish();
        }

        #[test]
        fn splitting_a_body_changes_nothing(
            payload in "[a-z\r\n0]{0,40}",
            shape in 0usize..5,
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let (body, last_payload) = shapes(&payload)[shape].clone();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let mut scanner = Scanner::new(Some(payload.len() as u64));
            let mut found = None;
            let mut complete = false;
            for pair in cuts.windows(2) {
                let scanned = scanner.feed(&body.as_bytes()[pair[0]..pair[1]]).unwrap();
                found = scanned.last_payload.map(|at| at + pair[0]).or(found);
                complete = scanned.complete;
            }
            prop_assert_eq!((found, complete), (last_payload, true));
            prop_assert_eq!(scanner.decoded(), payload.len() as u64);
            prop_assert!(scanner.finish().is_ok());
        }
    }
}
