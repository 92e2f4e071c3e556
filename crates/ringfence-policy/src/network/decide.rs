//! What is decided about a host, and by which rule.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::guarded::{GuardedRange, guard, meanings};
use super::name::{HostName, HostTarget};
use super::range::IpRange;
use super::rule::{HostPattern, HostRule};
use super::rules::{ListedHost, NetworkMode, NetworkRules, SniCheck};
use crate::grants::Origin;

/// What is decided about a host: message, record and `explain` all use this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDecision {
    /// Who is asked for.
    pub host: HostTarget,
    /// Where; `None` if it is about looking a name up.
    pub port: Option<u16>,
    /// How it is reached; `None` if it is not.
    pub way: Option<ConnectRoute>,
    /// What decides.
    pub ground: HostReason,
}

/// How an allowed host is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectRoute {
    /// The connection is the program's own from the start.
    Direct,
    /// Through a relay, which reads the begin of what is said first.
    Checked(RouteCheck),
}

/// What has to name the host that was dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteCheck {
    /// The server name of a ClientHello.
    Tls,
    /// The `Host` of an HTTP request.
    Http,
}

/// What decides about a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostReason {
    /// The mode of the network: everything is shut, or open.
    Mode {
        /// Which.
        mode: NetworkMode,
        /// Who chose it, if somebody did.
        origin: Option<Origin>,
    },
    /// An entry of `allow`.
    Allow(ListedHost),
    /// An entry of `deny`.
    Deny(ListedHost),
    /// No entry of `allow` speaks of it.
    Unlisted,
    /// The same, and nobody but the managed policy may add one.
    Locked(Origin),
    /// The name is allowed, and stands for an address that has to be allowed itself.
    Guarded {
        /// The address.
        address: IpAddr,
        /// What that is: `loopback`, `private` …
        what: &'static str,
    },
    /// An entry of `localhost`.
    Localhost(Origin),
    /// The sandbox's own loopback, which nobody has to open.
    Own,
}

impl NetworkRules {
    /// Whether a name may be looked up: some port of it is open.
    pub fn lookup(&self, name: &HostName) -> HostDecision {
        let passage = |way, ground| HostDecision {
            host: HostTarget::Name(name.clone()),
            port: None,
            way,
            ground,
        };
        if name.is_localhost() {
            return passage(Some(ConnectRoute::Direct), HostReason::Own);
        }
        if self.mode == NetworkMode::None {
            return passage(None, self.by_mode());
        }
        if let Some(denied) =
            self.deny.iter().find(|denied| denied.rule.port.is_none() && denied.rule.names(name))
        {
            return passage(None, HostReason::Deny(denied.clone()));
        }
        if self.mode == NetworkMode::Full {
            return passage(Some(ConnectRoute::Direct), self.by_mode());
        }
        let mut shut = self.unlisted();
        for allowed in self.allow.iter().filter(|allowed| allowed.rule.names(name)) {
            match allowed.rule.port.and_then(|port| self.deny_of_name(name, port)) {
                None => {
                    return passage(Some(ConnectRoute::Direct), HostReason::Allow(allowed.clone()));
                }
                Some(denied) => shut = HostReason::Deny(denied.clone()),
            }
        }
        passage(None, shut)
    }

    /// Whether a port of a name may be connected to, as far as the name tells: the address
    /// that it turns out to stand for is asked about by [`NetworkRules::address`].
    pub fn name(&self, name: &HostName, port: u16) -> HostDecision {
        let passage = |way, ground| HostDecision {
            host: HostTarget::Name(name.clone()),
            port: Some(port),
            way,
            ground,
        };
        if name.is_localhost() {
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            return HostDecision {
                host: HostTarget::Name(name.clone()),
                ..self.hosts_loopback(address, port)
            };
        }
        if self.mode == NetworkMode::None {
            return passage(None, self.by_mode());
        }
        if let Some(denied) = self.deny_of_name(name, port) {
            return passage(None, HostReason::Deny(denied.clone()));
        }
        if self.mode == NetworkMode::Full {
            return passage(Some(ConnectRoute::Direct), self.by_mode());
        }
        match self
            .allow
            .iter()
            .find(|allowed| allowed.rule.names(name) && allowed.rule.has_port(port))
        {
            Some(allowed) => passage(Some(self.way(port)), HostReason::Allow(allowed.clone())),
            None => passage(None, self.unlisted()),
        }
    }

