//! Hosts, ports and sockets over all layers.

use super::rest::USERS_FILE;
use super::scalar::Scalar;
use crate::error::PolicyError;
use crate::expand::Entry;
use crate::facts::Facts;
use crate::grants::{NetworkMode, NetworkRules, Ports, Source};
use crate::layer::Layer;
use crate::network::{Listed, OpenPorts, PortEntry};

pub(super) fn network(
    layers: &[Layer],
    mode: Scalar<NetworkMode>,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<NetworkRules, PolicyError> {
    let mut rules = NetworkRules { mode: mode.value(), ..NetworkRules::default() };
    let mut owner_set = (false, false, false);
    for layer in layers {
        let policy = &layer.policy.network;
        let owner = layer.source != Source::Project;
        rules.allow.extend(listed(layer, "network.allow", &policy.allow)?);
        rules.deny.extend(listed(layer, "network.deny", &policy.deny)?);
        if let Some(localhost) = policy.localhost.as_ref().filter(|_| owner || !owner_set.0) {
            rules.localhost = open_ports(layer, "localhost", Ports::from(localhost));
            owner_set.0 |= owner;
        }
        if let Some(git) = policy.git.filter(|git| owner || !owner_set.1 || !git) {
            rules.git = git;
            owner_set.1 |= owner;
        }
        if let Some(bind) = policy.bind.as_ref().filter(|_| owner || !owner_set.2) {
            rules.bind = open_ports(layer, "bind", Ports::from(bind));
            owner_set.2 |= owner;
        }
        let anchor = layer.project(&facts.workspace);
        for (i, text) in policy.unix_sockets.iter().enumerate() {
            let at = layer.place(&format!("network.unix-sockets.{i}"));
            let socket = Entry { text, key: "unix-sockets", anchor: &anchor, at: at.clone() }.path(facts)?;
            if layer.source == Source::Project {
                warnings.push(format!("{at}`{text}` is ignored: a project's file cannot open the host's sockets; {USERS_FILE}"));
            } else {
                rules.unix_sockets.push(socket);
            }
        }
    }
    // A list without a mode is meant to be used. An empty list opens nothing.
    let listed = !rules.allow.is_empty() || rules.git || !rules.localhost.is_empty();
    if !mode.is_chosen() && listed {
        rules.mode = NetworkMode::AllowList;
    }
    Ok(rules)
}

fn open_ports(layer: &Layer, key: &str, ports: Ports) -> OpenPorts {
    let origin = layer.origin(&format!("network.{key}"), key);
    OpenPorts { entries: vec![PortEntry { ports, origin }] }
}

fn listed(layer: &Layer, key: &str, entries: &[String]) -> Result<Vec<Listed>, PolicyError> {
    let one = |(i, text): (usize, &String)| {
        let key = format!("{key}.{i}");
        Ok(Listed { rule: layer.host_rule(&key, text)?, origin: layer.origin(&key, text) })
    };
    entries.iter().enumerate().map(one).collect()
}
