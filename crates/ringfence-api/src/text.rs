//! Escapes untrusted text, and formats text for the user.

use std::error::Error;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
pub use ringfence_policy::is_hidden;

/// Escapes every character that does not show, every blank except the space, and the backslash.
/// Different texts have different results.
pub fn escape_hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => shown.push_str("\\\\"),
            c if is_hidden(c) || (c.is_whitespace() && c != ' ') => {
                shown.extend(c.escape_unicode())
            }
            c => shown.push(c),
        }
    }
    shown
}

/// Quotes a text as one shell word.
pub fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a text as one shell word, only if a shell or a reader could misread it.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| (c.is_alphanumeric() && !is_hidden(c)) || "_-./:=@%+,".contains(c);
    // zsh expands `=name` to the path of that program.
    let is_word = !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain);
    if is_word { text.to_owned() } else { shell_quote(text) }
}

/// Formats an error and all its causes, nearest first.
pub fn error_chain(error: &dyn Error) -> String {
    causes(error).into_iter().fold(error.to_string(), |whole, cause| format!("{whole}: {cause}"))
}

/// Returns the causes of an error, nearest first.
pub fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(error.source(), |error| (*error).source())
        .map(ToString::to_string)
        .collect()
}

/// RFC 4648, section 4. Padding is optional in decoded text.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Encodes bytes as base64.
pub fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes base64; `None` if it is invalid.
pub fn decode_base64(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expect: &str) {
        assert_eq!(base64(input), expect);
    }

    #[test]
    fn plain_word_stays_unquoted() {
        for plain in ["npm", "/a/b.c", "--x=a,b", "h:443", "é", "50%", "me@host"] {
            assert_eq!(shell_word(plain), plain);
        }
        for (word, expect) in [
            ("a b", "'a b'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("'", r"''\'''"),
            ("$(x)", "'$(x)'"),
            ("a\nb", "'a\nb'"),
            ("*", "'*'"),
            ("~", "'~'"),
            ("=ls", "'=ls'"),
            ("a\u{3164}", "'a\u{3164}'"),
        ] {
            assert_eq!(
                (shell_word(word), shell_quote(word)),
                (expect.to_owned(), expect.to_owned())
            );
        }
        assert_eq!(shell_quote("plain"), "'plain'");
    }

    #[test]
    fn error_is_formatted_with_its_causes() {
        #[derive(Debug)]
        struct Layer(&'static str, Option<Box<Layer>>);
        impl std::fmt::Display for Layer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Layer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.1.as_deref().map(|cause| cause as &dyn Error)
            }
        }
        let bottom = Layer("c", None);
        assert_eq!((error_chain(&bottom), causes(&bottom)), ("c".to_owned(), Vec::new()));
        let top = Layer("a", Some(Box::new(Layer("b", Some(Box::new(bottom))))));
        assert_eq!(
            (error_chain(&top), causes(&top)),
            ("a: b: c".to_owned(), vec!["b".to_owned(), "c".to_owned()])
        );
    }

    #[test]
    fn base64_matches_the_standard() {
        check(b"", "");
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(b"\xff\x00\xfe", "/wD+");
        for bytes in [&b""[..], b"\xff", b"\xff\x00", b"\xff\x00z", b"any carnal pleas"] {
            let text = base64(bytes);
            assert_eq!(decode_base64(&text).as_deref(), Some(bytes));
            assert_eq!(decode_base64(text.trim_end_matches('=')).as_deref(), Some(bytes));
        }
        // The last digit of `Zh==` has bits that are not used.
        assert_eq!(decode_base64("Zh==").as_deref(), Some(&b"f"[..]));
        for text in ["Z", "a$==", "Zg===", "Zm9v!", "Zm 9", "Zg=a"] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }

    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(escape_hidden("/a b/é漢😀\u{301}"), "/a b/é漢😀\u{301}");
        assert_eq!(escape_hidden("\u{1b}[2J\r\n\t\u{9b}"), r"\u{1b}[2J\u{d}\u{a}\u{9}\u{9b}");
        assert_eq!(
            escape_hidden("x\u{202e}y\u{200b}\u{fe0f}\u{3164}\u{e0100}"),
            r"x\u{202e}y\u{200b}\u{fe0f}\u{3164}\u{e0100}"
        );
        assert_eq!(escape_hidden("\u{a0}\u{2003}\u{3000}"), r"\u{a0}\u{2003}\u{3000}");
        // Text that looks like an escape is escaped itself.
        assert_eq!(escape_hidden(r"\u{202e}"), r"\\u{202e}");
    }

    #[test]
    fn letters_are_visible_and_control_characters_are_hidden() {
        assert!("aé漢😀 ~/\u{301}".chars().all(|c| !is_hidden(c)));
        assert!(
            "\0\n\r\t\u{1b}\u{7f}\u{85}\u{9b}\u{200e}\u{202e}\u{2066}\u{2028}\u{feff}\u{e0041}"
                .chars()
                .all(is_hidden)
        );
    }
}
