//! Dials hosts outside: resolves names, judges addresses, takes the first that answers.

mod copy;
mod happy_eyeballs;
mod options;
mod patience;
mod resolve;
mod upstream;

pub(crate) use copy::begin_connect;
pub use copy::connect_duplicate;
pub use happy_eyeballs::DialedSocket;
pub(crate) use happy_eyeballs::{connect_result, wait_readable, wait_with_patience};
pub use options::{BlockingMode, SocketFamily, SocketOptions};
pub use patience::DialPatience;
pub use resolve::{HostResolver, NameResolver, ResolveError};
pub use upstream::{UpstreamError, UpstreamProxies, UpstreamUrl, UpstreamUrlError};

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Host to dial.
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
    /// Resolver for host names.
    pub resolver: Arc<dyn NameResolver>,
    /// Time limit of a dial, including name lookup.
    pub limit: Duration,
    /// Upstream proxies of the host's network, if any.
    pub upstream: UpstreamProxies,
}

/// Reason for a failed dial. `W` is the reason type of the address judge.
#[derive(Debug)]
pub enum DialFailure<W> {
    /// The name has no address.
    Unresolved(ResolveError),
    /// The judge rejected every address; this is the first of them.
    Rejected {
        /// The address.
        address: IpAddr,
        /// Reason of the judge.
        why: W,
    },
    /// No address matches the family of the caller's socket.
    OtherFamily,
    /// Every connect failed.
    Connect {
        /// The address tried.
        peer: SocketAddr,
        /// The error, with the errno for the caller.
        error: io::Error,
    },
    /// The upstream proxy failed.
    Upstream(UpstreamError),
    /// The caller gave up.
    Cancelled,
}

impl Dialer {
    /// A dialer with the host's resolver, which uses `upstream` where it applies and connects
    /// directly otherwise.
    pub fn new(upstream: UpstreamProxies, limit: Duration) -> Dialer {
        Dialer { resolver: Arc::new(HostResolver::default()), limit, upstream }
    }

    /// Connects to `host`, and returns once connected.
    ///
    /// `judge` decides about every address before it is tried: the addresses of a name are known
    /// only here. A name that goes through an upstream proxy is resolved by that proxy, so its
    /// addresses are unknown here and not judged.
    pub fn connect<W>(
        &self,
        host: &DialHost,
        port: u16,
        options: &SocketOptions,
        judge: &AddressJudge<'_, W>,
    ) -> Result<DialedSocket, DialFailure<W>> {
        self.connect_while(&|| true, host, port, options, judge)
    }

    /// Like [`Self::connect`], but gives up when `is_wanted` is false; polled regularly.
    pub fn connect_while<W>(
        &self,
        is_wanted: &dyn Fn() -> bool,
        host: &DialHost,
        port: u16,
        options: &SocketOptions,
        judge: &AddressJudge<'_, W>,
    ) -> Result<DialedSocket, DialFailure<W>> {
        let patience = DialPatience::new(Instant::now() + self.limit, is_wanted);
        let reached = match self.upstream.proxy_for(host, port) {
            Some(proxy) => self.by_way_of(proxy, host, port, options, judge, &patience),
            None => self.directly(host, port, options, judge, &patience),
        };
        reached.map_err(
            |failure| if patience.is_given_up() { DialFailure::Cancelled } else { failure },
        )
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
        let known = matching_family(permitted(&addresses, judge)?, options)?;
        happy_eyeballs::connect_first(&known, port, options, patience)
            .map_err(|(peer, error)| DialFailure::Connect { peer, error })
    }

    /// Begins a non-blocking connect to one address that the caller has judged, and returns the
    /// socket while it is connecting.
    pub fn start(&self, to: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
        happy_eyeballs::start_connect(to, options)
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
            judge(*address).map_err(|why| DialFailure::Rejected { address: *address, why })?;
        }
        let addresses = self
            .addresses(&proxy.host, patience)
            .map_err(|why| DialFailure::Upstream(UpstreamError::Unresolved(why)))?;
        let known = matching_family(addresses, options)?;
        let reached = happy_eyeballs::connect_first(&known, proxy.port, options, patience);
        let reached =
            reached.map_err(|(_, error)| DialFailure::Upstream(UpstreamError::Unreached(error)))?;
        proxy
            .request_tunnel(&reached.socket, host, port, patience)
            .map_err(DialFailure::Upstream)?;
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

/// Addresses that fit the family of the caller's socket.
fn matching_family<W>(
    addresses: Vec<IpAddr>,
    options: &SocketOptions,
) -> Result<Vec<IpAddr>, DialFailure<W>> {
    let known: Vec<IpAddr> = addresses
        .into_iter()
        .filter(|address| options.family != SocketFamily::V4 || address.is_ipv4())
        .collect();
    if known.is_empty() { Err(DialFailure::OtherFamily) } else { Ok(known) }
}

/// Judges an address before it is tried.
pub type AddressJudge<'a, W> = dyn Fn(IpAddr) -> Result<(), W> + 'a;

/// The permitted addresses; if there is none, the reason for the first.
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
        Some((address, why)) if open.is_empty() => Err(DialFailure::Rejected { address, why }),
        _ => Ok(open),
    }
}

impl<W> DialFailure<W> {
    /// Errno for the caller of `connect(2)`.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            DialFailure::Unresolved(ResolveError::Late) => Errno::TIMEDOUT,
            DialFailure::Unresolved(_) | DialFailure::OtherFamily => Errno::HOSTUNREACH,
            DialFailure::Rejected { .. } => Errno::ACCESS,
            DialFailure::Connect { error, .. } => {
                return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            DialFailure::Upstream(astray) => astray.errno(),
            DialFailure::Cancelled => Errno::CANCELED,
        };
        errno.raw_os_error()
    }
}

impl<W: fmt::Display> fmt::Display for DialFailure<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialFailure::Unresolved(why) => why.fmt(out),
            DialFailure::Rejected { address, why } => write!(out, "{address}: {why}"),
            DialFailure::OtherFamily => out.write_str("no address of the caller's socket family"),
            DialFailure::Connect { peer, error } => write!(out, "{peer}: {error}"),
            DialFailure::Upstream(astray) => astray.fmt(out),
            DialFailure::Cancelled => out.write_str("the caller gave up"),
        }
    }
}

#[cfg(test)]
mod tests;
