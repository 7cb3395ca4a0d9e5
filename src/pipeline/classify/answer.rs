//! What a complete answer with status 200 says inside.
//!
//! S3 sends the status of a long copy or completion before it knows the result, keeps the connection alive
//! with white space, and puts a failure into the document. Batch deletes report failures key by key.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::AnswerKind;

/// The verdict on the body of a 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyVerdict {
    /// Done, all of it.
    Success,
    /// An `<Error>` instead of a result.
    HidesError {
        /// Its code, at most 64 bytes; empty if it has none.
        code: String,
        /// Whether it is a code of the 4xx kind: definitely not applied.
        client_fault: bool,
    },
    /// Some keys of a batch failed.
    PerKeyFailures {
        /// Whether all their codes are of the 4xx kind: definitely settled.
        all_client_fault: bool,
    },
    /// Not a document that says either.
    Unreadable,
}

/// Codes that S3 sends with a status of 400 to 499, but those that mean a time-out. Any other code, known or
/// not, leaves the outcome unknown.
const CLIENT_FAULTS: &[&str] = &[
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "BadDigest",
    "BucketNotEmpty",
    "ConditionalRequestConflict",
    "CredentialsNotSupported",
    "EntityTooLarge",
    "EntityTooSmall",
    "ExpiredToken",
    "IllegalVersioningConfigurationException",
    "IncompleteBody",
    "InvalidAccessKeyId",
    "InvalidArgument",
    "InvalidBucketName",
    "InvalidDigest",
    "InvalidEncryptionAlgorithmError",
    "InvalidObjectState",
    "InvalidPart",
    "InvalidPartOrder",
    "InvalidRange",
    "InvalidRequest",
    "InvalidSecurity",
    "InvalidStorageClass",
    "InvalidTag",
    "InvalidToken",
    "KeyTooLongError",
    "MalformedXML",
    "MetadataTooLarge",
    "MethodNotAllowed",
    "MissingContentLength",
    "MissingContentMD5",
    "MissingSecurityHeader",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchUpload",
    "NoSuchVersion",
    "OperationAborted",
    "PermanentRedirect",
    "PreconditionFailed",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "XAmzContentSHA256Mismatch",
];

/// Judges the whole body of a 200 answer.
///
/// # Reference
/// S3 API: `CompleteMultipartUpload`, `CopyObject`, `UploadPartCopy`, `DeleteObjects`; error responses.
pub fn judge(kind: AnswerKind, body: &[u8]) -> BodyVerdict {
    if kind == AnswerKind::Plain {
        return BodyVerdict::Success;
    }
    let Some(document) = std::str::from_utf8(body).ok().and_then(read) else {
        return BodyVerdict::Unreadable;
    };
    match (kind, document.root.as_str()) {
        (_, "Error") => BodyVerdict::HidesError {
            client_fault: is_client_fault(&document.code),
            code: document.code.chars().take(64).collect(),
        },
        (AnswerKind::PerKey, "DeleteResult") => match document.failures {
            0 => BodyVerdict::Success,
            failures => {
                BodyVerdict::PerKeyFailures { all_client_fault: document.client_faults == failures }
            }
        },
        (AnswerKind::MayHideError, root) if root.ends_with("Result") => BodyVerdict::Success,
        _ => BodyVerdict::Unreadable,
    }
}

struct Document {
    /// Local name of the root.
    root: String,
    /// Text of `/Error/Code`, or of the `Code` of the latest `/*/Error`.
    code: String,
    /// How many `/*/Error` there are.
    failures: usize,
    /// How many of them have a code of the 4xx kind.
    client_faults: usize,
}

/// Deepest nesting of an answer; results need four.
const MAX_DEPTH: usize = 32;

/// Lenient: the store's writer is not an attacker of its own client. But the document must be whole.
fn read(text: &str) -> Option<Document> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut document =
        Document { root: String::new(), code: String::new(), failures: 0, client_faults: 0 };
    let mut path: Vec<String> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) => {
                let name = element.local_name();
                let name: &str = name.as_ref();
                match path.len() {
                    0 if document.root.is_empty() => name.clone_into(&mut document.root),
                    0 => return None,
                    1 if name == "Error" => document.code.clear(),
                    MAX_DEPTH.. => return None,
                    _ => {}
                }
                path.push(name.to_owned());
            }
            Event::End(_) => {
                let ended = path.pop()?;
                if ended == "Error" && path.len() == 1 {
                    document.failures += 1;
                    document.client_faults += usize::from(is_client_fault(&document.code));
                }
            }
            Event::Text(piece) => match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["Error", "Code"] | [_, "Error", "Code"] => document.code.push_str(piece.trim()),
                [] if !piece.trim().is_empty() => return None,
                _ => {}
            },
            Event::Eof => {
                return (path.is_empty() && !document.root.is_empty()).then_some(document);
            }
            _ => {}
        }
    }
}

