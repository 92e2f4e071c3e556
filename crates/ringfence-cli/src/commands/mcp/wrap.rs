//! `ringfence mcp wrap`

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use ringfence_api::ExitStatus;
use ringfence_engine::{ProviderRegistry, run as run_engine};
use ringfence_policy::Asking;

use crate::args::PolicyArgs;
use crate::commands::resolve_args::{ResolvedArgs, RunOverrides, agent_from_env, resolve_for_run};
use crate::error::CliError;
use crate::{messages, output};

/// The number of denials printed one by one.
const PRINTED: usize = 50;

/// Run another MCP server in its own sandbox
///
/// The client talks to that server directly: ringfence does not read, change or add messages.
/// Denials are in the log under the server's name, and are printed on standard error when the
/// server ends.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence mcp wrap -- npx -y @modelcontextprotocol/server-filesystem .
  ringfence mcp wrap --mode read-only --read ~/notes -- notes-server ~/notes
  ringfence mcp wrap --allow-host api.github.com --env GITHUB_TOKEN -- github-server
  claude mcp add notes -- ringfence mcp wrap -C ~/notes -- notes-server .

Exit status: the server's own; 125 ringfence failed, 126 not executable, 127 not found.")]
pub(super) struct McpWrapArgs {
    /// The server name in the audit log [default: its program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The server and its arguments
    #[arg(value_name = "SERVER", trailing_var_arg = true, required = true)]
    server: Vec<OsString>,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(super) fn run(
    arguments: McpWrapArgs,
    registry: &ProviderRegistry,
) -> Result<ExitCode, CliError> {
    // The streams carry the protocol, so no terminal is available for questions. The server gets
    // no tools that the policy takes away from the agent.
    let agent_name = agent_from_env();
    let chosen = RunOverrides {
        ask: Some(Asking::Never),
        agent: agent_name.as_deref(),
        ..RunOverrides::default()
    };
    let ResolvedArgs { mut request, resolved } = resolve_for_run(&arguments.policy, chosen)?;
    let name = arguments.name.unwrap_or_else(|| program(&arguments.server));
    request.agent = Some(
        agent_name.map_or_else(|| format!("mcp:{name}"), |agent| format!("{agent}/mcp:{name}")),
    );
    request.command = arguments.server;
    let outcome = run_engine(registry, &request, &resolved, &mut messages::print_notice)?;
    if outcome.refusal.is_some() {
        messages::print_bytes(&outcome.stderr.head);
    }
    for denial in outcome.denials.iter().take(PRINTED) {
        // The server chose these names.
        let words = format!(
            "{name}: denied: {} {}: {} ({})",
            denial.operation.word(),
            denial.target,
            denial.rule,
            denial.origin
        );
        messages::print_note(&output::printable(&words));
    }
    let more = outcome.denials.len().saturating_sub(PRINTED) as u64 + outcome.denials_dropped;
    if more > 0 {
        messages::print_note(&format!(
            "{name}: {more} more denials; see `ringfence log --session {}`",
            request.session
        ));
    }
    messages::print_outcome_warnings(&outcome);
    if let ExitStatus::Killed(signal) = outcome.status {
        messages::print_note(&format!("{name} was killed by signal {signal}"));
    }
    // Exits without dropping values: the kernel frees memory faster than destructors do.
    std::process::exit(outcome.exit_code())
}

/// Returns the server's name: its program, or the first operand of a launcher such as `npx`.
fn program(server: &[OsString]) -> String {
    let words: Vec<String> =
        server.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let base = |word: &String| {
        Path::new(word)
            .file_name()
            .map_or_else(|| word.clone(), |name| name.to_string_lossy().into_owned())
    };
    let launcher = words.first().map(base).unwrap_or_default();
    let is_launcher =
        ["npx", "uvx", "bunx", "node", "python", "python3", "deno", "bun", "uv", "env"]
            .contains(&launcher.as_str());
    let named = words.iter().skip(1).find(|word| !word.starts_with('-'));
    named.filter(|_| is_launcher).map(base).unwrap_or(launcher)
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
    fn server_name_skips_the_launcher() {
        check("/usr/bin/notes --stdio", "notes");
        check("npx -y @modelcontextprotocol/server-filesystem .", "server-filesystem");
        check("python3 -u server.py", "server.py");
        check("node", "node");
    }
}
