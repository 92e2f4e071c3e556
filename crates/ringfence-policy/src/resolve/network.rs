//! Hosts, ports and sockets over all layers.
//!
//! The managed file, the user's file and flags open hosts. A project's file, whose author is not
//! the user, opens nothing: it may deny, and if the user left the network open, it may restrict it
//! to a list.

mod ports;
mod secrets;
#[cfg(test)]
mod tests;

use super::rest::USERS_FILE;
use super::scalar::LayeredSetting;
use crate::error::{PolicyError, SourcePosition};
use crate::expand::ExpandedEntry;
use crate::facts::{Facts, Flags};
use crate::grants::{EnvironmentRules, NetworkMode, NetworkRules, Origin, Source};
use crate::layer::PolicyLayer;
use crate::network::{HostPattern, HostRule, ListedHost, SniCheck, guarded_kind, remote_rules};
use crate::path::AbsPath;

/// Inputs for all network settings.
struct NetworkSettings<'a> {
    layers: &'a [PolicyLayer],
    flags: &'a Flags,
    /// True if the user and the administrator left the network open, so that any list narrows it.
    is_open: bool,
    /// The managed rule that reserves opening to the managed policy, if set.
    lock: Option<Origin>,
}

/// Resolves the network rules, and the environment variables that must stay outside because of
/// them.
pub(super) fn network(
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
    (mut mode, sni): (LayeredSetting<NetworkMode>, LayeredSetting<SniCheck>),
    environment: &mut EnvironmentRules,
    warnings: &mut Vec<String>,
) -> Result<NetworkRules, PolicyError> {
    let settings = NetworkSettings {
        layers,
        flags,
        is_open: owners_mode(layers) == NetworkMode::Full,
        lock: lock(layers),
    };
    if !flags.allow_host.is_empty()
        && flags.net.is_none()
        && mode.is_chosen()
        && mode.value() == NetworkMode::None
    {
        mode.flag("--allow-host", Some(NetworkMode::AllowList))?;
    }
    let git = settings.git(warnings);
    let mut rules = NetworkRules {
        mode: mode.value(),
        mode_origin: mode.origin(),
        allow: settings.allow(warnings)?,
        deny: settings.deny()?,
        localhost: settings.ports(&ports::LOCALHOST, warnings)?,
        git: git.is_some(),
        unix_sockets: unix_sockets(layers, facts, warnings)?,
        bind: settings.ports(&ports::BIND, warnings)?,
        sni: sni.value(),
        proxy_variables: layers
            .iter()
            .filter_map(|layer| layer.policy.network.proxy_variables)
            .next_back()
            .unwrap_or(false),
        secrets: Vec::new(),
        locked: settings.lock.clone(),
    };
    rules
        .allow
        .extend(git.iter().flat_map(|origin| remotes(facts, origin, warnings)).collect::<Vec<_>>());
    if !mode.is_chosen() {
        // A list without a mode implies the allow-list mode. An empty list opens nothing.
        let opener = rules.allow.first().map(|listed| &listed.origin).or(git.as_ref());
        let opener = opener.or(rules
            .localhost
            .entries
            .first()
            .filter(|_| !rules.localhost.is_empty())
            .map(|entry| &entry.origin));
        if let Some(origin) = opener {
            rules.mode_origin = Some(origin.clone());
            rules.mode = NetworkMode::AllowList;
        }
    }
    if settings.is_only_ignored(&rules) {
        rules.mode = NetworkMode::None;
    }
    if !flags.allow_host.is_empty() && rules.mode != NetworkMode::AllowList {
        warnings.push(format!(
            "--allow-host has no effect: `network.mode = {}` is set",
            rules.mode.word()
        ));
    }
    rules.secrets = secrets::secrets(layers, facts, &rules, environment, warnings)?;
    Ok(rules)
}

/// The mode from the managed and the user's file, ignoring the project's file.
fn owners_mode(layers: &[PolicyLayer]) -> NetworkMode {
    let mut mode = LayeredSetting::new("network.mode", NetworkMode::None);
    for layer in layers.iter().filter(|layer| layer.source != Source::Project) {
        mode.offer(layer, layer.policy.network.mode, &mut Vec::new());
    }
    mode.value()
}

fn lock(layers: &[PolicyLayer]) -> Option<Origin> {
    let lock = layers.iter().rfind(|layer| {
        layer.source == Source::Managed && layer.policy.network.locked == Some(true)
    });
    lock.map(|layer| layer.origin("network.locked", "network.locked = true"))
}

