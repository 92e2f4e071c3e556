//! One session for a conversation of an agent, which calls hooks.
//!
//! `ringfence hook` rewrites a command to `ringfence run --conversation ID …`, which runs it in the
//! session of that conversation and starts one if there is none. Calls that differ in a flag that
//! the policy depends on have sessions of their own, so no call runs under wider rules than its
//! own.

use std::env;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ringfence_engine::EngineError;
use ringfence_policy::{AbsPath, Asking, Observe};
use rustix::fs::{FileType, FlockOperation, flock, fstat};
use serde_json::{Value, json};

use super::client::{SessionClient, conclude};
use super::frames::FrameKind;
use super::lifetime::{Agent, Lifetime};
use super::server::{Keeping, keep_session};
use super::{Keep, socket_dir};
use crate::args::{ObserveArg, RunArgs};
use crate::commands::resolve_args::{RunOverrides, agent, directory, duration, meant_to_run};
use crate::commands::run::named;
use crate::error::CliError;
use crate::messages;

/// So often a session is looked for that ends just then.
const ATTEMPTS: usize = 4;

/// Variables that a policy is resolved by, beside those that commands get.
const VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

/// The session of a conversation that a call belongs to.
struct Key {
    id: String,
    /// All that calls of one session have in common.
    signature: String,
}

impl Key {
    fn of(arguments: &RunArgs) -> Key {
        let conversation = arguments.conversation.as_deref().unwrap_or_default();
        let agent = arguments.agent.clone().or_else(agent);
        let variables: Vec<_> = VARIABLES.iter().map(env::var_os).collect();
        let chosen = (arguments.observe, arguments.shell, &arguments.timeout);
        let signature = format!(
            "{:?}",
            (env!("CARGO_PKG_VERSION"), conversation, agent, chosen, &arguments.policy, variables)
        );
        Key { id: format!("{}{:016x}", prefix(conversation), hashed(&signature)), signature }
    }
}

/// The beginning of the ids of all sessions of a conversation.
fn prefix(conversation: &str) -> String {
    format!("hook-{:016x}-", hashed(conversation))
}

