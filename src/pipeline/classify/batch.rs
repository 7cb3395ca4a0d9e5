//! The keys that a control document names: those of a batch delete, and none in a restore.

use super::keys;
use super::xml::{Step, walk};
use crate::pipeline::refusal::Refusal;

/// Most objects in one batch; the limit of S3 itself.
pub const MAX_OBJECTS: usize = 1_000;

/// Longest key in bytes; the limit of S3 itself.
const MAX_KEY: usize = 1_024;

/// The keys of a `DeleteObjects` body, as `bucket/key`, in order, doubles included.
///
/// The whole batch is refused for one oddly written key: another parser may read another key there. The
/// body itself goes upstream byte for byte.
///
/// # Errors
/// [`Refusal::InvalidRequest`] if the document is not plainly one list of 1 to [`MAX_OBJECTS`] objects;
/// [`Refusal::AmbiguousKey`] for a key that [`keys::literal`] refuses, or with white space at an end.
/// # Reference
/// S3 API, `DeleteObjects`, request syntax.
pub fn delete_keys(bucket: &str, body: &[u8]) -> Result<Vec<String>, Refusal> {
    let mut list = List::default();
    let mut path: Vec<String> = Vec::with_capacity(4);
    walk(body, invalid, |step| match step {
        Step::Open(name) => {
            let parents: Vec<&str> = path.iter().map(String::as_str).collect();
            list.open(&parents, name)?;
            path.push(name.to_owned());
            Ok(())
        }
        Step::Text(text) => list.text(bucket, path.last().map_or("", String::as_str), text),
        Step::Close => match path.pop().as_deref() {
            Some("Object") => list.close_object(),
            _ => Ok(()),
        },
    })?;
    if list.keys.is_empty() {
        return Err(invalid("names no object"));
    }
    Ok(list.keys)
}

/// Checks that a `RestoreObject` body does not write its result elsewhere.
///
/// # Errors
/// [`Refusal::InvalidRequest`] if it has an `OutputLocation` (which names another bucket), or cannot be read
/// with certainty.
pub fn check_restore(body: &[u8]) -> Result<(), Refusal> {
    let invalid = |why: &str| Refusal::InvalidRequest { why: format!("the restore request {why}") };
    // A restore of one version needs no body on some stores.
    if body.is_empty() {
        return Ok(());
    }
    walk(body, invalid, |step| match step {
        Step::Open(name) if name.eq_ignore_ascii_case("OutputLocation") => {
            Err(invalid("writes to an `OutputLocation`, which no fence covers; restore in place"))
        }
        _ => Ok(()),
    })
}

#[derive(Default)]
struct List {
    keys: Vec<String>,
    /// The elements that the open object, or the root, has had: each may come once.
    seen: Vec<String>,
    quiet: bool,
}

// === impl List ===

impl List {
    fn open(&mut self, parents: &[&str], name: &str) -> Result<(), Refusal> {
        match (parents, name) {
            ([], "Delete") => Ok(()),
            (["Delete"], "Object") => {
                self.seen.clear();
                Ok(())
            }
            (["Delete"], "Quiet") if !self.quiet => {
                self.quiet = true;
                Ok(())
            }
            (["Delete", "Object"], "Key" | "VersionId" | "ETag" | "LastModifiedTime" | "Size")
                if self.seen.iter().all(|seen| seen != name) =>
            {
                self.seen.push(name.to_owned());
                Ok(())
            }
            _ => Err(invalid("has an element that is unknown, doubled or in the wrong place")),
        }
    }

    fn text(&mut self, bucket: &str, element: &str, text: &str) -> Result<(), Refusal> {
        match element {
            "Key" => {
                if text.is_empty() || text.len() > MAX_KEY {
                    return Err(invalid("has a key of no bytes, or of more than 1024"));
                }
                // At least one store's parser strips it.
                if text.trim() != text {
                    let why = "it begins or ends with white space, which XML parsers strip or keep";
                    return Err(Refusal::AmbiguousKey {
                        key: text.to_owned(),
                        why: why.to_owned(),
                    });
                }
                keys::literal(text)?;
                if self.keys.len() == MAX_OBJECTS {
                    return Err(invalid("names more than 1000 objects; split it"));
                }
                self.keys.push(format!("{bucket}/{text}"));
                Ok(())
            }
            "Quiet" | "VersionId" | "ETag" | "LastModifiedTime" | "Size" => Ok(()),
            // An object or the root without children, or with text between them.
            _ => Err(invalid("has text where elements belong, or an element without any")),
        }
    }

    fn close_object(&mut self) -> Result<(), Refusal> {
        if self.seen.iter().any(|seen| seen == "Key") {
            Ok(())
        } else {
            Err(invalid("has an object without a key"))
        }
    }
}

