//! Copies of package managers' settings without their secrets.
//!
//! `~/.npmrc`, `pip.conf` and similar files hold registries and mirrors, but also tokens. The files
//! stay denied. The sandbox sees a copy with known keys only, whose values cannot hold a secret. A
//! file without such a key has no copy.

mod ini;
mod maven;
mod xml;
mod yarn;

use std::fs;
use std::io;

use ringfence_api::SettingsCopy;
use ringfence_policy::{
    AbsPath, Access, CargoConfigView, DecidingRule, Facts, Grants, Source, Verdict,
    are_public_urls, filter_cargo_config, holds_secret, is_cargo_config, is_host, is_public_url,
    redact_url, redact_urls,
};

use crate::ResolvedPolicy;
use crate::files::read_policy_file;

/// Makes the copy of a file's text; `None` if no setting can be shown, an error if the text is not
/// understood.
type Filter = fn(&str) -> Result<Option<String>, &'static str>;

/// The reason for no copy of a file in an unknown format.
const NOT_UNDERSTOOD: &str = "its format is not understood, so no copy without secrets is made";

/// The reason for no copy of a large file.
const TOO_LARGE: &str = "it is larger than 1 MiB, so no copy without secrets is made";

/// A settings file that commands cannot see, not even as a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldSettings {
    /// The file.
    pub path: AbsPath,
    /// Reason for no copy.
    pub why: &'static str,
}

/// The files below the home directory.
const IN_HOME: &[(&str, Filter)] = &[
    (".npmrc", |text| Ok(ini::npm(text))),
    (".yarnrc", |text| Ok(yarn::classic(text))),
    (".yarnrc.yml", |text| Ok(yarn::berry(text))),
    (".config/pip/pip.conf", |text| Ok(ini::pip(text))),
    (".pip/pip.conf", |text| Ok(ini::pip(text))),
    (".m2/settings.xml", maven::settings),
];
/// The system-wide files.
const IN_ETC: &[(&str, Filter)] =
    &[("/etc/pip.conf", |text| Ok(ini::pip(text))), ("/etc/npmrc", |text| Ok(ini::npm(text)))];

/// A denied file, and its copy.
struct FilteredFile {
    path: AbsPath,
    copy: Result<Option<String>, &'static str>,
}

/// The copies for a sandbox with these grants.
pub(crate) fn settings_copies(facts: &Facts, grants: &Grants) -> Vec<SettingsCopy> {
    let files = filtered_files(facts, grants);
    let copy =
        |file: FilteredFile| Some(SettingsCopy { path: file.path, content: file.copy.ok()?? });
    files.filter_map(copy).collect()
}

/// The settings files that have no copy because they are not understood.
pub fn withheld_settings(resolved: &ResolvedPolicy) -> Vec<WithheldSettings> {
    let files = filtered_files(&resolved.surroundings.facts, &resolved.grants);
    let withheld =
        |file: FilteredFile| Some(WithheldSettings { path: file.path, why: file.copy.err()? });
    files.filter_map(withheld).collect()
}

/// The denied settings files that exist and can be read.
fn filtered_files<'a>(
    facts: &'a Facts,
    grants: &'a Grants,
) -> impl Iterator<Item = FilteredFile> + 'a {
    // A sandbox with another home directory does not belong to the user.
    let is_own = facts.home == grants.home;
    let in_home = IN_HOME
        .iter()
        .filter(move |_| is_own)
        .map(|(name, filter)| (facts.home.join(name), *filter));
    let in_etc = IN_ETC.iter().filter_map(|(name, filter)| Some((AbsPath::new(name)?, *filter)));
    let denied = in_home.chain(in_etc).filter(|(path, _)| is_copied(path, grants));
    let of_cargo = masked_cargo_configs(grants).filter(move |_| is_own);
    let of_cargo = of_cargo.map(|path| (path, cargo_copy as Filter));
    denied.chain(of_cargo).filter_map(|(path, filter): (AbsPath, Filter)| {
        let copy = match read_policy_file(&path) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).map_err(|_| NOT_UNDERSTOOD);
                text.and_then(|text| filter(&text))
            }
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(TOO_LARGE),
            Err(_) => return None,
        };
        Some(FilteredFile { path, copy })
    })
}

