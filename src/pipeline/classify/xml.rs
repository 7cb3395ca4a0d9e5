//! A strict reader of the XML that control documents are written in.
//!
//! Two parsers can read one document differently. What real clients send uses elements, text and the five
//! predefined entities; everything else (prefixes, comments, CDATA, DOCTYPE, numeric references, other
//! encodings) is refused, so that the store cannot read another document than we did.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The namespace of S3 documents.
const S3_NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// One step through a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// An element begins. Attributes are checked and gone: none but the namespace of the root.
    Open(&'a str),
    /// The text of the innermost open element, up to its end or its next child; entities are resolved.
    Text(&'a str),
    /// The innermost open element ends.
    Close,
}

/// Walks through a whole document: one root, nothing around it but white space and a UTF-8 declaration.
///
/// Adjacent pieces of text are one step; text of white space only is left out, except that an element
/// without children always has exactly one text step. Nothing is collected: memory does not grow with the
/// document.
///
/// # Errors
/// The first fault that `on` finds; or what is wrong with the document, a text that reads on after
/// "the document ", made an error by `fault`.
pub(super) fn walk<E>(
    document: &[u8],
    fault: impl Fn(&str) -> E,
    on: impl FnMut(Step<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let Ok(text) = std::str::from_utf8(document) else { return Err(fault("is not UTF-8")) };
    if text.chars().any(is_not_xml) {
        return Err(fault("has a character that XML does not allow"));
    }
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut walk = Walk {
        fault,
        on,
        text: String::new(),
        depth: 0,
        leaf: false,
        started: false,
        declared: false,
    };
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => return walk.finish(),
            Ok(event) => walk.take(event)?,
            Err(_) => return Err((walk.fault)("is not well-formed")),
        }
    }
}

/// Deepest nesting; the control documents need five.
const MAX_DEPTH: usize = 32;

struct Walk<F, O> {
    fault: F,
    on: O,
    text: String,
    depth: usize,
    /// Whether the innermost open element has had no child so far.
    leaf: bool,
    /// Whether the root has begun.
    started: bool,
    /// Whether there was an XML declaration.
    declared: bool,
}

// === impl Walk ===

impl<E, F: Fn(&str) -> E, O: FnMut(Step<'_>) -> Result<(), E>> Walk<F, O> {
    fn take(&mut self, event: Event<'_>) -> Result<(), E> {
        match event {
            Event::Start(element) => return self.open(&element),
            Event::End(_) => return self.close(),
            Event::Text(piece) if !piece.contains("]]>") => self.text.push_str(&piece),
            Event::GeneralRef(entity) => self.text.push(match &*entity {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => return Err((self.fault)("has a reference; write the character itself")),
            }),
            Event::Decl(declaration) => {
                let is_utf8 = match declaration.encoding() {
                    None => true,
                    Some(name) => name.is_ok_and(|name| name.eq_ignore_ascii_case("utf-8")),
                };
                if !is_utf8 || self.started || self.declared {
                    return Err((self.fault)("declares another encoding, or declares it late"));
                }
                self.declared = true;
            }
            Event::CData(_) => {
                return Err((self.fault)("has a CDATA section; write the text itself"));
            }
            Event::Comment(_) => return Err((self.fault)("has a comment")),
            Event::PI(_) => return Err((self.fault)("has a processing instruction")),
            Event::DocType(_) => return Err((self.fault)("has a DOCTYPE")),
            Event::Text(_) | Event::Empty(_) | Event::Eof => {
                return Err((self.fault)("is not well-formed"));
            }
        }
        Ok(())
    }

    fn open(&mut self, element: &BytesStart<'_>) -> Result<(), E> {
        if self.depth == 0 && self.started {
            return Err((self.fault)("has a second root element"));
        }
        if self.depth == MAX_DEPTH {
            return Err((self.fault)("is nested too deeply"));
        }
        let name = element.name();
        let name: &str = name.as_ref();
        if name.contains(':') {
            return Err((self.fault)("has a prefixed element; use the default namespace"));
        }
        for attribute in element.attributes() {
            let is_namespace = attribute.is_ok_and(|attribute| {
                let key: &str = attribute.key.as_ref();
                key == "xmlns" && *attribute.value == *S3_NAMESPACE
            });
            if self.depth > 0 || !is_namespace {
                return Err((self.fault)("has an attribute that no client writes"));
            }
        }
        self.flush(false)?;
        (self.on)(Step::Open(name))?;
        self.depth += 1;
        self.leaf = true;
        self.started = true;
        Ok(())
    }

    fn close(&mut self) -> Result<(), E> {
        self.flush(self.leaf)?;
        (self.on)(Step::Close)?;
        self.depth -= 1;
        self.leaf = false;
        Ok(())
    }

    fn flush(&mut self, always: bool) -> Result<(), E> {
        let blank = self.text.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
        if self.depth == 0 && !blank {
            return Err((self.fault)("has text around its root element"));
        }
        if always || !blank {
            (self.on)(Step::Text(&self.text))?;
        }
        self.text.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), E> {
        if self.depth > 0 || !self.started {
            return Err((self.fault)("ends before its root element does"));
        }
        self.flush(false)
    }
}

