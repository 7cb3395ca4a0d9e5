//! Step 1: is this one well-formed request, meant for us? What hyper lets through and must not pass.

use http::header::{CONNECTION, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version};

use super::refusal::Refusal;
use super::token::{FENCING_TOKEN, UNDERSCORE_TWIN, announces_token};

/// Fields that concern one connection only and never go on.
///
/// # Reference
/// RFC 9110, section 7.6.1.
const HOP_BY_HOP: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// What `Connection` may name: anything else would take an end-to-end field off the request behind us.
const MAY_BE_NAMED: [&str; 6] =
    ["close", "keep-alive", "upgrade", "te", "trailer", "http2-settings"];

/// A request that passed.
#[derive(Debug)]
pub struct Framed {
    /// Path and query, byte for byte.
    pub target: PathAndQuery,
    /// The Host, as sent.
    pub host: String,
    /// Whether the client sent its body in HTTP chunks.
    pub chunked: bool,
    /// `Content-Length`, if the client sent one.
    pub length: Option<u64>,
    /// Whether the client waits for a 100.
    pub expects: bool,
    /// Whether the request came in absolute form: its authority equals Host.
    pub absolute: bool,
}

/// Checks the head of a request.
///
/// # Errors
/// [`Refusal::InvalidRequest`] if it is not plainly one request; [`Refusal::UnknownOperation`] for CONNECT,
/// TRACE and unknown expectations; [`Refusal::Misdirected`] if an absolute target names another host.
/// # Reference
/// RFC 9112, sections 3.2, 6.1, 6.3; RFC 9110, sections 7.6.1, 7.8, 10.1.1.
pub fn check(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<Framed, Refusal> {
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(Refusal::UnknownOperation {
            what: format!("{method} requests are not served"),
        });
    }
    connection(headers)?;
    let chunked = transfer_encoding(version, headers)?;
    let host = host(headers)?.to_owned();
    let absolute = uri.authority().is_some();
    if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(&host)) {
        return Err(Refusal::Misdirected {
            host: uri.authority().map(ToString::to_string).unwrap_or_default(),
        });
    }
    let target = uri
        .path_and_query()
        .cloned()
        .ok_or_else(|| bad("the target is no path; send one that starts with /"))?;
    let raw = target.as_str();
    if !raw.starts_with('/') {
        return Err(bad("the target does not start with /; send a path"));
    }
    if !raw.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("the target has raw bytes outside ASCII; percent-encode them"));
    }
    let length = match headers.get(http::header::CONTENT_LENGTH) {
        None => None,
        Some(value) => Some(
            value
                .to_str()
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| bad("the Content-Length is no number"))?,
        ),
    };
    Ok(Framed { target, host, chunked, length, expects: expects(headers)?, absolute })
}

fn bad(why: &str) -> Refusal {
    Refusal::InvalidRequest { why: why.to_owned() }
}

fn connection(headers: &HeaderMap) -> Result<(), Refusal> {
    for value in headers.get_all(CONNECTION) {
        let names = value.to_str().map_err(|_| bad("the Connection header is not ASCII"))?;
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !MAY_BE_NAMED.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                return Err(bad(
                    "the Connection header names an end-to-end header; send it without that name",
                ));
            }
        }
    }
    Ok(())
}

fn transfer_encoding(version: Version, headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(false) };
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(bad(
            "the Transfer-Encoding is not exactly `chunked`; send the body with Content-Length or chunked",
        ));
    }
    if version != Version::HTTP_11 {
        return Err(bad("Transfer-Encoding does not exist before HTTP/1.1"));
    }
    Ok(true)
}

fn host(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().ok_or_else(|| bad("there is no Host header"))?;
    if hosts.next().is_some() {
        return Err(bad("there are two Host headers"));
    }
    host.to_str().map_err(|_| bad("the Host header is not ASCII"))
}

fn expects(headers: &HeaderMap) -> Result<bool, Refusal> {
    match headers.get(http::header::EXPECT) {
        None => Ok(false),
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => Ok(true),
        Some(_) => Err(bad("the only expectation that is understood is 100-continue")),
    }
}

