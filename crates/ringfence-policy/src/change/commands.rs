//! Rules on the text of commands. They are checked before each command and do not depend on the
//! sandbox, so a change applies at once.

use super::{ChangeDirection, ChangeKind, PolicyChange};
use crate::grants::{CommandRules, Doubt, Origin};

/// Selects one list of rules.
type CommandRuleList = fn(&CommandRules) -> &Vec<Origin>;

pub(super) fn changed(old: &CommandRules, new: &CommandRules) -> Vec<PolicyChange> {
    let mut changes = Vec::new();
    let lists: [(&str, CommandRuleList); 3] = [
        ("deny", |rules| &rules.deny),
        ("allow-binaries", |rules| &rules.allow_binaries),
        ("deny-arguments", |rules| &rules.deny_arguments),
    ];
    for (word, list) in lists {
        let is_strict = word == "allow-binaries";
        // The first entry of an allow list denies all other programs.
        let was_open = is_strict && (list(old).is_empty() || list(new).is_empty());
        let narrows = |turn: ChangeKind| (turn == ChangeKind::Added) == (!is_strict || was_open);
        for (from, to, turn) in
            [(list(old), list(new), ChangeKind::Added), (list(new), list(old), ChangeKind::Removed)]
        {
            let is_known = |origin: &&Origin| from.iter().any(|known| known.text == origin.text);
            let direction =
                if narrows(turn) { ChangeDirection::Narrower } else { ChangeDirection::Wider };
            changes.extend(
                to.iter()
                    .filter(|origin| !is_known(origin))
                    .map(|origin| change(word, origin, turn, direction)),
            );
        }
    }
    let roots =
        |rules: &CommandRules| rules.anchor_arguments.as_ref().map(|anchor| anchor.root.clone());
    if roots(old) != roots(new) {
        let changes_in = |rules: &CommandRules, turn, direction| {
            rules
                .anchor_arguments
                .as_ref()
                .map(|anchor| change("anchor-arguments", &anchor.origin, turn, direction))
        };
        changes.extend(changes_in(old, ChangeKind::Removed, ChangeDirection::Wider));
        changes.extend(changes_in(new, ChangeKind::Added, ChangeDirection::Narrower));
    }
    if old.doubt != new.doubt {
        let direction = if new.doubt == Doubt::Refuse {
            ChangeDirection::Narrower
        } else {
            ChangeDirection::Wider
        };
        let rule = if new.doubt == Doubt::Refuse {
            "commands.doubt refuse"
        } else {
            "commands.doubt warn"
        };
        changes.push(PolicyChange {
            rule: rule.to_owned(),
            origin: None,
            turn: ChangeKind::Added,
            direction,
            pending: None,
        });
    }
    changes
}

fn change(
    word: &str,
    origin: &Origin,
    turn: ChangeKind,
    direction: ChangeDirection,
) -> PolicyChange {
    PolicyChange {
        rule: format!("commands.{word} {}", origin.text),
        origin: Some(origin.to_string()),
        turn,
        direction,
        pending: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::Source;

    fn rules(deny: &[&str], binaries: &[&str]) -> CommandRules {
        let origins =
            |texts: &[&str]| texts.iter().map(|text| Origin::new(Source::User, *text)).collect();
        CommandRules {
            deny: origins(deny),
            allow_binaries: origins(binaries),
            ..CommandRules::default()
        }
    }

    #[track_caller]
    fn check(old: &CommandRules, new: &CommandRules, expect: &[&str]) {
        let messages: Vec<String> = changed(old, new)
            .iter()
            .map(|change| format!("{:?} {:?} {}", change.direction, change.turn, change.rule))
            .collect();
        assert_eq!(messages, expect);
        assert!(!changed(old, new).iter().any(PolicyChange::is_pending_narrowing));
    }

    #[test]
    fn command_rule_changes_apply_at_once() {
        check(&rules(&["a"], &[]), &rules(&["a"], &[]), &[]);
        check(
            &rules(&["a"], &[]),
            &rules(&["b"], &[]),
            &["Narrower Added commands.deny b", "Wider Removed commands.deny a"],
        );
        check(
            &rules(&[], &[]),
            &rules(&[], &["ls"]),
            &["Narrower Added commands.allow-binaries ls"],
        );
        check(
            &rules(&[], &["ls"]),
            &rules(&[], &["ls", "rm"]),
            &["Wider Added commands.allow-binaries rm"],
        );
        check(
            &rules(&[], &["ls", "rm"]),
            &rules(&[], &["ls"]),
            &["Narrower Removed commands.allow-binaries rm"],
        );
        check(
            &rules(&[], &["ls"]),
            &rules(&[], &[]),
            &["Wider Removed commands.allow-binaries ls"],
        );
    }
}
