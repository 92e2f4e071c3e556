//! The sandbox's name server: what a name comes to inside, without a word to anybody outside.
//!
//! It serves sockets that were made inside the namespace (127.0.0.1:53 there). An allowed name
//! gets its addresses from the [`Pool`]; any other does not exist, and somebody is told of it.
//! Nothing is passed on to another server, so nothing that is asked here leaves the machine, in
//! whatever way it is spelt. Whether an allowed name exists in the world is found out by whoever
//! dials it.
//!
//! What programs make of answers, and why they are as they are:
//!
//! - glibc, musl, c-ares and Go ask for `A` and `AAAA` at once. Each is answered for itself, and
//!   both say the same of the name: `NXDOMAIN` for one kind and an empty answer for the other is
//!   something that musl takes for an answer about the name as a whole.
//! - Kinds of record that are not known here are empty for an allowed name. So there are no
//!   `HTTPS` records, which would bring keys for hiding the name of the host (ECH) and addresses
//!   past the pool.
//! - A refused name is `NXDOMAIN`, not `REFUSED`: at the latter glibc and musl wait for another
//!   server, for seconds, and then say that it may work later.
//! - What cannot be answered now (`SERVFAIL`) is told as something that may work later.
//!
//! To be known by whoever builds the inside:
//!
//! - Without a `search` line in `resolv.conf` there is nothing to ask twice about.
//! - glibc looks at the interfaces (`AI_ADDRCONFIG`, as browsers and ssh want it) and finds no
//!   address at all of a family that has only its loopback's. So the loopback interface needs
//!   [`Pool::OWN`] beside 127.0.0.1 and ::1.
//! - Resolvers put addresses in order by connecting a datagram socket to each (glibc to port 0,
//!   musl to 65535). Nothing is sent by that, and a refusal of it is nobody's denial.

use crate::fake_ip::FakeIpPool;
use ringfence_policy::HostName;

mod query;
mod refused_lookups;
mod reply;
mod responder;
mod reverse;
mod server;
mod stream;
#[cfg(test)]
mod testing;

pub use query::{looked_up, no_such_name};
pub use server::{DnsServer, DnsSockets};

/// Decides about names, and is told.
pub trait DnsGate: Send + Sync {
    /// Whether `name` may be looked up.
    ///
    /// Every question inside waits meanwhile, so nobody may be asked here.
    fn decide(&self, name: &HostName) -> DnsVerdict;

    /// Told of a name that was looked up and refused, once for a lookup that asks in many ways.
    ///
    /// `name` is as it was asked for, and with bytes that name no host spelt out. Must not wait.
    fn refused(&self, name: &str, why: DnsRefusal);
}

/// What is to be said of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsVerdict {
    /// It gets addresses.
    Open,
    /// It is refused.
    Shut,
}

/// Why a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsRefusal {
    /// The gate says so.
    Shut,
    /// It can name no host.
    NoName,
    /// The pool has no address left for it. It may work later.
    NoAddress,
}
