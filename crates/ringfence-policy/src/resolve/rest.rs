//! Environment variables, commands, tools and limits over all layers.

use crate::builtin::{STRICT_ARGUMENTS, STRICT_BINARIES};
use crate::environment::{looks_secret, name_matches};
use crate::error::PolicyError;
use crate::expand::ExpandedEntry;
use crate::facts::{Facts, Flags};
use crate::grants::{
    Anchor, AuditRules, CommandRules, Doubt, EnvironmentRules, Limits, Origin, Source,
};
use crate::layer::PolicyLayer;
use crate::path::AbsPath;
use crate::policy::{Amount, EnvironmentProfile};

pub(super) const USERS_FILE: &str = "put it into ~/.config/ringfence/policy.toml or use a flag";

/// True for a variable that leads to programs of the host, or to passwords under other names.
fn leads_to_host(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["DBUS_", "SSH_", "GPG_", "XDG_RUNTIME"].iter().any(|start| name.starts_with(start))
        || ["_SOCK", "_SOCKET", "_HOST", "DISPLAY", "PASS", "PWD_FILE"]
            .iter()
            .any(|end| name.ends_with(end))
}

pub(super) fn environment(
    layers: &[PolicyLayer],
    flags: &Flags,
    warnings: &mut Vec<String>,
) -> EnvironmentRules {
    let mut rules = EnvironmentRules::built_in();
    let mut managed_deny: Vec<&String> = Vec::new();
    let mut clean_by_owner = false;
    for layer in layers {
        let policy = &layer.policy.environment;
        if layer.source == Source::Managed {
            managed_deny.extend(&policy.deny);
        }
        rules.deny.extend(policy.deny.iter().cloned());
        for (i, name) in policy.allow.iter().enumerate() {
            let place = layer.position(&format!("environment.allow.{i}"));
            if layer.source == Source::Project
                && (looks_secret(name) || leads_to_host(name) || name.contains(['*', '?', '[']))
            {
                warnings.push(format!("{place}`{name}` is ignored: it looks like a secret, or may match one; {USERS_FILE}"));
            } else if managed_deny.iter().any(|deny| name_matches(deny, name)) {
                warnings.push(format!("{place}`{name}` is ignored: the managed policy denies it"));
            } else if layer.source.is_user_choice() && !name.contains(['*', '?']) {
                rules.named.push(name.clone());
            } else {
                rules.allow.push(name.clone());
            }
        }
        rules.set.extend(policy.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        match policy.profile {
            Some(EnvironmentProfile::Default)
                if layer.source == Source::Project && clean_by_owner =>
            {
                let place = layer.position("environment.profile");
                warnings.push(format!("{place}`profile = default` is ignored: a project's file cannot widen it; {USERS_FILE}"));
            }
            Some(EnvironmentProfile::Default) if layer.is_of_enclosing() => {}
            Some(profile) => rules.clean = profile == EnvironmentProfile::Clean,
            None => {}
        }
        clean_by_owner = rules.clean && layer.source != Source::Project || clean_by_owner;
    }
    for (name, value) in &flags.env {
        match value {
            Some(value) => {
                rules.set.insert(name.clone(), value.clone());
            }
            None if managed_deny.iter().any(|deny| name_matches(deny, name)) => {
                warnings.push(format!("--env {name} is ignored: the managed policy denies it"));
            }
            None => rules.named.push(name.clone()),
        }
    }
    rules
}

pub(super) fn commands(
    layers: &[PolicyLayer],
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<CommandRules, PolicyError> {
    let asks_strict = layers.iter().any(|layer| layer.policy.commands.doubt == Some(Doubt::Refuse));
    let doubt = if asks_strict { Doubt::Refuse } else { Doubt::Warn };
    let mut rules = CommandRules { doubt, ..CommandRules::default() };
    let mut anchored_by_owner = false;
    for layer in layers {
        let policy = &layer.policy.commands;
        let owner = layer.source != Source::Project;
        rules.deny.extend(origins(layer, "commands.deny", &policy.deny, &[]));
        rules.deny_arguments.extend(origins(
            layer,
            "commands.deny-arguments",
            &policy.deny_arguments,
            STRICT_ARGUMENTS,
        ));
        for (i, origin) in
            origins(layer, "commands.excluded", &policy.excluded, &[]).into_iter().enumerate()
        {
            if owner {
                rules.excluded.push(origin);
            } else if !holds(&rules.excluded, &origin) {
                let (place, command) =
                    (layer.position(&format!("commands.excluded.{i}")), origin.text);
                warnings.push(format!("{place}`{command}` is ignored: a project's file cannot exclude commands; {USERS_FILE}"));
            }
        }
        narrow_binaries(&mut rules.allow_binaries, layer, warnings);
        if let Some(text) = policy.anchor_arguments.as_ref().filter(|_| owner || !anchored_by_owner)
        {
            let anchor: AbsPath = layer.base_directory(&facts.workspace);
            let key = "commands.anchor-arguments";
            let root = ExpandedEntry {
                text,
                key: "anchor-arguments",
                anchor: &anchor,
                at: layer.position(key),
            }
            .path(facts)?;
            rules.anchor_arguments = Some(Anchor { root, origin: layer.origin(key, text) });
            anchored_by_owner |= owner;
        }
    }
    Ok(rules)
}

/// The entries of a list with their origins; `@strict` expands to `strict`.
fn origins(layer: &PolicyLayer, key: &str, texts: &[String], strict: &[&str]) -> Vec<Origin> {
    let mut origins = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let origin = layer.origin(&format!("{key}.{i}"), text);
        if text == "@strict" && !strict.is_empty() {
            origins.extend(
                strict.iter().map(|text| Origin { text: (*text).to_owned(), ..origin.clone() }),
            );
        } else {
            origins.push(origin);
        }
    }
    origins
}

fn holds(origins: &[Origin], wanted: &Origin) -> bool {
    origins.iter().any(|origin| origin.text == wanted.text)
}

/// A later list narrows an earlier one. An empty result would allow every program, so a list with
/// nothing in common is ignored.
fn narrow_binaries(binaries: &mut Vec<Origin>, layer: &PolicyLayer, warnings: &mut Vec<String>) {
    let wanted = origins(
        layer,
        "commands.allow-binaries",
        &layer.policy.commands.allow_binaries,
        STRICT_BINARIES,
    );
    if wanted.is_empty() {
        return;
    }
    if binaries.is_empty() {
        *binaries = wanted;
    } else if binaries.iter().any(|binary| holds(&wanted, binary)) {
        binaries.retain(|binary| holds(&wanted, binary));
    } else {
        let place = layer.position("commands.allow-binaries");
        warnings.push(format!(
            "{place}`allow-binaries` is ignored: it has no entry in common with the earlier list"
        ));
    }
}

/// The user's limits stay within the managed ones, a project's within both.
pub(super) fn limits(layers: &[PolicyLayer], flags: &Flags) -> Limits {
    let mut managed = Limits::default();
    let mut limits = Limits::default();
    for layer in layers {
        let written = written_limits(layer);
        match layer.source {
            Source::Managed => {
                managed = each(managed, written, |old, new| new.or(old));
                limits = managed;
            }
            Source::Project => limits = each(limits, written, smaller),
            _ => limits = each(each(limits, written, |old, new| new.or(old)), managed, smaller),
        }
    }
    each(each(limits, flags.limits, |old, new| new.or(old)), managed, smaller)
}

/// Resolves the settings of the audit log that are not keywords.
pub(super) fn audit(
    layers: &[PolicyLayer],
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> AuditRules {
    let mut rules = AuditRules::default_below(&facts.state);
    let mut is_managed = false;
    for layer in layers {
        let Some(bytes) = layer.policy.audit.rotate_size.as_ref().and_then(Amount::bytes) else {
            continue;
        };
        let place = layer.position("audit.rotate-size");
        match layer.source {
            Source::Managed => is_managed = true,
            Source::Project => {
                warnings.push(format!("{place}`audit.rotate-size` is ignored: a project's file cannot change the log; {USERS_FILE}"));
                continue;
            }
            _ if is_managed => {
                warnings.push(format!(
                    "{place}`audit.rotate-size` is ignored: the managed policy has chosen it"
                ));
                continue;
            }
            _ => {}
        }
        rules.rotate_bytes = bytes;
    }
    rules
}

fn written_limits(layer: &PolicyLayer) -> Limits {
    let policy = &layer.policy.limits;
    let bytes = |amount: &Option<Amount>| amount.as_ref().and_then(Amount::bytes);
    let milliseconds = |amount: &Option<Amount>| amount.as_ref().and_then(Amount::milliseconds);
    Limits {
        wall_ms: milliseconds(&policy.wall),
        cpu_ms: milliseconds(&policy.cpu),
        memory: bytes(&policy.memory),
        processes: policy.processes,
        open_files: policy.open_files,
        file_size: bytes(&policy.file_size),
        disk: bytes(&policy.disk),
        output: bytes(&policy.output),
    }
}

fn each(a: Limits, b: Limits, join: fn(Option<u64>, Option<u64>) -> Option<u64>) -> Limits {
    Limits {
        wall_ms: join(a.wall_ms, b.wall_ms),
        cpu_ms: join(a.cpu_ms, b.cpu_ms),
        memory: join(a.memory, b.memory),
        processes: join(a.processes, b.processes),
        open_files: join(a.open_files, b.open_files),
        file_size: join(a.file_size, b.file_size),
        disk: join(a.disk, b.disk),
        output: join(a.output, b.output),
    }
}

/// The smaller of two limits; `None` is unlimited.
fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}
