//! Open ports over all layers.

use super::NetworkSettings;
use crate::error::PolicyError;
use crate::facts::Flags;
use crate::grants::{Origin, PortSelection, Source};
use crate::layer::PolicyLayer;
use crate::network::{OpenPorts, PortEntry};
use crate::policy::PortChoice;

/// A setting that opens ports.
pub(super) struct PortSetting {
    name: &'static str,
    key: &'static str,
    written: fn(&PolicyLayer) -> Option<&PortChoice>,
    flag: &'static str,
    flags: fn(&Flags) -> &[u16],
}

pub(super) const LOCALHOST: PortSetting = PortSetting {
    name: "localhost",
    key: "network.localhost",
    written: |layer| layer.policy.network.localhost.as_ref(),
    flag: "--allow-localhost",
    flags: |flags| &flags.allow_localhost,
};

pub(super) const BIND: PortSetting = PortSetting {
    name: "bind",
    key: "network.bind",
    written: |layer| layer.policy.network.bind.as_ref(),
    flag: "--bind",
    flags: |flags| &flags.bind,
};

impl NetworkSettings<'_> {
    /// Resolves one setting: the managed policy sets a ceiling, the user's files choose within it,
    /// a project's file chooses within both, and flags add to the result.
    pub(super) fn ports(
        &self,
        setting: &PortSetting,
        warnings: &mut Vec<String>,
    ) -> Result<OpenPorts, PolicyError> {
        let mut open = OpenPorts::default();
        let mut ceiling =
            if self.lock.is_some() { PortSelection::None } else { PortSelection::All };
        for layer in self.layers {
            let Some(wanted) = (setting.written)(layer).map(PortSelection::from) else { continue };
            let (bound, whose) = match layer.source {
                Source::Managed => {
                    ceiling = wanted.clone();
                    (PortSelection::All, "")
                }
                Source::Project if self.is_open => {
                    (ceiling.clone(), "the managed policy does not open")
                }
                Source::Project => (open.ports(), "a project's file cannot open"),
                _ => (ceiling.clone(), "the managed policy does not open"),
            };
            let within = both(&wanted, &bound);
            if within != wanted {
                let (place, name) = (layer.position(setting.key), setting.name);
                warnings.push(format!(
                    "{place}`{name} = {}` is ignored for ports that {whose}",
                    word(&wanted)
                ));
            }
            if within != open.ports() {
                let origin =
                    layer.origin(setting.key, &format!("{} = {}", setting.name, word(&within)));
                open.entries = vec![PortEntry { ports: within, origin }];
            }
        }
        for &port in (setting.flags)(self.flags) {
            if !ceiling.contains(port) {
                return Err(PolicyError::BeyondCeiling {
                    flag: setting.flag,
                    ceiling: setting.key.into(),
                });
            }
            let origin = Origin::new(Source::Flag, format!("{} {port}", setting.flag));
            open.entries.push(PortEntry { ports: PortSelection::Some(vec![port]), origin });
        }
        Ok(open)
    }
}

fn both(wanted: &PortSelection, bound: &PortSelection) -> PortSelection {
    match (wanted, bound) {
        (PortSelection::None, _) | (_, PortSelection::None) => PortSelection::None,
        (all, PortSelection::All) => all.clone(),
        (PortSelection::All, some) => some.clone(),
        (PortSelection::Some(wanted), PortSelection::Some(bound)) => {
            let both: Vec<u16> =
                wanted.iter().copied().filter(|port| bound.contains(port)).collect();
            if both.is_empty() { PortSelection::None } else { PortSelection::Some(both) }
        }
    }
}

fn word(ports: &PortSelection) -> String {
    match ports {
        PortSelection::None => "false".into(),
        PortSelection::All => "true".into(),
        PortSelection::Some(ports) => format!("{ports:?}"),
    }
}
