//! The server process of a session.

mod call;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ringfence_api::{
    Asker, Errors, ExitStatus, OutputStream, Permission, ShellCommand, ShellState, StdinInput,
    StdioMode, error_chain,
};
use ringfence_audit::AuditError;
use ringfence_engine::EngineError;
use ringfence_engine::session::{
    CommandControl, PolicyNews, PolicyProblem, Session, SessionOutcome, SessionProcess,
    StartDecision,
};
use ringfence_local::LocalProvider;
use ringfence_policy::Asking;
use ringfence_provider::{OutputSink, ProcessStdio, StdinFeeder, TerminalSize};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::Timespec;
use serde_json::{Value, json};

use super::frames::{FrameKind, receive, send};
use super::lifetime::Lifetime;
use super::questions::PendingQuestions;
use super::{SessionStartArgs, socket_dir};
use crate::asker::ANSWER_TIMEOUT;
use crate::commands::resolve_args::{
    ResolvedArgs, RunOverrides, TypedCommand, agent_from_env, parse_duration_ms, resolve_for_run,
};
use crate::error::CliError;
use crate::messages;
use crate::providers::{self, is_unconfined};

/// The number of bytes of each stream kept for an answer.
const KEPT: usize = 16 * 1024 * 1024;

/// The state of a session's server.
struct SessionServer {
    id: String,
    name: Option<String>,
    cwd: String,
    started_ms: u64,
    socket: PathBuf,
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
    shell_client: Mutex<Option<UnixStream>>,
}

pub(super) fn serve(arguments: SessionStartArgs) -> Result<ExitCode, CliError> {
    let ask = arguments.ask.then_some(Asking::Terminal);
    let answer_timeout = arguments
        .ask_timeout
        .as_deref()
        .map(parse_duration_ms)
        .transpose()?
        .map_or(ANSWER_TIMEOUT, Duration::from_millis);
    let agent = arguments.agent.or_else(agent_from_env);
    let resolved_args = resolve_for_run(
        &arguments.policy,
        RunOverrides { ask, agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let grants = &resolved_args.resolved.grants;
    if is_unconfined(grants) {
        messages::print_warning(
            "nothing is confined: commands of this session have all your permissions",
        );
    }
    let questions = (arguments.ask && grants.ask == Asking::Terminal && grants.is_confined())
        .then(|| Arc::new(PendingQuestions::new(answer_timeout)));
    let (name, shell, lifetime) = (arguments.name, arguments.shell, Lifetime::unbounded());
    serve_session(SessionSetup { resolved_args, id: None, name, agent, shell, questions, lifetime })
}

/// The setup of a session.
pub(super) struct SessionSetup {
    pub(super) resolved_args: ResolvedArgs,
    /// The id, if it is predetermined.
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) shell: OsString,
    pub(super) questions: Option<Arc<PendingQuestions>>,
    pub(super) lifetime: Lifetime,
}

/// Creates the sandbox, prints the id, and serves clients until the session ends.
pub(super) fn serve_session(setup: SessionSetup) -> Result<ExitCode, CliError> {
    let SessionSetup { resolved_args, id, name, agent, shell, questions, lifetime } = setup;
    let typed = TypedCommand { line: None, command: vec![shell.clone()], agent };
    let (mut request, resolved) =
        resolved_args.into_request(typed, StdioMode::Capture { limit: KEPT });
    request.asker = questions.clone().map(|questions| questions as Arc<dyn Asker>);
    if let Some(id) = id {
        request.session = id;
    }
    let socket = socket_dir::new_socket_path(&request.session)?;
    let path = socket.display().to_string();
    let fail = |what| {
        let path = path.clone();
        move |source| CliError::File { what, path, source }
    };
    let (id, cwd) = (request.session.clone(), request.cwd.to_string());
    // Before the sandbox is created: child processes inherit the open fds.
    let stdio = DetachedStdio::detach().map_err(fail("detach from the terminal for"))?;
    let registry = providers::registry(LocalProvider::for_one_sandbox);
    let session =
        Session::open(Box::new(registry), request, resolved, shell.clone()).map_err(CliError::from);
    let listening = session.and_then(|session| {
        let listener = socket_dir::listen(&socket).map_err(fail("listen at"))?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))
            .map_err(fail("set the mode of"))?;
        Ok((session, listener))
    });
    let (session, listener) = match listening {
        Ok(both) => both,
        Err(error) => {
            stdio.restore();
            return Err(error);
        }
    };
    stdio.print_id(&id).map_err(fail("print the id of"))?;
    let started_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    let (running, shell_turn, shell_client) =
        (Mutex::default(), Mutex::default(), Mutex::default());
    let server = SessionServer {
        id,
        name,
        cwd,
        started_ms,
        socket,
        shell,
        session,
        questions,
        lifetime,
        running,
        shell_turn,
        shell_client,
    };
    let server = Arc::new(server);
    let watched = server.clone();
    // Without this thread, a session whose socket was removed would never end.
    let watcher =
        thread::Builder::new().name("socket".into()).spawn(move || watched.watch_socket());
    watcher.map_err(fail("start a thread for"))?;
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
    out: OwnedFd,
    err: OwnedFd,
}

