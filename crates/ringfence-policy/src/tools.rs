//! Tools that an agent may not use, and the access that depends on them.
//!
//! The router of tool calls refuses a disallowed tool. A shell could do the same work, so the rules
//! of the sandbox also remove the access that belongs to the tool.

use serde::{Deserialize, Serialize};

use crate::environment::name_matches;
use crate::grants::{Effect, Grants, Origin, Rule, Source};
use crate::layer::PolicyLayer;
use crate::path::AbsPath;

/// Disallowed tools, resolved over all layers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRules {
    /// The disallowed tools without duplicates, in the order of the files.
    pub disallowed: Vec<ToolRule>,
    /// Allow lists; a tool must be in each of them.
    pub allowed: Vec<AllowedTools>,
}

/// An allow list of tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedTools {
    /// Names as written, case-insensitive; `*` and `?` are wildcards.
    pub names: Vec<String>,
    /// The rule that disallows all other tools; its name is the whole list.
    pub rule: ToolRule,
}

/// A rule that disallows tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRule {
    /// Name of the tool as written, case-insensitive; `*` and `?` are wildcards.
    pub name: String,
    /// Position of the rule in its policy file.
    pub origin: Origin,
}

/// Function of a tool, independent of its name in an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// Reads a file.
    Read,
    /// Creates or replaces a file.
    Write,
    /// Changes a part of a file.
    Edit,
    /// Lists a directory.
    List,
    /// Searches text in files.
    Search,
    /// Runs a command.
    Shell,
}

/// Names that agents use for the same tool; the first is ringfence's own.
const NAMES: &[(Tool, &[&str])] = &[
    (Tool::Read, &["read", "read_file"]),
    (Tool::Write, &["write", "write_file"]),
    (Tool::Edit, &["edit", "edit_file", "MultiEdit", "NotebookEdit"]),
    (Tool::List, &["list", "list_files", "LS", "Glob"]),
    (Tool::Search, &["search", "search_files", "Grep"]),
    (Tool::Shell, &["shell", "exec", "Bash"]),
];

impl Tool {
    /// The tool with this name, case-insensitive.
    pub fn from_name(name: &str) -> Option<Tool> {
        NAMES
            .iter()
            .find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
            .map(|(tool, _)| *tool)
    }

    /// All names of the tool.
    pub fn names(self) -> &'static [&'static str] {
        NAMES.iter().find(|(tool, _)| *tool == self).map_or(&[], |(_, names)| names)
    }

    /// ringfence's own name for the tool.
    pub fn word(self) -> &'static str {
        self.names().first().copied().unwrap_or_default()
    }
}

/// True if `written` matches the tool `name`, also under another name of the same tool. The name of
/// a server (`mcp__github`) matches all of its tools.
fn matches_tool(written: &str, name: &str) -> bool {
    let is_of_server = || {
        let start =
            name.get(..written.len()).is_some_and(|start| start.eq_ignore_ascii_case(written));
        start
            && written.to_ascii_lowercase().starts_with("mcp__")
            && name[written.len()..].starts_with("__")
    };
    name_matches(written, name)
        || Tool::from_name(name).is_some_and(|tool| matches_whole_tool(written, tool))
        || is_of_server()
}

fn matches_whole_tool(written: &str, tool: Tool) -> bool {
    tool.names().iter().any(|known| name_matches(written, known))
}

/// The tools that write files.
const WRITING: [Tool; 2] = [Tool::Write, Tool::Edit];

impl ToolRule {
    /// True if this rule disallows the tool with that name, also under another name.
    pub fn disallows(&self, name: &str) -> bool {
        matches_tool(&self.name, name)
    }

