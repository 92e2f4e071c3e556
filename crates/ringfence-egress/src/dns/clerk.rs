//! What is answered to a question, and who is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use super::query::{Asked, Edns, INTERNET, Query, kind};
use super::reply::Reply;
use super::told::Told;
use super::{NameGate, Pool, Refusal, Verdict, reverse};
use ringfence_policy::Name;

/// Answers questions out of what the gate and the pool say.
pub(super) struct Clerk {
    pub(super) gate: Arc<dyn NameGate>,
    pub(super) pool: Arc<Pool>,
    pub(super) told: Told,
}

impl Clerk {
    pub(super) fn consider(&mut self, query: &Query) -> Reply {
        match self.undisputed(query) {
            Ok(reply) => reply,
            Err(name) => self.decide(query, &name),
        }
    }

    /// What needs no decision; else the name to decide about.
    fn undisputed(&mut self, query: &Query) -> Result<Reply, Name> {
        if !matches!(query.edns, Edns::Absent | Edns::Version(0)) {
            return Ok(Reply::OtherVersion);
        }
        if query.class != INTERNET || matches!(query.kind, kind::AXFR | kind::IXFR) {
            return Ok(Reply::Refused);
        }
        let name = match &query.asked {
            Asked::Root => return Ok(Reply::NoData),
            Asked::Odd(shown) => return Ok(self.refuse(query, shown, Refusal::NoName)),
            Asked::Name(name) => name,
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
    fn name_of(&self, meant: &reverse::Meant, kind: u16) -> Reply {
        let name = match meant {
            reverse::Meant::Nothing => None,
            reverse::Meant::Address(address) if is_loopback(*address) => {
                Name::new("localhost").ok()
            }
            reverse::Meant::Address(address) => self.pool.name_of(*address, Instant::now()),
        };
        match name {
            Some(name) if kind == kind::PTR => Reply::Pointer(name),
            Some(_) => Reply::NoData,
            None => Reply::NoSuchName,
        }
    }

    /// What is decided about `name` comes to for `query`.
    fn decide(&mut self, query: &Query, name: &Name) -> Reply {
        match self.gate.decide(name) {
            Verdict::Open => match query.kind {
                kind::A | kind::AAAA => match self.pool.give(name, Instant::now()) {
                    Some(given) => addresses(query.kind, given.v4, given.v6),
                    None => self.refuse(query, name.as_str(), Refusal::NoAddress),
                },
                _ => Reply::NoData,
            },
            Verdict::Shut => self.refuse(query, name.as_str(), Refusal::Shut),
        }
    }

    /// Tells of it if it is news.
    fn refuse(&mut self, query: &Query, name: &str, why: Refusal) -> Reply {
        if self.told.is_news(name, query.kind, Instant::now()) {
            self.gate.refused(name, why);
        }
        match why {
            Refusal::Shut | Refusal::NoName => Reply::NoSuchName,
            Refusal::NoAddress => Reply::TryAgain,
        }
    }
}

fn addresses(kind: u16, v4: Ipv4Addr, v6: Ipv6Addr) -> Reply {
    match kind {
        kind::A => Reply::V4(v4),
        kind::AAAA => Reply::V6(v6),
        _ => Reply::NoData,
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The name that is decided about. Labels with `_` in front say which service of a host is meant
/// (`_http._tcp.deb.example`, as apt asks first): they are the host's affair, and there is nothing
/// to find but an empty answer.
fn subject(name: &Name, kind: u16) -> Name {
    if matches!(kind, kind::A | kind::AAAA) {
        return name.clone();
    }
    let mut host = name.as_str();
    while let Some((label, rest)) = host.split_once('.')
        && label.starts_with('_')
    {
        host = rest;
    }
    Name::new(host).unwrap_or_else(|_| name.clone())
}

#[cfg(test)]
mod tests;