/// Makes the fields of a request fit to go on: hop-by-hop ones off, the token off unless it is signed,
/// the body's framing as it will be sent.
pub fn prepare(headers: &mut HeaderMap, framed: &Framed, keep_token: bool) {
    // One walk over what is there costs less than asking for each of what mostly is not.
    let mut hop_by_hop = false;
    let (mut te, mut trailer, mut twin) = (false, false, false);
    for name in headers.keys() {
        match name.as_str() {
            "connection" | "keep-alive" | "proxy-connection" | "upgrade" | "http2-settings" => {
                hop_by_hop = true
            }
            "te" => te = true,
            "trailer" => trailer = true,
            "fencing_token" => twin = true,
            _ => {}
        }
    }
    if hop_by_hop {
        for name in &HOP_BY_HOP {
            headers.remove(name);
        }
    }
    // Trailers of answers are passed on to those who ask for them; nothing else may be asked for.
    if te && headers.get(TE).is_some_and(|te| !te.as_bytes().eq_ignore_ascii_case(b"trailers")) {
        headers.remove(TE);
    }
    if framed.chunked {
        // With both, hyper has read chunks: RFC 9112, section 6.3.
        headers.remove(http::header::CONTENT_LENGTH);
    }
    if !keep_token {
        headers.remove(FENCING_TOKEN);
    }
    if twin {
        headers.remove(UNDERSCORE_TWIN);
    }
    if trailer && announces_token(headers) {
        headers.remove(TRAILER);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn head(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn verdict(target: &str, fields: &[(&'static str, &'static str)]) -> Result<Framed, Refusal> {
        check(&Method::PUT, &target.parse().unwrap(), Version::HTTP_11, &head(fields))
    }

    #[test]
    fn one_plain_request_passes() {
        let host = ("host", "s3.internal:8080");
        for fields in [
            &[host][..],
            &[host, ("connection", "keep-alive, TE"), ("te", "trailers")],
            &[host, ("transfer-encoding", "chunked")],
            &[host, ("expect", "100-continue"), ("content-length", "10")],
        ] {
            assert!(verdict("/b/k?x=%20", fields).is_ok(), "{fields:?}");
        }
        assert!(verdict("http://s3.internal:8080/b/k", &[host]).unwrap().absolute);
    }

    #[test]
    fn whatever_two_parsers_could_read_differently_is_refused() {
        let host = ("host", "h");
        let cases: &[(&str, &[(&'static str, &'static str)])] = &[
            ("no host", &[]),
            ("two hosts", &[host, host]),
            ("gzip, chunked", &[host, ("transfer-encoding", "gzip, chunked")]),
            (
                "chunked twice",
                &[host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            ),
            ("xchunked", &[host, ("transfer-encoding", "xchunked")]),
            ("connection names the token", &[host, ("connection", "close, Fencing-Token")]),
            ("connection names the length", &[host, ("connection", "content-length")]),
            ("connection names authorization", &[host, ("connection", "authorization")]),
            ("unknown expectation", &[host, ("expect", "200-ok")]),
        ];
        for (name, fields) in cases {
            assert!(
                matches!(verdict("/b/k", fields), Err(Refusal::InvalidRequest { .. })),
                "{name}"
            );
        }
        assert!(matches!(verdict("http://other/b/k", &[host]), Err(Refusal::Misdirected { .. })));
        let te = head(&[host, ("transfer-encoding", "chunked")]);
        assert!(check(&Method::PUT, &"/b/k".parse().unwrap(), Version::HTTP_10, &te).is_err());
    }

    #[test]
    fn what_goes_on_has_no_hop_by_hop_field_and_no_unsigned_token() {
        let mut headers = head(&[
            ("host", "h"),
            ("connection", "keep-alive, upgrade"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("te", "gzip"),
            ("fencing-token", "3"),
            ("fencing_token", "9"),
            ("trailer", "x-a, Fencing-Token"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("x-amz-date", "20260101T000000Z"),
        ]);
        let framed =
            check(&Method::PUT, &"/b/k".parse().unwrap(), Version::HTTP_11, &headers).unwrap();
        prepare(&mut headers, &framed, false);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "transfer-encoding", "x-amz-date"]);
    }
}
