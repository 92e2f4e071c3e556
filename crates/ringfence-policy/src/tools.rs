//! Tools that an agent may not use, and which rights of the system go with them.
//!
//! A tool that is taken away is refused by whoever routes calls. That alone would hold nobody
//! who has a shell: so what a tool maps to is taken away as well, in the same value that the
//! sandbox is made of.

use serde::{Deserialize, Serialize};

use crate::environment::name_matches;
use crate::grants::{Effect, Grants, Origin, Rule, Source};
use crate::path::AbsPath;

/// Tools that may not be used, resolved over all layers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRules {
    /// Each once, in the order in which they were written.
    pub disallowed: Vec<ToolRule>,
}

/// A rule that takes tools away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRule {
    /// The tool's name as it was written; `*` and `?` allowed, in any case.
    pub name: String,
    /// Where it was written.
    pub origin: Origin,
}

/// What a tool does, whatever an agent calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// Shows a file.
    Read,
    /// Makes or replaces a file.
    Write,
    /// Changes a part of a file.
    Edit,
    /// Shows what is in a directory.
    List,
    /// Looks for text in files.
    Search,
    /// Runs a command.
    Shell,
}

/// Agents have names of their own for the same deed; the first is ours.
const NAMES: &[(Tool, &[&str])] = &[
    (Tool::Read, &["read", "read_file"]),
    (Tool::Write, &["write", "write_file"]),
    (Tool::Edit, &["edit", "edit_file", "MultiEdit", "NotebookEdit"]),
    (Tool::List, &["list", "list_files", "LS", "Glob"]),
    (Tool::Search, &["search", "search_files", "Grep"]),
    (Tool::Shell, &["shell", "exec", "Bash"]),
];

impl Tool {
    /// The tool of this name, in any case.
    pub fn of(name: &str) -> Option<Tool> {
        NAMES.iter().find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name))).map(|(tool, _)| *tool)
    }

    /// Its names.
    pub fn names(self) -> &'static [&'static str] {
        NAMES.iter().find(|(tool, _)| *tool == self).map_or(&[], |(_, names)| names)
    }

    /// Our own name for it.
    pub fn word(self) -> &'static str {
        self.names().first().copied().unwrap_or_default()
    }
}

impl ToolRule {
    /// Whether this takes the tool of that name away, be it under another name for the same.
    pub fn takes(&self, name: &str) -> bool {
        name_matches(&self.name, name) || Tool::of(name).is_some_and(|tool| self.takes_all(tool))
    }

    fn takes_all(&self, tool: Tool) -> bool {
        tool.names().iter().any(|known| name_matches(&self.name, known))
    }
}

impl ToolRules {
    /// The rule that takes the tool of this name away.
    pub fn against(&self, name: &str) -> Option<&ToolRule> {
        self.disallowed.iter().find(|rule| rule.takes(name))
    }

    /// Whether a tool that writes is taken away. One is enough: what is left of the others would
    /// do the same.
    pub(crate) fn against_writing(&self) -> bool {
        self.disallowed.iter().any(|rule| [Tool::Write, Tool::Edit].into_iter().any(|tool| rule.takes_all(tool)))
    }

    /// Adds a rule, unless there is one of that name.
    pub(crate) fn add(&mut self, rule: ToolRule) {
        if self.disallowed.iter().all(|known| known.name != rule.name) {
            self.disallowed.push(rule);
        }
    }
}

impl Grants {
    /// The same for an agent that has fewer tools: without those that write, nothing of the
    /// project can be written by anything, a shell or a language runtime neither.
    ///
    /// Resolving a policy with these names in `tools.disallowed` decides the same.
    pub fn without_tools(mut self, rules: impl IntoIterator<Item = ToolRule>) -> Grants {
        for rule in rules {
            self.tools.add(rule);
        }
        if self.tools.against_writing() {
            let workspace = self.workspace.clone();
            let of_the_project = |rule: &&mut Rule| rule.effect == Effect::Write && is_of_project(rule, &workspace);
            self.rules.iter_mut().filter(of_the_project).for_each(|rule| rule.effect = Effect::Read);
        }
        self
    }
}

