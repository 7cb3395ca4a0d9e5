//! Header fields, as servers of several kinds may read them.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::HeaderName;

use crate::pipeline::refusal::Refusal;

/// Fields that make a store run another method or path than the request line says.
const OVERRIDES: &[&str] = &[
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Refuses fields that change the method or the path. On every request: one of them makes a read a write.
///
/// # Errors
/// [`Refusal::InvalidRequest`] that names the field.
pub(super) fn check_override(headers: &HeaderMap) -> Result<(), Refusal> {
    // All of them begin with `x`, and most fields do not.
    for name in headers.keys().filter(|name| name.as_str().starts_with('x')) {
        if OVERRIDES.contains(&&*twin(name.as_str())) {
            let why = format!(
                "the field `{name}` changes the request; send the method and path themselves"
            );
            return Err(Refusal::InvalidRequest { why });
        }
    }
    Ok(())
}

/// A name with `_` written as `-`: servers behind CGI or WSGI see the two as one.
pub(super) fn twin(name: &str) -> Cow<'_, str> {
    match name.as_bytes().contains(&b'_') {
        true => name.replace('_', "-").into(),
        false => name.into(),
    }
}

/// The value of a field, if it is there.
///
/// # Errors
/// [`Refusal::InvalidRequest`] if it comes twice, or has a byte outside visible ASCII.
pub(super) fn text<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let fault = match (values.next().map(http::HeaderValue::to_str), values.next()) {
        (None, _) => return Ok(None),
        (Some(Ok(text)), None) => return Ok(Some(text)),
        (Some(Err(_)), _) => "has a byte outside ASCII",
        (Some(Ok(_)), Some(_)) => "comes twice",
    };
    Err(Refusal::InvalidRequest { why: format!("the field `{name}` {fault}") })
}
