//! Answers: refusals in the dialect of the route, and what is taken off the store's own answers.

use std::cell::Cell;
use std::fmt::Write;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response};

use super::body::DownBody;
use super::refusal::Refusal;
use super::settings::StoreKind;

/// Names the resource that refused a request; only for clients that carried a well-formed token.
pub const FENCING_RESOURCE: HeaderName = HeaderName::from_static("fencing-resource");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-fencegate-request-id");

/// What a refusal has to be written for.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    /// The dialect.
    pub kind: StoreKind,
    /// Path of the request, for S3's `<Resource>`.
    pub path: &'a str,
    /// Whether the request is conditional.
    pub conditional: bool,
    /// Whether it carried a well-formed token.
    pub carried: bool,
    /// Whether the connection has to close because the body was not read.
    pub close: bool,
    /// The request's id.
    pub id: RequestId,
}

/// Names one request in logs and refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

thread_local! {
    static NEXT: Cell<u64> = Cell::new({
        let mut random = [0; 8];
        // Ids only have to be told apart; a machine without randomness counts from zero.
        let _ = getrandom::fill(&mut random);
        u64::from_ne_bytes(random)
    });
}

// === impl RequestId ===

impl RequestId {
    /// The next one of this thread.
    pub fn next() -> RequestId {
        // An odd constant: consecutive ids look unlike each other and still never repeat.
        RequestId(NEXT.replace(NEXT.get().wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

/// Whether a request is conditional: then its client expects a 412 of its own.
pub fn is_conditional(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str().as_bytes();
        name.starts_with(b"if-") || name.windows(4).any(|part| part == b"-if-")
    })
}

/// Writes a refusal.
///
/// # Reference
/// S3 API, "Error responses"; RFC 9457.
pub fn refuse(refusal: &Refusal, occasion: &Occasion<'_>) -> Response<DownBody> {
    let rank = refusal.rank(occasion.conditional);
    let id = occasion.id.to_string();
    let text = refusal.text();
    let (media, body) = match occasion.kind {
        StoreKind::S3 => {
            let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
            for (name, value) in [
                ("Code", rank.code),
                ("Message", &text),
                ("Resource", occasion.path),
                ("RequestId", &id),
            ] {
                write!(xml, "<{name}>{}</{name}>", quick_xml::escape::escape(printable(value)))
                    .expect("a string takes all that is written to it");
            }
            xml.push_str("</Error>");
            ("application/xml", xml)
        }
        StoreKind::Rest => {
            let problem = serde_json::json!({
                "type": format!("/errors/{}", rank.rest),
                "title": rank.status.canonical_reason().unwrap_or("Refused"),
                "status": rank.status.as_u16(),
                "detail": text,
                "instance": format!("/requests/{id}"),
            });
            ("application/problem+json", problem.to_string())
        }
    };
    let mut response = Response::new(DownBody::from(Bytes::from(body)));
    *response.status_mut() = rank.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(REQUEST_ID, HeaderValue::from_str(&id).expect("hexadecimal digits"));
    if let Some(after) = refusal.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1_000) as u64));
    }
    if let Some(resource) = refusal.resource().filter(|_| occasion.carried) {
        // A name outside ASCII is percent-encoded rather than left out.
        let name =
            percent_encoding::utf8_percent_encode(resource.as_str(), percent_encoding::CONTROLS)
                .to_string();
        if let Ok(value) = HeaderValue::from_str(&name) {
            headers.insert(FENCING_RESOURCE, value);
        }
    }
    if occasion.close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// XML has no way to write most control characters, nor the last two of the first plane.
fn printable(text: &str) -> String {
    let has_none = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if has_none(c) { '\u{fffd}' } else { c }).collect()
}

/// Takes off an answer what concerns the store's connection only, and any token. `Transfer-Encoding` is
/// set anew by hyper.
pub fn clean(headers: &mut HeaderMap) {
    let concerns_us = |name: &HeaderName| {
        matches!(
            name.as_str(),
            "connection"
                | "keep-alive"
                | "proxy-connection"
                | "upgrade"
                | "transfer-encoding"
                | "trailer"
                | "fencing-token"
                | "fencing_token"
        )
    };
    // Most answers have none of them, and one walk tells.
    if !headers.keys().any(concerns_us) {
        return;
    }
    for name in [CONNECTION, UPGRADE, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
    super::body::strip_token(headers);
}

/// Whether an answer could be read in two ways.
///
/// # Reference
/// RFC 9112, section 6.3: a message with both is to be treated as an error.
pub fn is_ambiguous(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;

    use super::*;
    use crate::core::{Resource, Token};

    fn occasion(kind: StoreKind) -> Occasion<'static> {
        Occasion {
            kind,
            path: "/wal/a<b",
            conditional: false,
            carried: true,
            close: true,
            id: RequestId(1),
        }
    }

    async fn body(response: Response<DownBody>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec())
            .unwrap()
    }

    fn stale() -> Refusal {
        Refusal::StaleToken {
            resource: Resource::new("wal/<main>").unwrap(),
            presented: Token::MIN,
        }
    }

    #[tokio::test]
    async fn a_refusal_is_xml_on_s3_and_a_problem_on_rest() {
        let response = refuse(&stale(), &occasion(StoreKind::S3));
        assert_eq!(response.status(), 412);
        assert_eq!(response.headers()[FENCING_RESOURCE], "wal/<main>");
        assert_eq!(response.headers()[CONNECTION], "close");
        let xml = body(response).await;
        assert!(xml.contains("<Code>StaleFencingToken</Code>"), "{xml}");
        assert!(xml.contains("wal/&lt;main&gt;") && !xml.contains("<main>"), "{xml}");
        let response = refuse(&stale(), &occasion(StoreKind::Rest));
        let problem: serde_json::Value = serde_json::from_str(&body(response).await).unwrap();
        assert_eq!(problem["type"], "/errors/stale-fencing-token");
        assert_eq!(problem["status"], 412);
    }

    #[test]
    fn a_conditional_request_never_gets_our_412() {
        let occasion = Occasion { conditional: true, ..occasion(StoreKind::S3) };
        assert_eq!(refuse(&stale(), &occasion).status(), 403);
        let conditional = |name: &'static str| {
            is_conditional(&HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static("*"),
            )]))
        };
        assert!(conditional("if-none-match") && conditional("x-amz-copy-source-if-match"));
        assert!(!conditional("x-amz-meta-gif") && !conditional("content-type"));
    }

    #[test]
    fn retry_after_is_whole_seconds_and_at_least_one() {
        for (millis, want) in [(0, "1"), (999, "1"), (1_000, "1"), (1_001, "2"), (60_000, "60")] {
            let refusal = Refusal::Draining {
                resource: Resource::new("r").unwrap(),
                retry_after: Duration::from_millis(millis),
                why: String::new(),
            };
            assert_eq!(refuse(&refusal, &occasion(StoreKind::S3)).headers()[RETRY_AFTER], want);
        }
    }
}