fn invalid(why: &str) -> Refusal {
    Refusal::InvalidRequest { why: format!("the batch delete {why}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(objects: &str) -> String {
        format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{objects}</Delete>")
    }

    #[test]
    fn every_key_comes_back_decoded_and_in_order() {
        let body = document(
            "<Quiet>true</Quiet>\n<Object><Key>a&amp;b &lt;&quot;&apos;&gt;</Key></Object> \
             <Object><VersionId>v</VersionId><Key>//k</Key><ETag>&quot;e&quot;</ETag><Size>1</Size>\
             <LastModifiedTime>t</LastModifiedTime></Object><Object><Key>a%2Fあ</Key></Object>",
        );
        let want = ["b/a&b <\"'>", "b///k", "b/a%2Fあ"].map(str::to_owned).to_vec();
        assert_eq!(delete_keys("b", body.as_bytes()), Ok(want));
    }

    #[test]
    fn one_oddly_written_key_refuses_the_whole_batch() {
        let good = "<Object><Key>good</Key></Object>";
        let odd = [
            "<Object><Key>&#x77;al/x</Key></Object>",
            "<Object><Key><![CDATA[wal/x]]></Key></Object>",
            "<Object><Key>wal<!-- -->/x</Key></Object>",
            "<Object><Key>wal<?x?>/x</Key></Object>",
            "<Object><s3:Key>wal/x</s3:Key></Object>",
            "<s3:Object><Key>wal/x</Key></s3:Object>",
            "<Object><Key>a</Key><Key>wal/x</Key></Object>",
            "<Object><Key>a<b/></Key></Object>",
            "<Object><Key>a<Key>wal/x</Key></Key></Object>",
            "<Object><key>wal/x</key></Object>",
            "<Object><Name>wal/x</Name></Object>",
            "<Object></Object>",
            "<Object/>",
            "<Object>text</Object>",
            "<Object>text<Key>a</Key></Object>",
            "<Object><Key></Key></Object>",
            "<Object><Key/></Object>",
            "<Object><VersionId>v</VersionId></Object>",
            "<Object><Object><Key>a</Key></Object></Object>",
            "<Object Key=\"wal/x\"><Key>a</Key></Object>",
            "<Key>wal/x</Key>",
            "<Object><Key>wal\0x</Key></Object>",
            "<Object><Key>wal\u{ffff}x</Key></Object>",
            "<Object><Key>wal\nx</Key></Object>",
            "<Object><Key>wal\\x</Key></Object>",
            "<Object><Key>public/../wal/x</Key></Object>",
            "<Object><Key> wal/x</Key></Object>",
            "<Object><Key>wal/x\n</Key></Object>",
            "<Quiet>true</Quiet><Quiet>false</Quiet>",
            "text",
            "</Delete><Delete>",
        ];
        assert!(delete_keys("b", document(good).as_bytes()).is_ok());
        for odd in odd {
            for objects in [format!("{good}{odd}"), format!("{odd}{good}")] {
                assert!(delete_keys("b", document(&objects).as_bytes()).is_err(), "{objects:?}");
            }
        }
        for body in [
            "",
            "<Delete/>",
            "<Delete></Delete>",
            "<Delete><Quiet>true</Quiet></Delete>",
            "<Deletes><Object><Key>a</Key></Object></Deletes>",
        ] {
            assert!(delete_keys("b", body.as_bytes()).is_err(), "{body:?}");
        }
    }

    #[test]
    fn a_key_has_1_to_1024_bytes() {
        let with = |n: usize| document(&format!("<Object><Key>{}</Key></Object>", "k".repeat(n)));
        assert!(delete_keys("b", with(1_024).as_bytes()).is_ok());
        assert!(delete_keys("b", with(1_025).as_bytes()).is_err());
    }

    #[test]
    fn a_batch_has_1_to_1000_objects() {
        let many = |n: usize| document(&"<Object><Key>k</Key></Object>".repeat(n));
        assert_eq!(delete_keys("b", many(1).as_bytes()).unwrap().len(), 1);
        assert_eq!(delete_keys("b", many(1_000).as_bytes()).unwrap().len(), 1_000);
        assert!(delete_keys("b", many(1_001).as_bytes()).is_err());
    }

    #[test]
    fn a_restore_may_not_write_elsewhere() {
        for good in ["", "<RestoreRequest><Days>1</Days></RestoreRequest>"] {
            assert_eq!(check_restore(good.as_bytes()), Ok(()));
        }
        for bad in [
            "<RestoreRequest><OutputLocation><S3/></OutputLocation></RestoreRequest>",
            "<RestoreRequest><x:OutputLocation/></RestoreRequest>",
            "<RestoreRequest><![CDATA[<OutputLocation>]]></RestoreRequest>",
            "<RestoreRequest>",
        ] {
            assert!(check_restore(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = delete_keys("b", &body);
            let _ = check_restore(&body);
        }

        #[test]
        fn keys_survive_escaping(key in "[!-~ぁ-ん]{1,20}") {
            prop_assume!(keys::literal(&key).is_ok());
            let escaped = quick_xml::escape::escape(&key);
            let body = document(&format!("<Object><Key>{escaped}</Key></Object>"));
            prop_assert_eq!(delete_keys("b", body.as_bytes()), Ok(vec![format!("b/{key}")]));
        }
    }
}
