//! `settings.json` (`sandbox.*` and `permissions`), and the settings file of srt, which has the
//! same tables at the top level.

use super::reader::{self, ImportReader};
use super::{ImportError, ImportedPolicy};
use crate::facts::Platform;
use crate::glob::Glob;
use crate::grants::NetworkMode;
use crate::network::{HostPattern, HostRule};
use crate::policy::{PathEntry, PortChoice};

pub(super) fn import(text: &str) -> Result<ImportedPolicy, ImportError> {
    let value = reader::json(text)?;
    let mut imported = ImportedPolicy::new();
    let top = ImportReader::top(text, &value)?;
    let sandbox = top.table("sandbox", "sandbox")?;
    imported.policy.sandbox.enabled = sandbox.bool("enabled")?;
    if imported.policy.sandbox.enabled.is_none() {
        imported.changed("sandbox.enabled", "not set: off in the other tool, on in ringfence");
    }
    switches(&mut imported, sandbox)?;
    network(&mut imported, sandbox.table("network", "sandbox.network")?)?;
    filesystem(&mut imported, sandbox.table("filesystem", "sandbox.filesystem")?)?;
    permissions(&mut imported, top.table("permissions", "permissions")?)?;
    settle_network(&mut imported);
    imported.unknown(sandbox.unknown(&[
        "enabled",
        "autoAllowBashIfSandboxed",
        "allowUnsandboxedCommands",
        "failIfUnavailable",
        "excludedCommands",
        "enabledPlatforms",
        "network",
        "filesystem",
    ]));
    Ok(imported)
}

/// Imports the settings file of srt.
pub(super) fn import_srt(text: &str) -> Result<ImportedPolicy, ImportError> {
    let value = reader::json(text)?;
    let mut imported = ImportedPolicy::new();
    let top = ImportReader::top(text, &value)?;
    network(&mut imported, top.table("network", "network")?)?;
    filesystem(&mut imported, top.table("filesystem", "filesystem")?)?;
    settle_network(&mut imported);
    imported.unknown(top.unknown(&["network", "filesystem"]));
    Ok(imported)
}

fn switches(imported: &mut ImportedPolicy, sandbox: ImportReader<'_>) -> Result<(), ImportError> {
    let excluded = sandbox.strings("excludedCommands")?;
    imported.policy.commands.excluded.extend(excluded.iter().map(|command| (*command).to_owned()));
    if sandbox.bool("failIfUnavailable")? == Some(false) {
        imported.changed(
            "sandbox.failIfUnavailable",
            "commands run unconfined if no sandbox can be created; a single rule that cannot be enforced still refuses",
        );
    }
    let carried = &mut imported.policy.sandbox;
    carried.fail_if_unavailable = sandbox.bool("failIfUnavailable")?;
    carried.allow_unsandboxed_commands = sandbox.bool("allowUnsandboxedCommands")?;
    carried.auto_allow_bash_if_sandboxed = sandbox.bool("autoAllowBashIfSandboxed")?;
    let platforms = sandbox.strings("enabledPlatforms")?;
    let known: Vec<Platform> =
        platforms.iter().filter_map(|word| Platform::from_word(word)).collect();
    if known.len() < platforms.len() {
        imported.not_carried("sandbox.enabledPlatforms", "one of the platforms is unknown");
    }
    imported.policy.sandbox.enabled_platforms = (!platforms.is_empty()).then_some(known);
    Ok(())
}

