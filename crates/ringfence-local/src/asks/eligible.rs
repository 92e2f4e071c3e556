//! What a person is asked about.
//!
//! A rule that shuts something was written for a reason, and who runs into it is asked about,
//! unless no answer could lift it. What merely nothing opens is asked about only where a
//! command is likely to mean it: programs look for settings of their own and for those of the
//! machine whenever they start, and do without.

use std::ffi::OsStr;

use ringfence_policy::{AbsPath, DecidingRule, Decision, Effect, Grants, Rule, Source, Verdict};

/// Places of the machine that programs look into by themselves.
const OF_THE_MACHINE: &[&str] = &["/dev", "/etc", "/proc", "/run", "/sys"];

/// Whether somebody is asked about what this decision refuses.
pub(crate) fn is_worth_asking(decision: &Decision, grants: &Grants) -> bool {
    match decision.verdict {
        Verdict::Denied => decision.rule.as_ref().is_none_or(|rule| !rule.is_locked()),
        Verdict::Absent => !is_looked_for_by_programs(&decision.path, grants),
        Verdict::Allowed | Verdict::ReadOnly => false,
    }
}

/// Whether somebody is asked about writing or making what this decision refuses.
///
/// What ringfence itself obeys is nobody's to offer. In what tools and the system have opened
/// to be read, programs keep what they compiled and do without where they cannot.
pub(crate) fn is_worth_asking_to_write(decision: &Decision, grants: &Grants) -> bool {
    // Whoever was left no tool that writes is not helped to one by asking.
    if grants.tools.against_writing().is_some() {
        return false;
    }
    let is_ours = |name: &OsStr| name.eq_ignore_ascii_case(".ringfence");
    // A cache is the project's own inside, and another on the host.
    let is_private = |rule: &Rule| matches!(rule.effect, Effect::Private { .. });
    if decision.path.as_path().iter().any(is_ours)
        || grants.opener(&decision.path).is_some_and(is_private)
    {
        return false;
    }
    match (&decision.rule, decision.verdict) {
        (Some(rule), Verdict::ReadOnly) if rule.is_locked() => false,
        (Some(DecidingRule::Rule(rule)), Verdict::ReadOnly) => {
            !rule.opens() || rule.patterns_hold()
        }
        (_, Verdict::ReadOnly) => true,
        _ => is_worth_asking(decision, grants),
    }
}

/// Whether an answer of this session has opened it.
pub(crate) fn is_granted(decision: &Decision) -> bool {
    decision.verdict == Verdict::Allowed
        && decision.rule.as_ref().is_some_and(|rule| rule.origin().source == Source::Session)
}

fn is_looked_for_by_programs(path: &AbsPath, grants: &Grants) -> bool {
    let below_home = path.as_path().strip_prefix(grants.home.as_path()).ok();
    let first = below_home.and_then(|below| below.iter().next());
    let is_setting = first.is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_setting || OF_THE_MACHINE.iter().any(|place| path.as_path().starts_with(place))
}
