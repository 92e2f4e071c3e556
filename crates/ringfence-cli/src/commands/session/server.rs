//! The server process of a session.

mod call;
mod command;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use ringfence_api::session_protocol::{
    PolicyState, SessionError, SessionReply, SessionReport, SessionRequest, SessionSandboxState,
};
use ringfence_api::{Asker, Signal, StdioMode};
use ringfence_audit::now_ms;
use ringfence_client::socket_dir;
use ringfence_engine::EngineError;
use ringfence_engine::session::{CommandControl, Session, SessionStatus};
use ringfence_linux::LocalProvider;
use ringfence_policy::Asking;

use super::SessionServeArgs;
use super::client_peer::{ClientPeer, RequestResult};
use super::command_slot::CommandSlot;
use super::lifetime::Lifetime;
use super::questions::PendingQuestions;
use crate::asker::ANSWER_TIMEOUT;
use crate::commands::resolve_args::{
    ResolvedArgs, RunOverrides, agent_from_env, parse_duration_ms, resolve_for_run,
};
use crate::error::CliError;
use crate::messages;
use crate::providers;

/// The number of bytes of each stream kept for an answer.
const KEPT: usize = 16 * 1024 * 1024;

/// The state of a session's server.
struct SessionServer {
    id: String,
    name: Option<String>,
    cwd: String,
    started_ms: u64,
    /// The socket; none on standard input and output.
    socket: Option<PathBuf>,
    shell: OsString,
    session: Session,
    /// The open questions, if the session asks.
    questions: Option<Arc<PendingQuestions>>,
    lifetime: Lifetime,
    /// The running commands.
    running: Mutex<Vec<Weak<CommandControl>>>,
    /// Held by the conversation's call that uses the shell.
    shell_turn: Mutex<()>,
    /// The client of that call.
    shell_client: Mutex<Option<Arc<ClientPeer>>>,
}

/// A client, and its command.
struct Connection {
    peer: Arc<ClientPeer>,
    slot: CommandSlot,
}

