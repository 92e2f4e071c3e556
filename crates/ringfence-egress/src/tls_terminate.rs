//! Ends TLS on the way to a host, so that a value can be put in which never enters the sandbox.
//!
//! The program inside speaks TLS with us, by a certificate of an [`Authority`] that exists for
//! this sandbox alone and that nobody outside trusts. We speak TLS with the host, by those whom
//! the host's own [`Bundle`] trusts. In between, requests of HTTP/1 are followed from one to the
//! next as they are in plain HTTP (`crate::peek::requests`), and in one header of each, what
//! stands for the value is replaced by the value. HTTP/2 is not offered to either side.
//!
//! Whoever carries bytes between the program and the host notices none of it: the connection to
//! the host is exchanged for one that leads to us.

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
pub use ca_bundle::{CaBundle, CaBundleError, PLACES, VARIABLE};
use exchange::TlsExchange;
use leg::TlsLeg;
pub use swap::SecretSwap;

/// What is spoken, and nothing else is.
const HTTP: &[u8] = b"http/1.1";
/// Connections at once; each has a thread. One more waits for a place.
const MOST: usize = 1024;
/// How long one may wait for a place.
const PATIENCE: Duration = Duration::from_secs(30);
/// Enough for a thread that shakes hands twice.
const STACK: usize = 512 * 1024;

/// Ends TLS for one sandbox.
#[derive(Debug)]
pub struct TlsTerminator {
    authority: SandboxCa,
    crypto: Arc<CryptoProvider>,
    far: Arc<ClientConfig>,
    places: Arc<Places>,
}

/// What is told of a connection, as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsEvent {
    /// This one's value is about to be sent.
    Put(String),
    /// What was said may not go.
    Refused(String),
    /// One of the two did not come to an understanding with us.
    Failed(String),
}

/// Whom it is for, what it is to carry, and who is told.
pub struct TerminateRequest {
    /// The host, as the program has looked it up.
    pub name: HostName,
    /// The port that was dialed.
    pub port: u16,
    /// What is put in.
    pub swaps: Vec<SecretSwap>,
    /// Hears what happens, on another thread.
    pub told: Box<dyn Fn(TlsEvent) + Send>,
}

impl TlsTerminator {
    /// With an authority of its own, for hosts that `bundle` vouches for.
    pub fn new(bundle: &CaBundle) -> io::Result<Self> {
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let far = ClientConfig::builder_with_provider(crypto.clone())
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let mut far = far.with_root_certificates(bundle.roots()).with_no_client_auth();
        far.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Self {
            authority: SandboxCa::new()?,
            crypto,
            far: Arc::new(far),
            places: Arc::new(Places::of(MOST)),
        })
    }

    /// What we are to a program that takes us for `name`.
    fn near(&self, name: &HostName) -> io::Result<Arc<ServerConfig>> {
        let near = ServerConfig::builder_with_provider(self.crypto.clone())
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let certified = SingleCertAndKey::from(self.authority.vouch_for(name)?);
        let mut near = near.with_no_client_auth().with_cert_resolver(Arc::new(certified));
        near.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Arc::new(near))
    }

    /// The certificate of its authority, for those inside.
    pub fn certificate(&self) -> String {
        self.authority.pem()
    }

    /// Takes a connection to the host, and answers one in its place.
    pub fn end(&self, host: OwnedFd, errand: TerminateRequest) -> io::Result<OwnedFd> {
        let place = TerminatorSlot::take(&self.places, PATIENCE)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (theirs, ours) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let near = TlsLeg::near(ours, self.near(&errand.name)?)?;
        let far = TlsLeg::far(host, self.far.clone(), &errand.name)?;
        let talk = TlsExchange::new(near, far, errand);
        thread::Builder::new().name("ender".into()).stack_size(STACK).spawn(move || {
            talk.hold();
            drop(place);
        })?;
        Ok(theirs)
    }
}

/// The places that are free.
#[derive(Debug)]
struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    fn of(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }
}

/// One of the places there are.
struct TerminatorSlot(Arc<Places>);

impl TerminatorSlot {
    /// Waits until one is free.
    fn take(places: &Arc<Places>, patience: Duration) -> io::Result<Self> {
        let free = places.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut free, _) = places
            .freed
            .wait_timeout_while(free, patience, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *free == 0 {
            return Err(io::Error::other(format!(
                "{MOST} connections to hosts with secrets are open already"
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

fn failed(error: rustls::Error) -> io::Error {
    io::Error::other(error)
}
