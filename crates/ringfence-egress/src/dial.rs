//! Reaching something outside: names resolved, addresses judged, the first that answers taken.

mod copy;
mod happy_eyeballs;
mod options;
mod patience;
mod resolve;
mod upstream;

pub(crate) use copy::begin;
pub use copy::connect_copy;
pub use happy_eyeballs::DialedSocket;
pub(crate) use happy_eyeballs::{outcome, wait_patiently, wait_readable};
pub use options::{BlockingMode, SocketFamily, SocketOptions};
pub use patience::DialPatience;
pub use resolve::{HostResolver, Resolve, ResolveError};
pub use upstream::{UpstreamError, UpstreamProxies, UpstreamUrl, UpstreamUrlError};

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Whom to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialHost {
    /// A name, in its canonical form.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for DialHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialHost::Name(name) => out.write_str(name),
            DialHost::Address(IpAddr::V4(address)) => write!(out, "{address}"),
            DialHost::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
        }
    }
}

/// Connects to hosts outside.
#[derive(Clone)]
pub struct Dialer {
    /// Who knows addresses.
    pub resolver: Arc<dyn Resolve>,
    /// How long reaching somebody may take, names included.
    pub limit: Duration,
    /// The proxy of the host's network, if it has one.
    pub outer: UpstreamProxies,
}

/// Why nobody was reached. `W` is what the judge of addresses says.
#[derive(Debug)]
pub enum DialFailure<W> {
    /// The name has no address.
    Unresolved(ResolveError),
    /// Every address there is may not be reached; this is what was said of the first of them.
    Judged {
        /// The address.
        address: IpAddr,
        /// Why not.
        why: W,
    },
    /// There are addresses, and a socket like the caller's knows none of their kind.
    OtherFamily,
    /// Nobody answered, or somebody said no.
    Connect {
        /// Where.
        peer: SocketAddr,
        /// With the number that the caller should get.
        error: io::Error,
    },
    /// The proxy of the host's network did not let it through.
    Outer(UpstreamError),
    /// Whoever wanted it does not wait any more.
    Unwanted,
}

impl Dialer {
    /// A dialer that asks the host's resolver and goes out by `outer`, or directly where that is
    /// no way.
    pub fn by(outer: UpstreamProxies, limit: Duration) -> Dialer {
        Dialer { resolver: Arc::new(HostResolver::default()), limit, outer }
    }

    /// Connects to `host`, and answers when it is connected.
    ///
    /// `judge` is asked about every address before it is tried: what a name leads to is known
    /// here and nowhere earlier. A name that is reached by way of the host's proxy is resolved by
    /// that proxy: its addresses are never known here, and which of them it reaches is its say.
    pub fn connect<W>(
        &self,
        host: &DialHost,
        port: u16,
        options: &SocketOptions,
        judge: &AddressJudge<'_, W>,
    ) -> Result<DialedSocket, DialFailure<W>> {
        self.connect_while(&|| true, host, port, options, judge)
    }

    /// The same, for as long as `is_wanted` says: it is looked at every now and then.
    pub fn connect_while<W>(
        &self,
        is_wanted: &dyn Fn() -> bool,
        host: &DialHost,
        port: u16,
        options: &SocketOptions,
        judge: &AddressJudge<'_, W>,
    ) -> Result<DialedSocket, DialFailure<W>> {
        let patience = DialPatience::new(Instant::now() + self.limit, is_wanted);
        let reached = match self.outer.way_to(host, port) {
            Some(proxy) => self.by_way_of(proxy, host, port, options, judge, &patience),
            None => self.directly(host, port, options, judge, &patience),
        };
        reached
            .map_err(|failure| if patience.is_given_up() { DialFailure::Unwanted } else { failure })
    }

    fn directly<W>(
        &self,
        host: &DialHost,
        port: u16,
        options: &SocketOptions,
        judge: &AddressJudge<'_, W>,
        patience: &DialPatience<'_>,
    ) -> Result<DialedSocket, DialFailure<W>> {
        let addresses = self.addresses(host, patience).map_err(DialFailure::Unresolved)?;
        let known = of_its_kind(permitted(&addresses, judge)?, options)?;
        happy_eyeballs::race(&known, port, options, patience)
            .map_err(|(peer, error)| DialFailure::Connect { peer, error })
    }

