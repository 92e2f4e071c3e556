//! One encoding of a secret, as a host may send it back.

use ringfence_api::base64;

/// Longest escape of one byte: `\u0041`, `&#x41;`, `&quot;`.
const LONGEST_ESCAPE: usize = 6;

/// One encoding of a secret. Its bytes may be escaped as in URLs, JSON and HTML.
#[derive(Debug)]
pub(super) struct Needle {
    bytes: Vec<u8>,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The secret itself, case-insensitive: some hosts lower-case headers.
    Plain,
    /// Base64; only its symbols are ever escaped.
    Base64,
    /// Hexadecimal, case-insensitive.
    Hex,
}

impl Needle {
    /// All needles of `value`: plain, hexadecimal, and the part of its base64 (both alphabets) that
    /// does not depend on the neighbouring bytes.
    pub(super) fn from_value(value: &str) -> Vec<Self> {
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut needles = vec![
            Self { bytes: value.as_bytes().to_vec(), form: Form::Plain },
            Self { bytes: hex.into_bytes(), form: Form::Hex },
        ];
        for before in 0..3 {
            let text = base64(&[&b"   "[..before], value.as_bytes()].concat());
            let text = text.trim_end_matches('=').as_bytes();
            // Digits that share bits with a neighbour can vary.
            let first = (before * 8).div_ceil(6);
            let last = (before + value.len()) * 8 / 6;
            let standard = text[first..last].to_vec();
            let of_addresses = standard.iter().map(|byte| match byte {
                b'+' => b'-',
                b'/' => b'_',
                other => *other,
            });
            needles.push(Self { bytes: of_addresses.collect(), form: Form::Base64 });
            needles.push(Self { bytes: standard, form: Form::Base64 });
        }
        needles
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_made_of(&self, letter: impl Fn(u8) -> bool) -> bool {
        self.bytes.iter().all(|byte| letter(*byte))
    }

    /// Longest result of [`Needle::match_at`].
    pub(super) fn longest_match(&self) -> usize {
        self.bytes.iter().map(|byte| if self.may_escape(*byte) { LONGEST_ESCAPE } else { 1 }).sum()
    }

    /// Marks the bytes that a match can begin with.
    pub(super) fn mark_starts(&self, starts: &mut [bool; 256]) {
        let Some(first) = self.bytes.first() else { return };
        let escapes = if self.may_escape(*first) { &b"%\\&+"[..] } else { &[] };
        for byte in
            [*first, first.to_ascii_lowercase(), first.to_ascii_uppercase()].iter().chain(escapes)
        {
            starts[usize::from(*byte)] = true;
        }
    }

    /// Length of the match at the start of `bytes`, if there is one.
    pub(super) fn match_at(&self, bytes: &[u8]) -> Option<usize> {
        self.match_by(bytes, |_| None).or_else(|| self.match_by(bytes, unescape))
    }

    fn match_by(
        &self,
        bytes: &[u8],
        unescape: impl Fn(&[u8]) -> Option<(u8, usize)>,
    ) -> Option<usize> {
        let mut at = 0;
        for wanted in &self.bytes {
            let rest = &bytes[at..];
            let escaped = if self.may_escape(*wanted) { unescape(rest) } else { None };
            let (found, length) = match escaped {
                Some(found) => found,
                // A space in form encoding.
                None if *wanted == b' ' && rest.first() == Some(&b'+') => (b' ', 1),
                None => (*rest.first()?, 1),
            };
            if !self.is_same(*wanted, found) {
                return None;
            }
            at += length;
        }
        Some(at)
    }

    fn may_escape(&self, byte: u8) -> bool {
        match self.form {
            Form::Plain => true,
            Form::Base64 => !byte.is_ascii_alphanumeric(),
            Form::Hex => false,
        }
    }

    fn is_same(&self, wanted: u8, found: u8) -> bool {
        match self.form {
            Form::Plain | Form::Hex => wanted.eq_ignore_ascii_case(&found),
            Form::Base64 => wanted == found,
        }
    }
}

/// The byte of an escape at the start of `bytes`, and the escape's length.
fn unescape(bytes: &[u8]) -> Option<(u8, usize)> {
    match bytes {
        [b'%', high, low, ..] => Some((hex(&[*high, *low])?, 3)),
        [b'\\', b'u', b'0', b'0', high, low, ..] => Some((hex(&[*high, *low])?, 6)),
        [b'\\', b'x', high, low, ..] => Some((hex(&[*high, *low])?, 4)),
        [b'\\', sign, ..] if sign.is_ascii_punctuation() => Some((*sign, 2)),
        [b'&', rest @ ..] => {
            let name =
                &rest[..rest.iter().take(LONGEST_ESCAPE - 1).position(|byte| *byte == b';')?];
            let byte = match name {
                b"amp" => b'&',
                b"lt" => b'<',
                b"gt" => b'>',
                b"quot" => b'"',
                b"apos" => b'\'',
                [b'#', b'x' | b'X', digits @ ..] => hex(digits)?,
                [b'#', digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
                _ => return None,
            };
            Some((byte, name.len() + 2))
        }
        _ => None,
    }
}

/// Parses one or two hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u8> {
    let plain = digits.iter().all(u8::is_ascii_hexdigit);
    u8::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| plain)?, 16).ok()
}