fn network(imported: &mut ImportedPolicy, network: ImportReader<'_>) -> Result<(), ImportError> {
    imported.policy.network.mode = Some(NetworkMode::AllowList);
    for domain in network.strings("allowedDomains")? {
        add_domain(imported, &network.full_key("allowedDomains"), domain, SettingsList::Allow);
    }
    for domain in network.strings("deniedDomains")? {
        add_domain(imported, &network.full_key("deniedDomains"), domain, SettingsList::Deny);
    }
    if network.bool("allowLocalBinding")?.is_some() {
        imported.changed(
            network.full_key("allowLocalBinding"),
            "servers in the sandbox can always use its loopback; list a port in `bind` to reach it from the host",
        );
    }
    for socket in network.strings("allowUnixSockets")? {
        let key = network.full_key("allowUnixSockets");
        imported.entry_from("network.unix-sockets", &file_entry(socket), &key, socket);
        imported.policy.network.unix_sockets.push(file_entry(socket));
    }
    if network.bool("allowAllUnixSockets")? == Some(true) {
        imported.not_carried(
            network.full_key("allowAllUnixSockets"),
            "sockets are opened by path: list them in `unix-sockets`",
        );
    }
    for key in ["httpProxyPort", "socksProxyPort"] {
        if network.has(key) {
            imported.not_carried(
                network.full_key(key),
                "ringfence filters connections without a custom proxy",
            );
        }
    }
    imported.unknown(network.unknown(&[
        "allowedDomains",
        "deniedDomains",
        "allowLocalBinding",
        "allowUnixSockets",
        "allowAllUnixSockets",
        "httpProxyPort",
        "socksProxyPort",
    ]));
    Ok(())
}

