//! A decision in words.

use serde::Serialize;

use super::{Access, DecidingRule, Decision, Verdict};
use crate::builtin;
use crate::grants::{Effect, Source};

/// One line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainLine {
    /// `verdict`, `rule`, `from`, `why` or `change`.
    pub label: &'static str,
    /// The text.
    pub text: String,
}

impl Decision {
    /// What was decided, by which rule, from where, and how to change it.
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
        if let Some(text) = self.change() {
            lines.push(ExplainLine { label: "change", text });
        }
        lines
    }

    fn sentence(&self) -> String {
        let wish = match self.access {
            Access::Read => "reading",
            Access::Write => "writing",
            Access::Execute => "running",
        };
        let verdict = match self.verdict {
            Verdict::Allowed => "is allowed",
            Verdict::Absent => "finds nothing: no rule opens it",
            Verdict::Denied => "is denied",
            Verdict::ReadOnly => "is denied: it is read-only",
        };
        format!("{wish} {} {verdict}", self.path)
    }

    /// How a person could change the answer; `None` where it is yes.
    pub fn change(&self) -> Option<String> {
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
            return Some("nothing opens it: it is ringfence's own".into());
        }
        if because.is_locked() {
            return Some(format!("the rule is locked: ask whoever keeps {}", origin.place()));
        }
        if self.access == Access::Write
            && matches!(because, DecidingRule::Pattern(_))
            && builtin::git_protect(&self.path).is_some()
        {
            return Some("no rule opens what git obeys: change it outside the sandbox (harmless settings pass by themselves)".into());
        }
        Some(match (because, &origin.source) {
            (DecidingRule::Pattern(_), Source::BuiltIn) => {
                format!("{grant}, or for good: ringfence allow {flag} {path}")
            }
            (DecidingRule::Pattern(_), _) => {
                format!("{grant}, or add it to `except` in {}", origin.place())
            }
            (DecidingRule::Rule(_), Source::Tools) => format!(
                "give the agent the tools that write: `{}`, {}",
                origin.text,
                origin.place()
            ),
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

/// A path as one word for a shell: a command chose it, and the user may paste it.
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
    fn proposed_commands_hold_one_word_for_a_path() {
        assert_eq!(shell_word("/home/me/a-b_c.txt"), "/home/me/a-b_c.txt");
        assert_eq!(shell_word("/x;touch y;#"), "'/x;touch y;#'");
        assert_eq!(shell_word("/it's"), r"'/it'\''s'");
    }
}