pub(super) fn serve(arguments: SessionServeArgs) -> Result<ExitCode, CliError> {
    let door = if arguments.stdio { SessionDoor::Stdio } else { SessionDoor::Socket };
    let arguments = arguments.start;
    let ask = arguments.ask.then_some(Asking::Terminal);
    let answer_timeout = arguments
        .ask_timeout
        .as_deref()
        .map(parse_duration_ms)
        .transpose()?
        .map_or(ANSWER_TIMEOUT, Duration::from_millis);
    let agent = arguments.agent.or_else(agent_from_env);
    let mut resolved_args = resolve_for_run(
        &arguments.policy,
        RunOverrides { ask, agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let grants = &resolved_args.resolved.grants;
    if !resolved_args.resolved.is_confined() {
        messages::print_warning(
            "nothing is confined: commands of this session have all your permissions",
        );
    }
    let questions = (arguments.ask && grants.ask == Asking::Terminal && grants.is_confined())
        .then(|| Arc::new(PendingQuestions::new(answer_timeout)));
    let (name, lifetime) = (arguments.name, Lifetime::unbounded());
    resolved_args.request.command = vec![arguments.shell];
    serve_session(SessionSetup { resolved_args, name, questions, lifetime, door })
}

/// The setup of a session.
pub(super) struct SessionSetup {
    /// The request has the shell as its command, and the id as its session.
    pub(super) resolved_args: ResolvedArgs,
    pub(super) name: Option<String>,
    pub(super) questions: Option<Arc<PendingQuestions>>,
    pub(super) lifetime: Lifetime,
    pub(super) door: SessionDoor,
}

/// The place where a session serves its clients.
#[derive(Debug, Clone, Copy)]
pub(super) enum SessionDoor {
    /// A socket of its own.
    Socket,
    /// Standard input and output, for one client.
    Stdio,
}

/// Creates the sandbox, and serves clients until the session ends: at a socket, after the id was
/// printed, or on standard input and output.
pub(super) fn serve_session(setup: SessionSetup) -> Result<ExitCode, CliError> {
    let SessionSetup { resolved_args, name, questions, lifetime, door } = setup;
    let ResolvedArgs { mut request, resolved } = resolved_args;
    let shell = request.command[0].clone();
    request.stdio = StdioMode::Capture { limit: KEPT };
    request.asker = questions.clone().map(|questions| questions as Arc<dyn Asker>);
    let (id, cwd) = (request.session.clone(), request.cwd.to_string());
    let socket = match door {
        SessionDoor::Socket => Some(socket_dir::new_socket_path(&id)?),
        SessionDoor::Stdio => None,
    };
    let path = socket.as_ref().map_or(id.clone(), |socket| socket.display().to_string());
    let fail = |what| {
        let path = path.clone();
        move |source| CliError::File { what, path, source }
    };
    // Before the sandbox is created: child processes inherit the open fds.
    let stdio = DetachedStdio::detach().map_err(fail("detach from the terminal for"))?;
    let registry = providers::registry(LocalProvider::for_one_sandbox);
    let session =
        Session::open(Box::new(registry), request, resolved, shell.clone()).map_err(CliError::from);
    let is_for_conversation = lifetime.is_for_conversation();
    let listening = session.and_then(|session| {
        if is_for_conversation && !session.is_confined() {
            return Err(EngineError::SandboxOff.into());
        }
        let listener = socket.as_deref().map(socket_dir::listen).transpose();
        Ok((session, listener.map_err(fail("listen at"))?))
    });
    let (session, listener) = match listening {
        Ok(both) => both,
        Err(error) => {
            stdio.restore();
            return Err(error);
        }
    };
    let server = Arc::new(SessionServer {
        id,
        name,
        cwd,
        started_ms: now_ms(),
        socket,
        shell,
        session,
        questions,
        lifetime,
        running: Mutex::default(),
        shell_turn: Mutex::default(),
        shell_client: Mutex::default(),
    });
    let watched = server.clone();
    // Without this thread, a session whose socket was removed would never end.
    thread::Builder::new()
        .name("socket".into())
        .spawn(move || watched.watch_socket())
        .map_err(fail("start a thread for"))?;
    let Some(listener) = listener else { server.serve_stdio(stdio.into_peer()) };
    stdio.print_id(&server.id).map_err(fail("print the id of"))?;
    for client in listener.incoming().flatten() {
        let server = server.clone();
        // If no thread can be started, the client gets no answer.
        let _ =
            thread::Builder::new().name("client".into()).spawn(move || server.serve_client(client));
    }
    Ok(ExitCode::SUCCESS)
}

/// The streams of the process that started this one; child processes must not inherit them.
struct DetachedStdio {
    input: OwnedFd,
    out: OwnedFd,
    err: OwnedFd,
}

impl DetachedStdio {
    /// Begins a new process session, with `/dev/null` as streams.
    fn detach() -> io::Result<Self> {
        const AWAY: i32 = 10;
        // Fails if this process already leads a session, which is fine.
        let _ = rustix::process::setsid();
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), AWAY)?;
        let out = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), AWAY)?;
        let err = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), AWAY)?;
        let null = fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(Self { input, out, err })
    }

    /// Restores the streams, to report why there is no session.
    fn restore(self) {
        let _ = rustix::stdio::dup2_stdout(&self.out)
            .and_then(|()| rustix::stdio::dup2_stderr(&self.err));
    }

    /// The client on standard input and output.
    fn into_peer(self) -> ClientPeer {
        ClientPeer::new(self.input, self.out)
    }

    fn print_id(self, id: &str) -> io::Result<()> {
        rustix::io::write(&self.out, format!("{id}\n").as_bytes())?;
        Ok(())
    }
}

impl SessionServer {
    /// Applies policy file changes to running commands. Ends the session when its socket is
    /// removed or its lifetime is over.
    fn watch_socket(&self) {
        const LOOK: Duration = Duration::from_secs(1);
        let shell = || shell_pid(&self.session.status());
        let has_socket =
            || self.socket.as_ref().is_none_or(|socket| fs::symlink_metadata(socket).is_ok());
        while has_socket() && !self.lifetime.is_over(shell) {
            self.lifetime.wait(LOOK);
            self.session.follow_policy();
        }
        self.lifetime.end();
        self.remove_socket();
        let _ = self.session.end();
        std::process::exit(0)
    }

    fn remove_socket(&self) {
        if let Some(socket) = &self.socket {
            let _ = fs::remove_file(socket);
        }
    }

    fn serve_client(&self, client: UnixStream) {
        if !is_allowed_peer(&client) {
            return;
        }
        let Ok(peer) = ClientPeer::from_socket(client).map(Arc::new) else { return };
        match self.lifetime.enter() {
            Some(_counted) => self.serve_peer(&peer, || ()),
            None => {
                let _ = peer.reply(None, Err(gone()));
            }
        }
    }

    /// Serves the client on standard input and output, and ends the session with it.
    fn serve_stdio(&self, peer: ClientPeer) -> ! {
        self.serve_peer(&Arc::new(peer), || {
            let _ = self.session.end();
            std::process::exit(0)
        });
        std::process::exit(0)
    }

