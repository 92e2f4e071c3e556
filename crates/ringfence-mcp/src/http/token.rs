//! What clients over HTTP have to know.

use std::hint::black_box;
use std::io;

use ::http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};

/// A word that whoever started the server hands to clients. Only its digest is kept.
#[derive(Clone)]
pub struct ServerToken([u8; 32]);

impl ServerToken {
    /// The shortest that is taken from somebody: nobody tries that many.
    pub const SHORTEST: usize = 16;

    /// One that was chosen by somebody; `None` if it is too short, or cannot stand in a header.
    pub fn given(word: &str) -> Option<Self> {
        let is_word = word.bytes().all(|byte| byte.is_ascii_graphic());
        (is_word && word.len() >= Self::SHORTEST).then(|| Self(digest(word.as_bytes())))
    }

    /// A new one, and the word for it.
    pub fn new() -> io::Result<(Self, String)> {
        let mut bytes = [0; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let word: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Self(digest(word.as_bytes())), word))
    }

    /// Whether a request knows it.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut said = headers.get_all(AUTHORIZATION).iter();
        let (Some(said), None) = (said.next(), said.next()) else { return false };
        let Some((scheme, word)) = said.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(word)
    }

    /// Digests are compared, and all of them: how long it takes says nothing of the word.
    fn is(&self, word: &[u8]) -> bool {
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
    fn check(said: &[&'static str], expect: bool) {
        let token = ServerToken::given("0123456789abcdef").unwrap();
        let mut headers = HeaderMap::new();
        for said in said {
            headers.append(AUTHORIZATION, HeaderValue::from_static(said));
        }
        assert_eq!(token.is_in(&headers), expect, "{said:?}");
    }

    /// Promise: P91
    #[test]
    fn only_the_word_itself_lets_in() {
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
    fn a_word_that_is_easily_tried_is_not_taken() {
        assert!(ServerToken::given("0123456789abcde").is_none());
        assert!(ServerToken::given("0123456789 abcdef").is_none());
        assert!(ServerToken::given("").is_none());
        let (one, word) = ServerToken::new().unwrap();
        assert!(one.is(word.as_bytes()) && word.len() == 64);
        assert_ne!(word, ServerToken::new().unwrap().1);
    }
}
