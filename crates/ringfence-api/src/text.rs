//! Text that comes from somebody else, and text for somebody else to read or type.

use std::error::Error;

pub use ringfence_policy::is_hidden;

/// `text` in which every character shows: what does not, and every blank but the plain one, is
/// spelt out, and so is the sign that begins such a spelling. No two texts come to the same.
pub fn visible(text: &str) -> String {
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

/// One word of a shell, whatever is in it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The same as one would type it: between marks only where a shell or a reader would take it for
/// something else.
pub fn typed(text: &str) -> String {
    let is_plain = |c: char| (c.is_alphanumeric() && !is_hidden(c)) || "_-./:=@%+,".contains(c);
    // To one shell `=name` is where that program is.
    let is_word = !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain);
    if is_word { text.to_owned() } else { quoted(text) }
}

/// An error and everything that lies behind it, nearest first.
pub fn whole(error: &dyn Error) -> String {
    causes(error).into_iter().fold(error.to_string(), |whole, cause| format!("{whole}: {cause}"))
}

/// What lies behind an error, nearest first.
pub fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(error.source(), |error| (*error).source())
        .map(ToString::to_string)
        .collect()
}

/// Bytes as text of the usual alphabet, for what need not be UTF-8.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expect: &str) {
        assert_eq!(base64(input), expect);
    }

    #[test]
    fn a_word_stays_one() {
        for plain in ["npm", "/a/b.c", "--x=a,b", "h:443", "é", "50%", "me@host"] {
            assert_eq!(typed(plain), plain);
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
            assert_eq!((typed(word), quoted(word)), (expect.to_owned(), expect.to_owned()));
        }
        assert_eq!(quoted("plain"), "'plain'");
    }

    #[test]
    fn an_error_is_told_with_what_lies_behind_it() {
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
        assert_eq!((whole(&bottom), causes(&bottom)), ("c".to_owned(), Vec::new()));
        let top = Layer("a", Some(Box::new(Layer("b", Some(Box::new(bottom))))));
        assert_eq!(
            (whole(&top), causes(&top)),
            ("a: b: c".to_owned(), vec!["b".to_owned(), "c".to_owned()])
        );
    }

    #[test]
    fn base64_is_the_usual_one() {
        check(b"", "");
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(b"\xff\x00\xfe", "/wD+");
    }

    #[test]
    fn whatever_does_not_show_is_spelt_out() {
        assert_eq!(visible("/a b/é漢😀\u{301}"), "/a b/é漢😀\u{301}");
        assert_eq!(visible("\u{1b}[2J\r\n\t\u{9b}"), r"\u{1b}[2J\u{d}\u{a}\u{9}\u{9b}");
        assert_eq!(
            visible("x\u{202e}y\u{200b}\u{fe0f}\u{3164}\u{e0100}"),
            r"x\u{202e}y\u{200b}\u{fe0f}\u{3164}\u{e0100}"
        );
        assert_eq!(visible("\u{a0}\u{2003}\u{3000}"), r"\u{a0}\u{2003}\u{3000}");
        // What looks like a spelling is none.
        assert_eq!(visible(r"\u{202e}"), r"\\u{202e}");
    }

    #[test]
    fn letters_are_seen_and_commands_to_the_terminal_are_not() {
        assert!("aé漢😀 ~/\u{301}".chars().all(|c| !is_hidden(c)));
        assert!(
            "\0\n\r\t\u{1b}\u{7f}\u{85}\u{9b}\u{200e}\u{202e}\u{2066}\u{2028}\u{feff}\u{e0041}"
                .chars()
                .all(is_hidden)
        );
    }
}