fn is_client_fault(code: &str) -> bool {
    CLIENT_FAULTS.contains(&code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hides(code: &str, client_fault: bool) -> BodyVerdict {
        BodyVerdict::HidesError { code: code.to_owned(), client_fault }
    }

    #[test]
    fn a_200_is_judged_by_what_is_inside() {
        use AnswerKind::{MayHideError, PerKey, Plain};
        let cases = [
            (Plain, "anything", BodyVerdict::Success),
            (
                MayHideError,
                "<?xml version=\"1.0\"?><CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><ETag>&quot;e&quot;</ETag></CompleteMultipartUploadResult>",
                BodyVerdict::Success,
            ),
            (MayHideError, "<CopyPartResult/>", BodyVerdict::Success),
            (
                MayHideError,
                "   \n\n <?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code><Message>x</Message></Error>",
                hides("InternalError", false),
            ),
            (
                MayHideError,
                "<?xml version=\"1.0\"?>   <Error><Code>NoSuchUpload</Code></Error>",
                hides("NoSuchUpload", true),
            ),
            (
                MayHideError,
                "<Error><Code> PreconditionFailed </Code></Error>",
                hides("PreconditionFailed", true),
            ),
            (MayHideError, "<Error><Code>SlowDown</Code></Error>", hides("SlowDown", false)),
            (
                MayHideError,
                "<Error><Code>RequestTimeout</Code></Error>",
                hides("RequestTimeout", false),
            ),
            (
                MayHideError,
                "<Error><Code>NeverHeardOf</Code></Error>",
                hides("NeverHeardOf", false),
            ),
            (MayHideError, "<Error/>", hides("", false)),
            (MayHideError, "", BodyVerdict::Unreadable),
            (MayHideError, "    ", BodyVerdict::Unreadable),
            (MayHideError, "<CopyObjectResult><ETag>", BodyVerdict::Unreadable),
            (MayHideError, "<html><body>ok</body></html>", BodyVerdict::Unreadable),
            (MayHideError, "<CopyObjectResult/><Error/>", BodyVerdict::Unreadable),
            (MayHideError, "{}", BodyVerdict::Unreadable),
            (MayHideError, "<CopyObjectResult/> and more", BodyVerdict::Unreadable),
            (PerKey, "<DeleteResult/>", BodyVerdict::Success),
            (
                PerKey,
                "<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>",
                BodyVerdict::Success,
            ),
            (
                PerKey,
                "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error><Error><Code>NoSuchVersion</Code></Error></DeleteResult>",
                BodyVerdict::PerKeyFailures { all_client_fault: true },
            ),
            (
                PerKey,
                "<DeleteResult><Error><Code>AccessDenied</Code></Error><Error><Code>InternalError</Code></Error></DeleteResult>",
                BodyVerdict::PerKeyFailures { all_client_fault: false },
            ),
            (
                PerKey,
                "<DeleteResult><Error/></DeleteResult>",
                BodyVerdict::PerKeyFailures { all_client_fault: false },
            ),
            (PerKey, "<Error><Code>MalformedXML</Code></Error>", hides("MalformedXML", true)),
            (PerKey, "<CopyObjectResult/>", BodyVerdict::Unreadable),
        ];
        for (kind, body, want) in cases {
            assert_eq!(judge(kind, body.as_bytes()), want, "{body}");
        }
        assert_eq!(
            judge(MayHideError, b"<CopyObjectResult>\xff</CopyObjectResult>"),
            BodyVerdict::Unreadable
        );
    }

    #[test]
    fn a_document_of_endless_depth_is_not_followed() {
        let nested = |depth| {
            let (open, close) = ("<aResult>".repeat(depth), "</aResult>".repeat(depth));
            judge(AnswerKind::MayHideError, format!("{open}{close}").as_bytes())
        };
        assert_eq!(nested(MAX_DEPTH), BodyVerdict::Success);
        assert_eq!(nested(MAX_DEPTH + 1), BodyVerdict::Unreadable);
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = judge(AnswerKind::MayHideError, &body);
            let _ = judge(AnswerKind::PerKey, &body);
        }
    }
}