fn hashed(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Runs the line of a call in the session of its conversation. `None` if there is none and none
/// could be started: then the call has a sandbox of its own, or fails as that does.
pub(crate) fn run(arguments: &RunArgs) -> Result<Option<ExitCode>, CliError> {
    let call = arguments.session.clone().map(named).transpose()?;
    let key = Key::of(arguments);
    // Once: should it end meanwhile, its children get another parent.
    let agent = Agent::around_this_process();
    for _ in 0..ATTEMPTS {
        let Some(mut session) = reach_or_start(&key, agent.as_ref())? else { return Ok(None) };
        let begun = session.ask(&json!({ "ask": "begin", "signature": key.signature }));
        match begun {
            Ok(begun) if begun["begun"] == true => {
                let answer = execute(&mut session, arguments, call.as_deref())?;
                return Ok(Some(conclude(&answer, false)));
            }
            Ok(refused) if refused["error"]["code"] == "signature" => return Ok(None),
            // It ends just now.
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(None)
}

/// Passes the line on and stays with it to its end.
fn execute(
    session: &mut SessionClient,
    arguments: &RunArgs,
    call: Option<&str>,
) -> Result<Value, CliError> {
    let cwd = directory(arguments.policy.directory.as_deref())?;
    let timeout = arguments.timeout.as_deref().map(duration).transpose()?;
    let has_input = has_input();
    let question = json!({
        "ask": "exec",
        "stream": true,
        "input": has_input,
        "timeoutMs": timeout,
        "call": call,
        "cwd": cwd.as_path().to_str(),
        "place": if arguments.beside { "beside" } else { "free-shell" },
        "merged": are_one(io::stdout(), io::stderr()),
        "keepDirectory": arguments.keep_directory,
    });
    session.say(FrameKind::Line, arguments.line.as_deref().unwrap_or_default().as_bytes())?;
    session.say(FrameKind::Question, question.to_string().as_bytes())?;
    if has_input {
        session.pass_input()?;
    }
    session.answer()
}

/// Answers whether there is something to read: neither `/dev/null` nor nothing at all.
fn has_input() -> bool {
    let (Ok(input), Ok(null)) = (fstat(io::stdin()), rustix::fs::stat("/dev/null")) else {
        return false;
    };
    !(FileType::from_raw_mode(input.st_mode) == FileType::CharacterDevice
        && input.st_rdev == null.st_rdev)
}

/// Answers whether two streams go to one place, and their order is to be kept.
fn are_one(out: impl AsFd, err: impl AsFd) -> bool {
    let place = |stream| fstat(stream).map(|found| (found.st_dev, found.st_ino));
    matches!((place(out.as_fd()), place(err.as_fd())), (Ok(out), Ok(err)) if out == err)
}

/// The session; started if there is none. Calls that come at once start one between them: the
/// directory of the sockets is locked meanwhile.
fn reach_or_start(key: &Key, agent: Option<&Agent>) -> Result<Option<SessionClient>, CliError> {
    let socket = socket_dir::named(&key.id)?;
    if let Some(session) = SessionClient::reach(&key.id, &socket) {
        return Ok(Some(session));
    }
    let directory = socket.parent().map(PathBuf::from).unwrap_or_default();
    let fail =
        |source| CliError::File { what: "lock", path: directory.display().to_string(), source };
    let lock = File::open(&directory).map_err(fail)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| fail(error.into()))?;
    if let Some(session) = SessionClient::reach(&key.id, &socket) {
        return Ok(Some(session));
    }
    Ok(if start(agent)? { SessionClient::reach(&key.id, &socket) } else { None })
}

/// Starts the process that keeps the session; answers whether it stands. It is no descendant of
/// this process for longer than a moment: an agent that ends a call ends the descendants of it.
fn start(agent: Option<&Agent>) -> Result<bool, CliError> {
    let fail =
        |source| CliError::File { what: "start", path: "the keeper of the session".into(), source };
    let mut words: Vec<_> = env::args_os().skip(2).collect();
    // The line is one call's, and nothing that others should find in a list of processes.
    let Some(line) =
        words.last_mut().filter(|_| env::args_os().rev().nth(1).is_some_and(|word| word == "-c"))
    else {
        return Ok(false);
    };
    *line = ":".into();
    let mut keeper = Command::new("/proc/self/exe");
    keeper.args(["session", "keep", "--detach"]);
    if let Some(agent) = agent {
        keeper.args(["--watch".to_owned(), agent.to_string()]);
    }
    keeper.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = keeper.spawn().map_err(fail)?;
    let mut said = String::new();
    let heard =
        keeper.stdout.take().map_or(Ok(0), |said_by| BufReader::new(said_by).read_line(&mut said));
    keeper.wait().map_err(fail)?;
    Ok(heard.map_err(fail)? > 0)
}

/// Keeps the session of a conversation.
pub(super) fn keep(arguments: Keep) -> Result<ExitCode, CliError> {
    if arguments.detach {
        let fail = |source| CliError::File {
            what: "start",
            path: "the keeper of the session".into(),
            source,
        };
        let words = env::args_os().skip(3).filter(|word| word != "--detach");
        Command::new("/proc/self/exe")
            .args(["session", "keep"])
            .args(words)
            .spawn()
            .map_err(fail)?;
        return Ok(ExitCode::SUCCESS);
    }
    let key = Key::of(&arguments.run);
    let name = arguments.run.conversation.clone();
    let agent = arguments.run.agent.clone().or_else(agent);
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
    let meant = meant_to_run(&arguments.run.policy, chosen)?;
    let grants = &meant.resolved.grants;
    if !grants.is_confined() {
        return Err(CliError::Words {
            what: "the policy confines nothing".into(),
            hint: "`ringfence policy show --origin`".into(),
        });
    }
    grants.network.refuse_empty_list().map_err(EngineError::from)?;
    let idle = Duration::from_millis(grants.sandbox.hook_session_idle_ms);
    let watched =
        arguments.watch.as_deref().and_then(Agent::parse).map(Agent::open).transpose().map_err(
            |gone| CliError::File {
                what: "watch",
                path: "the agent's process".into(),
                source: gone,
            },
        )?;
    let lifetime = Lifetime::of_conversation(key.signature, idle, watched.flatten());
    let shell = "/bin/bash".into();
    keep_session(Keeping { meant, id: Some(key.id), name, agent, shell, questions: None, lifetime })
}

/// Ends all sessions of a conversation, and removes what killed ones left.
pub(crate) fn end(conversation: &str) -> Result<(), CliError> {
    let prefix = prefix(conversation);
    for (id, socket) in socket_dir::sockets()?.into_iter().filter(|(id, _)| id.starts_with(&prefix))
    {
        let Some(mut session) = SessionClient::reach(&id, &socket) else { continue };
        let answer = session.ask(&json!({ "ask": "stop" }))?;
        if let Some(message) = answer["error"]["message"].as_str() {
            messages::warning(message);
        }
    }
    Ok(())
}

/// The directory of a call, if it says one.
pub(super) fn directory_of(question: &Value) -> Option<AbsPath> {
    question["cwd"].as_str().and_then(AbsPath::new)
}
