//! Which agents are in use.

use clap::ValueEnum;
use ringfence_policy::Facts;

/// An agent that can be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InstalledAgent {
    ClaudeCode,
    Codex,
    Cursor,
    Gemini,
    Opencode,
}

/// What tells of an agent: files of the project, files of the home, programs.
type AgentTraces = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

const AGENTS: [(InstalledAgent, &str, AgentTraces); 5] = [
    (
        InstalledAgent::ClaudeCode,
        "claude-code",
        (&[".claude", "CLAUDE.md"], &[".claude", ".claude.json"], &["claude"]),
    ),
    (InstalledAgent::Codex, "codex", (&[".codex"], &[".codex"], &["codex"])),
    (
        InstalledAgent::Cursor,
        "cursor",
        (&[".cursor", ".cursorrules"], &[".cursor"], &["cursor", "cursor-agent"]),
    ),
    (InstalledAgent::Gemini, "gemini", (&[".gemini", "GEMINI.md"], &[".gemini"], &["gemini"])),
    (
        InstalledAgent::Opencode,
        "opencode",
        (&["opencode.json", ".opencode"], &[".config/opencode"], &["opencode"]),
    ),
];

impl InstalledAgent {
    pub(super) fn name(self) -> &'static str {
        AGENTS.iter().find(|(agent, ..)| *agent == self).map_or("", |(_, name, _)| name)
    }
}

/// The agents of which there is a trace.
pub(super) fn found(facts: &Facts) -> Vec<InstalledAgent> {
    let is_there = |(project, home, programs): &AgentTraces| {
        project.iter().any(|name| facts.workspace.join(name).as_path().exists())
            || home.iter().any(|name| facts.home.join(name).as_path().exists())
            || programs.iter().any(|name| {
                facts.path_dirs.iter().any(|directory| directory.join(name).as_path().exists())
            })
    };
    AGENTS.iter().filter(|(_, _, traces)| is_there(traces)).map(|(agent, ..)| *agent).collect()
}
