//! `ringfence mcp wrap`

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use ringfence_api::{ExitStatus, StdioMode};
use ringfence_engine::run as run_engine;
use ringfence_local::LocalProvider;
use ringfence_policy::{Asking, Mode};

use crate::args::PolicyArgs;
use crate::commands::resolve_args::{RunOverrides, TypedCommand, agent, meant_to_run};
use crate::error::CliError;
use crate::{messages, output};

/// As many refusals are told one by one.
const TOLD: usize = 50;

/// Run another MCP server in a sandbox of its own
///
/// The client speaks with that server as if it had started it: nothing is read, changed or added on
/// the way. What was refused to it is in the log under the server's name, and is told on standard
/// error when it ends.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence mcp wrap -- npx -y @modelcontextprotocol/server-filesystem .
  ringfence mcp wrap --mode read-only --read ~/notes -- notes-server ~/notes
  ringfence mcp wrap --allow-host api.github.com --env GITHUB_TOKEN -- github-server
  claude mcp add notes -- ringfence mcp wrap -C ~/notes -- notes-server .

Exit status: the server's own; 125 ringfence failed, 126 not executable, 127 not found.")]
pub(super) struct McpWrapArgs {
    /// What to call the server in the audit log [default: its program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The server and its arguments
    #[arg(value_name = "SERVER", trailing_var_arg = true, required = true)]
    server: Vec<OsString>,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(super) fn run(arguments: McpWrapArgs, local: &LocalProvider) -> Result<ExitCode, CliError> {
    // Its streams are the protocol's: nobody is there to be asked.
    // What an agent has no tools for, its servers do not do for it.
    let whose = agent();
    let chosen = RunOverrides {
        ask: Some(Asking::Never),
        agent: whose.as_deref(),
        ..RunOverrides::default()
    };
    let meant = meant_to_run(&arguments.policy, chosen)?;
    let grants = &meant.resolved.grants;
    if grants.mode == Mode::FullAccess || !grants.enabled {
        messages::warning("nothing is confined: the server can do whatever you can");
    }
    let name = arguments.name.unwrap_or_else(|| program(&arguments.server));
    let agent =
        agent().map_or_else(|| format!("mcp:{name}"), |agent| format!("{agent}/mcp:{name}"));
    let typed = TypedCommand { line: None, command: arguments.server, agent: Some(agent) };
    let (asked, resolved) = meant.asked(typed, StdioMode::Inherit);
    let outcome = run_engine(local, &asked, &resolved, &mut messages::unrecorded)?;
    if outcome.refusal.is_some() {
        messages::verbatim(&outcome.stderr.head);
    }
    for denial in outcome.denials.iter().take(TOLD) {
        // Names that the server chose.
        let words = format!(
            "{name}: refused: {} {}: {} ({})",
            denial.operation.word(),
            denial.target,
            denial.rule,
            denial.origin
        );
        messages::note(&output::printable(&words));
    }
    let more = outcome.denials.len().saturating_sub(TOLD) as u64 + outcome.denials_dropped;
    if more > 0 {
        messages::note(&format!(
            "{name}: {more} more were refused; `ringfence log --session {}` has them",
            asked.session
        ));
    }
    messages::ended(&outcome);
    if let ExitStatus::Killed(signal) = outcome.status {
        messages::note(&format!("{name} was ended by signal {signal}"));
    }
    // At once: giving back memory piece by piece takes longer than the kernel takes for all of it.
    std::process::exit(outcome.exit_code())
}

/// `npx` and the like say nothing of which server it is: then the first word that is a package.
fn program(server: &[OsString]) -> String {
    let words: Vec<String> =
        server.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let base = |word: &String| {
        Path::new(word)
            .file_name()
            .map_or_else(|| word.clone(), |name| name.to_string_lossy().into_owned())
    };
    let starter = words.first().map(base).unwrap_or_default();
    let is_starter =
        ["npx", "uvx", "bunx", "node", "python", "python3", "deno", "bun", "uv", "env"]
            .contains(&starter.as_str());
    let named = words.iter().skip(1).find(|word| !word.starts_with('-'));
    named.filter(|_| is_starter).map(base).unwrap_or(starter)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    #[track_caller]
    fn check(line: &str, expect: &str) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(super::program(&words), expect, "{line}");
    }

    #[test]
    fn a_server_is_called_by_its_own_name() {
        check("/usr/bin/notes --stdio", "notes");
        check("npx -y @modelcontextprotocol/server-filesystem .", "server-filesystem");
        check("python3 -u server.py", "server.py");
        check("node", "node");
    }
}
