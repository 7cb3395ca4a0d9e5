//! Step 2: what a request does and which keys it touches. The only place with storage knowledge.
//!
//! Closed world: what is not certainly a read is a write, what is not known is refused.

pub mod answer;
pub mod aws_chunked;
pub mod batch;
mod fields;
pub mod host;
pub mod keys;
pub mod rest;
pub mod s3;
#[cfg(test)]
mod wire_tests;
mod xml;

use http::{HeaderMap, Method};

use super::refusal::Refusal;
use super::settings::StoreKind;

/// The parts of a request's head that classification may look at.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, byte for byte as sent, starting with `/`.
    pub path: &'a str,
    /// The query, byte for byte as sent, without `?`; `None` if there was no `?`.
    pub query: Option<&'a str>,
    /// The bucket that the Host names in virtual-host style; `None` for path style and for REST.
    pub host_bucket: Option<&'a str>,
    /// All header fields.
    pub headers: &'a HeaderMap,
}

/// Whether a request can change what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Certainly changes nothing.
    Read,
    /// May change something.
    Write,
}

/// How the body has to be treated on its way upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// The object itself, or nothing known: streamed, its tail withheld.
    Stream,
    /// Streamed in aws-chunked framing: the payload's last byte lies inside.
    AwsChunked {
        /// `x-amz-decoded-content-length`, if sent.
        decoded_length: Option<u64>,
    },
    /// A control document (XML, JSON): withheld whole, up to `max_document`.
    Document,
    /// A REST JSON or XML body: withheld whole up to `max_document`, above it streamed and withheld from
    /// its last non-white-space byte on.
    RestDocument,
}

/// How to read a complete answer with a 2xx status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// The status says it all.
    Plain,
    /// A 200 may carry an `<Error>` document instead of a result (Complete, Copy, UploadPartCopy).
    MayHideError,
    /// A 200 may carry failures of single keys (DeleteObjects).
    PerKey,
}

/// Where the keys that decide are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One key, as decoded: `bucket/key`, or `bucket/` for the bucket's own configuration (S3); the path
    /// without its first `/` (REST).
    One(String),
    /// Several keys, all written.
    Several(Vec<String>),
    /// The read of a list: everything whose key starts with this (`bucket/` plus the decoded prefix).
    Prefix(String),
    /// In the body of a batch delete; the bucket is here, [`document_keys`] reads the rest.
    InBody {
        /// The bucket that all of them are in.
        bucket: String,
    },
    /// None (the list of buckets, a CORS preflight).
    Nothing,
}

/// One classified request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation's name as the store's documentation has it (`PutObject`), or the method (REST).
    pub name: &'static str,
    /// Whether it can change something.
    pub effect: Effect,
    /// The keys it writes, or reads if it is a read.
    pub keys: Keys,
    /// A key it only reads beside (the source of a copy), as decoded; obeys the same shape rules.
    pub source: Option<String>,
    /// Its body.
    pub body: BodyKind,
    /// How to read a 2xx.
    pub answer: AnswerKind,
}

/// The one operation beside batches whose body is looked at: it may name another bucket.
const RESTORE: &str = "RestoreObject";

/// Classifies one request by its head.
///
/// * `read_methods`: further methods that only read (REST), from the rule that covers the path; may be empty.
///
/// # Errors
/// As [`s3::classify`] and [`rest::classify`].
pub fn classify(
    kind: StoreKind,
    head: &Head<'_>,
    read_methods: &[String],
) -> Result<Operation, Refusal> {
    match kind {
        StoreKind::S3 => s3::classify(head),
        StoreKind::Rest => rest::classify(head, read_methods),
    }
}

/// Whether an operation's body decides what it touches, or whether it may pass: then [`document_keys`] has
/// to see it before the fence.
pub fn decides_by_body(operation: &Operation) -> bool {
    matches!(operation.keys, Keys::InBody { .. }) || operation.name == RESTORE
}

/// Judges the whole body of a [`BodyKind::Document`] before it goes upstream, and reads the keys it names:
/// those of a batch delete; none for anything else.
///
/// # Errors
/// As [`batch::delete_keys`] and [`batch::check_restore`].
pub fn document_keys(operation: &Operation, body: &[u8]) -> Result<Vec<String>, Refusal> {
    match &operation.keys {
        Keys::InBody { bucket } => batch::delete_keys(bucket, body),
        _ if operation.name == RESTORE => batch::check_restore(body).map(|()| Vec::new()),
        _ => Ok(Vec::new()),
    }
}
