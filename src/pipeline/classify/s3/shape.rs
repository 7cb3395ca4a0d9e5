//! What the header fields of an S3 write may and may not say, and how its body is framed.

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderName};

use super::invalid;
use super::ops::{Body, KeyRule, Row};
use super::query::Query;
use crate::pipeline::classify::BodyKind;
use crate::pipeline::classify::fields::{text, twin};
use crate::pipeline::refusal::Refusal;

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const RENAME_SOURCE: HeaderName = HeaderName::from_static("x-amz-rename-source");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

/// The values of `x-amz-content-sha256` that mean an aws-chunked body. Source: S3 API reference,
/// "Signature calculations", and the SigV4A variants of the SDKs.
const STREAMING: &[&str] = &[
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
    "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER",
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
];

/// Fields of one store each that turn a write into another one; the others ignore them.
const VENDOR_FIELDS: &[(&str, &str)] = &[
    ("x-goog-resumable", "it starts a session whose chunks carry no signature"),
    ("x-amz-write-offset-bytes", "it appends on some stores and overwrites on others"),
];

/// Fields that nearly every request has and that mean nothing here: not looked at further.
const HARMLESS: &[&str] = &[
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-checksum-crc32",
    "x-amz-security-token",
    "x-amz-user-agent",
];

/// The fields of a write that have passed [`check_fields`].
#[derive(Debug)]
pub(super) struct Fields<'a> {
    copy_source: Option<&'a str>,
    rename_source: Option<&'a str>,
}

/// Refuses fields that some stores obey and others ignore, doubled ones, and `_` twins.
///
/// # Errors
/// [`Refusal::InvalidRequest`] that names the field.
pub(super) fn check_fields(headers: &HeaderMap) -> Result<Fields<'_>, Refusal> {
    for name in headers.keys() {
        let name = name.as_str();
        // What is looked for begins with `x`, or is a twin of a field that frames the request.
        let twinned = name.as_bytes().contains(&b'_');
        let snowball = name.as_bytes().contains(&b'w') && name.contains("snowball");
        let harmless = !name.starts_with('x') || HARMLESS.contains(&name);
        if harmless && !twinned && !snowball {
            continue;
        }
        let twin = twin(name);
        let refuse =
            |why: &str| Err(invalid(&format!("the field `{name}` is not supported: {why}")));
        if twin.contains("snowball") || twin.starts_with("x-minio-") {
            return refuse("one store writes or deletes many keys for it");
        }
        if let Some((_, why)) = VENDOR_FIELDS.iter().find(|(vendor, _)| *vendor == twin) {
            return refuse(why);
        }
        if twin.contains("copy-source") && twin.starts_with("x-") && !is_copy_field(&twin) {
            return refuse("it makes a write a copy on one store; send x-amz-copy-source");
        }
        // Servers behind CGI or WSGI see `x_amz_copy_source` and `x-amz-copy-source` as one name.
        let is_metadata = twin.starts_with("x-amz-meta-");
        if twinned && !is_metadata && (twin.starts_with("x-amz-") || is_framing(&twin)) {
            return refuse("write it with `-`");
        }
    }
    Ok(Fields {
        copy_source: text(headers, &COPY_SOURCE)?,
        rename_source: text(headers, &RENAME_SOURCE)?,
    })
}

/// Refuses signatures that a store may check in two ways.
///
/// # Errors
/// [`Refusal::InvalidRequest`] for signature version 2 and for a signature both in the query and in a field.
pub(super) fn check_signature(headers: &HeaderMap, query: &Query<'_>) -> Result<(), Refusal> {
    let field = text(headers, &AUTHORIZATION)?;
    let version2 = field.is_some_and(|value| {
        value.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("AWS "))
    });
    if version2 || query.has("AWSAccessKeyId") || query.has("Signature") {
        return Err(invalid("it is signed with signature version 2; sign with version 4"));
    }
    let in_query = ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature"];
    if field.is_some() && in_query.iter().any(|name| query.has(name)) {
        return Err(invalid("it is signed both in the query and in Authorization; keep one"));
    }
    let hoisted =
        query.params().find(|param| param.name.eq_ignore_ascii_case(CONTENT_SHA256.as_str()));
    if hoisted.is_some_and(|param| begins_streaming(&param.value)) {
        return Err(invalid(
            "x-amz-content-sha256 in the query announces an aws-chunked body; send it as a field",
        ));
    }
    Ok(())
}

