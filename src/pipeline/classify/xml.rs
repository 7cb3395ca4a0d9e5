//! A strict reader of the XML that control documents are written in.
//!
//! Two parsers can read one document differently. What real clients send uses elements, text and the five
//! predefined entities; everything else (prefixes, comments, CDATA, DOCTYPE, numeric references, other
//! encodings) is refused, so that the store cannot read another document than we did.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The namespace of S3 documents.
const S3_NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// What is wrong with a document; reads on after "the document ".
pub(super) type Fault = String;

/// One step through a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An element begins. Attributes are checked and gone: none but the namespace of the root.
    Open(String),
    /// The text of the element just opened, up to its end or its first child; entities are resolved.
    Text(String),
    /// The innermost open element ends.
    Close,
}

/// The steps through a whole document: one root, nothing around it but white space and a UTF-8 declaration.
///
/// Adjacent pieces of text are one step; text of white space only is left out, except that an element
/// without children always has exactly one text step.
pub(super) fn steps(document: &[u8]) -> Result<Vec<Step>, Fault> {
    let text = std::str::from_utf8(document).map_err(|_| "is not UTF-8".to_owned())?;
    if text.chars().any(is_not_xml) {
        return Err("has a character that XML does not allow".to_owned());
    }
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut walk = Walk { steps: Vec::new(), text: String::new(), depth: 0, leaf: false };
    let mut declared = false;
    loop {
        let event = reader.read_event().map_err(|fault| format!("is not well-formed: {fault}"))?;
        match event {
            Event::Eof => return walk.finish(),
            Event::Decl(declaration) => {
                if declared || !walk.steps.is_empty() {
                    return Err("has a second XML declaration".to_owned());
                }
                declared = true;
                match declaration.encoding() {
                    None => {}
                    Some(Ok(name)) if name.eq_ignore_ascii_case("utf-8") => {}
                    Some(_) => return Err("declares an encoding other than UTF-8".to_owned()),
                }
            }
            Event::Start(element) => walk.open(&element)?,
            Event::Empty(_) => return Err("is not well-formed".to_owned()),
            Event::End(_) => walk.close()?,
            Event::Text(piece) => {
                if piece.contains("]]>") {
                    return Err("has `]]>` in a text".to_owned());
                }
                walk.text.push_str(&piece);
            }
            Event::GeneralRef(entity) => walk.text.push(match &*entity {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                other => {
                    return Err(format!(
                        "has the reference `&{other};`; write the character itself"
                    ));
                }
            }),
            Event::CData(_) => return Err("has a CDATA section; write the text itself".to_owned()),
            Event::Comment(_) => return Err("has a comment".to_owned()),
            Event::PI(_) => return Err("has a processing instruction".to_owned()),
            Event::DocType(_) => return Err("has a DOCTYPE".to_owned()),
        }
    }
}

struct Walk {
    steps: Vec<Step>,
    text: String,
    depth: usize,
    /// Whether the innermost open element has had no child so far.
    leaf: bool,
}

// === impl Walk ===

impl Walk {
    fn open(&mut self, element: &BytesStart<'_>) -> Result<(), Fault> {
        if self.depth == 0 && !self.steps.is_empty() {
            return Err("has a second root element".to_owned());
        }
        if self.depth > 32 {
            return Err("is nested too deeply".to_owned());
        }
        let name = element.name();
        let name: &str = name.as_ref();
        if name.contains(':') {
            return Err(format!("has the prefixed element `{name}`; use the default namespace"));
        }
        for attribute in element.attributes() {
            let attribute = attribute.map_err(|fault| format!("is not well-formed: {fault}"))?;
            let key: &str = attribute.key.as_ref();
            if self.depth > 0 || key != "xmlns" || *attribute.value != *S3_NAMESPACE {
                return Err(format!("has an attribute `{key}` that no client writes"));
            }
        }
        self.flush(false)?;
        self.steps.push(Step::Open(name.to_owned()));
        self.depth += 1;
        self.leaf = true;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let leaf = self.leaf;
        self.flush(leaf)?;
        self.steps.push(Step::Close);
        self.depth = self
            .depth
            .checked_sub(1)
            .ok_or_else(|| "closes an element it never opened".to_owned())?;
        self.leaf = false;
        Ok(())
    }

    fn flush(&mut self, always: bool) -> Result<(), Fault> {
        let text = std::mem::take(&mut self.text);
        let blank = text.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
        if self.depth == 0 && !blank {
            return Err("has text around its root element".to_owned());
        }
        if always || !blank {
            self.steps.push(Step::Text(text));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Step>, Fault> {
        if self.depth > 0 || self.steps.is_empty() {
            return Err("ends before its root element does".to_owned());
        }
        self.flush(false)?;
        Ok(self.steps)
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

    #[test]
    fn plain_elements_become_steps() {
        let document = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n <b>x&amp;&lt;y</b><c/> </a>\n";
        let want = vec![
            Step::Open("a".into()),
            Step::Open("b".into()),
            Step::Text("x&<y".into()),
            Step::Close,
            Step::Open("c".into()),
            Step::Text(String::new()),
            Step::Close,
            Step::Close,
        ];
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
        let utf16: Vec<u8> = "<a/>".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(steps(&utf16).is_err());
        assert!(steps(b"<a>\xff</a>").is_err());
    }
}
