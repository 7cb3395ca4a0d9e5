//! Requests signed with SigV4, as bytes: every header and every byte of the body is under control.
//!
//! # Reference
//! AWS, "Signature Version 4 signing process" and "Transferring payloads in multiple chunks".

use std::fmt::Write as _;
use std::time::SystemTime;

use ring::{digest, hmac};

use super::clients::Answer;
use super::raw_client::RawClient;
use super::stores::{ACCESS_KEY, SECRET_KEY};

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `Content-Length`, the payload as it is.
    Plain,
    /// `Content-Length`, aws-chunked, a checksum as trailer.
    Trailer,
    /// `Content-Length`, aws-chunked, each chunk signed.
    SignedChunks,
    /// HTTP chunks, the payload as it is.
    HttpPlain,
    /// HTTP chunks around aws-chunked with a checksum as trailer.
    HttpTrailer,
    /// HTTP chunks around aws-chunked with signed chunks.
    HttpSigned,
}

/// The five shapes that an upload can have, with the two kinds of aws-chunked told apart.
pub const SHAPES: [Shape; 6] = [
    Shape::Plain,
    Shape::Trailer,
    Shape::SignedChunks,
    Shape::HttpPlain,
    Shape::HttpTrailer,
    Shape::HttpSigned,
];

/// A request to be signed.
#[derive(Clone, Debug)]
pub struct Signed {
    method: String,
    target: String,
    host: String,
    headers: Vec<(String, String)>,
    unsigned: Vec<(String, String)>,
    shape: Shape,
    payload: Vec<u8>,
    checksum: Option<String>,
    length: Option<u64>,
}

/// The bytes of a signed request.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The head, with its empty line.
    pub head: Vec<u8>,
    /// The body, framing included.
    pub body: Vec<u8>,
    /// Where in the body the payload's last byte is.
    pub last_payload: usize,
    /// Where the outermost framing's end begins (`0 CRLF CRLF` of HTTP chunks); else the body's length.
    pub outer_end: usize,
}

// === impl Shape ===

impl Shape {
    fn is_http_chunked(self) -> bool {
        matches!(self, Shape::HttpPlain | Shape::HttpTrailer | Shape::HttpSigned)
    }

    fn is_aws_chunked(self) -> bool {
        !matches!(self, Shape::Plain | Shape::HttpPlain)
    }

    /// Whether a checksum follows the payload.
    pub fn has_trailer(self) -> bool {
        matches!(self, Shape::Trailer | Shape::HttpTrailer)
    }

    fn is_signed(self) -> bool {
        matches!(self, Shape::SignedChunks | Shape::HttpSigned)
    }

    fn content(self) -> &'static str {
        match self {
            Shape::Plain | Shape::HttpPlain => "UNSIGNED-PAYLOAD",
            Shape::Trailer | Shape::HttpTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            Shape::SignedChunks | Shape::HttpSigned => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        }
    }
}

// === impl Signed ===

impl Signed {
    /// A request without a body; `target` goes out byte for byte and is signed as it is.
    pub fn new(method: &str, target: &str, host: &str) -> Signed {
        Signed {
            method: method.to_owned(),
            target: target.to_owned(),
            host: host.to_owned(),
            headers: Vec::new(),
            unsigned: Vec::new(),
            shape: Shape::Plain,
            payload: Vec::new(),
            checksum: None,
            length: None,
        }
    }

