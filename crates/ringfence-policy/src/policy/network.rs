//! `[network]` and `[[secrets]]` as they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grants::{NetworkMode, PortSelection};
use crate::network::SniCheck;

/// `[network]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkSection {
    /// Shut, by list, or the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetworkMode>,
    /// `host`, `*.host` for all names below it, `host:port`, an address, a CIDR range.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Beats `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The host's loopback: `true`, or a list of ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost: Option<PortChoice>,
    /// Whether the project's own remotes are reachable for git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<bool>,
    /// Sockets of the host that are reachable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unix_sockets: Vec<String>,
    /// What is published to the host's loopback: `true`, or a list of ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<PortChoice>,
    /// Whether TLS on port 443 and plain HTTP on port 80 must name the host they were opened to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<SniCheck>,
    /// Whether `HTTP_PROXY` and its like are set, for programs that want a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_variables: Option<bool>,
    /// Whether nobody else opens hosts and ports; in the managed policy only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
}

/// Every port, none, or some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false or a list of ports")]
pub enum PortChoice {
    /// Every port or none.
    All(bool),
    /// These.
    Some(Vec<u16>),
}

impl From<&PortChoice> for PortSelection {
    fn from(choice: &PortChoice) -> Self {
        match choice {
            PortChoice::All(true) => PortSelection::All,
            PortChoice::All(false) => PortSelection::None,
            PortChoice::Some(ports) if ports.is_empty() => PortSelection::None,
            PortChoice::Some(ports) => PortSelection::Some(ports.clone()),
        }
    }
}

/// `[[secrets]]`: inside, the variable has a placeholder; on the way to the hosts, and to nobody
/// else, it is replaced by the value that the variable has outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecretSection {
    /// The variable.
    pub env: String,
    /// `host`, `*.host`, each also with a port.
    pub hosts: Vec<String>,
    /// The header of a request that the value is put into.
    pub header: String,
}
