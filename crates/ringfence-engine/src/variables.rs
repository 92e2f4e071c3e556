//! The environment variables of a command.

use std::ffi::OsString;

use ringfence_policy::{AbsPath, Access, Grants, Verdict};

use crate::{ResolvedPolicy, company, fail_fast, git_environment, tool_directories};

/// The environment variables that pass the filter, and those set by ringfence.
pub(crate) fn variables(
    grants: &Grants,
    cwd: &AbsPath,
    resolved: &ResolvedPolicy,
) -> Vec<(OsString, OsString)> {
    if !grants.is_confined() {
        return resolved.surroundings.variables.clone();
    }
    let mut variables = grants.environment.filter(resolved.surroundings.variables.iter().cloned());
    // A shell accesses `OLDPWD` when it starts. The command did not ask for that access.
    let is_open = |path: &OsString| {
        AbsPath::new(path)
            .is_some_and(|path| grants.verdict(&path, Access::Read) == Verdict::Allowed)
    };
    variables.retain(|(name, value)| {
        name != "OLDPWD" || grants.environment.set.contains_key("OLDPWD") || is_open(value)
    });
    let mut set = |name: &str, value: OsString| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value));
    };
    set("PWD", cwd.as_path().into());
    // In a service the policy sets `HOME`, because tenants have no home directory.
    if !grants.environment.set.contains_key("HOME") {
        set("HOME", grants.home.as_path().into());
    }
    if !grants.environment.clean {
        set("TMPDIR", "/tmp".into());
        set("RINGFENCE", "1".into());
        company::add_public_variables(&mut variables, resolved);
        git_environment::add_settings(&mut variables);
        stop_update_checks(&mut variables);
        tool_directories::add_settings(&mut variables, grants);
        fail_fast::add_settings(&mut variables, &grants.network);
    }
    variables
}

/// Keeps npm from querying the registry for a newer npm: without network the denial would look like
/// the reason of a failure. Independent of the network rules, because these may change during a
/// session and the environment of its shell does not.
fn stop_update_checks(variables: &mut Vec<(OsString, OsString)>) {
    const NAME: &str = "npm_config_update_notifier";
    if !variables.iter().any(|(name, _)| name.eq_ignore_ascii_case(NAME)) {
        variables.push((NAME.into(), "false".into()));
    }
}
