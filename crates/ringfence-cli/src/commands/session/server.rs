//! The keeper of a session.

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
    StdioMode, whole,
};
use ringfence_audit::AuditError;
use ringfence_engine::EngineError;
use ringfence_engine::session::{
    CommandControl, PolicyNews, PolicyProblem, Session, SessionOutcome, SessionProcess,
    StartDecision,
};
use ringfence_local::LocalProvider;
use ringfence_policy::{Asking, Mode};
use ringfence_provider::{OutputSink, ProcessStdio, StdinFeeder, TerminalSize};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::Timespec;
use serde_json::{Value, json};

use super::frames::{FrameKind, receive, send};
use super::lifetime::Lifetime;
use super::questions::PendingQuestions;
use super::{SessionStartArgs, socket_dir};
use crate::asker::PATIENCE;
use crate::commands::resolve_args::{
    ResolvedArgs, RunOverrides, TypedCommand, agent, duration, meant_to_run,
};
use crate::error::CliError;
use crate::messages;

/// How much of each stream is kept for an answer.
const KEPT: usize = 16 * 1024 * 1024;

/// A session and who keeps it.
struct SessionServer {
    id: String,
    name: Option<String>,
    cwd: String,
    started_ms: u64,
    socket: PathBuf,
    shell: OsString,
    opened: Session,
    /// Where somebody is asked.
    questions: Option<Arc<PendingQuestions>>,
    lifetime: Lifetime,
    /// The commands that run.
    running: Mutex<Vec<Weak<CommandControl>>>,
    /// Held by the call of a conversation that uses the shell.
    shell_turn: Mutex<()>,
    /// The client of that call.
    shell_client: Mutex<Option<UnixStream>>,
}

pub(super) fn serve(arguments: SessionStartArgs) -> Result<ExitCode, CliError> {
    let ask = arguments.ask.then_some(Asking::Terminal);
    let patience = arguments
        .ask_timeout
        .as_deref()
        .map(duration)
        .transpose()?
        .map_or(PATIENCE, Duration::from_millis);
    let agent = arguments.agent.or_else(agent);
    let meant = meant_to_run(
        &arguments.policy,
        RunOverrides { ask, agent: agent.as_deref(), ..RunOverrides::default() },
    )?;
    let grants = &meant.resolved.grants;
    if grants.mode == Mode::FullAccess || !grants.enabled {
        messages::warning("nothing is confined: commands of this session can do whatever you can");
    }
    let questions = (arguments.ask && grants.ask == Asking::Terminal && grants.is_confined())
        .then(|| Arc::new(PendingQuestions::new(patience)));
    let (name, shell, lifetime) = (arguments.name, arguments.shell, Lifetime::unbounded());
    keep_session(Keeping { meant, id: None, name, agent, shell, questions, lifetime })
}

/// A session that is to be kept.
pub(super) struct Keeping {
    pub(super) meant: ResolvedArgs,
    /// Its id, if it is to have a certain one.
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) shell: OsString,
    pub(super) questions: Option<Arc<PendingQuestions>>,
    pub(super) lifetime: Lifetime,
}

/// Makes the sandbox, says the id on standard output, and serves clients until the session ends.
pub(super) fn keep_session(keeping: Keeping) -> Result<ExitCode, CliError> {
    let Keeping { meant, id, name, agent, shell, questions, lifetime } = keeping;
    let typed = TypedCommand { line: None, command: vec![shell.clone()], agent };
    let (mut asked, resolved) = meant.asked(typed, StdioMode::Capture { limit: KEPT });
    asked.asker = questions.clone().map(|questions| questions as Arc<dyn Asker>);
    if let Some(id) = id {
        asked.session = id;
    }
    let socket = socket_dir::socket(&asked.session)?;
    let path = socket.display().to_string();
    let fail = |what| {
        let path = path.clone();
        move |source| CliError::File { what, path, source }
    };
    let (id, cwd) = (asked.session.clone(), asked.cwd.to_string());
    // Before the sandbox is made: whatever is started keeps what is open now.
    let aside = DetachedStdio::set().map_err(fail("detach from the terminal for"))?;
    let opened =
        Session::open(Box::new(LocalProvider::for_one_sandbox()), asked, resolved, shell.clone())
            .map_err(CliError::from);
    let listening = opened.and_then(|opened| {
        let listener = socket_dir::listen(&socket).map_err(fail("listen at"))?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).map_err(fail("guard"))?;
        Ok((opened, listener))
    });
    let (opened, listener) = match listening {
        Ok(both) => both,
        Err(error) => {
            aside.bring_back();
            return Err(error);
        }
    };
    aside.tell(&id).map_err(fail("tell of"))?;
    let started_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    let (running, shell_turn, shell_client) =
        (Mutex::default(), Mutex::default(), Mutex::default());
    let kept = SessionServer {
        id,
        name,
        cwd,
        started_ms,
        socket,
        shell,
        opened,
        questions,
        lifetime,
        running,
        shell_turn,
        shell_client,
    };
    let kept = Arc::new(kept);
    let kept_on = kept.clone();
    // Without it nobody would end a session that nobody can reach.
    let watcher = thread::Builder::new().name("socket".into()).spawn(move || kept_on.look_after());
    watcher.map_err(fail("watch over"))?;
    for client in listener.incoming().flatten() {
        let kept = kept.clone();
        // One that cannot be served is a client that hears nothing.
        let _ = thread::Builder::new().name("client".into()).spawn(move || kept.attend(client));
    }
    Ok(ExitCode::SUCCESS)
}

