//! What is answered to a question, and who is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use super::query::{DnsQuery, DnsQuestion, EdnsUse, INTERNET, kind};
use super::refused_lookups::RefusedLookups;
use super::reply::DnsReply;
use super::{DnsGate, DnsRefusal, DnsVerdict, FakeIpPool, reverse};
use ringfence_policy::HostName;

/// Answers questions out of what the gate and the pool say.
pub(super) struct DnsResponder {
    pub(super) gate: Arc<dyn DnsGate>,
    pub(super) pool: Arc<FakeIpPool>,
    pub(super) told: RefusedLookups,
}

impl DnsResponder {
    pub(super) fn consider(&mut self, query: &DnsQuery) -> DnsReply {
        match self.undisputed(query) {
            Ok(reply) => reply,
            Err(name) => self.decide(query, &name),
        }
    }

    /// What needs no decision; else the name to decide about.
    fn undisputed(&mut self, query: &DnsQuery) -> Result<DnsReply, HostName> {
        if !matches!(query.edns, EdnsUse::Absent | EdnsUse::Version(0)) {
            return Ok(DnsReply::OtherVersion);
        }
        if query.class != INTERNET || matches!(query.kind, kind::AXFR | kind::IXFR) {
            return Ok(DnsReply::Refused);
        }
        let name = match &query.asked {
            DnsQuestion::Root => return Ok(DnsReply::NoData),
            DnsQuestion::Odd(shown) => return Ok(self.refuse(query, shown, DnsRefusal::NoName)),
            DnsQuestion::Name(name) => name,
        };
        if name.is_localhost() {
            return Ok(addresses(query.kind, Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
        }
        match reverse::meant(name) {
            Some(meant) => Ok(self.name_of(&meant, query.kind)),
            None => Err(subject(name, query.kind)),
        }
    }

    /// Names of addresses are harmless, and programs ask for them for the sake of their logs:
    /// nobody is told of those that have none.
    fn name_of(&self, meant: &reverse::ReverseName, kind: u16) -> DnsReply {
        let name = match meant {
            reverse::ReverseName::Nothing => None,
            reverse::ReverseName::Address(address) if is_loopback(*address) => {
                HostName::new("localhost").ok()
            }
            reverse::ReverseName::Address(address) => self.pool.name_of(*address, Instant::now()),
        };
        match name {
            Some(name) if kind == kind::PTR => DnsReply::Pointer(name),
            Some(_) => DnsReply::NoData,
            None => DnsReply::NoSuchName,
        }
    }

    /// What is decided about `name` comes to for `query`.
    fn decide(&mut self, query: &DnsQuery, name: &HostName) -> DnsReply {
        match self.gate.decide(name) {
            DnsVerdict::Open => match query.kind {
                kind::A | kind::AAAA => match self.pool.give(name, Instant::now()) {
                    Some(given) => addresses(query.kind, given.v4, given.v6),
                    None => self.refuse(query, name.as_str(), DnsRefusal::NoAddress),
                },
                _ => DnsReply::NoData,
            },
            DnsVerdict::Shut => self.refuse(query, name.as_str(), DnsRefusal::Shut),
        }
    }

    /// Tells of it if it is news.
    fn refuse(&mut self, query: &DnsQuery, name: &str, why: DnsRefusal) -> DnsReply {
        if self.told.is_news(name, query.kind, Instant::now()) {
            self.gate.refused(name, why);
        }
        match why {
            DnsRefusal::Shut | DnsRefusal::NoName => DnsReply::NoSuchName,
            DnsRefusal::NoAddress => DnsReply::TryAgain,
        }
    }
}

fn addresses(kind: u16, v4: Ipv4Addr, v6: Ipv6Addr) -> DnsReply {
    match kind {
        kind::A => DnsReply::V4(v4),
        kind::AAAA => DnsReply::V6(v6),
        _ => DnsReply::NoData,
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The name that is decided about. Labels with `_` in front say which service of a host is meant
/// (`_http._tcp.deb.example`, as apt asks first): they are the host's affair, and there is nothing
/// to find but an empty answer.
fn subject(name: &HostName, kind: u16) -> HostName {
    if matches!(kind, kind::A | kind::AAAA) {
        return name.clone();
    }
    let mut host = name.as_str();
    while let Some((label, rest)) = host.split_once('.')
        && label.starts_with('_')
    {
        host = rest;
    }
    HostName::new(host).unwrap_or_else(|_| name.clone())
}

#[cfg(test)]
mod tests;
