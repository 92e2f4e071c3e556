//! `ringfence mcp`

mod wrap;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use ringfence_api::{Asker, StdioMode};
use ringfence_audit::session_id;
use ringfence_engine::ProviderRegistry;
use ringfence_engine::session::Session;
use ringfence_linux::LocalProvider;
use ringfence_mcp::{
    HttpOptions, McpServeError, SandboxOpener, ServerToken, is_loopback, serve_http, serve_stdio,
};
use ringfence_policy::Asking;

use super::resolve_args::{
    RunOverrides, TypedCommand, agent_from_env, parse_duration_ms, resolve_for_run,
};
use super::session::AskSocket;
use crate::args::PolicyArgs;
use crate::asker::ANSWER_TIMEOUT;
use crate::error::CliError;
use crate::messages;
use crate::providers::{self, is_unconfined};

/// The number of bytes of each stream kept for a response.
const KEPT: usize = 256 * 1024;
/// The environment variable for the token; without it, a new token is generated.
const TOKEN: &str = "RINGFENCE_MCP_TOKEN";

/// Serve an agent over the Model Context Protocol
///
/// The tools run commands in a sandbox with a persistent shell, and read and change files under the
/// same policy. Without `--http`, serves the parent process on standard input and output.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  ringfence mcp
  claude mcp add sandbox -- ringfence mcp -C ~/project
  ringfence mcp --allow-host registry.npmjs.org
  ringfence mcp --http 127.0.0.1:7411
  ringfence mcp wrap -- npx -y some-mcp-server

Exit status: 0 when the client has disconnected, 125 if the sandbox cannot be created."
)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    what: Option<McpSub>,
    #[command(flatten)]
    serve: McpServeArgs,
}

#[derive(Debug, Subcommand)]
enum McpSub {
    Wrap(wrap::McpWrapArgs),
}

#[derive(Debug, Args)]
struct McpServeArgs {
    /// Serve over HTTP, at a loopback address; clients need the token in RINGFENCE_MCP_TOKEN, or a
    /// new one that is printed
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    http: Option<SocketAddr>,
    /// Ask the client, or `ringfence ask`, before an access is denied; the command waits
    #[arg(long)]
    ask: bool,
    /// Deny the access if `ringfence ask answer` gives no answer in this time [default: 60s]
    #[arg(long, value_name = "DURATION", requires = "ask")]
    ask_timeout: Option<String>,
    /// The agent name to record in the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The shell
    #[arg(long, value_name = "PROGRAM", default_value = "bash")]
    shell: OsString,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(arguments: McpArgs, registry: &ProviderRegistry) -> Result<ExitCode, CliError> {
    match arguments.what {
        Some(McpSub::Wrap(arguments)) => wrap::run(arguments, registry),
        None => serve(arguments.serve),
    }
}

fn serve(arguments: McpServeArgs) -> Result<ExitCode, CliError> {
    let ask = arguments.ask.then_some(Asking::Terminal);
    let answer_timeout = arguments
        .ask_timeout
        .as_deref()
        .map(parse_duration_ms)
        .transpose()?
        .map_or(ANSWER_TIMEOUT, Duration::from_millis);
    let http = arguments.http.map(http_options).transpose()?;
    // Resolved now, so that policy errors are reported at start and not on the first call.
    let agent = arguments.agent.or_else(agent_from_env);
    let resolved_args = resolve_for_run(
        &arguments.policy,
        RunOverrides { ask, agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let grants = &resolved_args.resolved.grants;
    if is_unconfined(grants) {
        messages::print_warning(
            "nothing is confined: commands of this server have all your permissions",
        );
    }
    let asks = grants.ask == Asking::Terminal && grants.is_confined();
    let shell = arguments.shell;
    let typed = TypedCommand { line: None, command: vec![shell.clone()], agent };
    let (request, resolved) = resolved_args.into_request(typed, StdioMode::Capture { limit: KEPT });
    let socket = asks
        .then(|| AskSocket::open(&request.session, &request.cwd, answer_timeout))
        .transpose()?;
    let elsewhere = socket.as_ref().map(|socket| socket.questions.clone() as Arc<dyn Asker>);
    let open = move |asker: Arc<dyn Asker>| {
        let (mut request, resolved) = (request.clone(), resolved.clone());
        // Each sandbox has its own session in the log.
        request.session = session_id();
        request.asker = asks.then_some(asker);
        let registry = providers::registry(LocalProvider::for_one_sandbox);
        Session::open(Box::new(registry), request, resolved, shell.clone())
    };
    let opening = SandboxOpener { open: Box::new(open), fallback_asker: elsewhere };
    let served = match http {
        Some(http) => serve_http(opening, http, |address| {
            messages::print_note(&format!("serving at http://{address}/mcp"))
        }),
        None => serve_stdio(opening),
    };
    served.map_err(|error| match error {
        McpServeError::Engine(error) => error.into(),
        McpServeError::Served { at, source } => {
            CliError::File { what: "serve at", path: at, source }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the address, and reads or generates the token.
fn http_options(address: SocketAddr) -> Result<HttpOptions, CliError> {
    if !is_loopback(address.ip()) {
        return Err(CliError::Usage {
            what: format!("`--http {address}` is reachable from other machines"),
            hint: format!(
                "use `--http 127.0.0.1:{0}`, and connect from elsewhere with `ssh -L {0}:127.0.0.1:{0}`",
                address.port()
            ),
        });
    }
    let token = match std::env::var(TOKEN) {
        Ok(word) => ServerToken::from_text(&word).ok_or_else(|| CliError::Usage {
            what: format!(
                "{TOKEN} is not a valid token: it needs {} characters or more, and no blanks",
                ServerToken::MIN_LENGTH
            ),
            hint: format!("`export {TOKEN}=$(openssl rand -hex 32)`, or unset it"),
        })?,
        Err(std::env::VarError::NotPresent) => {
            let made = ServerToken::new().map_err(|source| CliError::File {
                what: "generate",
                path: "a token".into(),
                source,
            });
            let (token, word) = made?;
            messages::print_note(&format!(
                "clients need the header `Authorization: Bearer {word}`"
            ));
            token
        }
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(CliError::Usage {
                what: format!("{TOKEN} is not valid UTF-8"),
                hint: format!("`unset {TOKEN}`"),
            });
        }
    };
    Ok(HttpOptions { address, token })
}
