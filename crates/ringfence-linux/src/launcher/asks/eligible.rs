//! Decides which denials the user is asked about.
//!
//! A denial by an explicit rule is asked about, unless no answer could lift it. A path that no rule
//! opens is asked about only where a command is likely to need it: programs look for their own
//! settings and the system's at every start, and run without them.

use std::ffi::OsStr;

use ringfence_policy::{AbsPath, DecidingRule, Decision, Effect, Grants, Rule, Source, Verdict};

/// System directories that programs read by themselves.
const SYSTEM_DIRS: &[&str] = &["/dev", "/etc", "/proc", "/run", "/sys"];

/// True if the user is asked about this denied read.
pub(crate) fn is_worth_asking(decision: &Decision, grants: &Grants) -> bool {
    match decision.verdict {
        Verdict::Denied => decision.rule.as_ref().is_none_or(|rule| !rule.is_locked()),
        Verdict::Absent => !is_looked_for_by_programs(&decision.path, grants),
        Verdict::Allowed | Verdict::ReadOnly => false,
    }
}

/// True if the user is asked about this denied write or create.
///
/// Writes to ringfence's own files are never offered. In trees that tools and the system opened for
/// reading, programs try to write compiled files and run without them.
pub(crate) fn is_worth_asking_to_write(decision: &Decision, grants: &Grants) -> bool {
    // Without a tool that writes, an answer would not help.
    if grants.tools.rule_against_writing().is_some() {
        return false;
    }
    let is_ringfence_dir = |name: &OsStr| name.eq_ignore_ascii_case(".ringfence");
    // A private cache has other contents inside than on the host.
    let is_private = |rule: &Rule| matches!(rule.effect, Effect::Private { .. });
    if decision.path.as_path().iter().any(is_ringfence_dir)
        || grants.opening_rule(&decision.path).is_some_and(is_private)
    {
        return false;
    }
    match (&decision.rule, decision.verdict) {
        (Some(rule), Verdict::ReadOnly) if rule.is_locked() => false,
        (Some(DecidingRule::Rule(rule)), Verdict::ReadOnly) => {
            !rule.opens() || rule.patterns_apply()
        }
        (_, Verdict::ReadOnly) => true,
        _ => is_worth_asking(decision, grants),
    }
}

/// True if an answer of this session granted it.
pub(crate) fn is_session_grant(decision: &Decision) -> bool {
    decision.verdict == Verdict::Allowed
        && decision.rule.as_ref().is_some_and(|rule| rule.origin().source == Source::Session)
}

fn is_looked_for_by_programs(path: &AbsPath, grants: &Grants) -> bool {
    let below_home = path.as_path().strip_prefix(grants.home.as_path()).ok();
    let first = below_home.and_then(|below| below.iter().next());
    let is_setting = first.is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_setting || SYSTEM_DIRS.iter().any(|place| path.as_path().starts_with(place))
}