    /// Handles requests until the client leaves, which interrupts its command. `at_end` is called
    /// before that command has ended.
    fn serve_peer(&self, peer: &Arc<ClientPeer>, at_end: impl FnOnce()) {
        let connection = Connection { peer: peer.clone(), slot: CommandSlot::default() };
        thread::scope(|scope| {
            // A client that cannot be read from or written to has left.
            let _ = peer.serve(&self.id, |request| self.handle(&connection, scope, request));
            connection.slot.interrupt();
            at_end();
        });
    }

    fn handle<'scope>(
        &'scope self,
        connection: &'scope Connection,
        scope: &'scope thread::Scope<'scope, '_>,
        request: SessionRequest,
    ) -> RequestResult {
        match request {
            SessionRequest::Begin { signature } => self.begin_call(&signature),
            SessionRequest::Exec(_)
            | SessionRequest::Start(_)
            | SessionRequest::Call(_)
            | SessionRequest::Attach { .. } => self.start_command(connection, scope, request),
            SessionRequest::Input { data } => {
                connection.slot.feed(&connection.peer, &data.0);
                Ok(None)
            }
            SessionRequest::Interrupt {} => {
                connection.slot.interrupt();
                Ok(None)
            }
            SessionRequest::Inspect {} => Ok(Some(self.inspect())),
            SessionRequest::Questions {} => {
                let listed = self.questions.as_ref().map(|questions| questions.list(&self.id));
                Ok(Some(SessionReply::Questions { questions: listed.unwrap_or_default() }))
            }
            SessionRequest::Answer { question, answer } => match &self.questions {
                Some(questions) => questions.handle_answer(question, answer),
                None => {
                    Err(SessionError::new("usage", "this session was not started with `--ask`"))
                }
            },
            SessionRequest::Signal { signal } => self.signal(signal),
            SessionRequest::Stop {} => self.stop(&connection.peer),
            SessionRequest::Hello { .. } => Ok(None),
        }
    }

    /// Sends a signal to the processes that all running commands have started.
    fn signal(&self, number: i32) -> RequestResult {
        let Some(signal) = Signal::from_linux_number(number) else {
            return Err(SessionError::new("usage", "no such signal"));
        };
        let running: Vec<_> = self.running().iter().filter_map(Weak::upgrade).collect();
        if running.is_empty() {
            return Err(SessionError::new("idle", "no command is running in this session"));
        }
        running.iter().for_each(|control| control.interrupter.signal(signal));
        Ok(Some(SessionReply::Signalled { signalled: running.len() }))
    }

    /// Ends the session, replies, and exits.
    fn stop(&self, peer: &ClientPeer) -> ! {
        let ended = self.session.end().map_err(failed);
        let stopped = |quarantined| SessionReply::Stopped { session: self.id.clone(), quarantined };
        let _ = peer.reply(Some("stop"), ended.map(|moved| Some(stopped(moved))));
        self.remove_socket();
        std::process::exit(0)
    }

    fn inspect(&self) -> SessionReply {
        let status = self.session.status();
        let shell_pid = shell_pid(&status);
        let policy = PolicyState {
            files: status.policy_files.iter().map(ToString::to_string).collect(),
            pending: status.pending,
            problem: status.problem,
        };
        let (enforced, gaps) = (status.enforced, status.gaps);
        SessionReply::State(Box::new(SessionReport {
            session: self.id.clone(),
            name: self.name.clone(),
            pid: std::process::id(),
            cwd: self.cwd.clone(),
            started_ms: self.started_ms,
            busy: status.is_busy,
            commands: status.commands,
            sandbox: Some(SessionSandboxState { shell_pid, enforced, gaps, policy }),
        }))
    }
}

/// The pid of the session's shell, if it is a process of this host.
fn shell_pid(status: &SessionStatus) -> Option<i32> {
    status.shell.as_ref()?.parse().ok()
}

/// True if the peer may use the session: the same user or root, outside every sandbox.
pub(super) fn is_allowed_peer(client: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let peer = rustix::net::sockopt::socket_peercred(client);
    peer.is_ok_and(|peer| (peer.uid == own || peer.uid.is_root()) && is_outside(peer.pid))
}

/// True if a process is in our user and pid namespaces. A sandboxed process may find our socket
/// below an allowed path, and must not answer its own questions.
fn is_outside(pid: rustix::process::Pid) -> bool {
    let namespace = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    let pid = pid.as_raw_pid().to_string();
    ["user", "pid"].iter().all(|kind| {
        namespace(&pid, kind).is_some_and(|theirs| Some(theirs) == namespace("self", kind))
    })
}

fn failed(error: EngineError) -> SessionError {
    CliError::from(error).to_session_error()
}

fn gone() -> SessionError {
    SessionError::new("gone", "the session has ended")
}
