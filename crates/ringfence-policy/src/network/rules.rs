//! What of the network is open, resolved over all layers.

use serde::{Deserialize, Serialize};

use super::name::HostName;
use super::rule::HostRule;
use crate::error::{PolicyError, SourcePosition};
use crate::grants::Origin;
use crate::path::AbsPath;

/// What of the network is open.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkRules {
    /// Shut, by list, or the host's own.
    pub mode: NetworkMode,
    /// Who chose that; nobody where it is what holds without a choice.
    pub mode_origin: Option<Origin>,
    /// What may be reached, the project's remotes among it where git may reach them.
    pub allow: Vec<ListedHost>,
    /// Beats `allow`.
    pub deny: Vec<ListedHost>,
    /// Ports of the host's loopback that are reachable.
    pub localhost: OpenPorts,
    /// Whether the project's own remotes are reachable for git.
    pub git: bool,
    /// Sockets of the host that are reachable.
    pub unix_sockets: Vec<AbsPath>,
    /// Ports that are published to the host's loopback.
    pub bind: OpenPorts,
    /// Whether what is said on a connection must fit the name it was allowed by.
    pub sni: SniCheck,
    /// Whether programs are told of a proxy inside.
    pub proxy_variables: bool,
    /// Values that stay outside and are put into requests on the way.
    pub secrets: Vec<SecretRule>,
    /// Where the managed policy says that nobody else opens anything, if it does.
    pub locked: Option<Origin>,
}

/// The port of the proxy inside.
pub const PROXY_PORT: u16 = 3128;

/// Where, inside, those stand whom programs are to trust, where TLS is ended on the way.
pub const CA_BUNDLE: &str = "/etc/ringfence/ca-bundle.crt";

/// The variables by which programs are told of it: OpenSSL and Go, curl, git, Python's requests,
/// pip, Node, cargo, Deno, Amazon's and Google's libraries, Nix.
pub(crate) const TRUST: &[&str] = &[
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
    /// What programs are told of the ways out.
    pub fn variables(&self) -> Vec<(String, String)> {
        let trust = if self.ends_tls() { TRUST } else { &[] };
        let trust = trust.iter().map(|name| ((*name).to_owned(), CA_BUNDLE.to_owned()));
        trust.chain(self.of_the_proxy()).collect()
    }

    /// What they are told of the proxy inside, if they are.
    fn of_the_proxy(&self) -> Vec<(String, String)> {
        if !(self.proxy_variables && self.has_a_border()) {
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
        // Programs look for either spelling; of the first one, many only for the small one.
        let both = each.iter().flat_map(|(name, value)| {
            [(*name).to_owned(), name.to_ascii_uppercase()].map(|name| (name, (*value).clone()))
        });
        both.collect()
    }
}

/// A rule on hosts with the place it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedHost {
    /// Which hosts.
    pub rule: HostRule,
    /// Where it was written.
    pub origin: Origin,
}

/// Shut, by list, or the host's own.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Loopback between the sandbox's own processes only.
    #[default]
    None,
    /// What `allow` lists.
    AllowList,
    /// The host's network.
    Full,
}

impl NetworkMode {
    /// The word for it in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            NetworkMode::None => "none",
            NetworkMode::AllowList => "allow-list",
            NetworkMode::Full => "full",
        }
    }
}

/// Whether what is said on a connection must fit the name it was allowed by.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SniCheck {
    /// Of hosts that are allowed by name: TLS on port 443 and plain HTTP on port 80 must name
    /// the host that was dialed.
    #[default]
    Check,
    /// The connection is the program's own from the start.
    Off,
}

impl SniCheck {
    /// The word for it in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            SniCheck::Check => "check",
            SniCheck::Off => "off",
        }
    }
}

/// A value that stays outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRule {
    /// The variable that has it outside, and a placeholder inside.
    pub env: String,
    /// The hosts that get it, and nobody else.
    pub hosts: Vec<HostRule>,
    /// The header that it is put into.
    pub header: String,
    /// Whether the variable has a value outside; without one nothing is put in.
    pub is_set: bool,
    /// Where it was written.
    pub origin: Origin,
}

impl SecretRule {
    /// What the variable has inside. It says what it is to whoever comes across it.
    pub fn placeholder(&self) -> String {
        format!("ringfence-placeholder-{}", self.env)
    }

    /// Whether requests to this host carry it. Where no port is named it is that of HTTPS: what
    /// is said elsewhere need not be TLS, and the value is never sent in the clear.
    fn is_for(&self, name: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|rule| rule.names(name) && rule.port.unwrap_or(HTTPS) == port)
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
    /// These.
    Some(Vec<u16>),
}

impl PortSelection {
    /// Whether `port` is one of them.
    pub fn has(&self, port: u16) -> bool {
        match self {
            PortSelection::None => false,
            PortSelection::All => true,
            PortSelection::Some(ports) => ports.contains(&port),
        }
    }
}

/// Ports that are open, each with the place that says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPorts {
    /// In the order of the layers.
    pub entries: Vec<PortEntry>,
}

/// Ports that one layer opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortEntry {
    /// Which.
    pub ports: PortSelection,
    /// Where it was written.
    pub origin: Origin,
}

impl OpenPorts {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.ports == PortSelection::None)
    }

    /// What opens `port`, if something does.
    pub fn opener(&self, port: u16) -> Option<&PortEntry> {
        self.entries.iter().find(|entry| entry.ports.has(port))
    }

    /// All of them.
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
    /// Whether anything can cross the border of a network of its own, in or out: then somebody
    /// has to stand there.
    pub fn has_a_border(&self) -> bool {
        let ports = !self.localhost.is_empty() || !self.bind.is_empty();
        self.mode == NetworkMode::AllowList || (self.mode == NetworkMode::None && ports)
    }

    /// Refuses a list that somebody has chosen and that has nobody on it. It is as good as no
    /// network, and who wrote it meant something else. Where the list can grow, it is for others to
    /// say whether that is so.
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

    /// As they hold where somebody is asked: a network that nobody spoke of is a list with
    /// nothing on it. Whoever shuts it by name is not asked.
    pub fn for_asking(&mut self) {
        if self.mode == NetworkMode::None && self.mode_origin.is_none() && self.locked.is_none() {
            self.mode = NetworkMode::AllowList;
        }
    }

    /// As they would hold if nobody were asked.
    pub fn unasked(&self) -> Self {
        // A list that somebody has chosen says who.
        let is_for_asking = self.mode == NetworkMode::AllowList && self.mode_origin.is_none();
        Self { mode: if is_for_asking { NetworkMode::None } else { self.mode }, ..self.clone() }
    }

    /// The secrets that requests to this host are to carry.
    pub fn secrets_for(&self, name: &HostName, port: u16) -> impl Iterator<Item = &SecretRule> {
        self.secrets.iter().filter(move |secret| secret.is_set && secret.is_for(name, port))
    }

    /// Whether TLS is ended on the way to some hosts, so that values can be put into requests.
    pub fn ends_tls(&self) -> bool {
        self.mode == NetworkMode::AllowList && self.secrets.iter().any(|secret| secret.is_set)
    }
}
