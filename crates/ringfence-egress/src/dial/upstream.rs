//! The proxy of the host's network, as the way out where there is no other.
//!
//! It is taken from the host's variables, never from those of a command. Tunnels are asked for
//! by `CONNECT`; what is said in them is the caller's.

mod no_proxy;
mod url;

pub use url::{UpstreamUrl, UpstreamUrlError};

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::happy_eyeballs::wait_patiently;
use super::{DialHost, DialPatience, ResolveError};
use no_proxy::NoProxyList;

/// The longest head of an answer that is read.
const HEAD: usize = 16 * 1024;

/// Which proxy of the host's network is the way to what. The default is none.
#[derive(Debug, Clone, Default)]
pub struct UpstreamProxies {
    plain: Option<UpstreamUrl>,
    other: Option<UpstreamUrl>,
    except: NoProxyList,
}

impl UpstreamProxies {
    /// Reads the host's variables, each in small letters before capital ones as curl does. One
    /// that nothing is reached by is not looked at.
    pub fn from_variables(
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
        if except.are_all() {
            return Ok(UpstreamProxies::default());
        }
        let url = |name: &str| {
            let found = value(name).or_else(|| value("ALL_PROXY"));
            found.map(|(name, text)| UpstreamUrl::parse(&name, &text)).transpose()
        };
        Ok(UpstreamProxies { plain: url("HTTP_PROXY")?, other: url("HTTPS_PROXY")?, except })
    }

    /// The proxy that is the way to `host`, if there is one: `HTTP_PROXY` for port 80,
    /// `HTTPS_PROXY` for any other, `ALL_PROXY` where that is not set. Nothing on the host itself
    /// is reached by a proxy.
    pub fn way_to(&self, host: &DialHost, port: u16) -> Option<&UpstreamUrl> {
        let proxy = if port == 80 { &self.plain } else { &self.other };
        proxy.as_ref().filter(|_| !self.except.cover(host, port))
    }
}

/// Why a proxy of the host's network led nowhere.
#[derive(Debug)]
pub enum UpstreamError {
    /// Its name has no address.
    Unresolved(ResolveError),
    /// It could not be connected to.
    Unreached(io::Error),
    /// It answered no.
    Status {
        /// The number of its answer.
        status: u16,
        /// Its words.
        reason: String,
    },
    /// What it answered was not HTTP.
    Garbled,
    /// It did not answer in time.
    Late,
    /// It went away.
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
            UpstreamError::Unresolved(why) => write!(out, "the proxy of this network: {why}"),
            UpstreamError::Unreached(error) => {
                write!(out, "the proxy of this network was not reached: {error}")
            }
            UpstreamError::Status { status: 407, .. } => {
                out.write_str("the proxy of this network wants a name and a password (407)")
            }
            UpstreamError::Status { status, reason } => {
                write!(out, "the proxy of this network said {status} {reason}")
            }
            UpstreamError::Garbled => {
                out.write_str("the proxy of this network did not answer in HTTP")
            }
            UpstreamError::Late => {
                out.write_str("the proxy of this network did not answer in time")
            }
            UpstreamError::Broken(error) => write!(out, "the proxy of this network: {error}"),
        }
    }
}

impl UpstreamUrl {
    /// Asks for a tunnel to `host` over `socket`, which is connected to the proxy and never waits.
    pub(super) fn ask(
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
        say(socket, question.as_bytes(), patience)?;
        judge(&hear(socket, patience)?)
    }
}

fn say(
    socket: &OwnedFd,
    mut bytes: &[u8],
    patience: &DialPatience<'_>,
) -> Result<(), UpstreamError> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => in_time(wait_patiently(socket, PollFlags::OUT, patience))?,
            Err(error) => return Err(UpstreamError::Broken(error.into())),
        }
    }
    Ok(())
}

/// The head of the answer, and not a byte more: what follows it is the other end's.
fn hear(socket: &OwnedFd, patience: &DialPatience<'_>) -> Result<Vec<u8>, UpstreamError> {
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
            Err(Errno::AGAIN) => in_time(wait_patiently(socket, PollFlags::IN, patience))?,
            Err(error) => return Err(UpstreamError::Broken(error.into())),
        }
    }
}

fn in_time(waited: io::Result<bool>) -> Result<(), UpstreamError> {
    if waited.map_err(UpstreamError::Broken)? { Ok(()) } else { Err(UpstreamError::Late) }
}

/// Where the head ends in `text`, of which the first `seen` bytes were looked through before.
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
            // It is shown to people: nothing in it may move the cursor.
            let reason = reason.chars().filter(|c| !c.is_control()).take(100).collect();
            Err(UpstreamError::Status { status, reason })
        }
        _ => Err(UpstreamError::Garbled),
    }
}
