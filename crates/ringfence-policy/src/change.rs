//! Effect of an edited policy on running commands.
//!
//! File rules can start or stop to apply in a running sandbox, and the owner of the sandbox
//! determines which. Host rules can, too. Settings cannot: they were fixed when the sandbox was
//! created and stay until a new one is created.

mod commands;
mod network;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decide::{Access, DecidingRule, Verdict};
use crate::grants::{Asking, Effect, Grants, Mode, Source};
use crate::limit::Limit;
use crate::provider_spec::ProviderSpec;

/// A rule that was added or removed, and its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChange {
    /// The rule as written: `read ~/data`, `network.mode = full`.
    pub rule: String,
    /// Position of the rule, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Added or removed.
    pub turn: ChangeKind,
    /// Effect on the access of commands.
    pub direction: ChangeDirection,
    /// The reason for which the change needs a new session, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// The rule was added.
    Added,
    /// The rule was removed.
    Removed,
}

/// Effect of a change on the access of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeDirection {
    /// More access.
    Wider,
    /// Less access.
    Narrower,
    /// The same access, with another difference.
    Neither,
}

impl PolicyChange {
    /// A change of a deciding rule.
    pub fn from_rule(because: &DecidingRule, turn: ChangeKind, direction: ChangeDirection) -> Self {
        let word = match because {
            DecidingRule::Rule(rule) => rule.effect.word(),
            DecidingRule::Pattern(pattern) => pattern.effect.word(),
        };
        let origin = because.origin();
        Self {
            rule: format!("{word} {}", origin.text),
            origin: Some(origin.to_string()),
            turn,
            direction,
            pending: None,
        }
    }

    /// Marks the change as pending.
    pub fn pending(self, why: impl Into<String>) -> Self {
        Self { pending: Some(why.into()), ..self }
    }

    /// True if the change narrows access and is not enforced yet: no new command may start.
    pub fn is_pending_narrowing(&self) -> bool {
        self.direction == ChangeDirection::Narrower && self.pending.is_some()
    }

    fn setting(rule: String, direction: ChangeDirection) -> Self {
        let why = "it was fixed when the sandbox was created";
        Self { rule, origin: None, turn: ChangeKind::Added, direction, pending: None }.pending(why)
    }
}

impl fmt::Display for PolicyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.rule)?;
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        match (self.turn, &self.pending) {
            (ChangeKind::Added, None) => f.write_str(" applies from now on"),
            (ChangeKind::Removed, None) => f.write_str(" no longer applies"),
            (ChangeKind::Added, Some(why)) => write!(f, " takes effect with a new session: {why}"),
            (ChangeKind::Removed, Some(why)) => {
                write!(f, " was removed, which takes effect with a new session: {why}")
            }
        }
    }
}

/// The part of `new` that can apply in a sandbox created for `old`, as far as rules and settings
/// show, and the changes with their status.
pub fn revise(old: &Grants, new: &Grants) -> (Grants, Vec<PolicyChange>) {
    if old.is_confined() != new.is_confined() {
        let direction =
            if new.is_confined() { ChangeDirection::Narrower } else { ChangeDirection::Wider };
        let rule = if new.enabled {
            format!("mode = {}", new.mode.word())
        } else {
            "sandbox.enabled = false".to_owned()
        };
        return (old.clone(), vec![PolicyChange::setting(rule, direction)]);
    }
    if old.sandbox.provider != new.sandbox.provider {
        // Another provider may enforce less until the session is restarted.
        let direction = if new.sandbox.provider.name == ProviderSpec::PROCESS {
            ChangeDirection::Wider
        } else {
            ChangeDirection::Narrower
        };
        let rule = format!("sandbox.provider = {}", new.sandbox.provider);
        return (old.clone(), vec![PolicyChange::setting(rule, direction)]);
    }
    let mut changes = settings(old, new);
    let mut holding = new.clone();
    let (network, of_network) = network::revise(&old.network, &new.network);
    changes.extend(of_network);
    changes.extend(commands::changed(&old.commands, &new.commands));
    holding.network = network;
    holding.mode = old.mode;
    holding.environment = old.environment.clone();
    holding.observe = old.observe;
    holding.ask = old.ask;
    holding.audit.directory = old.audit.directory.clone();
    for limit in OF_THE_SANDBOX {
        holding.limits = holding.limits.with(*limit, old.limits.get(*limit));
    }
    changes.extend(readable_only(old, &mut holding));
    (holding, changes)
}

/// Limits of the sandbox as a whole. The others apply per command.
const OF_THE_SANDBOX: &[Limit] =
    &[Limit::Cpu, Limit::Memory, Limit::Processes, Limit::OpenFiles, Limit::FileSize, Limit::Disk];

fn settings(old: &Grants, new: &Grants) -> Vec<PolicyChange> {
    let mut changes = Vec::new();
    if old.mode != new.mode {
        let direction = if width(new.mode) > width(old.mode) {
            ChangeDirection::Wider
        } else {
            ChangeDirection::Narrower
        };
        changes.push(PolicyChange::setting(format!("mode = {}", new.mode.word()), direction));
    }
    if old.observe != new.observe {
        changes.push(PolicyChange::setting(
            format!("observe = {}", new.observe.word()),
            ChangeDirection::Neither,
        ));
    }
    if old.ask != new.ask {
        let direction = if new.ask == Asking::Never {
            ChangeDirection::Narrower
        } else {
            ChangeDirection::Neither
        };
        changes.push(PolicyChange::setting(format!("ask = {}", new.ask.word()), direction));
    }
    for limit in OF_THE_SANDBOX {
        let (before, now) = (old.limits.get(*limit), new.limits.get(*limit));
        if before != now {
            let direction = if now.unwrap_or(u64::MAX) > before.unwrap_or(u64::MAX) {
                ChangeDirection::Wider
            } else {
                ChangeDirection::Narrower
            };
            changes.push(PolicyChange::setting(
                format!(
                    "limits.{limit} = {}",
                    now.map_or("none".into(), |now| limit.format_amount(now))
                ),
                direction,
            ));
        }
    }
    if old.audit.directory != new.audit.directory {
        changes.push(PolicyChange::setting(
            format!("audit.directory = {}", new.audit.directory),
            ChangeDirection::Neither,
        ));
    }
    changes
}

