//! A strict reader for settings in XML.
//!
//! It reads elements and text only. A document type, CDATA, a processing instruction, a name with a
//! prefix, text beside elements or an entity of its own make the whole file unreadable. Attributes
//! are checked and dropped.

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 16;
/// The beginning of a comment.
const COMMENT: &str = "<!--";

/// An element with text, or with other elements.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct XmlElement<'a> {
    pub(super) name: &'a str,
    /// Text without white space around it; empty if there are elements.
    pub(super) text: String,
    pub(super) children: Vec<XmlElement<'a>>,
}

/// The root element; `None` if the text has anything that this reader does not know.
pub(super) fn parse_xml(text: &str) -> Option<XmlElement<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = XmlReader { rest: skip_declaration(text)? };
    reader.skip_blanks()?;
    let root = reader.element(MAX_DEPTH)?;
    reader.skip_blanks()?;
    reader.rest.is_empty().then_some(root)
}

/// The text after the XML declaration, if there is one. Only UTF-8 is read.
fn skip_declaration(text: &str) -> Option<&str> {
    let Some(declared) = text.strip_prefix("<?xml") else { return Some(text) };
    let (words, rest) = declared.split_once("?>")?;
    let is_known = |word: &str| {
        let word = word.to_ascii_lowercase().replace('\'', "\"");
        ["version=\"1.0\"", "encoding=\"utf-8\"", "standalone=\"yes\"", "standalone=\"no\""]
            .contains(&word.as_str())
    };
    words.split_ascii_whitespace().all(is_known).then_some(rest)
}

struct XmlReader<'a> {
    rest: &'a str,
}

impl<'a> XmlReader<'a> {
    /// Takes `mark` if the rest begins with it.
    fn take(&mut self, mark: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(mark)?;
        Some(())
    }

    /// Takes the text before the first character that `ends` accepts.
    fn take_until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Skips white space and comments; `None` if a comment is not valid.
    fn skip_blanks(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if !self.rest.starts_with(COMMENT) {
                return Some(());
            }
            self.skip_comment()?;
        }
    }

    fn skip_comment(&mut self) -> Option<()> {
        self.take(COMMENT)?;
        // Two hyphens end a comment.
        self.rest = self.rest.split_once("--")?.1;
        self.take(">")
    }

    fn name(&mut self) -> Option<&'a str> {
        let name = self.take_until(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        name.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(name)
    }

    /// Takes the attributes, which no setting needs.
    fn skip_attributes(&mut self) -> Option<()> {
        loop {
            let before = self.rest.len();
            self.rest = self.rest.trim_ascii_start();
            if self.rest.starts_with(['>', '/']) {
                return Some(());
            }
            let is_apart = self.rest.len() < before;
            let name = self.take_until(|c| !(c.is_ascii_alphanumeric() || "-_.:".contains(c)));
            self.take("=").filter(|_| is_apart && !name.is_empty())?;
            let quote = self.rest.chars().next().filter(|c| "\"'".contains(*c))?;
            self.rest = &self.rest[1..];
            let value = self.take_until(|c| c == quote || c == '<');
            self.rest = self.rest.strip_prefix(quote).filter(|_| !value.contains('&'))?;
        }
    }

    fn element(&mut self, depth: usize) -> Option<XmlElement<'a>> {
        let depth = depth.checked_sub(1)?;
        self.take("<")?;
        let mut element = XmlElement { name: self.name()?, ..XmlElement::default() };
        self.skip_attributes()?;
        if self.take("/>").is_some() {
            return Some(element);
        }
        self.take(">")?;
        loop {
            element.text.push_str(&decode_entities(self.take_until(|c| c == '<'))?);
            if self.rest.starts_with(COMMENT) {
                self.skip_comment()?;
            } else if self.take("</").is_some() {
                break;
            } else {
                element.children.push(self.element(depth)?);
            }
        }
        self.take(element.name)?;
        self.rest = self.rest.trim_ascii_start();
        self.take(">")?;
        element.text = element.text.trim().to_owned();
        (element.text.is_empty() || element.children.is_empty()).then_some(element)
    }
}

/// The text with the five entities that every document knows; `None` if it has another one.
fn decode_entities(text: &str) -> Option<String> {
    let mut pieces = text.split('&');
    let mut decoded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (entity, rest) = piece.split_once(';')?;
        decoded.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => return None,
        });
        decoded.push_str(rest);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::parse_xml;

    #[test]
    fn elements_text_and_comments_are_read() {
        let text = "\u{feff}<?xml version=\"1.0\" encoding='UTF-8'?>\n<!-- mine -->\n\
                    <a xmlns=\"http://x/1.0\" xsi:y='z w'>\n <b>one<!-- two --> &amp; three </b><c/><d ></d >\n</a>\n<!-- end -->";
        let root = parse_xml(text).unwrap();
        let children: Vec<(&str, &str)> =
            root.children.iter().map(|child| (child.name, child.text.as_str())).collect();
        assert_eq!((root.name, root.text.as_str()), ("a", ""));
        assert_eq!(children, [("b", "one & three"), ("c", ""), ("d", "")]);
    }

    #[test]
    fn unknown_xml_is_unreadable() {
        for text in [
            "",
            "<a>",
            "<a></b>",
            "<a></a><b/>",
            "<a>text<b/></a>",
            "<a>&x;</a>",
            "<a>&#65;</a>",
            "<a>a & b</a>",
            "<a><![CDATA[x]]></a>",
            "<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>",
            "<?xml version=\"1.0\" encoding=\"UTF-16\"?><a/>",
            "<?xml-stylesheet href=\"x\"?><a/>",
            "<a><?x y?></a>",
            "<n:a/>",
            "<a b/>",
            "<a b=c/>",
            "<a b=\"<\"/>",
            "<a b=\"c\"d=\"e\"/>",
            "<a b=\"&x;\"/>",
            "<a><!-- x</a>",
            "<!-- a -- b --><a/>",
            "<a/>rest",
        ] {
            assert_eq!(parse_xml(text), None, "{text}");
        }
        let deep = |count: usize| format!("{}{}", "<a>".repeat(count), "</a>".repeat(count));
        assert!(parse_xml(&deep(16)).is_some() && parse_xml(&deep(17)).is_none());
    }
}