impl DetachedStdio {
    /// Begins a new process session, with `/dev/null` as streams.
    fn detach() -> io::Result<Self> {
        const AWAY: i32 = 10;
        // Fails if this process already leads a session, which is fine.
        let _ = rustix::process::setsid();
        let out = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), AWAY)?;
        let err = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), AWAY)?;
        let null = fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(Self { out, err })
    }

    /// Restores the streams, to report why there is no session.
    fn restore(self) {
        let _ = rustix::stdio::dup2_stdout(&self.out)
            .and_then(|()| rustix::stdio::dup2_stderr(&self.err));
    }

    fn print_id(self, id: &str) -> io::Result<()> {
        rustix::io::write(&self.out, format!("{id}\n").as_bytes())?;
        Ok(())
    }
}

type OnStartFn<'a> = dyn FnMut(CommandControl) -> StartDecision + 'a;
type OnUnrecordedFn<'a> = dyn FnMut(&AuditError) + 'a;
type ExecResult = Result<SessionOutcome, EngineError>;

/// A client's request, with the line that came before it.
#[derive(Default)]
pub(super) struct ClientRequest {
    line: Vec<u8>,
    pub(super) question: Value,
}

impl ClientRequest {
    /// The kind of standard input for the command.
    fn input(&self) -> StdinInput {
        if self.question["input"] == true { StdinInput::Streamed } else { StdinInput::Empty }
    }
}

impl SessionServer {
    /// Applies policy file changes to running commands. Ends the session when its socket is
    /// removed or its lifetime is over.
    fn watch_socket(&self) {
        const LOOK: Duration = Duration::from_secs(1);
        let shell = || self.session.status().shell;
        while fs::symlink_metadata(&self.socket).is_ok() && !self.lifetime.is_over(shell) {
            self.lifetime.wait(LOOK);
            self.session.follow_policy();
        }
        self.lifetime.end();
        let _ = fs::remove_file(&self.socket);
        let _ = self.session.end();
        std::process::exit(0)
    }

