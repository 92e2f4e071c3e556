//! Hosts: how they are spelt, which rule speaks of them, and what is decided.
//!
//! One host has many spellings, and whoever means ill knows them all. So a spelling is turned
//! into the one canonical form, or refused, before any rule looks at it: rules compare
//! [`Name`]s and addresses, never text.

mod decide;
mod explain;
mod guarded;
mod name;
mod range;
mod remote;
mod rule;
mod rules;
mod spelling;

pub use decide::{ConnectRoute, HostDecision, HostReason, RouteCheck};
pub use guarded::guarded;
pub use name::{HostName, HostNameError, HostTarget};
pub use range::IpRange;
pub use remote::remote_rules;
pub use rule::{HostPattern, HostRule, HostRuleError};
pub(crate) use rules::TRUST;
pub use rules::{
    CA_BUNDLE, ListedHost, NetworkMode, NetworkRules, OpenPorts, PROXY_PORT, PortEntry,
    PortSelection, SecretRule, SniCheck,
};
