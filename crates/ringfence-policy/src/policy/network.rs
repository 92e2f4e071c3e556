//! The `[network]` and `[[secrets]]` sections of a policy file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grants::{NetworkMode, PortSelection};
use crate::network::SniCheck;

/// `[network]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkSection {
    /// Network access: none, only listed hosts, or the network of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetworkMode>,
    /// Reachable hosts: `host`, `*.host` for all subdomains, `host:port`, an IP address or a CIDR
    /// range.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Hosts that are never reachable; overrides `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Reachable ports on the loopback interface of the host: `true` for all, or a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost: Option<PortChoice>,
    /// `true` makes the git remotes of the project reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<bool>,
    /// Unix sockets of the host that are reachable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unix_sockets: Vec<String>,
    /// Ports of the sandbox to publish on the loopback interface of the host: `true` for all, or a
    /// list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<PortChoice>,
    /// Check that TLS on port 443 (SNI) and plain HTTP on port 80 (`Host`) name the host that was
    /// connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<SniCheck>,
    /// `true` sets `HTTP_PROXY` and related variables, for programs that need a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_variables: Option<bool>,
    /// `true` if no other policy file may open hosts or ports. Only allowed in the managed policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
}

/// A choice of ports: all, none, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false or a list of ports")]
pub enum PortChoice {
    /// All ports (`true`) or none (`false`).
    All(bool),
    /// The listed ports.
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

/// `[[secrets]]`: inside the sandbox the variable holds a placeholder. In requests to the listed
/// hosts, and only there, ringfence replaces the placeholder with the real value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecretSection {
    /// Name of the environment variable.
    pub env: String,
    /// Hosts that receive the value: `host` or `*.host`, optionally with a port.
    pub hosts: Vec<String>,
    /// Name of the request header that carries the value.
    pub header: String,
}
