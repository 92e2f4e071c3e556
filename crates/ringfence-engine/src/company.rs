//! Environment variables of company networks: CA certificates, registries and mirrors are passed if
//! they hold no secret.

use std::ffi::OsString;

use ringfence_api::SettingsCopy;
use ringfence_policy::{AbsPath, Access, Grants, ValueCheck, Verdict};

use crate::ResolvedPolicy;
use crate::files::read_policy_file;
use crate::package_settings::is_copied;

/// An environment variable that is not passed to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredVariable {
    /// The name.
    pub name: String,
    /// The reason, if the value is the reason.
    pub why: Option<&'static str>,
}

/// Adds the environment variables whose values hold no secret.
pub(crate) fn add_public_variables(
    variables: &mut Vec<(OsString, OsString)>,
    resolved: &ResolvedPolicy,
) {
    let passing = resolved.surroundings.variables.iter().filter_map(|(name, value)| {
        let text = name.to_str().filter(|name| variables.iter().all(|(known, _)| known != name))?;
        let shown = judge(text, value.to_str()?, &resolved.grants)?.ok()?;
        Some((name.clone(), OsString::from(shown)))
    });
    let passing: Vec<_> = passing.collect();
    variables.extend(passing);
}

/// The value to pass, or the reason to filter it; `None` if no value check applies.
fn judge(name: &str, value: &str, grants: &Grants) -> Option<Result<String, &'static str>> {
    let check = grants.environment.value_check(name)?;
    let is_shown = || AbsPath::new(value).is_some_and(|path| is_usable_bundle(&path, grants));
    Some(match check {
        _ if value.is_empty() => Ok(String::new()),
        ValueCheck::Certificates if !check.accepts(value) || !is_shown() => {
            Err("it does not name a readable file that holds only certificates")
        }
        _ => check.redact(value).ok_or("its value may hold a user name, a password or a token"),
    })
}

/// True if the file holds only certificates, and is readable or can be copied.
fn is_usable_bundle(path: &AbsPath, grants: &Grants) -> bool {
    let is_open = grants.verdict(path, Access::Read) == Verdict::Allowed;
    // The path may be passed: the sandbox can read the file.
    is_open || (is_copied(path, grants) && certificates(path).is_some())
}

/// The text of a file that holds only PEM certificate blocks, with comments between them.
fn certificates(path: &AbsPath) -> Option<String> {
    let text = String::from_utf8(read_policy_file(path).ok()?).ok()?;
    is_certificates_only(&text).then(|| without_comments(&text))
}

/// Removes the comments of a bundle: they may hold anything, such as a commented key.
fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect()
}

fn is_certificates_only(text: &str) -> bool {
    let (mut count, mut is_inside) = (0, false);
    for line in text.lines().map(str::trim_end) {
        match line {
            "-----BEGIN CERTIFICATE-----" | "-----BEGIN TRUSTED CERTIFICATE-----" if !is_inside => {
                is_inside = true
            }
            "-----END CERTIFICATE-----" | "-----END TRUSTED CERTIFICATE-----" if is_inside => {
                (is_inside, count) = (false, count + 1)
            }
            _ if is_inside
                && line
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)) => {}
            _ if !is_inside && (line.is_empty() || line.starts_with('#')) => {}
            _ => return false,
        }
    }
    count > 0 && !is_inside
}

/// Copies of the files named by the variables that no rule allows.
pub(crate) fn certificate_copies(
    variables: &[(OsString, OsString)],
    grants: &Grants,
) -> Vec<SettingsCopy> {
    let mut copies: Vec<SettingsCopy> = Vec::new();
    for (name, value) in variables {
        let check = name.to_str().and_then(|name| grants.environment.value_check(name));
        let Some(path) = AbsPath::new(value).filter(|_| check == Some(ValueCheck::Certificates))
        else {
            continue;
        };
        if is_copied(&path, grants) && copies.iter().all(|copy| copy.path != path) {
            copies.extend(certificates(&path).map(|content| SettingsCopy { path, content }));
        }
    }
    copies
}

/// The decision about a variable by its value; `None` if it is unset or other rules decide.
pub fn value_decision(
    resolved: &ResolvedPolicy,
    name: &str,
) -> Option<Result<String, &'static str>> {
    let (_, value) = resolved.surroundings.variables.iter().find(|(known, _)| known == name)?;
    judge(name, value.to_str()?, &resolved.grants)
}

/// The caller's environment variables that are not passed to the sandbox, by name.
pub fn filtered_variables(resolved: &ResolvedPolicy) -> Vec<FilteredVariable> {
    let grants = &resolved.grants;
    let filtered = resolved.surroundings.variables.iter().filter_map(|(name, value)| {
        let name = name.to_str()?;
        let why = match value.to_str().and_then(|value| judge(name, value, grants)) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => Some(why),
            None => None,
        };
        (!grants.environment.decide(name).passes())
            .then(|| FilteredVariable { name: name.to_owned(), why })
    });
    let mut filtered: Vec<FilteredVariable> = filtered.collect();
    filtered.sort_by(|a, b| a.name.cmp(&b.name));
    filtered
}

#[cfg(test)]
mod tests {
    use super::is_certificates_only;

    #[test]
    fn only_certificates_and_comments_make_a_bundle() {
        let one = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n";
        assert!(is_certificates_only(one));
        assert!(is_certificates_only(&format!("# Company\n{one}\n{one}")));
        let key = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n";
        for text in [
            String::new(),
            format!("{one}{key}"),
            format!("{key}{one}"),
            format!("{one}password\n"),
            one.replace("END", "BEGIN"),
        ] {
            assert!(!is_certificates_only(&text), "{text}");
        }
        assert!(!is_certificates_only("-----BEGIN CERTIFICATE-----\nMIIB\n"));
        assert!(!is_certificates_only(
            "-----BEGIN CERTIFICATE-----\nnot base 64\n-----END CERTIFICATE-----\n"
        ));
    }
}
