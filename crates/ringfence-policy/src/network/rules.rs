//! Network rules, resolved over all layers.

use serde::{Deserialize, Serialize};

use super::name::HostName;
use super::rule::HostRule;
use crate::error::{PolicyError, SourcePosition};
use crate::grants::Origin;
use crate::path::AbsPath;

/// Rules on network access.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkRules {
    /// Network access: none, only listed hosts, or the network of the host.
    pub mode: NetworkMode,
    /// The rule that sets the mode; `None` for the default.
    pub mode_origin: Option<Origin>,
    /// Reachable hosts, including the project's remotes if `git` is set.
    pub allow: Vec<ListedHost>,
    /// Hosts that are never reachable; overrides `allow`.
    pub deny: Vec<ListedHost>,
    /// Reachable ports on the host's loopback.
    pub localhost: OpenPorts,
    /// True if the git remotes of the project are reachable.
    pub git: bool,
    /// Reachable Unix sockets of the host.
    pub unix_sockets: Vec<AbsPath>,
    /// Ports published on the host's loopback.
    pub bind: OpenPorts,
    /// Check of the host name in a connection.
    pub sni: SniCheck,
    /// True if the proxy environment variables are set in the sandbox.
    pub proxy_variables: bool,
    /// Secrets that stay outside the sandbox. ringfence inserts them into requests.
    pub secrets: Vec<SecretRule>,
    /// The managed rule that reserves opening hosts and ports to the managed policy, if set.
    pub locked: Option<Origin>,
}

/// Port of the proxy in the sandbox.
pub const PROXY_PORT: u16 = 3128;

/// Path in the sandbox of the CA bundle for hosts whose TLS ringfence terminates.
pub const CA_BUNDLE: &str = "/etc/ringfence/ca-bundle.crt";

/// Environment variables that name a CA bundle: OpenSSL and Go, curl, git, Python's requests, pip,
/// Node, cargo, Deno, the Amazon and Google SDKs, Nix.
pub(crate) const CA_BUNDLE_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NIX_SSL_CERT_FILE",
];

impl NetworkRules {
    /// Environment variables for the proxy and the CA bundle.
    pub fn environment_variables(&self) -> Vec<(String, String)> {
        let trust = if self.terminates_tls() { CA_BUNDLE_VARIABLES } else { &[] };
        let trust = trust.iter().map(|name| ((*name).to_owned(), CA_BUNDLE.to_owned()));
        trust.chain(self.proxy_variables_for_env()).collect()
    }

    /// Environment variables for the proxy, if enabled.
    fn proxy_variables_for_env(&self) -> Vec<(String, String)> {
        if !(self.proxy_variables && self.needs_egress()) {
            return Vec::new();
        }
        let http = format!("http://127.0.0.1:{PROXY_PORT}");
        let all = format!("socks5h://127.0.0.1:{PROXY_PORT}");
        let each = [
            ("http_proxy", &http),
            ("https_proxy", &http),
            ("all_proxy", &all),
            ("no_proxy", &"localhost,127.0.0.1,::1".to_owned()),
        ];
        // Programs read either spelling; many read `http_proxy` only in lower case.
        let both = each.iter().flat_map(|(name, value)| {
            [(*name).to_owned(), name.to_ascii_uppercase()].map(|name| (name, (*value).clone()))
        });
        both.collect()
    }
}

/// A host rule with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedHost {
    /// The hosts.
    pub rule: HostRule,
    /// Position of the rule in its policy file.
    pub origin: Origin,
}

/// Network access of the sandbox.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Only the loopback of the sandbox.
    #[default]
    None,
    /// Only the hosts in `allow`.
    AllowList,
    /// The network of the host.
    Full,
}

impl NetworkMode {
    /// The word in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            NetworkMode::None => "none",
            NetworkMode::AllowList => "allow-list",
            NetworkMode::Full => "full",
        }
    }
}

/// Check of the host name in a connection.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SniCheck {
    /// For hosts allowed by name, TLS on port 443 and plain HTTP on port 80 must name the host that
    /// was connected to.
    #[default]
    Check,
    /// No check: the program connects directly.
    Off,
}

impl SniCheck {
    /// The word in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            SniCheck::Check => "check",
            SniCheck::Off => "off",
        }
    }
}

/// A secret that stays outside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRule {
    /// The environment variable: the secret outside, a placeholder inside.
    pub env: String,
    /// The only hosts that receive the secret.
    pub hosts: Vec<HostRule>,
    /// The request header that carries the secret.
    pub header: String,
    /// True if the variable is set outside; otherwise ringfence inserts nothing.
    pub is_set: bool,
    /// Position of the rule in its policy file.
    pub origin: Origin,
}