    /// Adds a header that is signed; `name` in lower case.
    pub fn header(mut self, name: &str, value: &str) -> Signed {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a header that is not signed.
    pub fn unsigned(mut self, name: &str, value: &str) -> Signed {
        self.unsigned.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an unsigned `Fencing-Token`.
    pub fn token(self, token: u64) -> Signed {
        self.unsigned("Fencing-Token", &token.to_string())
    }

    /// Sets the body.
    pub fn body(mut self, shape: Shape, payload: &[u8]) -> Signed {
        self.shape = shape;
        self.payload = payload.to_vec();
        self
    }

    /// Sends this text as the trailer's checksum instead of the right one.
    pub fn checksum(mut self, text: &str) -> Signed {
        self.checksum = Some(text.to_owned());
        self
    }

    /// Announces a body of this length, which the caller sends.
    pub fn announce(mut self, length: u64) -> Signed {
        self.length = Some(length);
        self
    }

    /// Sends it on a connection of its own and reads the answer.
    #[track_caller]
    pub fn send(&self, to: std::net::SocketAddr) -> Answer {
        let wire = self.wire();
        let mut client = RawClient::connect(to);
        client.send(&wire.head);
        // Refused by its head: the answer is there although the body cannot be sent any more.
        client.try_send(&wire.body);
        client.answer_to(&self.method)
    }

    /// Signs it.
    pub fn wire(&self) -> Wire {
        let (date, time) = now();
        let mut signed = self.headers.clone();
        signed.push(("host".to_owned(), self.host.clone()));
        signed.push(("x-amz-content-sha256".to_owned(), self.shape.content().to_owned()));
        signed.push(("x-amz-date".to_owned(), time.clone()));
        if self.shape.is_aws_chunked() {
            signed.push(("content-encoding".to_owned(), "aws-chunked".to_owned()));
            let length = self.payload.len().to_string();
            signed.push(("x-amz-decoded-content-length".to_owned(), length));
        }
        if self.shape.has_trailer() {
            signed.push(("x-amz-trailer".to_owned(), "x-amz-checksum-crc32".to_owned()));
        }
        signed.sort();
        let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut pairs: Vec<String> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
            .collect();
        pairs.sort();
        let fields: String = signed.iter().fold(String::new(), |mut all, (name, value)| {
            writeln!(all, "{name}:{value}").unwrap();
            all
        });
        let content = self.shape.content();
        let canonical =
            format!("{}\n{path}\n{}\n{fields}\n{names}\n{content}", self.method, pairs.join("&"));
        let scope = format!("{date}/us-east-1/s3/aws4_request");
        let key = signing_key(&date);
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
        let signature = hex(&mac(&key, to_sign.as_bytes()));
        let mut body = self.inner(&key, &time, &scope, &signature);
        if self.shape.is_http_chunked() {
            body = body.in_http_chunks();
        }
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in signed.iter().chain(&self.unsigned) {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "Authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}\r\n").unwrap();
        if self.shape.is_http_chunked() {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if let Some(length) = self.length {
            write!(head, "Content-Length: {length}\r\n").unwrap();
        } else if !body.bytes.is_empty() || matches!(&*self.method, "PUT" | "POST") {
            write!(head, "Content-Length: {}\r\n", body.bytes.len()).unwrap();
        }
        head.push_str("\r\n");
        Wire {
            head: head.into_bytes(),
            outer_end: body.outer_end,
            last_payload: body.last_payload,
            body: body.bytes,
        }
    }

    fn inner(&self, key: &hmac::Key, time: &str, scope: &str, seed: &str) -> Framing {
        let payload = &self.payload;
        if !self.shape.is_aws_chunked() {
            return Framing::new(payload.clone(), payload.len().saturating_sub(1));
        }
        let mut bytes = Vec::new();
        let mut last_payload = 0;
        let mut previous = seed.to_owned();
        for chunk in payload.chunks(64 << 10).chain([&[][..]]) {
            let mut line = format!("{:x}", chunk.len());
            if self.shape.is_signed() {
                let to_sign = format!(
                    "AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{previous}\n{}\n{}",
                    sha256(b""),
                    sha256(chunk)
                );
                previous = hex(&mac(key, to_sign.as_bytes()));
                write!(line, ";chunk-signature={previous}").unwrap();
            }
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(chunk);
            if !chunk.is_empty() {
                last_payload = bytes.len() - 1;
                bytes.extend_from_slice(b"\r\n");
            }
        }
        if !self.shape.is_signed() {
            let right = || base64(&crc32(payload).to_be_bytes());
            let checksum = self.checksum.clone().unwrap_or_else(right);
            bytes.extend_from_slice(format!("x-amz-checksum-crc32:{checksum}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        Framing::new(bytes, last_payload)
    }
}

struct Framing {
    bytes: Vec<u8>,
    last_payload: usize,
    outer_end: usize,
}

// === impl Framing ===

impl Framing {
    fn new(bytes: Vec<u8>, last_payload: usize) -> Framing {
        let outer_end = bytes.len();
        Framing { bytes, last_payload, outer_end }
    }

    fn in_http_chunks(self) -> Framing {
        let mut bytes = Vec::new();
        let mut last_payload = 0;
        let mut at = 0;
        for chunk in self.bytes.chunks(48 << 10) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            if (at..at + chunk.len()).contains(&self.last_payload) {
                last_payload = bytes.len() + self.last_payload - at;
            }
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
            at += chunk.len();
        }
        let outer_end = bytes.len();
        bytes.extend_from_slice(b"0\r\n\r\n");
        Framing { bytes, last_payload, outer_end }
    }
}

/// `YYYYMMDD` and `YYYYMMDDTHHMMSSZ`.
fn now() -> (String, String) {
    let text = httpdate::fmt_http_date(SystemTime::now());
    let parts: Vec<&str> = text.split([' ', ':']).collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(parts[2]).expect("a month's name") / 3 + 1;
    let date = format!("{}{month:02}{}", parts[3], parts[1]);
    (date.clone(), format!("{date}T{}{}{}Z", parts[4], parts[5], parts[6]))
}

fn signing_key(date: &str) -> hmac::Key {
    let mut key = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{SECRET_KEY}").as_bytes());
    for part in [date, "us-east-1", "s3", "aws4_request"] {
        key = hmac::Key::new(hmac::HMAC_SHA256, &mac(&key, part.as_bytes()));
    }
    key
}

fn mac(key: &hmac::Key, bytes: &[u8]) -> Vec<u8> {
    hmac::sign(key, bytes).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// CRC-32 as of gzip.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

/// Standard alphabet, padded.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes.chunks(3).fold(String::new(), |mut text, three| {
        let value = three.iter().fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
        let value = value << (8 * (3 - three.len()));
        for digit in 0..4 {
            let index = (value >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit > three.len() { '=' } else { char::from(DIGITS[index]) });
        }
        text
    })
}
