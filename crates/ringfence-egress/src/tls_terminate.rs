//! Terminates TLS on the way to a host, to insert secrets that never enter the sandbox.
//!
//! Towards the program, the terminator uses a certificate of a [`SandboxCa`] that exists for this
//! sandbox only and that nothing outside trusts. Towards the host, it verifies the host with the
//! system's [`CaBundle`]. In between, it follows HTTP/1 requests as for plain HTTP
//! (`crate::peek::requests`) and replaces each secret's placeholder in one header. It offers HTTP/2
//! to neither side.
//!
//! The relay is not aware of this: the connection to the host is replaced by a socket pair that
//! leads to the terminator.

mod ca;
mod ca_bundle;
mod exchange;
mod leg;
mod responses;
mod scrub;
mod swap;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ringfence_policy::HostName;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustls::crypto::CryptoProvider;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};

pub use ca::SandboxCa;
pub use ca_bundle::{CaBundle, CaBundleError};
use exchange::TlsExchange;
use leg::TlsLeg;
pub use ringfence_api::ca_bundle::{BUNDLE_VARIABLE, SYSTEM_BUNDLES};
pub use swap::SecretSwap;

/// The only ALPN protocol offered.
const HTTP: &[u8] = b"http/1.1";
/// Maximum of connections at once; each has a thread. A further one waits for a slot.
const MOST: usize = 1024;
/// Time limit for a free slot.
const PATIENCE: Duration = Duration::from_secs(30);
/// Enough stack for two TLS handshakes.
const STACK: usize = 512 * 1024;

/// TLS terminator of one sandbox.
#[derive(Debug)]
pub struct TlsTerminator {
    authority: SandboxCa,
    crypto: Arc<CryptoProvider>,
    far: Arc<ClientConfig>,
    places: Arc<Places>,
}

/// Event of a connection, reported as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsEvent {
    /// The secret of this name is about to be sent.
    SecretInserted(String),
    /// A request was refused.
    Refused(String),
    /// TLS or HTTP failed with the program or the host.
    Failed(String),
}

/// Parameters of one terminated connection.
pub struct TerminateRequest {
    /// The host name the program looked up.
    pub name: HostName,
    /// The port the program dialed.
    pub port: u16,
    /// Secrets to insert.
    pub swaps: Vec<SecretSwap>,
    /// Receives events, on another thread.
    pub on_event: Box<dyn Fn(TlsEvent) + Send>,
}

impl TlsTerminator {
    /// A terminator with a new CA, for hosts whose certificates `bundle` verifies.
    pub fn new(bundle: &CaBundle) -> io::Result<Self> {
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let far = ClientConfig::builder_with_provider(crypto.clone())
            .with_safe_default_protocol_versions()
            .map_err(to_io_error)?;
        let mut far = far.with_root_certificates(bundle.roots()).with_no_client_auth();
        far.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Self {
            authority: SandboxCa::new()?,
            crypto,
            far: Arc::new(far),
            places: Arc::new(Places::new(MOST)),
        })
    }

    /// TLS server configuration that presents a certificate for `name`.
    fn near(&self, name: &HostName) -> io::Result<Arc<ServerConfig>> {
        let near = ServerConfig::builder_with_provider(self.crypto.clone())
            .with_safe_default_protocol_versions()
            .map_err(to_io_error)?;
        let certified = SingleCertAndKey::from(self.authority.issue(name)?);
        let mut near = near.with_no_client_auth().with_cert_resolver(Arc::new(certified));
        near.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Arc::new(near))
    }

    /// PEM certificate of the sandbox CA, for programs in the sandbox.
    pub fn certificate(&self) -> String {
        self.authority.pem()
    }

    /// Takes a connection to the host, and returns a socket to use in its place.
    pub fn terminate(&self, host: OwnedFd, request: TerminateRequest) -> io::Result<OwnedFd> {
        let place = TerminatorSlot::take(&self.places, PATIENCE)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (theirs, ours) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let near = TlsLeg::near(ours, self.near(&request.name)?)?;
        let far = TlsLeg::far(host, self.far.clone(), &request.name)?;
        let exchange = TlsExchange::new(near, far, request);
        thread::Builder::new().name("tls".into()).stack_size(STACK).spawn(move || {
            exchange.run();
            drop(place);
        })?;
        Ok(theirs)
    }
}

/// The free slots.
#[derive(Debug)]
struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }
}

/// One taken slot.
struct TerminatorSlot(Arc<Places>);

impl TerminatorSlot {
    /// Waits for a free slot.
    fn take(places: &Arc<Places>, patience: Duration) -> io::Result<Self> {
        let free = places.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut free, _) = places
            .freed
            .wait_timeout_while(free, patience, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *free == 0 {
            return Err(io::Error::other(format!(
                "too many open connections to hosts with secrets (limit {MOST})"
            )));
        }
        *free -= 1;
        Ok(Self(places.clone()))
    }
}

impl Drop for TerminatorSlot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

fn to_io_error(error: rustls::Error) -> io::Error {
    io::Error::other(error)
}
