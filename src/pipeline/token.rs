//! Step 4: the token a request carries, or none.

use http::HeaderMap;
use http::header::HeaderName;

use super::refusal::{Refusal, TokenFault};
use crate::core::Token;

/// The header that carries the token.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// Begins the list of signed fields in `Authorization`.
const SIGNED_HEADERS: &[u8] = b"SignedHeaders=";

/// Some servers read it as the same name: it is no carrier, and never goes on.
pub const UNDERSCORE_TWIN: &str = "fencing_token";

/// Reads the token. `None` if there is none: an absent token is not zero, and nothing else is a token.
///
/// # Errors
/// [`Refusal::InvalidToken`] for two of them, or one that is malformed.
/// # Reference
/// RFC 9110, section 5.5: white space around a field value is not part of it.
pub fn carried(headers: &HeaderMap) -> Result<Option<Token>, Refusal> {
    let mut values = headers.get_all(FENCING_TOKEN).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::InvalidToken { fault: TokenFault::Repeated });
    }
    let text = value.as_bytes().trim_ascii();
    Token::parse(text)
        .map(Some)
        .map_err(|fault| Refusal::InvalidToken { fault: TokenFault::Malformed(fault) })
}

/// Whether a client signed its `Fencing-Token`: then the store has to see it, or its signature check
/// fails. Looks at `SignedHeaders` of SigV4, in the header or in the query.
pub fn is_signed(headers: &HeaderMap, query: Option<&str>) -> bool {
    let named =
        |list: &str| list.split(';').any(|name| name.trim().eq_ignore_ascii_case("fencing-token"));
    let header = headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let at = memchr::memmem::find(value.as_bytes(), SIGNED_HEADERS)?;
            value[at + SIGNED_HEADERS.len()..].split(',').next()
        });
    let query = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("X-Amz-SignedHeaders="))
        .map(|list| percent_encoding::percent_decode_str(list).decode_utf8_lossy());
    header.is_some_and(named) || query.is_some_and(|list| named(&list))
}

/// Whether `Trailer` announces a token: it is never one, and no side shall look for it.
pub fn announces_token(headers: &HeaderMap) -> bool {
    let names_it = |value: &http::HeaderValue| {
        value.to_str().is_ok_and(|names| {
            names.split(',').any(|name| name.trim().eq_ignore_ascii_case("fencing-token"))
        })
    };
    headers.get_all(http::header::TRAILER).iter().any(names_it)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::core::token::TokenError;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FENCING_TOKEN, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn exactly_one_well_formed_header_is_a_token() {
        let bad = |fault| Err(Refusal::InvalidToken { fault });
        type Want = Result<Option<u64>, Refusal>;
        let cases: &[(&[&'static str], Want)] = &[
            (&[], Ok(None)),
            (&["3"], Ok(Some(3))),
            (&["  3\t"], Ok(Some(3))),
            (&["3", "3"], bad(TokenFault::Repeated)),
            (&["3", "4"], bad(TokenFault::Repeated)),
            (&["3, 3"], bad(TokenFault::Malformed(TokenError::NotADigit))),
            (&["03"], bad(TokenFault::Malformed(TokenError::LeadingZero))),
            (&["0"], bad(TokenFault::Malformed(TokenError::LeadingZero))),
            (&["+3"], bad(TokenFault::Malformed(TokenError::NotADigit))),
            (&[""], bad(TokenFault::Malformed(TokenError::Empty))),
            (&["111111111111111111111"], bad(TokenFault::Malformed(TokenError::TooLarge))),
        ];
        for (values, want) in cases {
            assert_eq!(
                carried(&headers(values)).map(|token| token.map(Token::get)),
                *want,
                "{values:?}"
            );
        }
    }

    #[test]
    fn an_underscore_twin_is_no_token() {
        let mut twin = HeaderMap::new();
        twin.insert("fencing_token", HeaderValue::from_static("3"));
        assert_eq!(carried(&twin), Ok(None));
    }

    #[test]
    fn a_token_announced_as_trailer_is_noticed() {
        for (names, want) in [("x-a, Fencing-Token", true), ("fencing-token-2", false), ("", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::TRAILER, HeaderValue::from_static(names));
            assert_eq!(announces_token(&headers), want, "{names}");
        }
    }

    #[test]
    fn a_signed_token_is_noticed_in_header_and_query() {
        let mut signed = headers(&["3"]);
        let value = "AWS4-HMAC-SHA256 Credential=AK/20260101/r/s3/aws4_request, SignedHeaders=fencing-token;host, Signature=00";
        signed.insert(http::header::AUTHORIZATION, HeaderValue::from_static(value));
        assert!(is_signed(&signed, None));
        let value =
            "AWS4-HMAC-SHA256 Credential=AK, SignedHeaders=FENCING-TOKEN;host, Signature=00";
        signed.insert(http::header::AUTHORIZATION, HeaderValue::from_static(value));
        assert!(is_signed(&signed, None));
        let carries = headers(&["3"]);
        assert!(is_signed(&carries, Some("a=b&X-Amz-SignedHeaders=host%3Bfencing-token")));
        assert!(is_signed(&carries, Some("X-Amz-SignedHeaders=fencing-token;host")));
        let value =
            "AWS4-HMAC-SHA256 Credential=fencing-token, SignedHeaders=host;range, Signature=00";
        signed.insert(http::header::AUTHORIZATION, HeaderValue::from_static(value));
        assert!(!is_signed(&signed, Some("X-Amz-SignedHeaders=host")));
    }
}
