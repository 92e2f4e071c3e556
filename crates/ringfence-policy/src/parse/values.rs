//! Checks of values that the types do not express.

use crate::error::PolicyError;
use crate::foreign::{self, ForeignTool};
use crate::glob::{Glob, GlobCase};
use crate::grants::Source;
use crate::layer::PolicyLayer;
use crate::network::{CA_BUNDLE_VARIABLES, HostPattern};
use crate::path::AbsPath;
use crate::policy::{Amount, PathEntry, PortChoice, SecretSection};
use crate::provider_spec::ProviderSpec;

/// Rejects the first invalid value.
pub(super) fn check(layer: &PolicyLayer) -> Result<(), PolicyError> {
    check_project(layer)?;
    check_extends(layer)?;
    let files = &layer.policy.filesystem;
    let lists = [
        ("read", &files.read),
        ("write", &files.write),
        ("deny", &files.deny),
        ("hide", &files.hide),
        ("protect", &files.protect),
        ("except", &files.except),
    ];
    for (list, entries) in lists {
        for (i, entry) in entries.iter().enumerate() {
            check_entry(layer, &format!("filesystem.{list}.{i}"), entry)?;
        }
    }
    check_network(layer)?;
    for (i, secret) in layer.policy.secrets.iter().enumerate() {
        check_secret(layer, &format!("secrets.{i}"), secret)?;
    }
    check_provider(layer)?;
    check_limits(layer)?;
    check_audit(layer)
}

/// Rejects a provider that is no `NAME:key=value`. Its name is checked when a command runs.
fn check_provider(layer: &PolicyLayer) -> Result<(), PolicyError> {
    match &layer.policy.sandbox.provider {
        Some(text) if text.parse::<ProviderSpec>().is_err() => {
            let key = "sandbox.provider";
            Err(bad_text(layer, key, key, text, ProviderSpec::FORMAT))
        }
        _ => Ok(()),
    }
}

/// Rejects `project` outside the user's own project files, and a value that is no path.
fn check_project(layer: &PolicyLayer) -> Result<(), PolicyError> {
    let Some(project) = &layer.policy.project else { return Ok(()) };
    let is_plain =
        AbsPath::new(project).is_some_and(|path| path.as_path().as_os_str() == project.as_str());
    let expected = match layer.source {
        Source::User if is_plain => return Ok(()),
        Source::User => "the absolute path of the project",
        _ => "no `project` key in this file: it is only allowed in ~/.config/ringfence/projects",
    };
    Err(bad_text(layer, "project", "project", project, expected))
}

/// Rejects an entry of `extends` that looks like the name of a tool and is none.
fn check_extends(layer: &PolicyLayer) -> Result<(), PolicyError> {
    let is_unknown = |(_, entry): &(usize, &String)| {
        foreign::is_tool_name(entry) && ForeignTool::from_name(entry).is_none()
    };
    match layer.policy.extends.iter().enumerate().find(is_unknown) {
        Some((i, name)) => Err(PolicyError::UnknownTool {
            at: layer.position(&format!("extends.{i}")),
            name: name.clone(),
        }),
        None => Ok(()),
    }
}