/// Turns newly writable paths into readable ones: a mount that is locked read-only stays so.
fn readable_only(old: &Grants, holding: &mut Grants) -> Vec<PolicyChange> {
    const WHY: &str = "until then it is read-only";
    let mut changes = Vec::new();
    holding.rules.retain_mut(|rule| {
        let writes = matches!(rule.effect, Effect::Write | Effect::Private { .. });
        if !writes || old.verdict(&rule.root, Access::Write) == Verdict::Allowed {
            return true;
        }
        if matches!(
            rule.origin.source,
            Source::Managed | Source::User | Source::Project | Source::Flag | Source::Session
        ) {
            changes.push(
                PolicyChange::from_rule(
                    &DecidingRule::Rule(rule.clone()),
                    ChangeKind::Added,
                    ChangeDirection::Wider,
                )
                .pending(WHY),
            );
        }
        let is_shared = !matches!(rule.effect, Effect::Private { host_beneath: false, .. });
        rule.effect = Effect::Read;
        is_shared
    });
    changes
}

fn width(mode: Mode) -> u8 {
    match mode {
        Mode::ReadOnly => 0,
        Mode::WorkspaceWrite => 1,
        Mode::FullAccess => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::NetworkMode;
    use crate::testing::grants;

    /// The changes from one policy to another: `+` for an added rule.
    fn revised(old: &str, new: &str, edit: impl FnOnce(&mut Grants)) -> (Grants, Vec<String>) {
        let mut new = grants(new);
        edit(&mut new);
        let (holding, changes) = revise(&grants(old), &new);
        (
            holding,
            changes
                .iter()
                .map(|change| format!("{:?} {}", change.direction, change.rule))
                .collect(),
        )
    }

    #[track_caller]
    fn check(edit: impl FnOnce(&mut Grants), expect: &[&str]) {
        let (holding, messages) = revised("mode write /p", "mode write /p", edit);
        assert_eq!(messages, expect);
        let kept = (holding.mode, holding.network.mode, holding.ask);
        assert_eq!(
            kept,
            (Mode::WorkspaceWrite, NetworkMode::None, Asking::Never),
            "a setting stays as it was"
        );
    }

    #[test]
    fn changed_setting_stays_and_is_reported_as_pending() {
        check(|_| {}, &[]);
        check(|new| new.network.mode = NetworkMode::Full, &["Wider network.mode = full"]);
        check(|new| new.mode = Mode::ReadOnly, &["Narrower mode = read-only"]);
        check(|new| new.mode = Mode::FullAccess, &["Wider mode = full-access"]);
        check(|new| new.enabled = false, &["Wider sandbox.enabled = false"]);
        check(
            |new| new.sandbox.provider = ProviderSpec::named("process"),
            &["Wider sandbox.provider = process"],
        );
        check(
            |new| new.sandbox.provider = ProviderSpec::named("docker"),
            &["Narrower sandbox.provider = docker"],
        );
        check(|new| new.ask = Asking::Terminal, &["Neither ask = terminal"]);
        check(|new| new.observe = crate::grants::Observe::All, &["Neither observe = all"]);
    }

    /// Promise: pending-narrowing
    #[test]
    fn pending_narrowing_is_owed_and_pending_widening_is_not() {
        let mut open = grants("mode write /p");
        open.network.mode = NetworkMode::Full;
        let shut = grants("mode write /p");
        assert!(revise(&open, &shut).1.iter().all(PolicyChange::is_pending_narrowing));
        assert!(!revise(&shut, &open).1.iter().any(PolicyChange::is_pending_narrowing));
        open.enabled = false;
        assert!(revise(&open, &shut).1.iter().all(PolicyChange::is_pending_narrowing));
    }

    #[test]
    fn newly_writable_path_is_readable_until_restart() {
        let (holding, messages) = revised(
            "mode write /p\nuser read /d",
            "mode write /p\nuser write /d\nuser write /p/sub\nuser write /e",
            |_| {},
        );
        assert_eq!(messages, ["Wider write /d", "Wider write /e"]);
        let effects: Vec<_> = holding.rules.iter().map(|rule| rule.effect.word()).collect();
        assert_eq!(effects, ["write", "read", "write", "read"]);
    }

    #[test]
    fn change_message_states_its_status() {
        let rule = grants("user read /d").rules.remove(0);
        let change = PolicyChange::from_rule(
            &DecidingRule::Rule(rule),
            ChangeKind::Added,
            ChangeDirection::Wider,
        );
        assert_eq!(change.to_string(), "`read /d` (user policy) applies from now on");
        let gone = PolicyChange { turn: ChangeKind::Removed, ..change };
        assert_eq!(gone.to_string(), "`read /d` (user policy) no longer applies");
        assert_eq!(
            gone.pending("why").to_string(),
            "`read /d` (user policy) was removed, which takes effect with a new session: why"
        );
    }
}
