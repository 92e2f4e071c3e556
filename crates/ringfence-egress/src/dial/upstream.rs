//! The proxy of the host's network, for hosts without direct internet access.
//!
//! It is read from the host's environment, never from a command's. Tunnels use `CONNECT`; their
//! content is up to the caller.

mod no_proxy;
mod url;

pub use url::{UpstreamUrl, UpstreamUrlError};

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::happy_eyeballs::wait_with_patience;
use super::{DialHost, DialPatience, ResolveError};
use no_proxy::NoProxyList;

/// Longest response head accepted from the proxy.
const HEAD: usize = 16 * 1024;

/// Upstream proxies by destination. The default is none.
#[derive(Debug, Clone, Default)]
pub struct UpstreamProxies {
    plain: Option<UpstreamUrl>,
    other: Option<UpstreamUrl>,
    except: NoProxyList,
}

impl UpstreamProxies {
    /// Reads the host's environment variables, lower case before upper case like curl. A variable
    /// that applies to no destination is not parsed.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<UpstreamProxies, UpstreamUrlError> {
        let value = |name: &str| {
            let named = |name: String| {
                variable(&name).filter(|text| !text.trim().is_empty()).map(|text| (name, text))
            };
            named(name.to_ascii_lowercase()).or_else(|| named(name.to_owned()))
        };
        let except =
            NoProxyList::parse(&value("NO_PROXY").map(|(_, text)| text).unwrap_or_default());
        if except.covers_everything() {
            return Ok(UpstreamProxies::default());
        }
        let url = |name: &str| {
            let found = value(name).or_else(|| value("ALL_PROXY"));
            found.map(|(name, text)| UpstreamUrl::parse(&name, &text)).transpose()
        };
        Ok(UpstreamProxies { plain: url("HTTP_PROXY")?, other: url("HTTPS_PROXY")?, except })
    }

    /// The proxy for `host`, if any: `HTTP_PROXY` for port 80, `HTTPS_PROXY` for any other port,
    /// `ALL_PROXY` where that is unset. The host itself is never reached through a proxy.
    pub fn proxy_for(&self, host: &DialHost, port: u16) -> Option<&UpstreamUrl> {
        let proxy = if port == 80 { &self.plain } else { &self.other };
        proxy.as_ref().filter(|_| !self.except.covers(host, port))
    }
}

/// Reason for a failed upstream proxy.
#[derive(Debug)]
pub enum UpstreamError {
    /// The proxy's name has no address.
    Unresolved(ResolveError),
    /// The proxy could not be connected to.
    Unreached(io::Error),
    /// The proxy answered with an error status.
    Status {
        /// HTTP status.
        status: u16,
        /// Reason phrase.
        reason: String,
    },
    /// The answer was not HTTP.
    Garbled,
    /// The proxy did not answer in time.
    Late,
    /// The connection to the proxy failed.
    Broken(io::Error),
}

impl UpstreamError {
    pub(super) fn errno(&self) -> Errno {
        match self {
            UpstreamError::Unresolved(_) => Errno::HOSTUNREACH,
            UpstreamError::Unreached(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
            UpstreamError::Late | UpstreamError::Status { status: 504 | 408, .. } => {
                Errno::TIMEDOUT
            }
            UpstreamError::Status { status: 502 | 503, .. } => Errno::HOSTUNREACH,
            UpstreamError::Status { .. } => Errno::CONNREFUSED,
            UpstreamError::Garbled => Errno::PROTO,
            UpstreamError::Broken(_) => Errno::CONNRESET,
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamError::Unresolved(why) => write!(out, "the upstream proxy: {why}"),
            UpstreamError::Unreached(error) => {
                write!(out, "the upstream proxy cannot be reached: {error}")
            }
            UpstreamError::Status { status: 407, .. } => {
                out.write_str("the upstream proxy requires a user name and a password (407)")
            }
            UpstreamError::Status { status, reason } => {
                write!(out, "the upstream proxy answered {status} {reason}")
            }
            UpstreamError::Garbled => out.write_str("the upstream proxy did not answer in HTTP"),
            UpstreamError::Late => out.write_str("the upstream proxy did not answer in time"),
            UpstreamError::Broken(error) => write!(out, "the upstream proxy: {error}"),
        }
    }
}

impl UpstreamUrl {
    /// Requests a tunnel to `host` over `socket`, a non-blocking connection to the proxy.
    pub(super) fn request_tunnel(
        &self,
        socket: &OwnedFd,
        host: &DialHost,
        port: u16,
        patience: &DialPatience<'_>,
    ) -> Result<(), UpstreamError> {
        let authority = format!("{host}:{port}");
        let credentials = self
            .authorization()
            .map_or_else(String::new, |value| format!("Proxy-Authorization: {value}\r\n"));
        let question =
            format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{credentials}\r\n");
        send_all(socket, question.as_bytes(), patience)?;
        judge(&read_head(socket, patience)?)
    }
}

fn send_all(
    socket: &OwnedFd,
    mut bytes: &[u8],
    patience: &DialPatience<'_>,
) -> Result<(), UpstreamError> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => check_ready(wait_with_patience(socket, PollFlags::OUT, patience))?,
            Err(error) => return Err(UpstreamError::Broken(error.into())),
        }
    }
    Ok(())
}

/// Reads the response head and not a byte more: the rest belongs to the tunnel.
fn read_head(socket: &OwnedFd, patience: &DialPatience<'_>) -> Result<Vec<u8>, UpstreamError> {
    let mut head = Vec::new();
    let mut part = [0; 2048];
    loop {
        match recv(socket, &mut part, RecvFlags::PEEK) {
            Ok((_, 0)) => return Err(UpstreamError::Broken(Errno::CONNRESET.into())),
            Ok((_, count)) => {
                let before = head.len();
                head.extend_from_slice(&part[..count]);
                let whole = end_of_head(&head, before);
                head.truncate(whole.unwrap_or(head.len()));
                let taken = head.len() - before;
                recv(socket, &mut part[..taken], RecvFlags::empty())
                    .map_err(|error| UpstreamError::Broken(error.into()))?;
                if whole.is_some() {
                    return Ok(head);
                }
                if head.len() > HEAD {
                    return Err(UpstreamError::Garbled);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => check_ready(wait_with_patience(socket, PollFlags::IN, patience))?,
            Err(error) => return Err(UpstreamError::Broken(error.into())),
        }
    }
}

fn check_ready(waited: io::Result<bool>) -> Result<(), UpstreamError> {
    if waited.map_err(UpstreamError::Broken)? { Ok(()) } else { Err(UpstreamError::Late) }
}

/// End of the head in `text`; the first `seen` bytes were searched before.
fn end_of_head(text: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(3);
    text[from..].windows(4).position(|four| four == b"\r\n\r\n").map(|at| from + at + 4)
}

fn judge(head: &[u8]) -> Result<(), UpstreamError> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| UpstreamError::Garbled)?;
    let rest = line.strip_prefix("HTTP/1.").ok_or(UpstreamError::Garbled)?;
    let (_, rest) = rest.split_once(' ').ok_or(UpstreamError::Garbled)?;
    let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    match status.parse::<u16>() {
        Ok(200..=299) => Ok(()),
        Ok(status) if status >= 300 => {
            // It is shown at a terminal: control characters could move the cursor.
            let reason = reason.chars().filter(|c| !c.is_control()).take(100).collect();
            Err(UpstreamError::Status { status, reason })
        }
        _ => Err(UpstreamError::Garbled),
    }
}
