use super::*;
use crate::decide::{Access, Verdict};
use crate::resolve::resolve;
use crate::resolve::tests::{facts, flags, with};
use crate::testing::path;
use crate::tools::ToolRules;

fn read(head: &str) -> Result<AgentSpec, PolicyError> {
    AgentSpec::parse(
        format!("---\n{head}\n---\nDo.\n").as_bytes(),
        &path("/home/me/p/.ringfence/agents/file.md"),
        Source::Project,
    )
}

#[track_caller]
fn check_error(head: &str, place: &str, says: &str) {
    let error = read(head).unwrap_err();
    let message = format!("{error}, {}", error.hint().unwrap_or_default());
    assert!(
        message.starts_with(&format!("/home/me/p/.ringfence/agents/file.md:{place}: "))
            && message.contains(says),
        "{head}: {message}"
    );
}

#[test]
fn claude_code_definitions_are_parsed() {
    let agent = read("name: code-reviewer\ndescription: Use this: \"x\"\ntools: Read, Grep, Bash\nmodel: opus\ncolor: blue").unwrap();
    assert_eq!(
        (agent.name.as_str(), agent.description.as_deref()),
        ("code-reviewer", Some("Use this: \"x\""))
    );
    assert_eq!(agent.tools, Some(vec!["Read".into(), "Grep".into(), "Bash".into()]));
    let agent =
        read("disallowedTools:\n  - Write\n  - mcp__github\ncommand: [claude, -p]").unwrap();
    assert_eq!((agent.name.as_str(), agent.disallowed.len()), ("file", 2));
    assert_eq!(agent.command, Some(AgentProgram::Words(vec!["claude".into(), "-p".into()])));
    assert_eq!(
        read("command: make -j2 test").unwrap().command,
        Some(AgentProgram::Line("make -j2 test".into()))
    );
    assert_eq!(read("tools: []").unwrap().tools, Some(Vec::new()));
}

/// Promise: agent-definitions
#[test]
fn definition_error_never_leaves_extra_tools() {
    check_error("tool: Read", "2:1", "did you mean `tools`?");
    check_error("disallowed_tools: Write", "2:1", "did you mean `disallowed-tools`?");
    check_error("DisallowedTools: Write", "2:1", "did you mean `disallowed-tools`?");
    check_error("disallowed-tool: Write", "2:1", "did you mean `disallowed-tools`?");
    check_error("polcy: x.toml", "2:1", "did you mean `policy`?");
    check_error("disallowed-tools: Write\ndisallowedTools: Edit", "3:1", "twice");
    check_error("tools:", "2:1", "write `[]` for an empty list");
    check_error("tools: [Read, Bash(git log:*)]", "2:15", "only tool names");
    check_error("tools: Read Write", "2:8", "no tool name");
    check_error("disallowed-tools: [Write, \"\"]", "2:27", "no tool name");
    check_error("disallowed-tools:\n  a: b", "3:3", "list of names");
    check_error("name: ../../etc", "2:7", "at most 64 letters");
    check_error("name: a b", "2:7", "at most 64 letters, digits, `-`, `_`, `.` and `:`");
    assert_eq!(read("name: plugin:code.review_er-2").unwrap().name, "plugin:code.review_er-2");
    check_error("policy: [a]", "2:9", "must be a text");
    check_error("command:\n  a: b", "3:3", "a shell command line");
    let error =
        AgentSpec::parse(b"---\nname: \xff\n---\n", &path("/x.md"), Source::User).unwrap_err();
    assert_eq!((error.code(), error.line()), ("policy-not-utf8", Some(2)));
}

/// Checks if a project's agent with this front matter may use a tool, and write in the project.
#[track_caller]
fn check(head: &str, tool: &str, expect: (bool, bool)) {
    let layers: Vec<PolicyLayer> =
        with(&[("user", "")]).into_iter().chain([read(head).unwrap().layer()]).collect();
    let grants = resolve(&layers, &flags(), &facts()).unwrap();
    let writes = grants.verdict(&path("/home/me/p/x"), Access::Write) == Verdict::Allowed;
    assert_eq!((grants.tools.rule_against(tool).is_none(), writes), expect, "{head}, {tool}");
}

/// Promise: read-only-agent
#[test]
fn unlisted_tools_are_disallowed() {
    check("model: x", "Write", (true, true));
    check("tools: Read, Grep", "Write", (false, false));
    check("tools: Read, Grep", "search_files", (true, false));
    check("tools: Read, Bash", "shell", (true, false));
    check("tools: Read, Edit", "write", (false, true));
    check("tools: Read, Edit", "MultiEdit", (true, true));
    check("tools: '*'", "anything", (true, true));
    check("tools: []", "read", (false, false));
    check("tools: Read, Write\ndisallowed-tools: Write", "Write", (false, false));
    check("tools: mcp__github, Write", "mcp__github__merge", (true, true));
    check("tools: mcp__github, Write", "mcp__gitlab__merge", (false, true));
    check("disallowed-tools: mcp__github", "MCP__github__merge", (false, true));
    check("disallowed-tools: mcp__github", "mcp__githubs", (true, true));
}

#[test]
fn lists_of_several_narrow_each_other() {
    let layers = [
        read("tools: Read, Write, Grep").unwrap().layer(),
        read("tools: Read, Bash").unwrap().layer(),
    ];
    let rules = ToolRules::from_layers(&layers);
    for (tool, expect) in [("Read", true), ("Write", false), ("Grep", false), ("Bash", false)] {
        assert_eq!(rules.rule_against(tool).is_none(), expect, "{tool}");
    }
    assert!(rules.rule_against_writing().is_some());
}

/// Promise: read-only-agent
#[test]
fn agent_without_writing_tools_cannot_write_and_denial_names_tool() {
    let user = "[filesystem]\nwrite = [\"~/out\"]";
    let layers: Vec<PolicyLayer> = with(&[("user", user)])
        .into_iter()
        .chain([read("disallowed-tools: [Edit]").unwrap().layer()])
        .collect();
    let mut flags = flags();
    flags.write = vec!["/home/me/own".into()];
    let grants = resolve(&layers, &flags, &facts()).unwrap();
    assert_eq!(grants.verdict(&path("/home/me/out/x"), Access::Write), Verdict::ReadOnly);
    assert_eq!(grants.verdict(&path("/home/me/own/x"), Access::Write), Verdict::Allowed);
    let decision = grants.decide(&path("/home/me/p/x"), Access::Write);
    let origin = decision.rule.unwrap().origin().clone();
    assert_eq!(
        (origin.text.as_str(), origin.to_string().as_str()),
        ("Edit", "/home/me/p/.ringfence/agents/file.md:2 (tools)")
    );
    assert!(grants.tools.rule_behind_denial(&origin.text, &origin.to_string()).is_some());
}
