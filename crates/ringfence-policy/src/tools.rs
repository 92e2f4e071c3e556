//! Tools that an agent may not use, and which rights of the system go with them.
//!
//! A tool that is taken away is refused by whoever routes calls. That alone would hold nobody
//! who has a shell: so what a tool maps to is taken away as well, in the same value that the
//! sandbox is made of.

use serde::{Deserialize, Serialize};

use crate::environment::name_matches;
use crate::grants::{Effect, Grants, Origin, Rule, Source};
use crate::layer::PolicyLayer;
use crate::path::AbsPath;

/// Tools that may not be used, resolved over all layers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRules {
    /// Each once, in the order in which they were written.
    pub disallowed: Vec<ToolRule>,
    /// Lists of what is left; a tool has to stand in each of them.
    pub allowed: Vec<AllowedTools>,
}

/// The only tools that somebody leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedTools {
    /// Their names as they were written; `*` and `?` allowed, in any case.
    pub names: Vec<String>,
    /// What takes all others away; its name is the whole list.
    pub rule: ToolRule,
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
        NAMES
            .iter()
            .find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
            .map(|(tool, _)| *tool)
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

/// Whether the tool of this name is meant, be it under another name for the same. A server's name
/// (`mcp__github`) means all that it has.
fn means(written: &str, name: &str) -> bool {
    let is_of_server = || {
        let start =
            name.get(..written.len()).is_some_and(|start| start.eq_ignore_ascii_case(written));
        start
            && written.to_ascii_lowercase().starts_with("mcp__")
            && name[written.len()..].starts_with("__")
    };
    name_matches(written, name)
        || Tool::of(name).is_some_and(|tool| means_all(written, tool))
        || is_of_server()
}

fn means_all(written: &str, tool: Tool) -> bool {
    tool.names().iter().any(|known| name_matches(written, known))
}

/// The tools that write files.
const WRITING: [Tool; 2] = [Tool::Write, Tool::Edit];

impl ToolRule {
    /// Whether this takes the tool of that name away, be it under another name for the same.
    pub fn takes(&self, name: &str) -> bool {
        means(&self.name, name)
    }

    /// Where a rule on paths comes from that follows from this one.
    pub(crate) fn on_paths(&self) -> Origin {
        Origin { source: Source::Tools, text: self.name.clone(), ..self.origin.clone() }
    }
}

impl AllowedTools {
    pub(crate) fn new(names: Vec<String>, origin: Origin) -> Self {
        let name = if names.is_empty() {
            "no tools".to_owned()
        } else {
            format!("only {}", names.join(", "))
        };
        Self { names, rule: ToolRule { name, origin } }
    }

    fn leaves(&self, name: &str) -> bool {
        self.names.iter().any(|written| means(written, name))
    }
}

impl ToolRules {
    /// What these layers come to.
    pub fn of(layers: &[PolicyLayer]) -> ToolRules {
        let mut rules = ToolRules::default();
        for layer in layers {
            if let Some(names) = &layer.policy.tools.allowed {
                rules.allowed.push(AllowedTools::new(
                    names.clone(),
                    layer.origin("tools.allowed", &names.join(", ")),
                ));
            }
            for (i, name) in layer.policy.tools.disallowed.iter().enumerate() {
                let origin = layer.origin(&format!("tools.disallowed.{i}"), name);
                rules.add(ToolRule { name: name.clone(), origin });
            }
        }
        rules
    }

    /// The rule that takes the tool of this name away.
    pub fn against(&self, name: &str) -> Option<&ToolRule> {
        let taken = self.disallowed.iter().find(|rule| rule.takes(name));
        taken.or_else(|| self.allowed.iter().find(|list| !list.leaves(name)).map(|list| &list.rule))
    }

    /// The rule by which nothing may be written. Of tools that are taken away, one that writes is
    /// enough: what is left of the others would do the same. Of tools that are left, one is
    /// enough as well: somebody has named it, and it could do nothing otherwise.
    pub fn against_writing(&self) -> Option<&ToolRule> {
        let takes = |rule: &&ToolRule| WRITING.into_iter().any(|tool| means_all(&rule.name, tool));
        let has_none = |list: &&AllowedTools| {
            !WRITING
                .into_iter()
                .any(|tool| list.names.iter().any(|written| means_all(written, tool)))
        };
        self.disallowed
            .iter()
            .find(takes)
            .or_else(|| self.allowed.iter().find(has_none).map(|list| &list.rule))
    }