impl SecretRule {
    /// The placeholder value inside the sandbox. Its text explains itself.
    pub fn placeholder(&self) -> String {
        format!("ringfence-placeholder-{}", self.env)
    }

    /// True if requests to this host carry the secret. Without a port the rule means the HTTPS
    /// port: other ports may not use TLS, and the secret is never sent in plain text.
    fn is_for(&self, name: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|rule| rule.matches_name(name) && rule.port.unwrap_or(HTTPS) == port)
    }
}

const HTTPS: u16 = 443;

/// A choice of ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortSelection {
    /// No port.
    #[default]
    None,
    /// Every port.
    All,
    /// The listed ports.
    Some(Vec<u16>),
}

impl PortSelection {
    /// True if the selection contains `port`.
    pub fn contains(&self, port: u16) -> bool {
        match self {
            PortSelection::None => false,
            PortSelection::All => true,
            PortSelection::Some(ports) => ports.contains(&port),
        }
    }
}

/// Open ports with their origins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPorts {
    /// Entries in the order of the layers.
    pub entries: Vec<PortEntry>,
}

/// Ports that one layer opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortEntry {
    /// The ports.
    pub ports: PortSelection,
    /// Position of the rule in its policy file.
    pub origin: Origin,
}

impl OpenPorts {
    /// True if no port is open.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.ports == PortSelection::None)
    }

    /// The entry that opens `port`, if any.
    pub fn find_opener(&self, port: u16) -> Option<&PortEntry> {
        self.entries.iter().find(|entry| entry.ports.contains(port))
    }

    /// All open ports.
    pub fn ports(&self) -> PortSelection {
        let mut all: Vec<u16> = Vec::new();
        for entry in &self.entries {
            match &entry.ports {
                PortSelection::None => {}
                PortSelection::All => return PortSelection::All,
                PortSelection::Some(ports) => all.extend(ports),
            }
        }
        all.sort_unstable();
        all.dedup();
        if all.is_empty() { PortSelection::None } else { PortSelection::Some(all) }
    }
}

impl NetworkRules {
    /// True if traffic may enter or leave the sandbox's network namespace, so that ringfence must
    /// run an egress server.
    pub fn needs_egress(&self) -> bool {
        let ports = !self.localhost.is_empty() || !self.bind.is_empty();
        self.mode == NetworkMode::AllowList || (self.mode == NetworkMode::None && ports)
    }

    /// Refuses an explicit allow list without entries. It is the same as no network, and was
    /// probably not intended. The caller decides if the list can still grow.
    pub fn refuse_empty_list(&self) -> Result<(), PolicyError> {
        let Some(origin) =
            self.mode_origin.as_ref().filter(|_| self.mode == NetworkMode::AllowList)
        else {
            return Ok(());
        };
        let is_empty =
            self.allow.is_empty() && self.localhost.is_empty() && self.bind.is_empty() && !self.git;
        let at = SourcePosition { file: origin.file.clone(), line: origin.line, column: None };
        if is_empty { Err(PolicyError::EmptyList { at }) } else { Ok(()) }
    }

    /// Prepares the rules for prompts: a network mode that no rule sets becomes an empty allow
    /// list. An explicit `none` stays, and no prompt is shown.
    pub fn prepare_for_prompts(&mut self) {
        if self.mode == NetworkMode::None && self.mode_origin.is_none() && self.locked.is_none() {
            self.mode = NetworkMode::AllowList;
        }
    }

    /// The rules as they would be without prompts.
    pub fn without_prompts(&self) -> Self {
        // An allow list that a rule sets has an origin.
        let is_for_asking = self.mode == NetworkMode::AllowList && self.mode_origin.is_none();
        Self { mode: if is_for_asking { NetworkMode::None } else { self.mode }, ..self.clone() }
    }

    /// The secrets that requests to this host carry.
    pub fn secrets_for(&self, name: &HostName, port: u16) -> impl Iterator<Item = &SecretRule> {
        self.secrets.iter().filter(move |secret| secret.is_set && secret.is_for(name, port))
    }

    /// True if ringfence terminates TLS for some hosts to insert secrets.
    pub fn terminates_tls(&self) -> bool {
        self.mode == NetworkMode::AllowList && self.secrets.iter().any(|secret| secret.is_set)
    }
}
