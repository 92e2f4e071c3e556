//! Decisions about paths as text.

use serde::Serialize;

use super::{Access, DecidingRule, Decision, Verdict};
use crate::builtin;
use crate::grants::{Effect, Source};

/// One line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainLine {
    /// `verdict`, `rule`, `from`, `why` or `change`.
    pub label: &'static str,
    /// The text of the line.
    pub text: String,
}

impl Decision {
    /// The decision, the rule, its origin, and a way to change it.
    pub fn explain(&self) -> Vec<ExplainLine> {
        let mut lines = vec![ExplainLine { label: "verdict", text: self.sentence() }];
        if let Some(because) = &self.rule {
            lines.push(ExplainLine { label: "rule", text: rule_text(because) });
            let origin = because.origin();
            lines.push(ExplainLine { label: "from", text: origin.to_string() });
            if let Some(reason) = origin.why() {
                lines.push(ExplainLine { label: "why", text: reason.to_owned() });
            }
        }
        if let Some(text) = self.change_hint() {
            lines.push(ExplainLine { label: "change", text });
        }
        lines
    }

    fn sentence(&self) -> String {
        let verb = match self.access {
            Access::Read => "reading",
            Access::Write => "writing",
            Access::Execute => "running",
        };
        let verdict = match self.verdict {
            Verdict::Allowed => "is allowed",
            Verdict::Absent => "fails: no rule opens the path, so it looks absent",
            Verdict::Denied => "is denied",
            Verdict::ReadOnly => "is denied: it is read-only",
        };
        format!("{verb} {} {verdict}", self.path)
    }

    /// A way for the user to change the decision; `None` if the access is allowed.
    pub fn change_hint(&self) -> Option<String> {
        if self.verdict == Verdict::Allowed {
            return None;
        }
        let flag = if self.access == Access::Write { "write" } else { "read" };
        let path = shell_word(&self.path.to_string());
        let grant = format!("ringfence run --{flag} {path}");
        let Some(because) = &self.rule else {
            return Some(format!("{grant}, or for good: ringfence allow {flag} {path}"));
        };
        let origin = because.origin();
        if because.is_locked() && origin.source == Source::BuiltIn {
            return Some("no rule can open it: it belongs to ringfence".into());
        }
        if because.is_locked() {
            return Some(format!(
                "the rule is locked: ask the administrator to change {}",
                origin.place()
            ));
        }
        if self.access == Access::Write
            && matches!(because, DecidingRule::Pattern(_))
            && builtin::git_protect_entry(&self.path).is_some()
        {
            return Some("no rule opens git settings that run programs: change them outside the sandbox (harmless settings are writable)".into());
        }
        Some(match (because, &origin.source) {
            (DecidingRule::Pattern(_), Source::BuiltIn) => {
                format!("{grant}, or for good: ringfence allow {flag} {path}")
            }
            (DecidingRule::Pattern(_), _) => {
                format!("{grant}, or add it to `except` in {}", origin.place())
            }
            (DecidingRule::Rule(_), Source::Tools) => {
                format!("give the agent the writing tools: `{}`, {}", origin.text, origin.place())
            }
            (DecidingRule::Rule(_), Source::Mode) => format!("{grant}, or --mode workspace-write"),
            (DecidingRule::Rule(rule), Source::Managed | Source::User | Source::Project)
                if !rule.opens() =>
            {
                format!("change `{}` in {}", origin.text, origin.place())
            }
            (DecidingRule::Rule(rule), Source::BuiltIn) if rule.effect == Effect::Deny => {
                format!("{grant}, or for good: ringfence allow {flag} {path}")
            }
            (DecidingRule::Rule(_), _) => grant,
        })
    }
}

/// A path, quoted for a shell: a command chose it, and the user may paste it.
fn shell_word(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+,~".contains(c);
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

fn rule_text(because: &DecidingRule) -> String {
    let origin = because.origin();
    match because {
        DecidingRule::Rule(rule) => format!("{} {}", rule.effect.word(), origin.text),
        DecidingRule::Pattern(pattern) => format!("{} {}", pattern.effect.word(), origin.text),
    }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn path_in_proposed_command_is_one_shell_word() {
        assert_eq!(shell_word("/home/me/a-b_c.txt"), "/home/me/a-b_c.txt");
        assert_eq!(shell_word("/x;touch y;#"), "'/x;touch y;#'");
        assert_eq!(shell_word("/it's"), r"'/it'\''s'");
    }
}
