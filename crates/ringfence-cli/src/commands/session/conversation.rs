//! The session of an agent's conversation, used by hooks.
//!
//! `ringfence hook` rewrites a command to `ringfence run --conversation ID …`, which runs it in the
//! session of that conversation, and starts one if there is none. Calls with different policy flags
//! get separate sessions, so no call runs under wider rules than its own.

use std::env;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ringfence_api::session_protocol::{CallRequest, SessionRequest};
use ringfence_client::{SessionClientError, SocketClient, socket_dir};
use ringfence_engine::EngineError;
use ringfence_policy::{Asking, Observe};
use rustix::fs::{FileType, FlockOperation, flock, fstat};

use super::forward::{forward_input, forward_output};
use super::lifetime::{AgentProcess, Lifetime};
use super::notes::conclude;
use super::server::{SessionDoor, SessionSetup, serve_session};
use super::{Keep, server_error, spawn_server};
use crate::args::{ObserveArg, RunArgs};
use crate::commands::resolve_args::{
    RunOverrides, agent_from_env, canonical_directory, parse_duration_ms, resolve_for_run,
};
use crate::commands::run::check_session_name;
use crate::error::CliError;
use crate::messages;

/// The number of attempts to find a session that is not about to end.
const ATTEMPTS: usize = 4;

/// Environment variables that the policy depends on, in addition to those passed to commands.
const VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Identifies the session that a call belongs to.
struct ConversationKey {
    id: String,
    /// All settings that calls of one session have in common.
    signature: String,
}

impl ConversationKey {
    fn from_args(arguments: &RunArgs) -> ConversationKey {
        let conversation = arguments.conversation.as_deref().unwrap_or_default();
        let agent = arguments.agent.clone().or_else(agent_from_env);
        let variables: Vec<_> = VARIABLES.iter().map(env::var_os).collect();
        let chosen = (arguments.observe, arguments.shell, &arguments.timeout);
        let signature = format!(
            "{:?}",
            (env!("CARGO_PKG_VERSION"), conversation, agent, chosen, &arguments.policy, variables)
        );
        ConversationKey {
            id: format!("{}{:016x}", prefix(conversation), hashed(&signature)),
            signature,
        }
    }
}

/// Returns the prefix of the ids of all sessions of a conversation.
fn prefix(conversation: &str) -> String {
    format!("hook-{:016x}-", hashed(conversation))
}