/// The copy of Cargo's configuration.
fn cargo_copy(text: &str) -> Result<Option<String>, &'static str> {
    match filter_cargo_config(text) {
        CargoConfigView::Original => Ok(Some(text.to_owned())),
        CargoConfigView::Copy(copy) => Ok(Some(copy)),
        CargoConfigView::Nothing => Ok(None),
        CargoConfigView::NotUnderstood => Err(NOT_UNDERSTOOD),
    }
}

/// Cargo's configuration files that the survey masks because they hold a secret, at their real
/// paths.
fn masked_cargo_configs(grants: &Grants) -> impl Iterator<Item = AbsPath> + '_ {
    let is_config = |path: &&AbsPath| path.name().is_some_and(is_cargo_config);
    let is_masked = |path: &&AbsPath| {
        let opener = grants.opening_rule(path);
        let is_named =
            opener.is_some_and(|rule| rule.root == **path && rule.origin.source.is_user_choice());
        let is_open = grants.verdict(path, Access::Read) == Verdict::Allowed;
        is_open && !is_named && is_secret_file(path)
    };
    let masked = grants.suspects.iter().filter(is_config).filter(is_masked);
    masked.filter_map(|path| AbsPath::new(fs::canonicalize(path.as_path()).ok()?))
}

/// True if a regular file may have a secret, as the survey decides. A larger one always counts.
fn is_secret_file(path: &AbsPath) -> bool {
    const LARGE: u64 = 1 << 20;
    let Some(name) = path.name() else { return false };
    let Some(found) = fs::metadata(path.as_path()).ok().filter(fs::Metadata::is_file) else {
        return false;
    };
    let small = (found.len() < LARGE).then(|| fs::read(path.as_path()).ok()).flatten();
    holds_secret(name, small.as_deref())
}

/// True if no rule allows the file, and no rule of the user or the administrator denies it.
pub(crate) fn is_copied(path: &AbsPath, grants: &Grants) -> bool {
    let decision = grants.decide(path, Access::Read);
    match decision.verdict {
        Verdict::Absent => true,
        Verdict::Denied => match &decision.rule {
            Some(DecidingRule::Rule(rule)) => rule.origin.source == Source::BuiltIn && !rule.locked,
            _ => false,
        },
        Verdict::Allowed | Verdict::ReadOnly => false,
    }
}

/// The values that a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// A URL without user, password or token.
    Url,
    /// Such URLs, separated by white space.
    Urls,
    /// Host names, separated by white space or commas.
    Hosts,
    /// `true`, `false`, `1`, `0`.
    Switch,
    /// A short number.
    Number,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Value {
    fn accepts(self, text: &str) -> bool {
        match self {
            Value::Url => is_public_url(text),
            Value::Urls => are_public_urls(text, &[]),
            Value::Hosts => {
                let mut hosts = text
                    .split(|c: char| c.is_whitespace() || c == ',')
                    .filter(|host| !host.is_empty())
                    .peekable();
                hosts.peek().is_some() && hosts.all(is_host)
            }
            Value::Switch => ["true", "false", "1", "0", "yes", "no", "on", "off"].contains(&text),
            Value::Number => {
                !text.is_empty()
                    && text.len() <= 7
                    && text.bytes().all(|byte| byte.is_ascii_digit())
            }
            Value::OneOf(words) => words.contains(&text),
        }
    }
}

/// A known key and its values.
type KnownKey = (&'static str, Value);

/// The value of a known key that can be shown. A registry's URL loses its secret parts: without the
/// URL the tool would use the public registry. A proxy with a password is left out.
fn known(keys: &[KnownKey], name: &str, value: &str) -> Option<String> {
    let (_, values) = keys.iter().find(|(key, _)| *key == name)?;
    let is_proxy = name.to_ascii_lowercase().contains("proxy");
    match values {
        Value::Url if !is_proxy => redact_url(value),
        Value::Urls if !is_proxy => redact_urls(value, &[], |_| false),
        _ => values.accepts(value).then(|| value.to_owned()),
    }
}

/// The registry URL of a scope (`@team:registry`).
fn scoped(name: &str, value: &str) -> Option<String> {
    name.strip_suffix(":registry").filter(|scope| is_scope(scope)).and_then(|_| redact_url(value))
}

/// A value without quotation marks.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let within = |mark: char| text.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// True for `@scope` in npm's syntax.
fn is_scope(name: &str) -> bool {
    let letters = name.strip_prefix('@').unwrap_or_default();
    !letters.is_empty()
        && letters.len() <= 64
        && letters.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