/// The streams of whoever started us, which nobody that we start is to have.
struct DetachedStdio {
    out: OwnedFd,
    err: OwnedFd,
}

impl DetachedStdio {
    /// Into a session of processes of its own, with nothing for streams.
    fn set() -> io::Result<Self> {
        const AWAY: i32 = 10;
        // Already so for whoever was started alone.
        let _ = rustix::process::setsid();
        let out = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), AWAY)?;
        let err = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), AWAY)?;
        let null = fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(Self { out, err })
    }

    /// To say why there is no session.
    fn bring_back(self) {
        let _ = rustix::stdio::dup2_stdout(&self.out)
            .and_then(|()| rustix::stdio::dup2_stderr(&self.err));
    }

    fn tell(self, id: &str) -> io::Result<()> {
        rustix::io::write(&self.out, format!("{id}\n").as_bytes())?;
        Ok(())
    }
}

type OnStartFn<'a> = dyn FnMut(CommandControl) -> StartDecision + 'a;
type OnUnrecordedFn<'a> = dyn FnMut(&AuditError) + 'a;
type ExecResult = Result<SessionOutcome, EngineError>;

/// A question and what came with it.
#[derive(Default)]
pub(super) struct ClientRequest {
    line: Vec<u8>,
    pub(super) question: Value,
}

impl ClientRequest {
    /// Whether the client has something for the command to read.
    fn input(&self) -> StdinInput {
        if self.question["input"] == true { StdinInput::Fed } else { StdinInput::Nothing }
    }
}

impl SessionServer {
    /// Lets commands that run follow the policy files. Whoever removes the socket wants no more
    /// of the session.
    fn look_after(&self) {
        const LOOK: Duration = Duration::from_secs(1);
        let shell = || self.opened.standings().shell;
        while fs::symlink_metadata(&self.socket).is_ok() && !self.lifetime.is_over(shell) {
            self.lifetime.wait(LOOK);
            self.opened.follow();
        }
        self.lifetime.end();
        let _ = fs::remove_file(&self.socket);
        let _ = self.opened.end();
        std::process::exit(0)
    }

