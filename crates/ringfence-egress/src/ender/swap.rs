//! The value, put where something stands for it.

use ringfence_api::{Sealed, base64};

use crate::base64::decode;

/// A value, and what stands for it inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// Whose it is: the variable.
    pub name: String,
    /// The only header it is put into.
    pub header: String,
    /// What stands for it.
    pub placeholder: String,
    /// The value: printable ASCII, so that it stays in its line.
    pub value: Sealed,
}

/// The head of a request with the values in it, and whose they are.
pub(super) fn put<'a>(head: &[u8], swaps: &'a [Swap]) -> (Vec<u8>, Vec<&'a str>) {
    let mut names = Vec::new();
    let mut with = Vec::with_capacity(head.len());
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // The first line is the request's own.
        let colon = line.iter().position(|byte| *byte == b':').filter(|_| number > 0);
        let Some(colon) = colon else {
            with.extend_from_slice(line);
            continue;
        };
        let mut value = line[colon + 1..].to_vec();
        for swap in swaps.iter().filter(|swap| line[..colon].eq_ignore_ascii_case(swap.header.as_bytes())) {
            if let Some(changed) = swap.within(&value) {
                value = changed;
                names.push(swap.name.as_str());
            }
        }
        with.extend_from_slice(&line[..=colon]);
        with.extend_from_slice(&value);
    }
    (with, names)
}

impl Swap {
    /// A header's value with ours in it, also where it is wrapped up with a user's name.
    fn within(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.plainly(text).or_else(|| self.in_basic(text))
    }

    fn plainly(&self, text: &[u8]) -> Option<Vec<u8>> {
        let placeholder = self.placeholder.as_bytes();
        let (mut with, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.windows(placeholder.len()).position(|window| window == placeholder) {
            let (before, after) = (&rest[..at], &rest[at + placeholder.len()..]);
            with.extend_from_slice(before);
            // Another variable's may begin like this one's.
            let is_longer = after.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            with.extend_from_slice(if is_longer { placeholder } else { self.value.reveal().as_bytes() });
            rest = after;
        }
        with.extend_from_slice(rest);
        (with != text).then_some(with)
    }

    /// `Basic` and base64 of `user:password` (RFC 7617), as git and npm send it.
    fn in_basic(&self, text: &[u8]) -> Option<Vec<u8>> {
        let blanks = text.iter().take_while(|byte| **byte == b' ').count();
        let rest = text[blanks..].trim_ascii_end();
        let (scheme, credentials) = rest.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let with = self.plainly(&decode(credentials.trim_ascii_start())?)?;
        let end = &text[blanks + rest.len()..];
        Some([&text[..blanks], scheme, base64(&with).as_bytes(), end].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(name: &str, header: &str, value: &str) -> Swap {
        Swap {
            name: name.into(),
            header: header.into(),
            placeholder: format!("ringfence-placeholder-{name}"),
            value: Sealed::new(value.into()),
        }
    }

    #[track_caller]
    fn check(header: &str, expect: &str, names: &[&str]) {
        let swaps = [swap("A", "Authorization", "s3cret"), swap("AB", "authorization", "other"), swap("K", "X-Key", "k3y")];
        let head = |line: &str| format!("GET /ringfence-placeholder-A HTTP/1.1\r\nHost: a.org\r\n{line}\r\n\r\n");
        let (with, put) = super::put(head(header).as_bytes(), &swaps);
        assert_eq!(String::from_utf8(with).unwrap(), head(expect));
        assert_eq!(put, names);
    }

    #[test]
    fn the_value_stands_in_its_header_and_nowhere_else() {
        check("Authorization: Bearer ringfence-placeholder-A", "Authorization: Bearer s3cret", &["A"]);
        check("AUTHORIZATION:ringfence-placeholder-A", "AUTHORIZATION:s3cret", &["A"]);
        check("authorization: token ringfence-placeholder-AB", "authorization: token other", &["AB"]);
        check("X-Key: ringfence-placeholder-K,ringfence-placeholder-K", "X-Key: k3y,k3y", &["K"]);
        for other in
            ["X-Key: ringfence-placeholder-A", "Cookie: ringfence-placeholder-A", "Authorization: Bearer x", "X: a: authorization: b"]
        {
            check(other, other, &[]);
        }
    }

    #[test]
    fn a_password_is_unwrapped_and_wrapped_up_again() {
        let basic = |text: &str| format!("Authorization: Basic {}", base64(text.as_bytes()));
        check(&basic("me:ringfence-placeholder-A"), &basic("me:s3cret"), &["A"]);
        check(&basic("ringfence-placeholder-A:x-oauth-basic"), &basic("s3cret:x-oauth-basic"), &["A"]);
        check(&basic("me:mine"), &basic("me:mine"), &[]);
        check("Authorization: Basic !!", "Authorization: Basic !!", &[]);
        check("Authorization: Basi", "Authorization: Basi", &[]);
    }
}