    /// Begins to connect to one address and does not wait: for a caller that does not wait either
    /// and gets the socket as it is. Whoever calls has judged the address.
    pub fn start(&self, to: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
        happy_eyeballs::start(to, options)
    }

    fn by_way_of<W>(
        &self,
        proxy: &UpstreamUrl,
        host: &DialHost,
        port: u16,
        options: &SocketOptions,
        judge: &AddressJudge<'_, W>,
        patience: &DialPatience<'_>,
    ) -> Result<DialedSocket, DialFailure<W>> {
        if let DialHost::Address(address) = host {
            judge(*address).map_err(|why| DialFailure::Judged { address: *address, why })?;
        }
        let addresses = self
            .addresses(&proxy.host, patience)
            .map_err(|why| DialFailure::Outer(UpstreamError::Unresolved(why)))?;
        let known = of_its_kind(addresses, options)?;
        let reached = happy_eyeballs::race(&known, proxy.port, options, patience);
        let reached =
            reached.map_err(|(_, error)| DialFailure::Outer(UpstreamError::Unreached(error)))?;
        proxy.ask(&reached.socket, host, port, patience).map_err(DialFailure::Outer)?;
        Ok(reached)
    }

    fn addresses(
        &self,
        host: &DialHost,
        patience: &DialPatience<'_>,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        match host {
            DialHost::Address(address) => Ok(vec![*address]),
            DialHost::Name(name) => self.resolver.resolve(name, patience),
        }
    }
}

/// Those that a socket like the caller's knows.
fn of_its_kind<W>(
    addresses: Vec<IpAddr>,
    options: &SocketOptions,
) -> Result<Vec<IpAddr>, DialFailure<W>> {
    let known: Vec<IpAddr> = addresses
        .into_iter()
        .filter(|address| options.family != SocketFamily::V4 || address.is_ipv4())
        .collect();
    if known.is_empty() { Err(DialFailure::OtherFamily) } else { Ok(known) }
}

/// Asked about every address before it is tried.
pub type AddressJudge<'a, W> = dyn Fn(IpAddr) -> Result<(), W> + 'a;

/// Those of `addresses` that may be reached; if none may, why.
fn permitted<W>(
    addresses: &[IpAddr],
    judge: &AddressJudge<'_, W>,
) -> Result<Vec<IpAddr>, DialFailure<W>> {
    let mut open = Vec::new();
    let mut shut = None;
    for address in addresses {
        match judge(*address) {
            Ok(()) => open.push(*address),
            Err(why) => shut = shut.or(Some((*address, why))),
        }
    }
    match shut {
        Some((address, why)) if open.is_empty() => Err(DialFailure::Judged { address, why }),
        _ => Ok(open),
    }
}

impl<W> DialFailure<W> {
    /// The number that a caller of `connect(2)` gets.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            DialFailure::Unresolved(ResolveError::Late) => Errno::TIMEDOUT,
            DialFailure::Unresolved(_) | DialFailure::OtherFamily => Errno::HOSTUNREACH,
            DialFailure::Judged { .. } => Errno::ACCESS,
            DialFailure::Connect { error, .. } => {
                return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            DialFailure::Outer(astray) => astray.errno(),
            DialFailure::Unwanted => Errno::CANCELED,
        };
        errno.raw_os_error()
    }
}

impl<W: fmt::Display> fmt::Display for DialFailure<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialFailure::Unresolved(why) => why.fmt(out),
            DialFailure::Judged { address, why } => write!(out, "{address}: {why}"),
            DialFailure::OtherFamily => {
                out.write_str("no address of the kind that the caller's socket knows")
            }
            DialFailure::Connect { peer, error } => write!(out, "{peer}: {error}"),
            DialFailure::Outer(astray) => astray.fmt(out),
            DialFailure::Unwanted => out.write_str("whoever wanted it did not wait for it"),
        }
    }
}

#[cfg(test)]
mod tests;