/// Whether a rule opens the project or a part of it, or something around it. What the mode opens
/// is the project and the git directory that belongs to it, wherever that lies.
fn is_of_project(rule: &Rule, workspace: &AbsPath) -> bool {
    rule.origin.source == Source::Mode || rule.root.is_within(workspace) || workspace.is_within(&rule.root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Access, Verdict};
    use crate::facts::{Facts, GitLayout};
    use crate::resolve::resolve;
    use crate::resolve::tests::{facts, flags, grants, with};
    use crate::testing::path;

    fn rule(name: &str) -> ToolRule {
        ToolRule { name: name.into(), origin: Origin::new(Source::User, name) }
    }

    #[track_caller]
    fn check(written: &str, name: &str, expect: bool) {
        let rules = ToolRules { disallowed: vec![rule("Nothing"), rule(written)] };
        assert_eq!(rules.against(name).map(|rule| rule.name.as_str()), expect.then_some(written), "{written} against {name}");
    }

    #[test]
    fn a_tool_is_known_by_all_its_names() {
        check("Write", "write", true);
        check("Write", "write_file", true);
        check("write_file", "Write", true);
        check("Edit", "MultiEdit", true);
        check("Bash", "shell", true);
        check("Grep", "search_files", true);
        check("Write", "edit", false);
        check("Read", "NotebookRead", false);
        check("mcp__github__*", "mcp__github__merge", true);
        check("mcp__github__*", "mcp__gitlab__merge", false);
        check("WebFetch", "webfetch", true);
        check("*", "anything", true);
        check("", "anything", false);
    }

    #[test]
    fn every_name_leads_back_to_its_tool() {
        for (tool, names) in NAMES {
            assert!(names.iter().all(|name| Tool::of(name) == Some(*tool)), "{tool:?}");
            assert_eq!(tool.word(), names[0]);
        }
        assert_eq!(Tool::of("reader"), None);
    }

    const PATHS: &[&str] =
        &["/home/me/p/x", "/home/me/p/gen/x", "/home/me/p", "/home/me/out/x", "/home/me/.cache/x", "/home/me/main/.git/index", "/usr/x"];

    /// What is taken from grants afterwards is what a policy would have taken.
    #[track_caller]
    fn check_same(policy: &str, names: &[&str], facts: &Facts) {
        let list = format!("{policy}\n[tools]\ndisallowed = {names:?}");
        let said = resolve(&with(&[("user", &list)]), &flags(), facts).unwrap();
        let taken = resolve(&with(&[("user", policy)]), &flags(), facts).unwrap().without_tools(names.iter().map(|name| rule(name)));
        for text in PATHS {
            for access in [Access::Read, Access::Write] {
                let verdict = |grants: &Grants| grants.verdict(&path(text), access);
                assert_eq!(verdict(&taken), verdict(&said), "{access:?} {text} with {policy} without {names:?}");
            }
        }
        assert!(names.iter().all(|name| taken.tools.against(name).is_some()));
    }

    #[test]
    fn taking_tools_away_is_what_a_policy_would_say() {
        let linked = GitLayout { git_dir: path("/home/me/main/.git/worktrees/p"), common_dir: path("/home/me/main/.git") };
        let linked = Facts { git: Some(linked), ..facts() };
        let write = "[filesystem]\nwrite = [\"~/out\", \"~/p/gen\"]";
        for policy in ["", write, "mode = \"read-only\"", "[filesystem]\nwrite = [\"/home\"]"] {
            for names in [&["Write", "Edit"][..], &["write_file"], &["NotebookEdit"], &["Bash"], &["*"], &[]] {
                check_same(policy, names, &facts());
                check_same(policy, names, &linked);
            }
        }
    }

    #[test]
    fn without_tools_that_write_the_project_is_read_only() {
        let before = grants(&[]);
        assert_eq!(before.verdict(&path("/home/me/p/x"), Access::Write), Verdict::Allowed);
        let after = before.without_tools([rule("Write"), rule("Edit")]);
        assert_eq!(after.verdict(&path("/home/me/p/x"), Access::Write), Verdict::ReadOnly);
        assert_eq!(after.verdict(&path("/home/me/p/x"), Access::Read), Verdict::Allowed);
        // What tools keep for themselves is not the project.
        assert_eq!(after.verdict(&path("/home/me/.cache/x"), Access::Write), Verdict::Allowed);
    }
}
