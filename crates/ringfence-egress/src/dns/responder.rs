//! Answers queries from the gate's decisions and the fake IP pool.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use super::query::{DnsQuery, DnsQuestion, EdnsUse, INTERNET, kind};
use super::refused_lookups::RefusedLookups;
use super::reply::DnsReply;
use super::{DnsGate, DnsRefusal, DnsVerdict, FakeIpPool, reverse};
use ringfence_policy::HostName;
use tracing::debug;

/// Answers queries from the gate's decisions and the fake IP pool.
pub(super) struct DnsResponder {
    pub(super) gate: Arc<dyn DnsGate>,
    pub(super) pool: Arc<FakeIpPool>,
    pub(super) reported: RefusedLookups,
}

impl DnsResponder {
    pub(super) fn answer(&mut self, query: &DnsQuery) -> DnsReply {
        match self.answer_without_gate(query) {
            Ok(reply) => reply,
            Err(name) => self.decide(query, &name),
        }
    }

    /// Answers a query that needs no decision; else returns the name to decide about.
    fn answer_without_gate(&mut self, query: &DnsQuery) -> Result<DnsReply, HostName> {
        if !matches!(query.edns, EdnsUse::Absent | EdnsUse::Version(0)) {
            return Ok(DnsReply::OtherVersion);
        }
        if query.class != INTERNET || matches!(query.kind, kind::AXFR | kind::IXFR) {
            return Ok(DnsReply::Refused);
        }
        let name = match &query.subject {
            DnsQuestion::Root => return Ok(DnsReply::NoData),
            DnsQuestion::Odd(shown) => return Ok(self.refuse(query, shown, DnsRefusal::NoName)),
            DnsQuestion::Name(name) => name,
        };
        if name.is_localhost() {
            return Ok(addresses(query.kind, Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
        }
        match reverse::parse(name) {
            Some(parsed) => Ok(self.answer_reverse(&parsed, query.kind)),
            None => Err(name_to_decide(name, query.kind)),
        }
    }

    /// Answers a reverse lookup. Reverse lookups are harmless (programs use them for logs), so an
    /// unknown address is not reported.
    fn answer_reverse(&self, parsed: &reverse::ReverseName, kind: u16) -> DnsReply {
        let name = match parsed {
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

    /// Answers `query` with the gate's decision about `name`.
    fn decide(&mut self, query: &DnsQuery, name: &HostName) -> DnsReply {
        let verdict = self.gate.decide(name);
        debug!(target: "dns", %name, kind = query.kind, ?verdict, "query");
        match verdict {
            DnsVerdict::Allow => match query.kind {
                kind::A | kind::AAAA => match self.pool.addresses_for(name, Instant::now()) {
                    Some(given) => addresses(query.kind, given.v4, given.v6),
                    None => self.refuse(query, name.as_str(), DnsRefusal::NoAddress),
                },
                _ => DnsReply::NoData,
            },
            DnsVerdict::Deny => self.refuse(query, name.as_str(), DnsRefusal::Shut),
        }
    }

    /// Refuses `name`, and reports it if this is a new lookup.
    fn refuse(&mut self, query: &DnsQuery, name: &str, why: DnsRefusal) -> DnsReply {
        if self.reported.is_new_lookup(name, query.kind, Instant::now()) {
            self.gate.report_refused(name, why);
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

/// The name to decide about. Leading labels with `_` name a service of a host
/// (`_http._tcp.deb.example`, apt's first query): the decision is about the host, and the answer is
/// always empty.
fn name_to_decide(name: &HostName, kind: u16) -> HostName {
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