    fn serve_client(&self, mut client: UnixStream) {
        if !is_allowed_peer(&client) {
            return;
        }
        let Some(_counted) = self.lifetime.enter() else {
            let _ = read_request(&mut client)
                .and_then(|_| send(&mut client, FrameKind::Answer, gone().to_string().as_bytes()));
            return;
        };
        let mut stays_open = true;
        while stays_open && let Ok(Some(request)) = read_request(&mut client) {
            let what = request.question["ask"].as_str().unwrap_or_default().to_owned();
            let answer = match what.as_str() {
                "begin" => self.begin_call(&request.question),
                "exec" => self.exec(&client, request),
                "start" => self.start(&client, request),
                "attach" => self.attach(&client, &request),
                "inspect" => self.inspect(),
                "questions" => {
                    self.questions.as_ref().map_or_else(|| json!([]), |questions| questions.list())
                }
                "answer" => self.answer(&request.question),
                "signal" => self.signal(&request.question),
                "stop" => self.stop(),
                _ => json!({ "error": { "code": "usage", "message": "no such question" } }),
            };
            // A thread still reads this stream for interrupts of the command, and would take the
            // next request.
            stays_open = send(&mut client, FrameKind::Answer, answer.to_string().as_bytes())
                .is_ok()
                && matches!(what.as_str(), "begin" | "inspect" | "questions" | "answer");
            if what == "stop" {
                let _ = fs::remove_file(&self.socket);
                std::process::exit(0);
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    }

    fn exec(&self, client: &UnixStream, request: ClientRequest) -> Value {
        if self.lifetime.is_for_conversation() && request.question["place"].is_string() {
            return self.exec_call(client, request);
        }
        let deadline = self.deadline(&request);
        let is_streamed = request.question["stream"] == true;
        let input = request.input();
        let limit = if is_streamed { 0 } else { KEPT };
        let line =
            ShellCommand { text: request.line, input, deadline, limit, errors: Errors::Separate };
        self.run_watched(client, is_streamed, |on_start, sink, warn| {
            self.session.execute(&line, on_start, sink, warn)
        })
    }

    /// Runs a program outside the shell; another client may use the shell meanwhile.
    fn start(&self, client: &UnixStream, request: ClientRequest) -> Value {
        let command = request
            .line
            .split(|byte| *byte == 0)
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect();
        let deadline = self.deadline(&request);
        let is_streamed = request.question["stream"] == true;
        let streams = ProcessStdio::Pipes {
            input: request.input(),
            limit: if is_streamed { 0 } else { KEPT },
        };
        match self.begin(command, streams, deadline) {
            Ok(process) => self.run_watched(client, is_streamed, |on_start, sink, warn| {
                if on_start(process.control()) == StartDecision::Left {
                    process.control().interrupter.interrupt();
                }
                process.wait(sink, warn)
            }),
            Err(answer) => answer,
        }
    }

    /// Returns the time limit of a command: the request's or the policy's, whichever is shorter.
    fn deadline(&self, request: &ClientRequest) -> Option<Duration> {
        self.session.follow_policy();
        let wall = self.session.policy().grants.limits.wall_ms;
        [request.question["timeoutMs"].as_u64(), wall]
            .into_iter()
            .flatten()
            .min()
            .map(Duration::from_millis)
    }

    fn begin(
        &self,
        command: Vec<OsString>,
        streams: ProcessStdio,
        deadline: Option<Duration>,
    ) -> Result<SessionProcess, Value> {
        // A record that could not be written is reported at the end, if it still fails then.
        self.session.start(command, streams, deadline, &mut |_| {}).map_err(failed)
    }

    /// Runs a shell at the client's terminal.
    fn attach(&self, client: &UnixStream, request: &ClientRequest) -> Value {
        let number = |key: &str| {
            request.question[key].as_u64().and_then(|number| u16::try_from(number).ok())
        };
        let size = TerminalSize {
            rows: number("rows").unwrap_or(24),
            columns: number("columns").unwrap_or(80),
        };
        let process = match self.begin(
            vec![self.shell.clone(), "-i".into()],
            ProcessStdio::Terminal(size),
            None,
        ) {
            Ok(process) => process,
            Err(answer) => return answer,
        };
        if let Some(refusal) = process.refusal().and_then(|outcome| outcome.refusal.as_ref()) {
            let message = format!("the shell was not started: {}", refusal.reason);
            return json!({ "error": { "code": "command-refused", "message": message, "status": ExitStatus::REFUSED } });
        }
        if !process.terminal().is_some_and(|terminal| send_terminal(client, terminal)) {
            return gone();
        }
        self.run_watched(client, false, |on_start, sink, warn| {
            if on_start(process.control()) == StartDecision::Left {
                process.control().interrupter.interrupt();
            }
            process.wait(sink, warn)
        })
    }

    /// Runs a command to its end, and interrupts it when its client asks for that or leaves.
    fn run_watched(
        &self,
        client: &UnixStream,
        is_streamed: bool,
        run: impl FnOnce(&mut OnStartFn<'_>, &mut OutputSink<'_>, &mut OnUnrecordedFn<'_>) -> ExecResult,
    ) -> Value {
        let is_over = Arc::new(Mutex::new(false));
        let mut current = None;
        let mut on_start = |control: CommandControl| {
            if is_gone(client) {
                return StartDecision::Left;
            }
            let is_over = is_over.clone();
            let control = current.insert(Arc::new(control)).clone();
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.retain(|one| one.strong_count() > 0);
            running.push(Arc::downgrade(&control));
            drop(running);
            // If no thread can be started, the client cannot interrupt the command.
            let _ = client.try_clone().and_then(|watched| {
                thread::Builder::new()
                    .name("interrupts".into())
                    .spawn(move || watch_client(watched, &is_over, &control))
            });
            StartDecision::Taken
        };
        let mut warnings = Vec::new();
        let mut to = client;
        let mut sink = |stream, bytes: &[u8]| {
            let kind = if stream == OutputStream::Out { FrameKind::Out } else { FrameKind::Err };
            if is_streamed {
                let _ = send(&mut to, kind, bytes);
            }
        };
        let executed =
            run(&mut on_start, &mut sink, &mut |error| warnings.push(error_chain(error)));
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|one| current.as_ref().is_none_or(|own| !one.ptr_eq(&Arc::downgrade(own))));
        match executed {
            Ok(executed) => outcome_json(
                &executed,
                &self.id,
                self.session.permission(&executed.outcome),
                warnings,
            ),
            Err(error) => failed(error),
        }
    }

    fn inspect(&self) -> Value {
        let standings = self.session.status();
        json!({
            "session": self.id,
            "name": self.name,
            "pid": std::process::id(),
            "cwd": self.cwd,
            "startedMs": self.started_ms,
            "busy": standings.is_busy,
            "commands": standings.commands,
            "shellPid": standings.shell,
            "enforced": standings.enforced,
            "gaps": standings.gaps,
            "policy": {
                "files": standings.policy_files.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "pending": standings.pending,
                "problem": standings.problem.as_ref().map(problem),
            },
        })
    }

    fn answer(&self, question: &Value) -> Value {
        match &self.questions {
            Some(questions) => questions.handle_answer(question),
            None => {
                json!({ "error": { "code": "usage", "message": "this session was not started with `--ask`" } })
            }
        }
    }

    /// Sends a signal to the processes that all running commands have started.
    fn signal(&self, question: &Value) -> Value {
        let number = question["signal"]
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .filter(|number| (1..=64).contains(number));
        let running: Vec<_> = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let Some(number) = number else {
            return json!({ "error": { "code": "usage", "message": "no such signal" } });
        };
        if running.is_empty() {
            return json!({ "error": { "code": "idle", "message": "no command is running in this session" } });
        }
        running.iter().for_each(|control| control.interrupter.signal(number));
        json!({ "exitCode": 0, "signalled": running.len() })
    }

    fn stop(&self) -> Value {
        let ended = self.session.end();
        match ended {
            Ok(moved) => json!({ "session": self.id, "quarantined": moved }),
            Err(error) => failed(error),
        }
    }
}

fn problem(problem: &PolicyProblem) -> Value {
    json!({ "code": problem.code, "message": problem.message, "hint": problem.hint })
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

/// Sends the terminal's fd to the client; returns true on success.
fn send_terminal(client: &UnixStream, terminal: BorrowedFd<'_>) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [terminal];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
        && sendmsg(client, &[IoSlice::new(b"t")], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// Feeds the command's standard input, and interrupts the command when the client asks for that or
/// leaves.
fn watch_client(mut client: UnixStream, is_over: &Mutex<bool>, control: &CommandControl) {
    while let Ok(Some((FrameKind::Input, bytes))) = receive(&mut client) {
        let fed =
            control.feeder.as_ref().is_none_or(|feeder| feed(&client, feeder.as_ref(), &bytes));
        if !fed {
            break;
        }
    }
    // The lock is held meanwhile: the next command belongs to another request.
    let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_over {
        control.interrupter.interrupt();
    }
}

fn is_gone(client: &UnixStream) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(client, PollFlags::RDHUP)], Some(&NOW)) != Ok(0)
}

/// Feeds bytes to the command; returns false if the client has left.
fn feed(client: &UnixStream, feeder: &dyn StdinFeeder, bytes: &[u8]) -> bool {
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    if bytes.is_empty() {
        feeder.close();
    }
    while let Err(error) = feeder.feed(bytes) {
        if error.kind() != io::ErrorKind::WouldBlock {
            // The command has closed its standard input, which is not an error.
            break;
        }
        if poll(&mut [PollFd::new(client, PollFlags::RDHUP)], Some(&LOOK)) != Ok(0) {
            return false;
        }
    }
    true
}

fn failed(error: EngineError) -> Value {
    let error = CliError::from(error);
    let mut object = error.to_json();
    object["status"] = error.exit_status().into();
    json!({ "error": object })
}

fn gone() -> Value {
    json!({ "error": { "code": "gone", "message": "the session has ended" } })
}

fn outcome_json(
    executed: &SessionOutcome,
    id: &str,
    permission: Option<Permission>,
    warnings: Vec<String>,
) -> Value {
    let mut answer = crate::json::outcome_json(&executed.outcome, id, permission);
    crate::json::add_background(&mut answer, &executed.background);
    answer["cwd"] = executed.cwd.as_ref().map(ToString::to_string).into();
    answer["shell"] = match executed.shell {
        ShellState::Alive => "lives-on",
        ShellState::Ended => "ended",
    }
    .into();
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into();
    }
    if executed.news != PolicyNews::default() {
        let problems: Vec<Value> = executed.news.problems.iter().map(problem).collect();
        let texts: Vec<String> = executed.news.changes.iter().map(ToString::to_string).collect();
        answer["policy"] =
            json!({ "changes": executed.news.changes, "said": texts, "problems": problems });
    }
    answer
}

/// Reads the next request; `None` at the end.
pub(super) fn read_request(client: &mut UnixStream) -> io::Result<Option<ClientRequest>> {
    let mut request = ClientRequest::default();
    loop {
        match receive(client)? {
            None => return Ok(None),
            Some((FrameKind::Line, line)) => request.line = line,
            Some((FrameKind::Question, text)) => {
                request.question = serde_json::from_slice(&text)?;
                return Ok(Some(request));
            }
            // Too late: the command has ended.
            Some((FrameKind::Interrupt | FrameKind::Input, _)) => {}
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
