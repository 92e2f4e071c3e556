//! The token that HTTP clients must send.

use std::hint::black_box;
use std::io;

use ::http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};

/// The token that the user hands to clients. Only its SHA-256 digest is kept.
#[derive(Clone)]
pub struct ServerToken([u8; 32]);

impl ServerToken {
    /// The shortest token accepted from the user: too long to guess.
    pub const MIN_LENGTH: usize = 16;

    /// A token chosen by the user; `None` if it is too short or not valid in a header.
    pub fn from_text(word: &str) -> Option<Self> {
        let is_word = word.bytes().all(|byte| byte.is_ascii_graphic());
        (is_word && word.len() >= Self::MIN_LENGTH).then(|| Self(digest(word.as_bytes())))
    }

    /// A new random token, and its text.
    pub fn new() -> io::Result<(Self, String)> {
        let mut bytes = [0; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let word: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Self(digest(word.as_bytes())), word))
    }

    /// True if the request carries the token.
    pub(super) fn matches_headers(&self, headers: &HeaderMap) -> bool {
        let mut header = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (header.next(), header.next()) else { return false };
        let Some((scheme, word)) = header.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.matches(word)
    }

    /// Compares full digests in constant time: the duration reveals nothing about the token.
    fn matches(&self, word: &[u8]) -> bool {
        let differs = self
            .0
            .iter()
            .zip(digest(word))
            .fold(0, |differs, (one, other)| black_box(differs | (one ^ other)));
        differs == 0
    }
}

fn digest(word: &[u8]) -> [u8; 32] {
    Sha256::digest(word).into()
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(header: &[&'static str], expect: bool) {
        let token = ServerToken::from_text("0123456789abcdef").unwrap();
        let mut headers = HeaderMap::new();
        for header in header {
            headers.append(AUTHORIZATION, HeaderValue::from_static(header));
        }
        assert_eq!(token.matches_headers(&headers), expect, "{header:?}");
    }

    /// Promise: mcp-http
    #[test]
    fn only_the_exact_token_is_accepted() {
        check(&["Bearer 0123456789abcdef"], true);
        check(&["bearer 0123456789abcdef"], true);
        check(&[], false);
        check(&["Bearer"], false);
        check(&["Bearer "], false);
        check(&["Bearer 0123456789abcdeF"], false);
        check(&["Bearer 0123456789abcdef "], false);
        check(&["Bearer 0123456789abcde"], false);
        check(&["Basic 0123456789abcdef"], false);
        check(&["0123456789abcdef"], false);
        check(&["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"], false);
    }

    #[test]
    fn short_or_malformed_token_is_rejected() {
        assert!(ServerToken::from_text("0123456789abcde").is_none());
        assert!(ServerToken::from_text("0123456789 abcdef").is_none());
        assert!(ServerToken::from_text("").is_none());
        let (one, word) = ServerToken::new().unwrap();
        assert!(one.matches(word.as_bytes()) && word.len() == 64);
        assert_ne!(word, ServerToken::new().unwrap().1);
    }
}