    /// Whether a port of an address may be connected to: by the name it was looked up with, or
    /// by itself.
    ///
    /// `own` are the addresses of this machine, at which it is reached from elsewhere: they are
    /// guarded as its loopback is. An address in a guarded range has to be allowed by an entry
    /// that speaks of that range or a part of it. `0.0.0.0/0` is the internet, not the
    /// neighbours.
    pub fn address(
        &self,
        address: IpAddr,
        port: u16,
        name: Option<&HostName>,
        own: &[IpAddr],
    ) -> HostDecision {
        let address = address.to_canonical();
        let by_name = name.map(|name| self.name(name, port));
        if let Some(shut) = by_name.as_ref().filter(|passage| !passage.is_open()) {
            return shut.clone();
        }
        let host = name.map_or(HostTarget::Address(address), |name| HostTarget::Name(name.clone()));
        if name.is_some_and(HostName::is_localhost) && !address.is_loopback() {
            // Some resolvers ask others about what is below `localhost`.
            return HostDecision { host, port: Some(port), way: None, ground: self.unlisted() };
        }
        let passage =
            |way, ground| HostDecision { host: host.clone(), port: Some(port), way, ground };
        let denied = self
            .deny
            .iter()
            .find(|denied| denied.rule.has_port(port) && denied.rule.catches(address));
        match (self.mode, denied) {
            (NetworkMode::None, _) if address.is_loopback() => {
                return self.hosts_loopback(address, port);
            }
            (NetworkMode::None, _) => return passage(None, self.by_mode()),
            (_, Some(denied)) => return passage(None, HostReason::Deny(denied.clone())),
            (NetworkMode::Full, None) => {
                return passage(Some(ConnectRoute::Direct), self.by_mode());
            }
            (NetworkMode::AllowList, None) => {}
        }
        // Its own is what a sandbox has first; only a name can be meant to lead to the host's.
        if address.is_loopback() && by_name.is_none() {
            return self.hosts_loopback(address, port);
        }
        let is_own = meanings(address).any(|meant| own.contains(&meant));
        let guard = if is_own { Some(own_address(address)) } else { guard(address) };
        match (self.opener(address, port, guard.as_ref()), by_name, guard) {
            (Ok(_), Some(by_name), _) | (Err(_), Some(by_name), None) => by_name,
            (Ok(listed), None, _) => {
                passage(Some(ConnectRoute::Direct), HostReason::Allow(listed.clone()))
            }
            (Err(_), Some(by_name), _)
                if address.is_loopback() && self.localhost.opener(port).is_some() =>
            {
                by_name
            }
            (Err(_), Some(_), Some(GuardedRange { what, .. }))
            | (Err(UnlistedReason::Wide), None, Some(GuardedRange { what, .. })) => passage(
                None,
                self.locked
                    .clone()
                    .map_or(HostReason::Guarded { address, what }, HostReason::Locked),
            ),
            (Err(_), None, _) => passage(None, self.unlisted()),
        }
    }

    /// What is decided about the one port of the one host that `rule` speaks of; `None` where it
    /// speaks of several.
    pub fn about(&self, rule: &HostRule) -> Option<HostDecision> {
        let port = rule.port?;
        match &rule.subject {
            HostPattern::Name(name) => Some(self.name(name, port)),
            HostPattern::Range(range) if *range == IpRange::of(range.first()) => {
                Some(self.address(range.first(), port, None, &[]))
            }
            HostPattern::Range(_) | HostPattern::Below(_) => None,
        }
    }

    /// The entry that opens a port of an address.
    fn opener(
        &self,
        address: IpAddr,
        port: u16,
        guard: Option<&GuardedRange>,
    ) -> Result<&ListedHost, UnlistedReason> {
        let speaks = |rule: &HostRule| match (&rule.subject, guard) {
            (HostPattern::Range(range), Some(guard)) => guard.range.covers(range),
            _ => true,
        };
        let holding =
            |listed: &&ListedHost| listed.rule.has_port(port) && listed.rule.holds(address);
        let opener = self.allow.iter().filter(holding).find(|listed| speaks(&listed.rule));
        opener.ok_or(if self.allow.iter().any(|listed| holding(&listed)) {
            UnlistedReason::Wide
        } else {
            UnlistedReason::Nothing
        })
    }

    /// Whether a port of the host's loopback may be connected to.
    pub fn hosts_loopback(&self, address: IpAddr, port: u16) -> HostDecision {
        let passage = |way, ground| HostDecision {
            host: HostTarget::Address(address),
            port: Some(port),
            way,
            ground,
        };
        // Whichever address of it is asked for, it is one of these two that is reached.
        let reached = if address.is_ipv6() {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        } else {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        let catches = |rule: &HostRule| match &rule.subject {
            HostPattern::Name(name) | HostPattern::Below(name) => name.is_localhost(),
            HostPattern::Range(_) => rule.catches(address) || rule.catches(reached),
        };
        if let Some(denied) =
            self.deny.iter().find(|denied| denied.rule.has_port(port) && catches(&denied.rule))
        {
            return passage(None, HostReason::Deny(denied.clone()));
        }
        match (self.mode, self.localhost.opener(port)) {
            (NetworkMode::Full, _) => passage(Some(ConnectRoute::Direct), self.by_mode()),
            (_, Some(entry)) => {
                passage(Some(ConnectRoute::Direct), HostReason::Localhost(entry.origin.clone()))
            }
            (_, None) => {
                passage(None, self.locked.clone().map_or(HostReason::Own, HostReason::Locked))
            }
        }
    }

    fn deny_of_name(&self, name: &HostName, port: u16) -> Option<&ListedHost> {
        self.deny.iter().find(|denied| denied.rule.has_port(port) && denied.rule.names(name))
    }

    fn unlisted(&self) -> HostReason {
        self.locked.clone().map_or(HostReason::Unlisted, HostReason::Locked)
    }

    fn by_mode(&self) -> HostReason {
        HostReason::Mode { mode: self.mode, origin: self.mode_origin.clone() }
    }

    /// Of a host that is allowed by its name.
    fn way(&self, port: u16) -> ConnectRoute {
        match (self.sni, port) {
            (SniCheck::Check, 443) => ConnectRoute::Checked(RouteCheck::Tls),
            (SniCheck::Check, 80) => ConnectRoute::Checked(RouteCheck::Http),
            _ => ConnectRoute::Direct,
        }
    }
}

/// What is there where no entry opens an address.
enum UnlistedReason {
    /// No entry at all.
    Nothing,
    /// An entry that goes beyond the guarded range, and does not speak of it.
    Wide,
}

fn own_address(address: IpAddr) -> GuardedRange {
    let what = guard(address).map_or("an address of this machine", |guard| guard.what);
    GuardedRange { what, range: IpRange::of(address) }
}

#[cfg(test)]
mod tests;
