//! Replaces placeholders of secrets in request heads.

use ringfence_api::{SecretValue, base64, decode_base64};

use crate::peek::head::{AfterHead, with_field, without_field};

/// A secret and its placeholder inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSwap {
    /// Environment variable of the secret.
    pub name: String,
    /// The only header it is inserted into.
    pub header: String,
    /// Placeholder inside the sandbox.
    pub placeholder: String,
    /// The secret: printable ASCII, so that it cannot break the header line.
    pub value: SecretValue,
}

/// The request head with secrets inserted, and their names.
///
/// The host is asked not to compress its response: a secret in it could not be found. For a request
/// with a secret, headers that could split or compress the response are removed: ranges, and
/// WebSocket extensions, of which the only common one compresses.
pub(super) fn insert_secrets<'a>(
    head: &[u8],
    swaps: &'a [SecretSwap],
    afterwards: AfterHead,
) -> (Vec<u8>, Vec<&'a str>) {
    let mut names = Vec::new();
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // The first line is the request line.
        let (name, mut value) = (name(line).filter(|_| number > 0), line.to_vec());
        for swap in swaps.iter().filter(|swap| {
            name.is_some_and(|name| name.eq_ignore_ascii_case(swap.header.as_bytes()))
        }) {
            let start = name.map_or(0, <[u8]>::len) + 1;
            if let Some(changed) = swap.within(&value[start..]) {
                value.splice(start.., changed);
                names.push(swap.name.as_str());
            }
        }
        lines.push(value);
    }
    let mut with = with_field(&lines.concat(), "Accept-Encoding", "identity");
    if !names.is_empty() {
        with = CUTTING.iter().fold(with, |head, header| without_field(&head, header));
    }
    if afterwards == AfterHead::Closed {
        with = with_field(&with, "Connection", "close");
    }
    (with, names)
}

/// Headers that make a response partial or compressed.
const CUTTING: [&str; 3] = ["Range", "If-Range", "Sec-WebSocket-Extensions"];

/// Name of the header in a line.
fn name(line: &[u8]) -> Option<&[u8]> {
    line.iter().position(|byte| *byte == b':').map(|colon| &line[..colon])
}

impl SecretSwap {
    /// A header value with the secret inserted, also within `Basic` credentials.
    fn within(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.plainly(text).or_else(|| self.in_basic(text))
    }

    fn plainly(&self, text: &[u8]) -> Option<Vec<u8>> {
        let placeholder = self.placeholder.as_bytes();
        let (mut with, mut rest) = (Vec::new(), text);
        while let Some(at) =
            rest.windows(placeholder.len()).position(|window| window == placeholder)
        {
            let (before, after) = (&rest[..at], &rest[at + placeholder.len()..]);
            with.extend_from_slice(before);
            // The placeholder of another variable may begin with this one.
            let is_longer =
                after.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            with.extend_from_slice(if is_longer {
                placeholder
            } else {
                self.value.reveal().as_bytes()
            });
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
        let with = self.plainly(&decode_base64(credentials.trim_ascii_start())?)?;
        let end = &text[blanks + rest.len()..];
        Some([&text[..blanks], scheme, base64(&with).as_bytes(), end].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(name: &str, header: &str, value: &str) -> SecretSwap {
        SecretSwap {
            name: name.into(),
            header: header.into(),
            placeholder: format!("ringfence-placeholder-{name}"),
            value: SecretValue::new(value.into()),
        }
    }

    #[track_caller]
    fn check(header: &str, expect: &str, names: &[&str]) {
        let swaps = [
            swap("A", "Authorization", "s3cret"),
            swap("AB", "authorization", "other"),
            swap("K", "X-Key", "k3y"),
        ];
        let head = |more: &str, line: &str| {
            format!("GET /ringfence-placeholder-A HTTP/1.1\r\n{more}Host: a.org\r\n{line}\r\n\r\n")
        };
        let (with, put) =
            super::insert_secrets(head("", header).as_bytes(), &swaps, AfterHead::Open);
        assert_eq!(String::from_utf8(with).unwrap(), head("Accept-Encoding: identity\r\n", expect));
        assert_eq!(put, names);
    }

    #[test]
    fn other_headers_are_changed_only_where_needed() {
        let head = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}\r\n");
        let put = |lines: &str, afterwards| {
            let swaps = [swap("K", "X-Key", "k3y")];
            String::from_utf8(super::insert_secrets(head(lines).as_bytes(), &swaps, afterwards).0)
                .unwrap()
        };
        let plain = "Accept-Encoding: gzip\r\nConnection: keep-alive\r\nHost: a\r\n";
        let expect = "Accept-Encoding: identity\r\nConnection: keep-alive\r\nHost: a\r\n";
        assert_eq!(put(plain, AfterHead::Open), head(expect));
        assert_eq!(
            put(plain, AfterHead::Closed),
            head("Connection: close\r\nAccept-Encoding: identity\r\nHost: a\r\n")
        );
        let carries = format!(
            "{plain}X-Key: ringfence-placeholder-K\r\naccept-encoding: br\r\nRange: bytes=0-3\r\n"
        );
        assert_eq!(put(&carries, AfterHead::Open), head(&format!("{expect}X-Key: k3y\r\n")));
        assert!(put("Range: bytes=0-3\r\n", AfterHead::Open).contains("Range"));
    }

    #[test]
    fn secret_is_inserted_only_into_its_header() {
        check(
            "Authorization: Bearer ringfence-placeholder-A",
            "Authorization: Bearer s3cret",
            &["A"],
        );
        check("AUTHORIZATION:ringfence-placeholder-A", "AUTHORIZATION:s3cret", &["A"]);
        check(
            "authorization: token ringfence-placeholder-AB",
            "authorization: token other",
            &["AB"],
        );
        check("X-Key: ringfence-placeholder-K,ringfence-placeholder-K", "X-Key: k3y,k3y", &["K"]);
        for other in [
            "X-Key: ringfence-placeholder-A",
            "Cookie: ringfence-placeholder-A",
            "Authorization: Bearer x",
            "X: a: authorization: b",
        ] {
            check(other, other, &[]);
        }
    }

    #[test]
    fn secret_is_inserted_into_basic_credentials() {
        let basic = |text: &str| format!("Authorization: Basic {}", base64(text.as_bytes()));
        check(&basic("me:ringfence-placeholder-A"), &basic("me:s3cret"), &["A"]);
        check(
            &basic("ringfence-placeholder-A:x-oauth-basic"),
            &basic("s3cret:x-oauth-basic"),
            &["A"],
        );
        check(&basic("me:mine"), &basic("me:mine"), &[]);
        check("Authorization: Basic !!", "Authorization: Basic !!", &[]);
        check("Authorization: Basi", "Authorization: Basi", &[]);
    }
}
