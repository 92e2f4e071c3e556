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
use ringfence_engine::session::Session;
use ringfence_local::LocalProvider;
use ringfence_mcp::{
    HttpOptions, McpServeError, SandboxOpener, ServerToken, is_own_machine, serve_http, serve_stdio,
};
use ringfence_policy::{Asking, Mode};

use super::resolve_args::{RunOverrides, TypedCommand, agent, duration, meant_to_run};
use super::session::AskSocket;
use crate::args::PolicyArgs;
use crate::asker::PATIENCE;
use crate::error::CliError;
use crate::messages;

/// How much of each stream is kept for an answer.
const KEPT: usize = 256 * 1024;
/// Where the token may be given, rather than made up.
const TOKEN: &str = "RINGFENCE_MCP_TOKEN";

/// Serve an agent that speaks the Model Context Protocol
///
/// Its tools run commands in a sandbox with a shell that lives on, and read and change files under
/// the same policy. Without `--http` it serves whoever started it, by standard input and output.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  ringfence mcp
  claude mcp add sandbox -- ringfence mcp -C ~/project
  ringfence mcp --allow-host registry.npmjs.org
  ringfence mcp --http 127.0.0.1:7411
  ringfence mcp wrap -- npx -y some-mcp-server

Exit status: 0 when the client has left, 125 if there is no sandbox."
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
    /// Serve over HTTP, at an address of this machine's own loopback; the token that clients need
    /// is that of RINGFENCE_MCP_TOKEN, or a new one that is printed
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    http: Option<SocketAddr>,
    /// Let what is about to be refused wait for an answer, by the client or by `ringfence ask`
    #[arg(long)]
    ask: bool,
    /// How long a question waits for `ringfence ask answer`; then it is denied [default: 60s]
    #[arg(long, value_name = "DURATION", requires = "ask")]
    ask_timeout: Option<String>,
    /// On whose behalf, for the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The shell
    #[arg(long, value_name = "PROGRAM", default_value = "bash")]
    shell: OsString,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(arguments: McpArgs, local: &LocalProvider) -> Result<ExitCode, CliError> {
    match arguments.what {
        Some(McpSub::Wrap(arguments)) => wrap::run(arguments, local),
        None => serve(arguments.serve),
    }
}

fn serve(arguments: McpServeArgs) -> Result<ExitCode, CliError> {
    let ask = arguments.ask.then_some(Asking::Terminal);
    let patience = arguments
        .ask_timeout
        .as_deref()
        .map(duration)
        .transpose()?
        .map_or(PATIENCE, Duration::from_millis);
    let site = arguments.http.map(site).transpose()?;
    // What is wrong with the policy is said now, and not to the agent's first call.
    let agent = arguments.agent.or_else(agent);
    let meant = meant_to_run(
        &arguments.policy,
        RunOverrides { ask, agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let grants = &meant.resolved.grants;
    if grants.mode == Mode::FullAccess || !grants.enabled {
        messages::warning("nothing is confined: commands of this server can do whatever you can");
    }
    let asks = grants.ask == Asking::Terminal && grants.is_confined();
    let shell = arguments.shell;
    let typed = TypedCommand { line: None, command: vec![shell.clone()], agent };
    let (asked, resolved) = meant.asked(typed, StdioMode::Capture { limit: KEPT });
    let desk = asks.then(|| AskSocket::open(&asked.session, &asked.cwd, patience)).transpose()?;
    let elsewhere = desk.as_ref().map(|desk| desk.questions.clone() as Arc<dyn Asker>);
    let open = move |asker: Arc<dyn Asker>| {
        let (mut asked, resolved) = (asked.clone(), resolved.clone());
        // Each sandbox is one in the log.
        asked.session = session_id();
        asked.asker = asks.then_some(asker);
        Session::open(Box::new(LocalProvider::for_one_sandbox()), asked, resolved, shell.clone())
    };
    let opening = SandboxOpener { open: Box::new(open), elsewhere };
    let served = match site {
        Some(site) => serve_http(opening, site, |address| {
            messages::note(&format!("serving at http://{address}/mcp"))
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

/// Where it is served, and the token for it.
fn site(address: SocketAddr) -> Result<HttpOptions, CliError> {
    if !is_own_machine(address.ip()) {
        return Err(CliError::Words {
            what: format!("`--http {address}` could be reached from other machines"),
            hint: format!(
                "write `--http 127.0.0.1:{0}`, and let others in by `ssh -L {0}:127.0.0.1:{0}`",
                address.port()
            ),
        });
    }
    let token = match std::env::var(TOKEN) {
        Ok(word) => ServerToken::given(&word).ok_or_else(|| CliError::Words {
            what: format!(
                "{TOKEN} is no token: it needs {} characters or more, and no blanks",
                ServerToken::SHORTEST
            ),
            hint: format!("`export {TOKEN}=$(openssl rand -hex 32)`, or leave it out"),
        })?,
        Err(std::env::VarError::NotPresent) => {
            let made = ServerToken::new().map_err(|source| CliError::File {
                what: "make",
                path: "a token".into(),
                source,
            });
            let (token, word) = made?;
            messages::note(&format!("clients need the header `Authorization: Bearer {word}`"));
            token
        }
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(CliError::Words {
                what: format!("{TOKEN} is not text"),
                hint: format!("`unset {TOKEN}`"),
            });
        }
    };
    Ok(HttpOptions { address, token })
}