/// An empty list opens nothing, in both formats.
fn settle_network(imported: &mut ImportedPolicy) {
    let network = &mut imported.policy.network;
    if imported.denies_all_hosts {
        network.mode = Some(NetworkMode::None);
        return;
    }
    if network.mode == Some(NetworkMode::AllowList)
        && network.allow.is_empty()
        && network.localhost.is_none()
    {
        network.mode = Some(NetworkMode::None);
        imported.setting_from("network.mode", "", false);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum SettingsList {
    Allow,
    Deny,
}

/// Adds a host. `written` is the entry in the file: the host, or a rule with it.
fn add_domain(imported: &mut ImportedPolicy, key: &str, written: &str, list: SettingsList) {
    let domain = web_domain(written).unwrap_or(written);
    let network = &mut imported.policy.network;
    let rule = match (domain, list) {
        // As in the other tool, what is denied stays denied.
        ("*", SettingsList::Allow) if imported.denies_all_hosts => {
            return imported.not_carried(key, "every host is denied");
        }
        ("*", SettingsList::Allow) => {
            network.mode = Some(NetworkMode::Full);
            imported.entry_from("network.mode", "", key, written);
            return imported.changed(key, "`*` is `mode = \"full\"`");
        }
        ("*", SettingsList::Deny) => {
            network.mode = Some(NetworkMode::None);
            imported.denies_all_hosts = true;
            imported.entry_from("network.mode", "", key, written);
            return imported.changed(key, "`*` is `mode = \"none\"`");
        }
        _ => HostRule::parse(domain),
    };
    match (rule, list) {
        (Err(problem), _) => imported.not_carried(key, format!("`{domain}` is no host: {problem}")),
        (Ok(rule), SettingsList::Allow) if is_own(&rule) => {
            let ports = match (network.localhost.take(), rule.port) {
                (Some(PortChoice::Some(ports)), Some(port)) => {
                    PortChoice::Some(ports.into_iter().chain([port]).collect())
                }
                (None | Some(PortChoice::All(false)), Some(port)) => PortChoice::Some(vec![port]),
                (_, None) | (Some(PortChoice::All(true)), _) => PortChoice::All(true),
            };
            network.localhost = Some(ports);
            imported.entry_from("network.localhost", "", key, written);
            imported.changed(
                key,
                format!("`{domain}` is the host's loopback, which `localhost` opens by port"),
            );
        }
        (Ok(_), SettingsList::Allow) => {
            network.allow.push(domain.to_owned());
            imported.entry_from("network.allow", domain, key, written);
        }
        (Ok(_), SettingsList::Deny) => {
            network.deny.push(domain.to_owned());
            imported.entry_from("network.deny", domain, key, written);
        }
    }
}

/// True if the rule means the local machine.
fn is_own(rule: &HostRule) -> bool {
    match &rule.subject {
        HostPattern::Name(name) | HostPattern::Below(name) => name.is_localhost(),
        HostPattern::Range(range) => range.first().is_loopback(),
    }
}

/// Reads: everything, then `denyRead`, then `allowRead`. Writes: nothing, then `allowWrite`, then
/// `denyWrite`, which always wins.
fn filesystem(imported: &mut ImportedPolicy, files: ImportReader<'_>) -> Result<(), ImportError> {
    let deny_write: Vec<String> = files.strings("denyWrite")?.into_iter().map(file_entry).collect();
    let at = |key: &str, written| SettingsEntry { key: files.full_key(key), written };
    for entry in files.strings("denyRead")? {
        add_restriction(imported, at("denyRead", entry), PathList::Deny, file_entry(entry));
    }
    for entry in files.strings("allowRead")? {
        add_read(imported, at("allowRead", entry), file_entry(entry));
    }
    for entry in files.strings("allowWrite")? {
        add_write(imported, at("allowWrite", entry), file_entry(entry), &deny_write);
    }
    for entry in files.strings("denyWrite")? {
        add_restriction(imported, at("denyWrite", entry), PathList::Protect, file_entry(entry));
    }
    imported.changed(
        files.full_key("denyRead"),
        "the other tool reads everything else; ringfence reads the project, the system and the toolchains",
    );
    imported.unknown(files.unknown(&["denyRead", "allowRead", "allowWrite", "denyWrite"]));
    Ok(())
}

/// An entry in the file, with its key.
struct SettingsEntry<'a> {
    key: String,
    written: &'a str,
}

/// The lists that take access away.
#[derive(Clone, Copy)]
enum PathList {
    Deny,
    Protect,
}

fn add_restriction(
    imported: &mut ImportedPolicy,
    at: SettingsEntry<'_>,
    list: PathList,
    entry: String,
) {
    let files = &mut imported.policy.filesystem;
    let (name, entries) = match list {
        PathList::Deny => ("filesystem.deny", &mut files.deny),
        PathList::Protect => ("filesystem.protect", &mut files.protect),
    };
    entries.push(PathEntry::from(entry.as_str()));
    imported.entry_from(name, &entry, &at.key, at.written);
}

fn add_read(imported: &mut ImportedPolicy, at: SettingsEntry<'_>, entry: String) {
    let files = &mut imported.policy.filesystem;
    let (name, entries) = if is_glob(&entry) {
        ("filesystem.except", &mut files.except)
    } else {
        ("filesystem.read", &mut files.read)
    };
    entries.push(PathEntry::from(entry.as_str()));
    imported.entry_from(name, &entry, &at.key, at.written);
}

fn add_write(
    imported: &mut ImportedPolicy,
    at: SettingsEntry<'_>,
    entry: String,
    deny_write: &[String],
) {
    let key = at.key.as_str();
    let below = |deny: &&String| {
        let deny = deny.trim_end_matches("/**").trim_end_matches('/');
        entry.strip_prefix(deny).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(deny) = deny_write.iter().find(below) {
        imported
            .not_carried(key, format!("`{entry}` lies in `{deny}`, which always takes precedence"));
    } else if is_glob(&entry) {
        imported.not_carried(
            key,
            format!("`{entry}` is a glob; the project is writable, name other directories"),
        );
    } else {
        imported.policy.filesystem.write.push(PathEntry::from(entry.as_str()));
        imported.entry_from("filesystem.write", &entry, key, at.written);
    }
}

fn is_glob(entry: &str) -> bool {
    Glob::is_glob(entry.trim_end_matches("/**"))
}

/// Converts a path of `sandbox.filesystem`. A relative path is relative to the project, also a bare
/// name, which ringfence would match at any depth.
fn file_entry(text: &str) -> String {
    match text {
        _ if text.starts_with("//") => text[1..].to_owned(),
        _ if text.starts_with(['/', '~', '$'])
            || text.starts_with("./")
            || text.starts_with("**/") =>
        {
            text.to_owned()
        }
        "." | "" => ".".to_owned(),
        _ => format!("./{text}"),
    }
}

/// Converts a path of a permission rule: `//x` is absolute, `/x` and `./x` are relative to the
/// project, and a bare name matches at any depth, as in ringfence.
fn rule_entry(text: &str) -> String {
    match text.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(rest) => format!("./{rest}"),
        None => text.to_owned(),
    }
}

fn permissions(
    imported: &mut ImportedPolicy,
    permissions: ImportReader<'_>,
) -> Result<(), ImportError> {
    let denied = permissions.strings("deny")?;
    let deny_write: Vec<String> = denied.iter().filter_map(|rule| writing(rule)).collect();
    for rule in &denied {
        deny_rule(imported, rule);
    }
    for rule in permissions.strings("allow")? {
        allow_rule(imported, rule, &deny_write);
    }
    for rule in permissions.strings("ask")? {
        imported.not_carried("permissions.ask", format!("`{rule}`: prompts are up to the caller"));
    }
    for directory in permissions.strings("additionalDirectories")? {
        let key = permissions.full_key("additionalDirectories");
        let at = SettingsEntry { key, written: directory };
        add_write(imported, at, file_entry(directory), &deny_write);
    }
    imported.unknown(permissions.unknown(&["allow", "deny", "ask", "additionalDirectories"]));
    Ok(())
}

/// Splits `Tool(spec)`; a tool alone has no spec.
fn split_rule(rule: &str) -> (&str, Option<&str>) {
    match rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) {
        Some((tool, spec)) => (tool, Some(spec)),
        None => (rule, None),
    }
}