    /// Origin of a path rule derived from this rule.
    pub(crate) fn path_origin(&self) -> Origin {
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

    fn allows(&self, name: &str) -> bool {
        self.names.iter().any(|written| matches_tool(written, name))
    }
}

impl ToolRules {
    /// Merges the tool rules of these layers.
    pub fn from_layers(layers: &[PolicyLayer]) -> ToolRules {
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

    /// The rule that disallows the tool with this name, if any.
    pub fn rule_against(&self, name: &str) -> Option<&ToolRule> {
        let taken = self.disallowed.iter().find(|rule| rule.disallows(name));
        taken.or_else(|| self.allowed.iter().find(|list| !list.allows(name)).map(|list| &list.rule))
    }

    /// The rule that disallows writing, if any. One disallowed writing tool is enough, because the
    /// other could do the same. One writing tool in an allow list keeps writing, because the tool
    /// would be useless otherwise.
    pub fn rule_against_writing(&self) -> Option<&ToolRule> {
        let takes =
            |rule: &&ToolRule| WRITING.into_iter().any(|tool| matches_whole_tool(&rule.name, tool));
        let has_none = |list: &&AllowedTools| {
            !WRITING
                .into_iter()
                .any(|tool| list.names.iter().any(|written| matches_whole_tool(written, tool)))
        };
        self.disallowed
            .iter()
            .find(takes)
            .or_else(|| self.allowed.iter().find(has_none).map(|list| &list.rule))
    }

    /// The tool rule that caused a denial on a path, from the rule and origin in the denial.
    pub fn rule_behind_denial(&self, rule: &str, origin: &str) -> Option<&ToolRule> {
        self.rule_against_writing()
            .filter(|tool| tool.name == rule && tool.path_origin().to_string() == origin)
    }

    /// Adds a rule, unless one with that name exists.
    pub(crate) fn add(&mut self, rule: ToolRule) {
        if self.disallowed.iter().all(|known| known.name != rule.name) {
            self.disallowed.push(rule);
        }
    }
}

impl Grants {
    /// The grants for an agent with fewer tools. Without the writing tools no program can write,
    /// not even a shell or a language runtime, except to the sandbox's private files and to paths
    /// outside the project that this run opened.
    ///
    /// Resolving a policy with these names in `tools.disallowed` has the same result.
    pub fn without_tools(mut self, rules: impl IntoIterator<Item = ToolRule>) -> Grants {
        for rule in rules {
            self.tools.add(rule);
        }
        if let Some(tool) = self.tools.rule_against_writing().cloned() {
            let workspace = self.workspace.clone();
            self.rules
                .iter_mut()
                .filter(|rule| needs_writing_tool(rule, &workspace))
                .for_each(|rule| reduce_to_read(rule, &tool));
        }
        self
    }
}

/// True if a write rule depends on the writing tools: every rule that was not opened for this run,
/// and a rule of this run on the project, its parts or its parents.
pub(crate) fn needs_writing_tool(rule: &Rule, workspace: &AbsPath) -> bool {
    let is_for_this_run = matches!(rule.origin.source, Source::Flag | Source::Session);
    let touches = rule.root.is_within(workspace) || workspace.is_within(&rule.root);
    rule.effect == Effect::Write && (!is_for_this_run || touches)
}

/// Reduces a rule to reading. A rule of the mode gets the tool as its origin; a rule of the user
/// keeps its precedence.
pub(crate) fn reduce_to_read(rule: &mut Rule, tool: &ToolRule) {
    rule.effect = Effect::Read;
    if rule.origin.source == Source::Mode {
        rule.origin = tool.path_origin();
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
            rules.rule_against(name).map(|rule| rule.name.as_str()),
            expect.then_some(written),
            "{written} against {name}"
        );
    }

    #[test]
    fn tool_is_found_by_all_its_names() {
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
            assert!(names.iter().all(|name| Tool::from_name(name) == Some(*tool)), "{tool:?}");
            assert_eq!(tool.word(), names[0]);
        }
        assert_eq!(Tool::from_name("reader"), None);
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

    /// Checks that removing tools from grants equals resolving a policy without them.
    #[track_caller]
    fn check_same(policy: &str, names: &[&str], facts: &Facts) {
        let list = format!("{policy}\n[tools]\ndisallowed = {names:?}");
        let resolved = resolve(&with(&[("user", &list)]), &flags(), facts).unwrap();
        let taken = resolve(&with(&[("user", policy)]), &flags(), facts)
            .unwrap()
            .without_tools(names.iter().map(|name| rule(name)));
        for text in PATHS {
            for access in [Access::Read, Access::Write] {
                let verdict = |grants: &Grants| grants.verdict(&path(text), access);
                assert_eq!(
                    verdict(&taken),
                    verdict(&resolved),
                    "{access:?} {text} with {policy} without {names:?}"
                );
            }
        }
        assert!(names.iter().all(|name| taken.tools.rule_against(name).is_some()));
    }

    /// Promise: removed-tools
    #[test]
    fn without_tools_equals_policy_with_disallowed_tools() {
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

    /// Promise: removed-tools
    #[test]
    fn without_tools_that_write_the_project_is_read_only() {
        let before = grants(&[]);
        assert_eq!(before.verdict(&path("/home/me/p/x"), Access::Write), Verdict::Allowed);
        let after = before.without_tools([rule("Write"), rule("Edit")]);
        assert_eq!(after.verdict(&path("/home/me/p/x"), Access::Write), Verdict::ReadOnly);
        assert_eq!(after.verdict(&path("/home/me/p/x"), Access::Read), Verdict::Allowed);
        // Private caches of tools are not part of the project.
        assert_eq!(after.verdict(&path("/home/me/.cache/x"), Access::Write), Verdict::Allowed);
    }
}
