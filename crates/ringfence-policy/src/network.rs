//! Hosts: parsing, host rules and decisions.
//!
//! One host has many spellings, and an attacker can use any of them. ringfence converts a spelling
//! into one canonical form, or rejects it, before a rule applies: rules compare [`HostName`]s and
//! addresses, never text.

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
pub use guarded::guarded_kind;
pub use name::{HostName, HostNameError, HostTarget};
pub use range::IpRange;
pub use remote::remote_rules;
pub use rule::{HostPattern, HostRule, HostRuleError};
pub(crate) use rules::CA_BUNDLE_VARIABLES;
pub use rules::{
    CA_BUNDLE, ListedHost, NetworkMode, NetworkRules, OpenPorts, PROXY_PORT, PortEntry,
    PortSelection, SecretRule, SniCheck,
};
