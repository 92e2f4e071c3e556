//! Which agents are in use.

use clap::ValueEnum;
use ringfence_policy::Facts;

/// An agent that can be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    ClaudeCode,
    Codex,
    Cursor,
    Gemini,
    Opencode,
}

/// What tells of an agent: files of the project, files of the home, programs.
type Traces = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

const AGENTS: [(Agent, &str, Traces); 5] = [
    (
        Agent::ClaudeCode,
        "claude-code",
        (&[".claude", "CLAUDE.md"], &[".claude", ".claude.json"], &["claude"]),
    ),
    (Agent::Codex, "codex", (&[".codex"], &[".codex"], &["codex"])),
    (
        Agent::Cursor,
        "cursor",
        (&[".cursor", ".cursorrules"], &[".cursor"], &["cursor", "cursor-agent"]),
    ),
    (Agent::Gemini, "gemini", (&[".gemini", "GEMINI.md"], &[".gemini"], &["gemini"])),
    (
        Agent::Opencode,
        "opencode",
        (&["opencode.json", ".opencode"], &[".config/opencode"], &["opencode"]),
    ),
];

impl Agent {
    pub(super) fn name(self) -> &'static str {
        AGENTS.iter().find(|(agent, ..)| *agent == self).map_or("", |(_, name, _)| name)
    }
}

/// The agents of which there is a trace.
pub(super) fn found(facts: &Facts) -> Vec<Agent> {
    let is_there = |(project, home, programs): &Traces| {
        project.iter().any(|name| facts.workspace.join(name).as_path().exists())
            || home.iter().any(|name| facts.home.join(name).as_path().exists())
            || programs.iter().any(|name| {
                facts.path_dirs.iter().any(|directory| directory.join(name).as_path().exists())
            })
    };
    AGENTS.iter().filter(|(_, _, traces)| is_there(traces)).map(|(agent, ..)| *agent).collect()
}
