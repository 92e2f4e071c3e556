//! Proxy URLs as users write them into environment variables.

use std::fmt;

use ringfence_api::base64;

use crate::dial::DialHost;

/// A proxy that speaks plain HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// Host of the proxy.
    pub host: DialHost,
    /// Port of the proxy.
    pub port: u16,
    /// `name:password`, not encoded yet.
    credentials: Option<Vec<u8>>,
}

/// An environment variable with an unusable proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamUrlError {
    /// Unsupported scheme.
    Scheme {
        /// The variable.
        variable: String,
        /// The scheme.
        scheme: String,
    },
    /// Not a URL. It may contain a password, so it is not repeated.
    Garbled {
        /// The variable.
        variable: String,
    },
}

impl UpstreamUrlError {
    /// Name of the variable.
    pub fn variable(&self) -> &str {
        match self {
            UpstreamUrlError::Scheme { variable, .. } | UpstreamUrlError::Garbled { variable } => {
                variable
            }
        }
    }
}

impl fmt::Display for UpstreamUrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamUrlError::Scheme { variable, scheme } => {
                write!(out, "{variable} names a `{scheme}://` proxy; only `http://` is supported")
            }
            UpstreamUrlError::Garbled { variable } => {
                write!(out, "{variable} is not a proxy URL like `http://name:password@host:port`")
            }
        }
    }
}

impl std::error::Error for UpstreamUrlError {}

impl fmt::Debug for UpstreamUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password is not shown.
        write!(out, "http://{}:{}", self.host, self.port)
    }
}

impl UpstreamUrl {
    pub(super) fn parse(variable: &str, text: &str) -> Result<UpstreamUrl, UpstreamUrlError> {
        let garbled = || UpstreamUrlError::Garbled { variable: variable.to_owned() };
        let text = text.trim();
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _))
                if !scheme.is_empty()
                    && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+') =>
            {
                return Err(UpstreamUrlError::Scheme {
                    variable: variable.to_owned(),
                    scheme: scheme.to_ascii_lowercase(),
                });
            }
            Some(_) => return Err(garbled()),
            None => text,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(decode(credentials).ok_or_else(garbled)?), place),
            None => (None, authority),
        };
        let (host, port) = parse_authority(place).ok_or_else(garbled)?;
        // A name alone has an empty password.
        let credentials = credentials.map(|mut text| {
            if !text.contains(&b':') {
                text.push(b':');
            }
            text
        });
        Ok(UpstreamUrl { host, port, credentials })
    }

    /// The value of `Proxy-Authorization`.
    pub(super) fn authorization(&self) -> Option<String> {
        self.credentials.as_ref().map(|text| format!("Basic {}", base64(text)))
    }
}

fn parse_authority(text: &str) -> Option<(DialHost, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            (
                DialHost::Address(std::net::IpAddr::V6(address.parse().ok()?)),
                rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("80"))?,
            )
        }
        None => {
            let (name, port) = text.split_once(':').unwrap_or((text, "80"));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(plain) {
                return None;
            }
            (
                name.parse()
                    .map(DialHost::Address)
                    .unwrap_or_else(|_| DialHost::Name(name.to_ascii_lowercase())),
                port,
            )
        }
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some((host, port))
}

/// Decodes percent escapes such as `%41`.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<UpstreamUrl, UpstreamUrlError> {
        UpstreamUrl::parse("HTTPS_PROXY", text)
    }

    #[track_caller]
    fn check(text: &str, shown: &str, header: Option<&str>) {
        let url = parse(text).unwrap();
        assert_eq!((format!("{url:?}").as_str(), url.authorization().as_deref()), (shown, header));
    }

    #[test]
    fn proxy_urls_are_parsed() {
        check("http://Proxy.corp:3128", "http://proxy.corp:3128", None);
        check("proxy.corp:3128/", "http://proxy.corp:3128", None);
        check(" http://10.1.2.3 ", "http://10.1.2.3:80", None);
        check("HTTP://[fd00::1]:8080/x", "http://[fd00::1]:8080", None);
        check(
            "http://Aladdin:open%20sesame@h:1",
            "http://h:1",
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        );
        check("http://u%40d@h:1", "http://h:1", Some("Basic dUBkOg=="));
    }

    #[test]
    fn unsupported_scheme_is_named() {
        for (text, scheme) in
            [("https://h:1", "https"), ("SOCKS5://h:1", "socks5"), ("socks5h://u:p@h", "socks5h")]
        {
            let wrong = parse(text).unwrap_err();
            assert_eq!(
                wrong,
                UpstreamUrlError::Scheme { variable: "HTTPS_PROXY".into(), scheme: scheme.into() }
            );
            assert!(
                wrong.to_string().contains("HTTPS_PROXY") && wrong.to_string().contains(scheme)
            );
        }
    }

    #[test]
    fn invalid_url_is_rejected_and_not_repeated() {
        for text in [
            "http://",
            "http://h:0",
            "http://h:99999",
            "http://h x:1",
            "http://u:p%4@h",
            "http://[::1",
            "://h",
            "http://u:secret@h\r\nX:1",
        ] {
            let wrong = parse(text).unwrap_err();
            assert_eq!(
                wrong,
                UpstreamUrlError::Garbled { variable: "HTTPS_PROXY".into() },
                "{text}"
            );
            assert!(!wrong.to_string().contains("secret"));
        }
        assert!(!format!("{:?}", parse("http://u:secret@h")).contains("secret"));
    }
}