impl NetworkSettings<'_> {
    /// True if a project's file chose a list whose hosts were all ignored with a warning: the
    /// result is no network.
    fn is_only_ignored(&self, rules: &NetworkRules) -> bool {
        let is_projects =
            rules.mode_origin.as_ref().is_some_and(|origin| origin.source == Source::Project);
        let is_empty = rules.allow.is_empty()
            && rules.localhost.is_empty()
            && rules.bind.is_empty()
            && !rules.git;
        let wished = self
            .layers
            .iter()
            .any(|layer| layer.source == Source::Project && !layer.policy.network.allow.is_empty());
        rules.mode == NetworkMode::AllowList && is_projects && is_empty && wished
    }

    fn allow(&self, warnings: &mut Vec<String>) -> Result<Vec<ListedHost>, PolicyError> {
        let mut allow: Vec<ListedHost> = Vec::new();
        for layer in self.layers {
            for (i, text) in layer.policy.network.allow.iter().enumerate() {
                let key = format!("network.allow.{i}");
                let listed = listed(layer, &key, text)?;
                let is_project = layer.source == Source::Project;
                let may = layer.source == Source::Managed
                    || if is_project { self.is_open } else { self.lock.is_none() };
                if may {
                    allow.push(listed);
                } else if !is_covered(&allow, &listed.rule) {
                    let at = layer.position(&key);
                    let why = if is_project {
                        "a project's file cannot open hosts; "
                    } else {
                        "the managed policy has locked the list"
                    };
                    let what_to_do = if is_project { USERS_FILE } else { "" };
                    warnings.push(format!("{at}`{text}` is ignored: {why}{what_to_do}"));
                }
            }
        }
        for text in &self.flags.allow_host {
            let listed = flag("--allow-host", text)?;
            if self.lock.is_some() && !is_covered(&allow, &listed.rule) {
                return Err(PolicyError::BeyondCeiling {
                    flag: "--allow-host",
                    ceiling: "network.locked = true".into(),
                });
            }
            allow.push(listed);
        }
        Ok(allow)
    }

    /// Every layer may deny, and no layer removes a denial.
    fn deny(&self) -> Result<Vec<ListedHost>, PolicyError> {
        let of_layer = |layer| {
            let entries: &[String] = &layer_network(layer).deny;
            entries
                .iter()
                .enumerate()
                .map(move |(i, text)| listed(layer, &format!("network.deny.{i}"), text))
        };
        let flags = self.flags.deny_host.iter().map(|text| flag("--deny-host", text));
        self.layers.iter().flat_map(of_layer).chain(flags).collect()
    }

    /// The rule that opens the project's remotes to git, if any.
    fn git(&self, warnings: &mut Vec<String>) -> Option<Origin> {
        let mut git: Option<Origin> = None;
        let mut shut = self.lock.is_some();
        for layer in self.layers {
            let Some(is_enabled) = layer.policy.network.git else { continue };
            let origin = layer.origin("network.git", "git = true");
            let may = match layer.source {
                Source::Managed => {
                    shut = !is_enabled;
                    true
                }
                Source::Project => !is_enabled || git.is_some() || self.is_open,
                _ => !is_enabled || !shut,
            };
            if may {
                git = is_enabled.then_some(git).map(|earlier| earlier.unwrap_or(origin));
            } else {
                let place = layer.position("network.git");
                let who = if layer.source == Source::Project {
                    "a project's file cannot open hosts"
                } else {
                    "the managed policy denies them"
                };
                warnings.push(format!("{place}`git = true` is ignored: {who}"));
            }
        }
        git
    }
}

fn layer_network(layer: &PolicyLayer) -> &crate::policy::NetworkSection {
    &layer.policy.network
}

fn listed(layer: &PolicyLayer, key: &str, text: &str) -> Result<ListedHost, PolicyError> {
    Ok(ListedHost { rule: layer.host_rule(key, text)?, origin: layer.origin(key, text) })
}

fn flag(flag: &str, text: &str) -> Result<ListedHost, PolicyError> {
    let bad = |problem| PolicyError::BadHost {
        at: SourcePosition::default(),
        entry: format!("{flag} {text}"),
        problem,
    };
    Ok(ListedHost {
        rule: HostRule::parse(text).map_err(bad)?,
        origin: Origin::new(Source::Flag, text),
    })
}

fn is_covered(allow: &[ListedHost], rule: &HostRule) -> bool {
    allow.iter().any(|listed| listed.rule.covers(rule))
}

/// The hosts of the project's remotes. The author of the project may have set them, so only the
/// user can allow an address in the local network.
fn remotes(facts: &Facts, origin: &Origin, warnings: &mut Vec<String>) -> Vec<ListedHost> {
    let mut all: Vec<ListedHost> = Vec::new();
    for remote in &facts.remotes {
        for rule in remote_rules(&remote.url) {
            let what = match &rule.subject {
                HostPattern::Range(range) => guarded_kind(range.first()),
                HostPattern::Name(_) | HostPattern::Below(_) => None,
            };
            if let Some(what) = what {
                warnings.push(format!("the remote `{}` at {rule} ({what}) is not opened; to open it use --allow-host {rule}", remote.name));
            } else if !is_covered(&all, &rule) {
                let origin =
                    Origin { text: format!("{rule} (remote {})", remote.name), ..origin.clone() };
                all.push(ListedHost { rule, origin });
            }
        }
    }
    all
}

fn unix_sockets(
    layers: &[PolicyLayer],
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Vec<AbsPath>, PolicyError> {
    let mut sockets = Vec::new();
    for layer in layers {
        let anchor = layer.base_directory(&facts.workspace);
        for (i, text) in layer.policy.network.unix_sockets.iter().enumerate() {
            let at = layer.position(&format!("network.unix-sockets.{i}"));
            let socket =
                ExpandedEntry { text, key: "unix-sockets", anchor: &anchor, at: at.clone() }
                    .path(facts)?;
            if layer.source == Source::Project {
                warnings.push(format!("{at}`{text}` is ignored: a project's file cannot open the host's sockets; {USERS_FILE}"));
            } else {
                sockets.push(socket);
            }
        }
    }
    Ok(sockets)
}