fn hashed(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Runs the line of a call in the session of its conversation. `None` if there is none and none
/// could be started: then the caller runs it in a new sandbox, or reports that failure.
pub(crate) fn run(arguments: &RunArgs) -> Result<Option<ExitCode>, CliError> {
    let call = arguments.session.clone().map(check_session_name).transpose()?;
    let key = ConversationKey::from_args(arguments);
    // Looked up once: if the agent ends meanwhile, its children get another parent.
    let agent = AgentProcess::find_ancestor();
    for _ in 0..ATTEMPTS {
        let call = call.clone();
        let Some(mut session) = connect_or_start(&key, agent.as_ref())? else { return Ok(None) };
        match session.greet().and_then(|()| session.begin(&key.signature)) {
            Ok(()) => return execute(&mut session, arguments, call).map(Some),
            Err(error) if error.code() == "signature" => return Ok(None),
            // The session is about to end.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(None)
}

/// Sends the line and waits for its end.
fn execute(
    session: &mut SocketClient,
    arguments: &RunArgs,
    call: Option<String>,
) -> Result<ExitCode, CliError> {
    let cwd = canonical_directory(arguments.policy.directory.as_deref())?;
    let input = has_input();
    session.send(&SessionRequest::Call(CallRequest {
        line: arguments.line.as_deref().unwrap_or_default().as_bytes().into(),
        timeout_ms: arguments.timeout.as_deref().map(parse_duration_ms).transpose()?,
        input,
        call,
        cwd: cwd.as_path().to_str().map(str::to_owned),
        beside: arguments.beside,
        merged: is_same_file(io::stdout(), io::stderr()),
        keep_directory: arguments.keep_directory,
    }))?;
    if input {
        forward_input(session)?;
    }
    Ok(conclude(&session.result(forward_output)?))
}

/// True if standard input is neither closed nor `/dev/null`.
fn has_input() -> bool {
    let (Ok(input), Ok(null)) = (fstat(io::stdin()), rustix::fs::stat("/dev/null")) else {
        return false;
    };
    !(FileType::from_raw_mode(input.st_mode) == FileType::CharacterDevice
        && input.st_rdev == null.st_rdev)
}

/// True if both streams are the same file, so that their order must be kept.
fn is_same_file(out: impl AsFd, err: impl AsFd) -> bool {
    let inode = |stream| fstat(stream).map(|found| (found.st_dev, found.st_ino));
    matches!((inode(out.as_fd()), inode(err.as_fd())), (Ok(out), Ok(err)) if out == err)
}

/// Connects to the session, and starts it if there is none. Locks the socket directory, so that
/// concurrent calls start only one.
fn connect_or_start(
    key: &ConversationKey,
    agent: Option<&AgentProcess>,
) -> Result<Option<SocketClient>, CliError> {
    let socket = socket_dir::socket_path(&key.id)?;
    if let Some(session) = SocketClient::connect(&key.id, &socket) {
        return Ok(Some(session));
    }
    let directory = socket.parent().map(PathBuf::from).unwrap_or_default();
    let fail =
        |source| CliError::File { what: "lock", path: directory.display().to_string(), source };
    let lock = File::open(&directory).map_err(fail)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| fail(error.into()))?;
    if let Some(session) = SocketClient::connect(&key.id, &socket) {
        return Ok(Some(session));
    }
    Ok(if start(agent)? { SocketClient::connect(&key.id, &socket) } else { None })
}

/// Starts the session's server process; returns true if it serves. The server detaches from this
/// process at once: an agent that ends a call kills the call's descendants.
fn start(agent: Option<&AgentProcess>) -> Result<bool, CliError> {
    let mut words: Vec<_> = env::args_os().skip(2).collect();
    // The line belongs to one call, and must not appear in the server's process title.
    let Some(line) =
        words.last_mut().filter(|_| env::args_os().rev().nth(1).is_some_and(|word| word == "-c"))
    else {
        return Ok(false);
    };
    *line = ":".into();
    let mut server = Command::new("/proc/self/exe");
    server.args(["session", "keep", "--detach"]);
    if let Some(agent) = agent {
        server.args(["--watch".to_owned(), agent.to_string()]);
    }
    let (id_line, mut server) = spawn_server(server.args(words).stderr(Stdio::null()))?;
    server.wait().map_err(server_error)?;
    Ok(!id_line.is_empty())
}

/// Serves the session of a conversation.
pub(super) fn serve_conversation(arguments: Keep) -> Result<ExitCode, CliError> {
    if arguments.detach {
        let words = env::args_os().skip(3).filter(|word| word != "--detach");
        Command::new("/proc/self/exe")
            .args(["session", "keep"])
            .args(words)
            .spawn()
            .map_err(server_error)?;
        return Ok(ExitCode::SUCCESS);
    }
    let key = ConversationKey::from_args(&arguments.run);
    let name = arguments.run.conversation.clone();
    let agent = arguments.run.agent.clone().or_else(agent_from_env);
    let observe = arguments.run.observe.map(|observe| match observe {
        ObserveArg::Denials => Observe::Denials,
        ObserveArg::All => Observe::All,
    });
    let chosen = RunOverrides {
        agent: agent.as_deref(),
        observe,
        ask: Some(Asking::Never),
        ..RunOverrides::default()
    };
    let mut resolved_args = resolve_for_run(&arguments.run.policy, chosen)?;
    let grants = &resolved_args.resolved.grants;
    grants.network.refuse_empty_list().map_err(EngineError::from)?;
    let idle = Duration::from_millis(grants.sandbox.hook_session_idle_ms);
    let watched = arguments
        .watch
        .as_deref()
        .and_then(AgentProcess::parse)
        .map(AgentProcess::open)
        .transpose()
        .map_err(|gone| CliError::File {
            what: "watch",
            path: "the agent's process".into(),
            source: gone,
        })?;
    let lifetime = Lifetime::for_conversation(key.signature, idle, watched.flatten());
    (resolved_args.request.command, resolved_args.request.session) =
        (vec!["/bin/bash".into()], key.id);
    let (questions, door) = (None, SessionDoor::Socket);
    serve_session(SessionSetup { resolved_args, name, questions, lifetime, door })
}

/// Ends all sessions of a conversation, and removes the sockets of killed ones.
pub(crate) fn end(conversation: &str) -> Result<(), CliError> {
    let prefix = prefix(conversation);
    for (id, socket) in socket_dir::sockets().into_iter().filter(|(id, _)| id.starts_with(&prefix))
    {
        let Some(mut session) = SocketClient::connect(&id, &socket) else { continue };
        match session.stop() {
            Err(SessionClientError::Refused(refused)) => messages::print_warning(&refused.message),
            stopped => drop(stopped?),
        }
    }
    Ok(())
}