/// The host of a rule `WebFetch(domain:…)`.
fn web_domain(rule: &str) -> Option<&str> {
    match split_rule(rule) {
        ("WebFetch", Some(spec)) => spec.strip_prefix("domain:"),
        _ => None,
    }
}

/// The path of a rule about writing, if it is one.
fn writing(rule: &str) -> Option<String> {
    match split_rule(rule) {
        ("Edit" | "Write" | "MultiEdit" | "NotebookEdit", Some(path)) => Some(rule_entry(path)),
        _ => None,
    }
}

fn deny_rule(imported: &mut ImportedPolicy, rule: &str) {
    const KEY: &str = "permissions.deny";
    let at = SettingsEntry { key: KEY.to_owned(), written: rule };
    if let Some(path) = writing(rule) {
        add_restriction(imported, at, PathList::Protect, path);
        return;
    }
    match split_rule(rule) {
        ("Read", Some(path)) => add_restriction(imported, at, PathList::Deny, rule_entry(path)),
        _ if web_domain(rule).is_some() => add_domain(imported, KEY, rule, SettingsList::Deny),
        (tool, None) => {
            imported.policy.tools.disallowed.push(tool.to_owned());
            imported.entry_from("tools.disallowed", tool, KEY, rule);
        }
        ("Bash", Some(line)) => {
            let pattern = command_pattern(line);
            imported.entry_from("commands.deny", &pattern, KEY, rule);
            imported.policy.commands.deny.push(pattern);
        }
        _ => imported.not_carried(KEY, format!("`{rule}` is not about files or domains")),
    }
}

/// Converts the pattern of `Bash(..)`: a space and a star at the end mean any further words, like
/// `:*`.
fn command_pattern(line: &str) -> String {
    line.strip_suffix(" *").map_or_else(|| line.to_owned(), |words| format!("{words}:*"))
}

fn allow_rule(imported: &mut ImportedPolicy, rule: &str, deny_write: &[String]) {
    const KEY: &str = "permissions.allow";
    let at = SettingsEntry { key: KEY.to_owned(), written: rule };
    if let Some(path) = writing(rule) {
        add_write(imported, at, anchored(path), deny_write);
        return;
    }
    match split_rule(rule) {
        ("Read", Some(path)) => {
            let path = rule_entry(path);
            let entry = if is_glob(&path) { path } else { anchored(path) };
            add_read(imported, at, entry);
        }
        _ if web_domain(rule).is_some() => add_domain(imported, KEY, rule, SettingsList::Allow),
        _ => imported.not_carried(KEY, format!("`{rule}` is not about files or domains")),
    }
}

/// A grant is a path, so a bare name is anchored to the project.
fn anchored(path: String) -> String {
    file_entry(&path)
}
