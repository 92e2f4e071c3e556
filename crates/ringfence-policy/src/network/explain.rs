//! A decision about a host in words.

use std::fmt;
use std::net::IpAddr;

use super::decide::{ConnectRoute, HostDecision, HostReason, RouteCheck};
use super::name::HostTarget;
use super::range::IpRange;
use super::rule::{HostPattern, HostRule};
use super::rules::NetworkMode;
use crate::grants::{Origin, Source};

/// Beginning of the sentence about a name that leads to a guarded address.
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

    /// Whether it may be done.
    pub fn is_open(&self) -> bool {
        self.way.is_some()
    }

    /// The deciding rule as it is written: `deny *.example.org`, `network.mode = none`; `None`
    /// where no rule speaks of it.
    pub fn rule(&self) -> Option<String> {
        match &self.ground {
            HostReason::Mode { mode, .. } => Some(format!("network.mode = {}", mode.word())),
            HostReason::Allow(listed) => Some(format!("allow {}", listed.origin.text)),
            HostReason::Deny(listed) => Some(format!("deny {}", listed.origin.text)),
            HostReason::Localhost(origin) | HostReason::Locked(origin) => Some(origin.text.clone()),
            HostReason::Unlisted | HostReason::Guarded { .. } | HostReason::Own => None,
        }
    }

    /// Where the deciding rule was written.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.ground {
            HostReason::Mode { origin, .. } => origin.as_ref(),
            HostReason::Allow(listed) | HostReason::Deny(listed) => Some(&listed.origin),
            HostReason::Localhost(origin) | HostReason::Locked(origin) => Some(origin),
            HostReason::Unlisted | HostReason::Guarded { .. } | HostReason::Own => None,
        }
    }

    /// Why, in a sentence.
    pub fn why(&self) -> String {
        match &self.ground {
            HostReason::Mode { mode: NetworkMode::Full, .. } => "the network is the host's own: every host can be reached".into(),
            HostReason::Mode { .. } => "the network is shut".into(),
            HostReason::Allow(_) | HostReason::Localhost(_) => match self.way {
                Some(ConnectRoute::Checked(RouteCheck::Tls)) => "it is listed, and TLS has to name it".into(),
                Some(ConnectRoute::Checked(RouteCheck::Http)) => "it is listed, and each request has to name it".into(),
                Some(ConnectRoute::Direct) | None => "it is listed".into(),
            },
            HostReason::Deny(_) => "it is denied, whatever else allows it".into(),
            HostReason::Unlisted => "no entry of `allow` speaks of it".into(),
            HostReason::Locked(_) => "no entry of `allow` speaks of it, and only the managed policy adds one".into(),
            HostReason::Guarded { address, what } => format!("{STANDS_FOR}{address} ({what}), which has to be allowed itself"),
            HostReason::Own => "the sandbox has a loopback of its own: its own servers answer there, the host's do not".into(),
        }
    }

    /// The address in a sentence that [`Passage::why`] made of a guarded address, as logs keep it.
    pub fn guarded_address(why: &str) -> Option<IpAddr> {
        why.strip_prefix(STANDS_FOR)?.split_once(' ')?.0.parse().ok()
    }

    /// The entry of `allow` that would open it; `None` where it is open, or no entry would.
    pub fn remedy(&self) -> Option<HostRule> {
        let one = |address| HostPattern::Range(IpRange::of(address));
        let is_managed = self.origin().is_some_and(|origin| origin.source == Source::Managed);
        let subject = match (&self.ground, &self.host) {
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

    /// How a person could change the answer; `None` where it is yes.
    pub fn change(&self) -> Option<String> {
        const FILE: &str = "~/.config/ringfence/policy.toml";
        if self.is_open() {
            return None;
        }
        if let Some(remedy) = self.remedy() {
            return Some(format!(
                "ringfence run --allow-host {remedy}, or for good: ringfence allow host {remedy}"
            ));
        }
        if let Some(origin) = self.origin().filter(|origin| origin.source == Source::Managed) {
            return Some(format!("ask whoever keeps {}", origin.place()));
        }
        Some(match (&self.ground, self.port) {
            (HostReason::Deny(listed), _) if listed.origin.source == Source::Flag => {
                "leave out `--deny-host`".into()
            }
            (HostReason::Deny(listed), _) => {
                format!("remove `{}` from `deny` in {}", listed.origin.text, listed.origin.place())
            }
            (_, port) => {
                let port = port.map_or("PORT".to_owned(), |port| port.to_string());
                format!(
                    "ringfence run --allow-localhost {port}, or add it to `localhost` under [network] in {FILE}"
                )
            }
        })
    }
}

/// What was decided about whom.
impl fmt::Display for HostDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_open() { "is allowed" } else { "is denied" };
        let wish = if self.port.is_some() { "connecting to" } else { "looking up" };
        write!(f, "{wish} {} {verdict}", self.target())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_address_is_found_in_the_sentence_about_it() {
        for address in ["10.9.8.7", "fd00::1"] {
            let address: IpAddr = address.parse().unwrap();
            let ground = HostReason::Guarded { address, what: "private" };
            let passage = HostDecision {
                host: HostTarget::new("a.org").unwrap(),
                port: Some(443),
                way: None,
                ground,
            };
            assert_eq!(HostDecision::guarded_address(&passage.why()), Some(address));
        }
        assert_eq!(HostDecision::guarded_address("network.mode = none"), None);
        assert_eq!(HostDecision::guarded_address("it stands for x (y)"), None);
    }
}