/// Outside the characters of XML 1.0. A byte-order mark at the start is refused with them: what follows it
/// may be taken for another encoding.
fn is_not_xml(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        _ => c < ' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(document: &[u8]) -> Result<Vec<String>, String> {
        let mut steps = Vec::new();
        walk(document, str::to_owned, |step| {
            steps.push(format!("{step:?}"));
            Ok(())
        })?;
        Ok(steps)
    }

    #[test]
    fn plain_elements_become_steps() {
        let document = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n <b>x&amp;&lt;y</b><c/> </a>\n";
        let want = [
            "Open(\"a\")",
            "Open(\"b\")",
            "Text(\"x&<y\")",
            "Close",
            "Open(\"c\")",
            "Text(\"\")",
            "Close",
            "Close",
        ];
        let want = want.map(str::to_owned).to_vec();
        assert_eq!(steps(document.as_bytes()), Ok(want));
    }

    #[test]
    fn what_no_client_writes_is_refused() {
        let odd = [
            "",
            " ",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><a/>",
            "<a/>x",
            "x<a/>",
            "<s3:a/>",
            "<s3:a xmlns:s3=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>",
            "<a xmlns=\"urn:other\"/>",
            "<a xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\" b=\"1\"/>",
            "<a b=1/>",
            "<a><b c=\"1\"/></a>",
            "<a><b xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/></a>",
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a [<!ENTITY e \"x\">]><a>&e;</a>",
            "<a>&#x77;</a>",
            "<a>&#119;</a>",
            "<a>&unknown;</a>",
            "<a>& </a>",
            "<a><![CDATA[x]]></a>",
            "<a><!-- --></a>",
            "<!-- --><a/>",
            "<a/><!-- -->",
            "<a><?pi x?></a>",
            "<a/><?pi x?>",
            "<?xml version=\"1.0\" encoding=\"UTF-16\"?><a/>",
            "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><a/>",
            "<?xml encoding='UTF-16' version='1.0'?><a/>",
            "<?xml version=\"1.0\"?><?xml version=\"1.0\"?><a/>",
            "<a/><?xml version=\"1.0\"?>",
            "<a>x]]>y</a>",
            "<a>\0</a>",
            "<a>\u{ffff}</a>",
            "\u{feff}<a/>",
        ];
        for document in odd {
            assert!(steps(document.as_bytes()).is_err(), "{document:?}");
        }
        let nested = |depth| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(steps(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(steps(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        let utf16: Vec<u8> = "<a/>".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(steps(&utf16).is_err());
        assert!(steps(b"<a>\xff</a>").is_err());
    }
}
