//! Decisions about hosts, with the deciding rule.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::guarded::{GuardedRange, guarded_range, reachable_addresses};
use super::name::{HostName, HostTarget};
use super::range::IpRange;
use super::rule::{HostPattern, HostRule};
use super::rules::{ListedHost, NetworkMode, NetworkRules, SniCheck};
use crate::grants::Origin;

/// A decision about a host. Messages, audit records and `explain` all use this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDecision {
    /// The requested host.
    pub host: HostTarget,
    /// The requested port; `None` for a DNS lookup.
    pub port: Option<u16>,
    /// The route to the host; `None` if it is denied.
    pub route: Option<ConnectRoute>,
    /// The reason for the decision.
    pub reason: HostReason,
}

/// Route to an allowed host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectRoute {
    /// A direct connection.
    Direct,
    /// Through a relay that checks the first bytes of the connection.
    Checked(RouteCheck),
}

/// Protocol element that must name the host that was connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteCheck {
    /// The server name of a ClientHello.
    Tls,
    /// The `Host` of an HTTP request.
    Http,
}

/// Reason for a decision about a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostReason {
    /// The network mode denies or allows everything.
    Mode {
        /// The mode.
        mode: NetworkMode,
        /// The rule that sets the mode, if any.
        origin: Option<Origin>,
    },
    /// An entry of `allow`.
    Allow(ListedHost),
    /// An entry of `deny`.
    Deny(ListedHost),
    /// No entry of `allow` matches.
    Unlisted,
    /// No entry of `allow` matches, and only the managed policy may add one.
    Locked(Origin),
    /// The name is allowed, but resolves to an address in a guarded range, which needs its own
    /// entry.
    Guarded {
        /// The address.
        address: IpAddr,
        /// Kind of the range: `loopback`, `private` …
        what: &'static str,
    },
    /// An entry of `localhost`.
    Localhost(Origin),
    /// The loopback interface of the sandbox, which needs no rule.
    Own,
}

impl NetworkRules {
    /// Decides if a name may be looked up: at least one of its ports must be open.
    pub fn decide_lookup(&self, name: &HostName) -> HostDecision {
        let decision = |route, reason| HostDecision {
            host: HostTarget::Name(name.clone()),
            port: None,
            route,
            reason,
        };
        if name.is_localhost() {
            return decision(Some(ConnectRoute::Direct), HostReason::Own);
        }
        if self.mode == NetworkMode::None {
            return decision(None, self.by_mode());
        }
        if let Some(denied) = self
            .deny
            .iter()
            .find(|denied| denied.rule.port.is_none() && denied.rule.matches_name(name))
        {
            return decision(None, HostReason::Deny(denied.clone()));
        }
        if self.mode == NetworkMode::Full {
            return decision(Some(ConnectRoute::Direct), self.by_mode());
        }
        let mut shut = self.unlisted();
        for allowed in self.allow.iter().filter(|allowed| allowed.rule.matches_name(name)) {
            match allowed.rule.port.and_then(|port| self.deny_of_name(name, port)) {
                None => {
                    return decision(
                        Some(ConnectRoute::Direct),
                        HostReason::Allow(allowed.clone()),
                    );
                }
                Some(denied) => shut = HostReason::Deny(denied.clone()),
            }
        }
        decision(None, shut)
    }

    /// Decides if a port of a name may be connected to. [`NetworkRules::decide_address`] decides
    /// about the address that the name resolves to.
    pub fn decide_name(&self, name: &HostName, port: u16) -> HostDecision {
        let decision = |route, reason| HostDecision {
            host: HostTarget::Name(name.clone()),
            port: Some(port),
            route,
            reason,
        };
        if name.is_localhost() {
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            return HostDecision {
                host: HostTarget::Name(name.clone()),
                ..self.decide_host_loopback(address, port)
            };
        }
        if self.mode == NetworkMode::None {
            return decision(None, self.by_mode());
        }
        if let Some(denied) = self.deny_of_name(name, port) {
            return decision(None, HostReason::Deny(denied.clone()));
        }
        if self.mode == NetworkMode::Full {
            return decision(Some(ConnectRoute::Direct), self.by_mode());
        }
        match self
            .allow
            .iter()
            .find(|allowed| allowed.rule.matches_name(name) && allowed.rule.has_port(port))
        {
            Some(allowed) => decision(Some(self.route(port)), HostReason::Allow(allowed.clone())),
            None => decision(None, self.unlisted()),
        }
    }