    fn attend(&self, mut client: UnixStream) {
        if !is_welcome(&client) {
            return;
        }
        let Some(_counted) = self.lifetime.enter() else {
            let _ = ask(&mut client)
                .and_then(|_| send(&mut client, FrameKind::Answer, gone().to_string().as_bytes()));
            return;
        };
        let mut goes_on = true;
        while goes_on && let Ok(Some(asked)) = ask(&mut client) {
            let what = asked.question["ask"].as_str().unwrap_or_default().to_owned();
            let answer = match what.as_str() {
                "begin" => self.begin_call(&asked.question),
                "exec" => self.exec(&client, asked),
                "start" => self.start(&client, asked),
                "attach" => self.attach(&client, &asked),
                "inspect" => self.inspect(),
                "questions" => {
                    self.questions.as_ref().map_or_else(|| json!([]), |questions| questions.list())
                }
                "answer" => self.answer(&asked.question),
                "signal" => self.signal(&asked.question),
                "stop" => self.stop(),
                _ => json!({ "error": { "code": "usage", "message": "no such question" } }),
            };
            // Somebody still listens for an interruption of a command; what came next would be
            // theirs.
            goes_on = send(&mut client, FrameKind::Answer, answer.to_string().as_bytes()).is_ok()
                && matches!(what.as_str(), "begin" | "inspect" | "questions" | "answer");
            if what == "stop" {
                let _ = fs::remove_file(&self.socket);
                std::process::exit(0);
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    }

    fn exec(&self, client: &UnixStream, asked: ClientRequest) -> Value {
        if self.lifetime.is_of_conversation() && asked.question["place"].is_string() {
            return self.exec_call(client, asked);
        }
        let deadline = self.deadline(&asked);
        let is_streamed = asked.question["stream"] == true;
        let input = asked.input();
        let limit = if is_streamed { 0 } else { KEPT };
        let line = ShellCommand { text: asked.line, input, deadline, limit, errors: Errors::Apart };
        self.watched(client, is_streamed, |begun, sink, tell| {
            self.opened.execute(&line, begun, sink, tell)
        })
    }

    /// The same for a program beside the shell, which somebody else may use meanwhile.
    fn start(&self, client: &UnixStream, asked: ClientRequest) -> Value {
        let command = asked
            .line
            .split(|byte| *byte == 0)
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect();
        let deadline = self.deadline(&asked);
        let is_streamed = asked.question["stream"] == true;
        let streams =
            ProcessStdio::Pipes { input: asked.input(), limit: if is_streamed { 0 } else { KEPT } };
        match self.begin(command, streams, deadline) {
            Ok(beside) => self.watched(client, is_streamed, |begun, sink, tell| {
                if begun(beside.reach()) == StartDecision::Left {
                    beside.reach().interrupter.interrupt();
                }
                beside.wait(sink, tell)
            }),
            Err(answer) => answer,
        }
    }

    /// How long a command may take: as whoever asks says, and the policy.
    fn deadline(&self, asked: &ClientRequest) -> Option<Duration> {
        self.opened.follow();
        let wall = self.opened.policy().grants.limits.wall_ms;
        [asked.question["timeoutMs"].as_u64(), wall]
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
        // What could not be recorded is told at the end, if it still cannot be.
        self.opened.start(command, streams, deadline, &mut |_| {}).map_err(failed)
    }

    /// A shell at the terminal of whoever asks.
    fn attach(&self, client: &UnixStream, asked: &ClientRequest) -> Value {
        let number =
            |key: &str| asked.question[key].as_u64().and_then(|number| u16::try_from(number).ok());
        let size = TerminalSize {
            rows: number("rows").unwrap_or(24),
            columns: number("columns").unwrap_or(80),
        };
        let beside = match self.begin(
            vec![self.shell.clone(), "-i".into()],
            ProcessStdio::Terminal(size),
            None,
        ) {
            Ok(beside) => beside,
            Err(answer) => return answer,
        };
        if let Some(refusal) = beside.refused().and_then(|outcome| outcome.refusal.as_ref()) {
            let message = format!("the shell was not started: {}", refusal.reason);
            return json!({ "error": { "code": "command-refused", "message": message, "status": ExitStatus::REFUSED } });
        }
        if !beside.terminal().is_some_and(|terminal| hand_over(client, terminal)) {
            return gone();
        }
        self.watched(client, false, |begun, sink, tell| {
            if begun(beside.reach()) == StartDecision::Left {
                beside.reach().interrupter.interrupt();
            }
            beside.wait(sink, tell)
        })
    }

    /// Stays with a command, and hears whether its client still wants it.
    fn watched(
        &self,
        client: &UnixStream,
        is_streamed: bool,
        run: impl FnOnce(&mut OnStartFn<'_>, &mut OutputSink<'_>, &mut OnUnrecordedFn<'_>) -> ExecResult,
    ) -> Value {
        let is_over = Arc::new(Mutex::new(false));
        let mut held = None;
        let mut begun = |reach: CommandControl| {
            if is_gone(client) {
                return StartDecision::Left;
            }
            let is_over = is_over.clone();
            let reach = held.insert(Arc::new(reach)).clone();
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.retain(|one| one.strong_count() > 0);
            running.push(Arc::downgrade(&reach));
            drop(running);
            // Without somebody who listens, a command cannot be interrupted from there.
            let _ = client.try_clone().and_then(|watched| {
                thread::Builder::new()
                    .name("interrupts".into())
                    .spawn(move || watch(watched, &is_over, &reach))
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
        let executed = run(&mut begun, &mut sink, &mut |error| warnings.push(whole(error)));
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|one| held.as_ref().is_none_or(|held| !one.ptr_eq(&Arc::downgrade(held))));
        match executed {
            Ok(executed) => {
                answered(&executed, &self.id, self.opened.permission(&executed.outcome), warnings)
            }
            Err(error) => failed(error),
        }
    }

    fn inspect(&self) -> Value {
        let standings = self.opened.standings();
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
            Some(questions) => questions.answer_to(question),
            None => json!({ "error": { "code": "usage", "message": "this session asks nobody" } }),
        }
    }

    /// To all commands that run: to what they have started.
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
            return json!({ "error": { "code": "idle", "message": "no command runs in this session" } });
        }
        running.iter().for_each(|reach| reach.interrupter.signal(number));
        json!({ "exitCode": 0, "signalled": running.len() })
    }

    fn stop(&self) -> Value {
        let ended = self.opened.end();
        match ended {
            Ok(moved) => json!({ "session": self.id, "quarantined": moved }),
            Err(error) => failed(error),
        }
    }
}

fn problem(problem: &PolicyProblem) -> Value {
    json!({ "code": problem.code, "message": problem.message, "hint": problem.hint })
}

/// Whether somebody may speak with us: the same person, from outside of every sandbox.
pub(super) fn is_welcome(client: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let who = rustix::net::sockopt::socket_peercred(client);
    who.is_ok_and(|who| (who.uid == own || who.uid.is_root()) && is_outside(who.pid))
}

/// Whether a process is where we are, and in no sandbox: whoever runs in one may find our
/// socket in what was opened to it, and must not answer its own questions.
fn is_outside(pid: rustix::process::Pid) -> bool {
    let namespace = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    let pid = pid.as_raw_pid().to_string();
    ["user", "pid"].iter().all(|kind| {
        namespace(&pid, kind).is_some_and(|theirs| Some(theirs) == namespace("self", kind))
    })
}

/// Passes a terminal on; answers whether that went well.
fn hand_over(client: &UnixStream, terminal: BorrowedFd<'_>) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [terminal];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
        && sendmsg(client, &[IoSlice::new(b"t")], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// Passes on what a command reads, and interrupts it while it is not over, should whoever
/// asked for it say so or be gone.
fn watch(mut client: UnixStream, is_over: &Mutex<bool>, reach: &CommandControl) {
    while let Ok(Some((FrameKind::Input, bytes))) = receive(&mut client) {
        let fed = reach.feeder.as_ref().is_none_or(|feeder| feed(&client, feeder.as_ref(), &bytes));
        if !fed {
            break;
        }
    }
    // Held meanwhile: the next command is somebody else's.
    let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_over {
        reach.interrupter.interrupt();
    }
}

fn is_gone(client: &UnixStream) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(client, PollFlags::RDHUP)], Some(&NOW)) != Ok(0)
}

/// Answers whether the client is still there.
fn feed(client: &UnixStream, feeder: &dyn StdinFeeder, bytes: &[u8]) -> bool {
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    if bytes.is_empty() {
        feeder.shut();
    }
    while let Err(error) = feeder.feed(bytes) {
        if error.kind() != io::ErrorKind::WouldBlock {
            // Nobody reads it any more, which is not for us to mind.
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
    let mut told = error.json();
    told["status"] = error.status().into();
    json!({ "error": told })
}

fn gone() -> Value {
    json!({ "error": { "code": "gone", "message": "the session has ended" } })
}

fn answered(
    executed: &SessionOutcome,
    id: &str,
    permission: Option<Permission>,
    warnings: Vec<String>,
) -> Value {
    let mut answer = crate::json::outcome(&executed.outcome, id, permission);
    crate::json::background(&mut answer, &executed.background);
    answer["cwd"] = executed.cwd.as_ref().map(ToString::to_string).into();
    answer["shell"] = match executed.shell {
        ShellState::LivesOn => "lives-on",
        ShellState::Ended => "ended",
    }
    .into();
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into();
    }
    if executed.news != PolicyNews::default() {
        let problems: Vec<Value> = executed.news.problems.iter().map(problem).collect();
        let said: Vec<String> = executed.news.changes.iter().map(ToString::to_string).collect();
        answer["policy"] =
            json!({ "changes": executed.news.changes, "said": said, "problems": problems });
    }
    answer
}

/// The next question; `None` if there will be none.
pub(super) fn ask(client: &mut UnixStream) -> io::Result<Option<ClientRequest>> {
    let mut asked = ClientRequest::default();
    loop {
        match receive(client)? {
            None => return Ok(None),
            Some((FrameKind::Line, line)) => asked.line = line,
            Some((FrameKind::Question, text)) => {
                asked.question = serde_json::from_slice(&text)?;
                return Ok(Some(asked));
            }
            // Too late: what was meant has ended.
            Some((FrameKind::Interrupt | FrameKind::Input, _)) => {}
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