    /// The rule behind a refusal on a path, by what the refusal names.
    pub fn behind(&self, rule: &str, origin: &str) -> Option<&ToolRule> {
        self.against_writing()
            .filter(|tool| tool.name == rule && tool.on_paths().to_string() == origin)
    }

    /// Adds a rule, unless there is one of that name.
    pub(crate) fn add(&mut self, rule: ToolRule) {
        if self.disallowed.iter().all(|known| known.name != rule.name) {
            self.disallowed.push(rule);
        }
    }
}

impl Grants {
    /// The same for an agent that has fewer tools: without those that write, nothing can be
    /// written by anything, a shell or a language runtime neither, but for what is private to the
    /// sandbox and what was opened for this very run outside the project.
    ///
    /// Resolving a policy with these names in `tools.disallowed` decides the same.
    pub fn without_tools(mut self, rules: impl IntoIterator<Item = ToolRule>) -> Grants {
        for rule in rules {
            self.tools.add(rule);
        }
        if let Some(tool) = self.tools.against_writing().cloned() {
            let workspace = self.workspace.clone();
            self.rules
                .iter_mut()
                .filter(|rule| is_taken(rule, &workspace))
                .for_each(|rule| take_writing(rule, &tool));
        }
        self
    }
}

/// Whether a rule opens for writing what goes with the tools that write: all that was not opened
/// for this very run, and of that the project, its parts and what is around it.
pub(crate) fn is_taken(rule: &Rule, workspace: &AbsPath) -> bool {
    let is_for_this_run = matches!(rule.origin.source, Source::Flag | Source::Session);
    let touches = rule.root.is_within(workspace) || workspace.is_within(&rule.root);
    rule.effect == Effect::Write && (!is_for_this_run || touches)
}

/// Leaves reading. What the mode has opened says by which tool it is not to be written; what a
/// person has written keeps their weight.
pub(crate) fn take_writing(rule: &mut Rule, tool: &ToolRule) {
    rule.effect = Effect::Read;
    if rule.origin.source == Source::Mode {
        rule.origin = tool.on_paths();
    }
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
        let rules =
            ToolRules { disallowed: vec![rule("Nothing"), rule(written)], allowed: Vec::new() };
        assert_eq!(
            rules.against(name).map(|rule| rule.name.as_str()),
            expect.then_some(written),
            "{written} against {name}"
        );
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

    const PATHS: &[&str] = &[
        "/home/me/p/x",
        "/home/me/p/gen/x",
        "/home/me/p",
        "/home/me/out/x",
        "/home/me/.cache/x",
        "/home/me/main/.git/index",
        "/usr/x",
    ];

    /// What is taken from grants afterwards is what a policy would have taken.
    #[track_caller]
    fn check_same(policy: &str, names: &[&str], facts: &Facts) {
        let list = format!("{policy}\n[tools]\ndisallowed = {names:?}");
        let said = resolve(&with(&[("user", &list)]), &flags(), facts).unwrap();
        let taken = resolve(&with(&[("user", policy)]), &flags(), facts)
            .unwrap()
            .without_tools(names.iter().map(|name| rule(name)));
        for text in PATHS {
            for access in [Access::Read, Access::Write] {
                let verdict = |grants: &Grants| grants.verdict(&path(text), access);
                assert_eq!(
                    verdict(&taken),
                    verdict(&said),
                    "{access:?} {text} with {policy} without {names:?}"
                );
            }
        }
        assert!(names.iter().all(|name| taken.tools.against(name).is_some()));
    }

    /// Promise: P81
    #[test]
    fn taking_tools_away_is_what_a_policy_would_say() {
        let linked = GitLayout {
            git_dir: path("/home/me/main/.git/worktrees/p"),
            common_dir: path("/home/me/main/.git"),
        };
        let linked = Facts { git: Some(linked), ..facts() };
        let write = "[filesystem]\nwrite = [\"~/out\", \"~/p/gen\"]";
        for policy in ["", write, "mode = \"read-only\"", "[filesystem]\nwrite = [\"/home\"]"] {
            for names in
                [&["Write", "Edit"][..], &["write_file"], &["NotebookEdit"], &["Bash"], &["*"], &[]]
            {
                check_same(policy, names, &facts());
                check_same(policy, names, &linked);
            }
        }
    }

    /// Promise: P81
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