    /// Decides if a port of an address may be connected to, by the name that was looked up or by
    /// itself.
    ///
    /// `own` are the external addresses of this machine: they are guarded like its loopback. An
    /// address in a guarded range needs an entry for that range or a part of it. `0.0.0.0/0` allows
    /// the internet, not the local network.
    pub fn decide_address(
        &self,
        address: IpAddr,
        port: u16,
        name: Option<&HostName>,
        own: &[IpAddr],
    ) -> HostDecision {
        let address = address.to_canonical();
        let by_name = name.map(|name| self.decide_name(name, port));
        if let Some(shut) = by_name.as_ref().filter(|decision| !decision.is_open()) {
            return shut.clone();
        }
        let host = name.map_or(HostTarget::Address(address), |name| HostTarget::Name(name.clone()));
        if name.is_some_and(HostName::is_localhost) && !address.is_loopback() {
            // Some resolvers forward names below `localhost` to other servers.
            return HostDecision { host, port: Some(port), route: None, reason: self.unlisted() };
        }
        let decision =
            |route, reason| HostDecision { host: host.clone(), port: Some(port), route, reason };
        let denied = self.deny.iter().find(|denied| {
            denied.rule.has_port(port) && denied.rule.matches_embedded_address(address)
        });
        match (self.mode, denied) {
            (NetworkMode::None, _) if address.is_loopback() => {
                return self.decide_host_loopback(address, port);
            }
            (NetworkMode::None, _) => return decision(None, self.by_mode()),
            (_, Some(denied)) => return decision(None, HostReason::Deny(denied.clone())),
            (NetworkMode::Full, None) => {
                return decision(Some(ConnectRoute::Direct), self.by_mode());
            }
            (NetworkMode::AllowList, None) => {}
        }
        // A loopback address means the sandbox's own loopback; only a name may lead to the host's.
        if address.is_loopback() && by_name.is_none() {
            return self.decide_host_loopback(address, port);
        }
        let is_own = reachable_addresses(address).any(|candidate| own.contains(&candidate));
        let guard = if is_own { Some(own_address(address)) } else { guarded_range(address) };
        match (self.find_opener(address, port, guard.as_ref()), by_name, guard) {
            (Ok(_), Some(by_name), _) | (Err(_), Some(by_name), None) => by_name,
            (Ok(listed), None, _) => {
                decision(Some(ConnectRoute::Direct), HostReason::Allow(listed.clone()))
            }
            (Err(_), Some(by_name), _)
                if address.is_loopback() && self.localhost.find_opener(port).is_some() =>
            {
                by_name
            }
            (Err(_), Some(_), Some(GuardedRange { what, .. }))
            | (Err(UnlistedReason::Wide), None, Some(GuardedRange { what, .. })) => decision(
                None,
                self.locked
                    .clone()
                    .map_or(HostReason::Guarded { address, what }, HostReason::Locked),
            ),
            (Err(_), None, _) => decision(None, self.unlisted()),
        }
    }

    /// The decision for the single port of the single host in `rule`; `None` if it covers several.
    pub fn decide_rule(&self, rule: &HostRule) -> Option<HostDecision> {
        let port = rule.port?;
        match &rule.subject {
            HostPattern::Name(name) => Some(self.decide_name(name, port)),
            HostPattern::Range(range) if *range == IpRange::single(range.first()) => {
                Some(self.decide_address(range.first(), port, None, &[]))
            }
            HostPattern::Range(_) | HostPattern::Below(_) => None,
        }
    }

    /// The entry that opens a port of an address.
    fn find_opener(
        &self,
        address: IpAddr,
        port: u16,
        guard: Option<&GuardedRange>,
    ) -> Result<&ListedHost, UnlistedReason> {
        let speaks = |rule: &HostRule| match (&rule.subject, guard) {
            (HostPattern::Range(range), Some(guard)) => guard.range.covers(range),
            _ => true,
        };
        let holding = |listed: &&ListedHost| {
            listed.rule.has_port(port) && listed.rule.matches_address(address)
        };
        let opener = self.allow.iter().filter(holding).find(|listed| speaks(&listed.rule));
        opener.ok_or(if self.allow.iter().any(|listed| holding(&listed)) {
            UnlistedReason::Wide
        } else {
            UnlistedReason::Nothing
        })
    }

    /// Decides if a port of the host's loopback may be connected to.
    pub fn decide_host_loopback(&self, address: IpAddr, port: u16) -> HostDecision {
        let decision = |route, reason| HostDecision {
            host: HostTarget::Address(address),
            port: Some(port),
            route,
            reason,
        };
        // Every loopback address connects to one of these two.
        let reached = if address.is_ipv6() {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        } else {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        let catches = |rule: &HostRule| match &rule.subject {
            HostPattern::Name(name) | HostPattern::Below(name) => name.is_localhost(),
            HostPattern::Range(_) => {
                rule.matches_embedded_address(address) || rule.matches_embedded_address(reached)
            }
        };
        if let Some(denied) =
            self.deny.iter().find(|denied| denied.rule.has_port(port) && catches(&denied.rule))
        {
            return decision(None, HostReason::Deny(denied.clone()));
        }
        match (self.mode, self.localhost.find_opener(port)) {
            (NetworkMode::Full, _) => decision(Some(ConnectRoute::Direct), self.by_mode()),
            (_, Some(entry)) => {
                decision(Some(ConnectRoute::Direct), HostReason::Localhost(entry.origin.clone()))
            }
            (_, None) => {
                decision(None, self.locked.clone().map_or(HostReason::Own, HostReason::Locked))
            }
        }
    }

    fn deny_of_name(&self, name: &HostName, port: u16) -> Option<&ListedHost> {
        self.deny.iter().find(|denied| denied.rule.has_port(port) && denied.rule.matches_name(name))
    }

    fn unlisted(&self) -> HostReason {
        self.locked.clone().map_or(HostReason::Unlisted, HostReason::Locked)
    }

    fn by_mode(&self) -> HostReason {
        HostReason::Mode { mode: self.mode, origin: self.mode_origin.clone() }
    }

    /// Route to a host that is allowed by name.
    fn route(&self, port: u16) -> ConnectRoute {
        match (self.sni, port) {
            (SniCheck::Check, 443) => ConnectRoute::Checked(RouteCheck::Tls),
            (SniCheck::Check, 80) => ConnectRoute::Checked(RouteCheck::Http),
            _ => ConnectRoute::Direct,
        }
    }
}

/// Reason for which no entry opens an address.
enum UnlistedReason {
    /// No entry at all.
    Nothing,
    /// An entry matches, but it is wider than the guarded range.
    Wide,
}

fn own_address(address: IpAddr) -> GuardedRange {
    let what = guarded_range(address).map_or("an address of this machine", |guard| guard.what);
    GuardedRange { what, range: IpRange::single(address) }
}

#[cfg(test)]
mod tests;
