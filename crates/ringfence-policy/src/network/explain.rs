//! Decisions about hosts as text.

use std::fmt;
use std::net::IpAddr;

use super::decide::{ConnectRoute, HostDecision, HostReason, RouteCheck};
use super::name::HostTarget;
use super::range::IpRange;
use super::rule::{HostPattern, HostRule};
use super::rules::NetworkMode;
use crate::grants::{Origin, Source};

/// Start of the sentence about a name that resolves to a guarded address. Audit logs contain it.
const STANDS_FOR: &str = "it stands for ";

impl HostDecision {
    /// `example.org:443`, `[2001:db8::1]:443`, `example.org`.
    pub fn target(&self) -> String {
        match (&self.host, self.port) {
            (HostTarget::Address(address), Some(port)) => {
                std::net::SocketAddr::new(*address, port).to_string()
            }
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_string(),
        }
    }

    /// True if the access is allowed.
    pub fn is_open(&self) -> bool {
        self.route.is_some()
    }

    /// The deciding rule as written: `deny *.example.org`, `network.mode = none`; `None` if no rule
    /// matches.
    pub fn rule(&self) -> Option<String> {
        match &self.reason {
            HostReason::Mode { mode, .. } => Some(format!("network.mode = {}", mode.word())),
            HostReason::Allow(listed) => Some(format!("allow {}", listed.origin.text)),
            HostReason::Deny(listed) => Some(format!("deny {}", listed.origin.text)),
            HostReason::Localhost(origin) | HostReason::Locked(origin) => Some(origin.text.clone()),
            HostReason::Unlisted | HostReason::Guarded { .. } | HostReason::Own => None,
        }
    }

    /// Position of the deciding rule.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.reason {
            HostReason::Mode { origin, .. } => origin.as_ref(),
            HostReason::Allow(listed) | HostReason::Deny(listed) => Some(&listed.origin),
            HostReason::Localhost(origin) | HostReason::Locked(origin) => Some(origin),
            HostReason::Unlisted | HostReason::Guarded { .. } | HostReason::Own => None,
        }
    }

    /// The reason, as a sentence.
    pub fn why(&self) -> String {
        match &self.reason {
            HostReason::Mode { mode: NetworkMode::Full, .. } => {
                "the sandbox uses the network of the host: every host is reachable".into()
            }
            HostReason::Mode { .. } => "the sandbox has no network".into(),
            HostReason::Allow(_) | HostReason::Localhost(_) => match self.route {
                Some(ConnectRoute::Checked(RouteCheck::Tls)) => {
                    "it is listed, and the TLS connection must name it".into()
                }
                Some(ConnectRoute::Checked(RouteCheck::Http)) => {
                    "it is listed, and each HTTP request must name it".into()
                }
                Some(ConnectRoute::Direct) | None => "it is listed".into(),
            },
            HostReason::Deny(_) => "it is denied, which overrides `allow`".into(),
            HostReason::Unlisted => "no entry of `allow` matches".into(),
            HostReason::Locked(_) => {
                "no entry of `allow` matches, and only the managed policy may add one".into()
            }
            HostReason::Guarded { address, what } => {
                format!("{STANDS_FOR}{address} ({what}), which must be allowed by address")
            }
            HostReason::Own => {
                "the sandbox has its own loopback: servers of the host are not reachable there"
                    .into()
            }
        }
    }

    /// The address in a sentence of [`HostDecision::why`] about a guarded address, as found in
    /// logs.
    pub fn guarded_address(why: &str) -> Option<IpAddr> {
        why.strip_prefix(STANDS_FOR)?.split_once(' ')?.0.parse().ok()
    }

    /// The entry of `allow` that would allow the access; `None` if it is allowed, or no entry would
    /// help.
    pub fn remedy(&self) -> Option<HostRule> {
        let one = |address| HostPattern::Range(IpRange::single(address));
        let is_managed = self.origin().is_some_and(|origin| origin.source == Source::Managed);
        let subject = match (&self.reason, &self.host) {
            _ if self.is_open() || is_managed => return None,
            (HostReason::Guarded { address, .. }, _) => one(*address),
            (HostReason::Unlisted | HostReason::Mode { .. }, HostTarget::Name(name))
                if !name.is_localhost() =>
            {
                HostPattern::Name(name.clone())
            }
            (HostReason::Unlisted | HostReason::Mode { .. }, HostTarget::Address(address))
                if !address.is_loopback() =>
            {
                one(*address)
            }
            _ => return None,
        };
        Some(HostRule { subject, port: self.port })
    }

    /// A way for the user to change the decision; `None` if the access is allowed.
    pub fn change_hint(&self) -> Option<String> {
        if self.is_open() {
            return None;
        }
        if let Some(remedy) = self.remedy() {
            return Some(format!(
                "ringfence run --allow-host {remedy}, or for good: ringfence allow host {remedy}"
            ));
        }
        if let Some(origin) = self.origin().filter(|origin| origin.source == Source::Managed) {
            return Some(format!("ask the administrator to change {}", origin.place()));
        }
        Some(match (&self.reason, self.port) {
            (HostReason::Deny(listed), _) if listed.origin.source == Source::Flag => {
                "leave out `--deny-host`".into()
            }
            (HostReason::Deny(listed), _) => {
                format!("remove `{}` from `deny` in {}", listed.origin.text, listed.origin.place())
            }
            (_, port) => {
                let port = port.map_or("PORT".to_owned(), |port| port.to_string());
                format!(
                    "ringfence run --allow-localhost {port}, or for good: ringfence allow localhost {port}"
                )
            }
        })
    }
}

/// The request and its verdict.
impl fmt::Display for HostDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_open() { "is allowed" } else { "is denied" };
        let verb = if self.port.is_some() { "connecting to" } else { "looking up" };
        write!(f, "{verb} {} {verdict}", self.target())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_address_is_parsed_from_its_message() {
        for address in ["10.9.8.7", "fd00::1"] {
            let address: IpAddr = address.parse().unwrap();
            let reason = HostReason::Guarded { address, what: "private" };
            let decision = HostDecision {
                host: HostTarget::new("a.org").unwrap(),
                port: Some(443),
                route: None,
                reason,
            };
            assert_eq!(HostDecision::guarded_address(&decision.why()), Some(address));
        }
        assert_eq!(HostDecision::guarded_address("network.mode = none"), None);
        assert_eq!(HostDecision::guarded_address("it stands for x (y)"), None);
    }
}
