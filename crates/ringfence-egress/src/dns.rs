//! DNS responder of the sandbox. It answers every query locally and never forwards one.
//!
//! It serves sockets that were created inside the network namespace (127.0.0.1:53 there). An
//! allowed name gets addresses from the [`FakeIpPool`]; any other name is NXDOMAIN and the gate
//! gets a report. No query leaves the machine. The real name is resolved on the host side when the
//! program connects.
//!
//! Behaviour of resolvers, and the reasons for these answers:
//!
//! * glibc, musl, c-ares and Go query `A` and `AAAA` at once. Both answers agree on whether the
//!   name exists: musl applies an `NXDOMAIN` for one type to the name as a whole.
//! * Unknown record types get an empty answer for an allowed name. So there are no `HTTPS` records,
//!   which would carry ECH keys (they hide the host name) and addresses outside the pool.
//! * A denied name is `NXDOMAIN`, not `REFUSED`: on `REFUSED`, glibc and musl wait seconds for
//!   another server and then report a temporary failure.
//! * `SERVFAIL` marks a temporary failure.
//!
//! Requirements on the sandbox:
//!
//! * Without a `search` line in `resolv.conf`, a program queries each name once.
//! * With `AI_ADDRCONFIG` (browsers, ssh), glibc ignores an address family that has only loopback
//!   addresses. So the loopback interface needs [`FakeIpPool::OWN`] in addition to 127.0.0.1 and
//!   ::1.
//! * Resolvers sort addresses by connecting a datagram socket to each (glibc to port 0, musl to
//!   65535). That sends nothing, so its refusal is not reported as a denial.

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

pub use query::{nxdomain_reply, queried_name};
pub use server::{DnsServer, DnsSockets};

/// Decides about names, and receives denials.
pub trait DnsGate: Send + Sync {
    /// Decides if `name` may be looked up.
    ///
    /// Must not block or prompt the user: every query of the sandbox waits meanwhile.
    fn decide(&self, name: &HostName) -> DnsVerdict;

    /// Reports a denied name, once per lookup even if the lookup sends many queries.
    ///
    /// `name` is as queried, with bytes that are invalid in a host name escaped. Must not block.
    fn report_refused(&self, name: &str, why: DnsRefusal);
}

/// Decision about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsVerdict {
    /// The name gets addresses.
    Allow,
    /// The name is denied.
    Deny,
}

/// Reason for a denied name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsRefusal {
    /// The gate denied it.
    Shut,
    /// It is not a valid host name.
    NoName,
    /// The pool has no free address for it. A later lookup may succeed.
    NoAddress,
}