/// How the body of an operation is framed.
///
/// # Errors
/// [`Refusal::InvalidRequest`] if the fields contradict each other, so that one store would decode the body
/// and another store its framing; or if a control document is encoded, so that it cannot be read here.
pub(super) fn body_kind(row: &Row, headers: &HeaderMap) -> Result<BodyKind, Refusal> {
    let hash = text(headers, &CONTENT_SHA256)?.unwrap_or_default();
    let streaming = STREAMING.contains(&hash);
    if !streaming && begins_streaming(hash) {
        return Err(invalid(&format!(
            "`{CONTENT_SHA256}: {hash}` is not known; one of {}",
            STREAMING.join(", ")
        )));
    }
    let encodings = encodings(headers)?;
    let chunked = encodings.iter().filter(|coding| *coding == "aws-chunked").count();
    if chunked > 1 {
        return Err(invalid("Content-Encoding names aws-chunked twice"));
    }
    if chunked == 1 && !streaming {
        return Err(invalid(
            "Content-Encoding says aws-chunked and x-amz-content-sha256 does not; send STREAMING-… there",
        ));
    }
    let decoded_length = match text(headers, &DECODED_LENGTH)? {
        None => None,
        Some(_) if !streaming => {
            return Err(invalid("x-amz-decoded-content-length without an aws-chunked body"));
        }
        Some(digits) => Some(length(digits)?),
    };
    match row.body {
        Body::Stream if streaming => Ok(BodyKind::AwsChunked { decoded_length }),
        Body::Stream => Ok(BodyKind::Stream),
        // Where no body is defined a store may act on the head, so the head waits for the whole body too.
        Body::None | Body::Xml | Body::Json => {
            let encoded =
                encodings.iter().any(|coding| coding != "identity" && coding != "aws-chunked");
            let decides = row.keys == KeyRule::BodyKeys || row.name == "RestoreObject";
            if streaming || encoded && decides {
                return Err(invalid(&format!(
                    "the body of {} is encoded; send it plain",
                    row.name
                )));
            }
            Ok(BodyKind::Document)
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Refuses a copy or rename source on an operation that has none.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] that names the field and the operation.
    pub fn check_sources(&self, row: &Row) -> Result<(), Refusal> {
        for (name, value) in
            [(&COPY_SOURCE, self.copy_source), (&RENAME_SOURCE, self.rename_source)]
        {
            if value.is_some() && name != row.header {
                return Err(invalid(&format!(
                    "the field `{name}` contradicts the operation, which is {}; some stores copy, some do not",
                    row.name
                )));
            }
        }
        // A blank to some decoders; and this source is removed.
        if self.rename_source.is_some_and(|value| value.contains('+')) {
            return Err(invalid("x-amz-rename-source has a `+`; write `%2B` or `%20`"));
        }
        Ok(())
    }

    /// The source: name of the field, and its value.
    pub fn source(&self) -> Option<(HeaderName, &'a str)> {
        let copy = self.copy_source.map(|value| (COPY_SOURCE, value));
        copy.or(self.rename_source.map(|value| (RENAME_SOURCE, value)))
    }
}

fn encodings(headers: &HeaderMap) -> Result<Vec<String>, Refusal> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let Ok(value) = value.to_str() else {
            return Err(invalid("Content-Encoding has a byte outside ASCII"));
        };
        for coding in value.split(',').map(str::trim).filter(|coding| !coding.is_empty()) {
            codings.push(coding.to_ascii_lowercase());
        }
    }
    match codings.iter().any(|coding| coding != "aws-chunked" && coding.contains("aws-chunked")) {
        true => Err(invalid("Content-Encoding has an odd form of aws-chunked")),
        false => Ok(codings),
    }
}

fn length(digits: &str) -> Result<u64, Refusal> {
    match digits.parse::<u64>() {
        Ok(length) if digits.bytes().all(|b| b.is_ascii_digit()) && digits.len() <= 15 => {
            Ok(length)
        }
        _ => Err(invalid("x-amz-decoded-content-length is not a number of at most 15 digits")),
    }
}

fn begins_streaming(value: &str) -> bool {
    value.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("STREAMING"))
}

fn is_copy_field(name: &str) -> bool {
    name.strip_prefix(COPY_SOURCE.as_str()).is_some_and(|rest| {
        ["", "-range"].contains(&rest)
            || rest.starts_with("-if-")
            || rest.starts_with("-server-side-encryption-")
    }) || name.starts_with("x-amz-meta-")
}

fn is_framing(name: &str) -> bool {
    ["content-encoding", "content-length", "transfer-encoding", "authorization", "expect", "host"]
        .contains(&name)
}
