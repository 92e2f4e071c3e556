//! Detects the agents in use.

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

/// The traces of an agent: project files, home files, programs.
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

/// Returns the agents that have left a trace.
pub(super) fn detect_agents(facts: &Facts) -> Vec<InstalledAgent> {
    let is_installed = |(project, home, programs): &AgentTraces| {
        project.iter().any(|name| facts.workspace.join(name).as_path().exists())
            || home.iter().any(|name| facts.home.join(name).as_path().exists())
            || programs.iter().any(|name| {
                facts.path_dirs.iter().any(|directory| directory.join(name).as_path().exists())
            })
    };
    AGENTS.iter().filter(|(_, _, traces)| is_installed(traces)).map(|(agent, ..)| *agent).collect()
}
