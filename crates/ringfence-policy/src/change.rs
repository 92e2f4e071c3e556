//! What a policy that was edited changes for commands that already run.
//!
//! Rules about files can come to hold, or cease to, in a sandbox that stands; whoever has one
//! finds out which of them. So can rules about hosts. Settings cannot: they are what the sandbox
//! was made of, and stay until another one is made.

mod commands;
mod network;

use std::fmt;

use serde::Serialize;

use crate::decide::{Access, DecidingRule, Verdict};
use crate::grants::{Asking, Effect, Grants, Mode, Source};
use crate::limit::Limit;

/// A rule that came or went, and whether that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChange {
    /// As it is or was written: `read ~/data`, `network.mode = full`.
    pub rule: String,
    /// Where, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether it came or went.
    pub turn: ChangeKind,
    /// Whether commands may do more by it, or less.
    pub direction: ChangeDirection,
    /// Why it takes effect with a new session only, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// Whether a rule came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is there now.
    Added,
    /// It is there no longer.
    Removed,
}

/// Whether commands may do more, or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeDirection {
    /// More.
    Wider,
    /// Less.
    Narrower,
    /// The same: something else is another.
    Neither,
}

impl PolicyChange {
    /// Of the rule that decides.
    pub fn of(because: &DecidingRule, turn: ChangeKind, direction: ChangeDirection) -> Self {
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

    /// The same, not in force yet.
    pub fn pending(self, why: impl Into<String>) -> Self {
        Self { pending: Some(why.into()), ..self }
    }

    /// Whether less is to be allowed and is not refused yet: nothing more may be begun then.
    pub fn is_owed(&self) -> bool {
        self.direction == ChangeDirection::Narrower && self.pending.is_some()
    }

    fn setting(rule: String, direction: ChangeDirection) -> Self {
        let why = "it is what the sandbox was made of";
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
            (ChangeKind::Added, None) => f.write_str(" holds from now on"),
            (ChangeKind::Removed, None) => f.write_str(" holds no longer"),
            (ChangeKind::Added, Some(why)) => write!(f, " takes effect with a new session: {why}"),
            (ChangeKind::Removed, Some(why)) => {
                write!(f, " is gone, which takes effect with a new session: {why}")
            }
        }
    }
}

/// What of `new` can hold in a sandbox that was made for `old`, as far as rules and settings
/// tell, and what cannot.
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
        holding.limits = holding.limits.with(*limit, old.limits.of(*limit));
    }
    changes.extend(readable_only(old, &mut holding));
    (holding, changes)
}

/// Limits that hold for a sandbox as a whole. The others are each command's.
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
        let (before, now) = (old.limits.of(*limit), new.limits.of(*limit));
        if before != now {
            let direction = if now.unwrap_or(u64::MAX) > before.unwrap_or(u64::MAX) {
                ChangeDirection::Wider
            } else {
                ChangeDirection::Narrower
            };
            changes.push(PolicyChange::setting(
                format!("limits.{limit} = {}", now.map_or("none".into(), |now| limit.show(now))),
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

/// What is to be writable and was not becomes readable at most: a mount that is locked to be
/// read-only stays so.
fn readable_only(old: &Grants, holding: &mut Grants) -> Vec<PolicyChange> {
    const WHY: &str = "until then it can be read at most";
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
                PolicyChange::of(
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

    /// What is said of a change from one policy to another: `+` for what comes.
    fn said(old: &str, new: &str, edit: impl FnOnce(&mut Grants)) -> (Grants, Vec<String>) {
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
        let (holding, said) = said("mode write /p", "mode write /p", edit);
        assert_eq!(said, expect);
        let kept = (holding.mode, holding.network.mode, holding.ask);
        assert_eq!(
            kept,
            (Mode::WorkspaceWrite, NetworkMode::None, Asking::Never),
            "a setting stays as it was"
        );
    }

    #[test]
    fn a_setting_stays_and_is_told() {
        check(|_| {}, &[]);
        check(|new| new.network.mode = NetworkMode::Full, &["Wider network.mode = full"]);
        check(|new| new.mode = Mode::ReadOnly, &["Narrower mode = read-only"]);
        check(|new| new.mode = Mode::FullAccess, &["Wider mode = full-access"]);
        check(|new| new.enabled = false, &["Wider sandbox.enabled = false"]);
        check(|new| new.ask = Asking::Terminal, &["Neither ask = terminal"]);
        check(|new| new.observe = crate::grants::Observe::All, &["Neither observe = all"]);
    }

    /// Promise: P64
    #[test]
    fn what_is_shut_later_is_owed_and_what_is_opened_later_is_not() {
        let mut open = grants("mode write /p");
        open.network.mode = NetworkMode::Full;
        let shut = grants("mode write /p");
        assert!(revise(&open, &shut).1.iter().all(PolicyChange::is_owed));
        assert!(!revise(&shut, &open).1.iter().any(PolicyChange::is_owed));
        open.enabled = false;
        assert!(revise(&open, &shut).1.iter().all(PolicyChange::is_owed));
    }

    #[test]
    fn what_is_to_be_written_is_read_until_then() {
        let (holding, said) = said(
            "mode write /p\nuser read /d",
            "mode write /p\nuser write /d\nuser write /p/sub\nuser write /e",
            |_| {},
        );
        assert_eq!(said, ["Wider write /d", "Wider write /e"]);
        let effects: Vec<_> = holding.rules.iter().map(|rule| rule.effect.word()).collect();
        assert_eq!(effects, ["write", "read", "write", "read"]);
    }

    #[test]
    fn a_change_says_what_becomes_of_it() {
        let rule = grants("user read /d").rules.remove(0);
        let change =
            PolicyChange::of(&DecidingRule::Rule(rule), ChangeKind::Added, ChangeDirection::Wider);
        assert_eq!(change.to_string(), "`read /d` (user policy) holds from now on");
        let gone = PolicyChange { turn: ChangeKind::Removed, ..change };
        assert_eq!(gone.to_string(), "`read /d` (user policy) holds no longer");
        assert_eq!(
            gone.pending("why").to_string(),
            "`read /d` (user policy) is gone, which takes effect with a new session: why"
        );
    }
}
