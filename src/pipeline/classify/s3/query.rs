//! The query of an S3 request: decoded names and values, and which of them mean nothing for the operation.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::invalid;
use crate::pipeline::classify::keys::escapes_are_whole;
use crate::pipeline::refusal::Refusal;

/// One `name=value`.
#[derive(Clone, Debug)]
pub(super) struct Param<'a> {
    /// Decoded. A store that opens an upload for `?uploads` opens one for `?%75ploads` too.
    pub name: Cow<'a, str>,
    /// Decoded; empty if there was no `=`.
    pub value: Cow<'a, str>,
    raw_value: &'a str,
}

/// All parameters, in order.
#[derive(Clone, Debug)]
pub(super) struct Query<'a> {
    raw: &'a str,
    params: Vec<Param<'a>>,
}

/// Names that any operation may carry. Compared without regard to case: signers spell them both ways.
///
/// Presigning (SigV4), and request headers that presigners hoist into the query. A header that changes the
/// operation or the framing is not here: hoisted, some stores obey it and some do not.
const EVERYWHERE: &[&str] = &[
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signedheaders",
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "x-amz-region-set",
    "x-amz-acl",
    "x-amz-bypass-governance-retention",
    "x-amz-expected-bucket-owner",
    "x-amz-source-expected-bucket-owner",
    "x-amz-metadata-directive",
    "x-amz-mfa",
    "x-amz-mp-object-size",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-user-agent",
    "x-amz-website-redirect-location",
];

/// The same, by how they begin.
const EVERYWHERE_PREFIXES: &[&str] = &[
    "x-amz-meta-",
    "x-amz-checksum-",
    "x-amz-grant-",
    "x-amz-object-lock-",
    "x-amz-server-side-encryption",
];

/// Whether a query name never decides which operation a request is.
pub(super) fn is_legal_everywhere(name: &str) -> bool {
    let begins = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    // One object that the store unpacks into many.
    let unpacks = name.to_ascii_lowercase().contains("snowball");
    (EVERYWHERE.iter().any(|legal| name.eq_ignore_ascii_case(legal))
        || EVERYWHERE_PREFIXES.iter().any(begins))
        && !unpacks
}

// === impl Query ===

impl<'a> Query<'a> {
    /// Splits and decodes; never fails. [`Query::check_shape`] judges.
    pub fn parse(raw: &'a str) -> Query<'a> {
        let pieces = raw.split('&').filter(|piece| !piece.is_empty());
        let params = pieces
            .map(|piece| {
                let (name, raw_value) = piece.split_once('=').unwrap_or((piece, ""));
                Param {
                    name: percent_decode_str(name).decode_utf8_lossy(),
                    value: percent_decode_str(raw_value).decode_utf8_lossy(),
                    raw_value,
                }
            })
            .collect();
        Query { raw, params }
    }

    pub fn params(&self) -> impl Iterator<Item = &Param<'a>> {
        self.params.iter()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.params.iter().map(|param| &*param.name)
    }

    /// Whether a name is there, in any case.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// Whether a discriminator is there, in exactly this case and, if one is needed, with this value.
    pub fn matches(&self, name: &str, value: Option<&str>) -> bool {
        self.params()
            .any(|param| param.name == name && value.is_none_or(|value| param.value == value))
    }

    /// Refuses what stores split or decode differently.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for `;`, `#`, raw bytes outside ASCII, broken escapes, empty pieces or
    /// names, and a name given twice, in whatever case: stores take the first, the last, or neither.
    pub fn check_shape(&self) -> Result<(), Refusal> {
        if self.raw.bytes().any(|b| matches!(b, b';' | b'#' | 0..=b' ' | 0x7f..)) {
            return Err(invalid("the query has a `;`, `#` or raw byte; percent-encode it"));
        }
        if !escapes_are_whole(self.raw) {
            return Err(invalid("the query has a `%` without two hexadecimal digits"));
        }
        if !self.raw.is_empty()
            && self.raw.split('&').any(|piece| piece.is_empty() || piece.starts_with('='))
        {
            return Err(invalid("the query has an empty name; leave out the extra `&`"));
        }
        for (index, param) in self.params.iter().enumerate() {
            if param.name.contains(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))) {
                return Err(invalid(
                    "the query has a name with a character that no operation uses",
                ));
            }
            if self.params[..index].iter().any(|other| other.name.eq_ignore_ascii_case(&param.name))
            {
                return Err(invalid(&format!(
                    "the query name `{}` comes twice; send it once",
                    param.name
                )));
            }
        }
        Ok(())
    }

    /// The longest prefix that everything a list may show certainly starts with.
    ///
    /// Cut short where stores decode differently: at `+` (a blank to some), at `//` and a leading `/`
    /// (folded by some), at bytes that are not UTF-8. Given twice, or as a case variant: all of the bucket.
    pub fn prefix(&self) -> String {
        let mut prefixes =
            self.params.iter().filter(|param| param.name.eq_ignore_ascii_case("prefix"));
        let (Some(param), None) = (prefixes.next(), prefixes.next()) else { return String::new() };
        if param.name != "prefix" || self.raw.contains(';') {
            return String::new();
        }
        let raw = param.raw_value.split('+').next().unwrap_or_default();
        let decoded = percent_decode_str(raw).decode_utf8_lossy();
        let certain = decoded.split(['\u{fffd}', '\\', '\0']).next().unwrap_or_default();
        match certain.find("//") {
            _ if certain.starts_with('/') => String::new(),
            Some(at) => certain[..=at].to_owned(),
            None => certain.to_owned(),
        }
    }
}