fn check_entry(layer: &PolicyLayer, key: &str, entry: &PathEntry) -> Result<(), PolicyError> {
    if entry.is_locked() && layer.source != Source::Managed {
        return Err(PolicyError::LockedOutsideManaged { at: layer.position(key) });
    }
    // The anchor does not affect the syntax of the entry.
    match Glob::new(entry.path(), Some(&AbsPath::root()), GlobCase::Sensitive) {
        Err(error) if Glob::is_glob(entry.path()) || entry.path().is_empty() => {
            let mut at = layer.position(key);
            if let (PathEntry::Text(text), Some(position)) = (entry, error.position()) {
                let before = text.get(..position).map_or(0, |head| head.chars().count());
                at.column = at.column.map(|column| column + 1 + u32::try_from(before).unwrap_or(0));
            }
            Err(PolicyError::BadGlob { at, entry: entry.path().to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn check_network(layer: &PolicyLayer) -> Result<(), PolicyError> {
    let network = &layer.policy.network;
    if network.locked.is_some() && layer.source != Source::Managed {
        return Err(PolicyError::LockedOutsideManaged { at: layer.position("network.locked") });
    }
    for (list, hosts) in [("allow", &network.allow), ("deny", &network.deny)] {
        for (i, text) in hosts.iter().enumerate() {
            let key = format!("network.{list}.{i}");
            let rule = layer.host_rule(&key, text)?;
            let is_localhost = matches!(&rule.subject, HostPattern::Name(name) | HostPattern::Below(name) if name.is_localhost());
            if list == "allow" && is_localhost {
                let expected = "`localhost = [PORT]` for the host's loopback; the sandbox's own loopback is always open";
                return Err(bad_text(layer, &key, "network.allow", text, expected));
            }
        }
    }
    for (list, ports) in [("localhost", &network.localhost), ("bind", &network.bind)] {
        let Some(PortChoice::Some(ports)) = ports else { continue };
        if let Some(i) = ports.iter().position(|&port| port == 0) {
            return Err(bad_text(
                layer,
                &format!("network.{list}.{i}"),
                &format!("network.{list}"),
                "0",
                "a port from 1 to 65535",
            ));
        }
    }
    Ok(())
}

fn check_secret(layer: &PolicyLayer, key: &str, secret: &SecretSection) -> Result<(), PolicyError> {
    let bad = |part: &str, value: &str, expected| {
        Err(bad_text(layer, &format!("{key}.{part}"), &format!("secrets.{part}"), value, expected))
    };
    let is_variable = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if secret.env.is_empty()
        || !secret.env.chars().all(is_variable)
        || secret.env.starts_with(|c: char| c.is_ascii_digit())
    {
        return bad(
            "env",
            &secret.env,
            "the name of an environment variable, such as `GITHUB_TOKEN`",
        );
    }
    if is_for_programs(&secret.env) {
        return bad(
            "env",
            &secret.env,
            "another variable: programs need this one unchanged to start",
        );
    }
    // Characters of a header name: RFC 9110, 5.6.2.
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if secret.header.is_empty() || !secret.header.chars().all(is_token) {
        return bad("header", &secret.header, "the name of a header, such as `Authorization`");
    }
    if FRAMING.iter().any(|header| secret.header.eq_ignore_ascii_case(header)) {
        return bad(
            "header",
            &secret.header,
            "another header: this one controls the framing or the target of a request",
        );
    }
    if secret.hosts.is_empty() {
        return bad("hosts", "[]", "the hosts that receive it, such as `[\"api.github.com\"]`");
    }
    for (i, text) in secret.hosts.iter().enumerate() {
        let part = format!("hosts.{i}");
        match layer.host_rule(&format!("{key}.{part}"), text)?.subject {
            HostPattern::Below(name) if !name.as_str().contains('.') => {
                return Err(bad_text(
                    layer,
                    &format!("{key}.{part}"),
                    "secrets.hosts",
                    text,
                    "a narrower name: many parties share this one",
                ));
            }
            HostPattern::Name(_) | HostPattern::Below(_) => {}
            HostPattern::Range(_) => {
                let expected = "a host name: the value is only sent to a host with a certificate for that name";
                return Err(bad_text(
                    layer,
                    &format!("{key}.{part}"),
                    "secrets.hosts",
                    text,
                    expected,
                ));
            }
        }
    }
    Ok(())
}

/// True for a variable that controls how programs start, or that ringfence sets itself.
fn is_for_programs(name: &str) -> bool {
    const EXACT: &[&str] = &[
        "PATH", "HOME", "PWD", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "BASH_ENV",
        "ENV", "IFS",
    ];
    let is_begun = ["LD_", "LC_", "RINGFENCE"].iter().any(|begin| name.starts_with(begin));
    is_begun
        || EXACT.contains(&name)
        || CA_BUNDLE_VARIABLES.contains(&name)
        || name.to_ascii_lowercase().ends_with("_proxy")
}

/// Headers that must never carry a secret.
const FRAMING: &[&str] = &[
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "TE",
    "Trailer",
    "Expect",
];

fn bad_text(
    layer: &PolicyLayer,
    at: &str,
    key: &str,
    value: &str,
    expected: &'static str,
) -> PolicyError {
    PolicyError::BadValue {
        at: layer.position(at),
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

fn check_limits(layer: &PolicyLayer) -> Result<(), PolicyError> {
    let limits = &layer.policy.limits;
    let durations = [("wall", &limits.wall), ("cpu", &limits.cpu)];
    let sizes = [
        ("memory", &limits.memory),
        ("file-size", &limits.file_size),
        ("disk", &limits.disk),
        ("output", &limits.output),
    ];
    let bad = |name: &str, amount: &Amount, expected| {
        bad_amount(layer, &format!("limits.{name}"), amount, expected)
    };
    for (name, amount) in durations {
        if let Some(amount) = amount.as_ref().filter(|amount| amount.milliseconds().is_none()) {
            return Err(bad(
                name,
                amount,
                "a duration such as `\"500ms\"`, `\"300s\"`, `\"5m\"` or `\"2h\"`",
            ));
        }
    }
    let idle = layer.policy.sandbox.hook_session_idle.as_ref();
    if let Some(amount) = idle.filter(|amount| amount.milliseconds().is_none_or(|idle| idle == 0)) {
        return Err(bad_amount(
            layer,
            "sandbox.hook-session-idle",
            amount,
            "a duration such as `\"30m\"` or `\"2h\"`",
        ));
    }
    for (name, amount) in sizes {
        if let Some(amount) = amount.as_ref().filter(|amount| amount.bytes().is_none()) {
            return Err(bad(name, amount, "a size such as `\"512MiB\"` or `\"2GB\"`"));
        }
    }
    Ok(())
}

/// Smaller files would fill the directory with names.
const SMALLEST_FILE: u64 = 64 << 10;

fn check_audit(layer: &PolicyLayer) -> Result<(), PolicyError> {
    match &layer.policy.audit.rotate_size {
        Some(size) if size.bytes().is_none_or(|bytes| bytes < SMALLEST_FILE) => Err(bad_amount(
            layer,
            "audit.rotate-size",
            size,
            "a size of at least 64 KiB, such as `\"64MiB\"`",
        )),
        _ => Ok(()),
    }
}

fn bad_amount(
    layer: &PolicyLayer,
    key: &str,
    amount: &Amount,
    expected: &'static str,
) -> PolicyError {
    let value = match amount {
        Amount::Number(number) => number.to_string(),
        Amount::Text(text) => text.clone(),
    };
    PolicyError::BadValue { at: layer.position(key), key: key.to_owned(), value, expected }
}
