//! A small sandbox provider of an embedding program: it runs each command as a process.

use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use ringfence::policy::{AbsPath, Access, Verdict};
use ringfence::{
    Ask, AskAnswer, BoxFuture, Command, Denial, DenialEvidence, ExecuteResult, GrantedAccess,
    Operation, OutputStream, PolicyDemand, QuarantinedFile, SandboxBackend, SandboxCreateOptions,
    SandboxError, SandboxProvider,
};
use rustix::process::{Pid, Signal, kill_process_group};

/// Everything that reached the provider.
#[derive(Debug, Default)]
pub(crate) struct ProviderCalls {
    pub(crate) created: AtomicUsize,
    pub(crate) disposed: AtomicUsize,
    pub(crate) commands: Mutex<Vec<String>>,
}

/// Processes of this machine. Words of a command that the policy does not allow to read are denied.
pub(crate) struct ProcessesProvider {
    pub(crate) enforces: Vec<PolicyDemand>,
    pub(crate) calls: Arc<ProviderCalls>,
}

impl SandboxProvider for ProcessesProvider {
    fn provider_type(&self) -> &str {
        "processes"
    }

    fn enforces(&self) -> &[PolicyDemand] {
        &self.enforces
    }

    fn create(
        &self,
        options: SandboxCreateOptions,
    ) -> BoxFuture<'_, Result<Arc<dyn SandboxBackend>, SandboxError>> {
        Box::pin(async move {
            let tried = Process::new(&options.shell).arg("-c").arg("true").status();
            tried.map_err(|source| SandboxError::Provider {
                provider: "processes".into(),
                source: source.into(),
            })?;
            let number = self.calls.created.fetch_add(1, Ordering::SeqCst);
            let (id, calls) = (format!("processes-{number}"), self.calls.clone());
            Ok(Arc::new(ProcessesBackend { id, options, calls }) as Arc<dyn SandboxBackend>)
        })
    }
}

struct ProcessesBackend {
    id: String,
    options: SandboxCreateOptions,
    calls: Arc<ProviderCalls>,
}

impl SandboxBackend for ProcessesBackend {
    fn id(&self) -> &str {
        &self.id
    }

    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>> {
        let text = String::from_utf8_lossy(command.text()).into_owned();
        let (options, calls) = (self.options.clone(), self.calls.clone());
        Box::pin(async move {
            calls.commands.lock().unwrap().push(text.clone());
            let (denials, granted) = judge(&text, &options);
            if !denials.is_empty() {
                return Ok(ExecuteResult { exit_code: 1, denials, granted, ..<_>::default() });
            }
            let result = RunningProcess::start(&options, command).await;
            Ok(ExecuteResult { granted, ..result })
        })
    }

    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>> {
        self.calls.disposed.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// The denied words of a command, and those that the user allows.
fn judge(text: &str, options: &SandboxCreateOptions) -> (Vec<Denial>, Vec<GrantedAccess>) {
    let (mut denials, mut granted) = (Vec::new(), Vec::new());
    for path in text.split_whitespace().filter_map(AbsPath::new) {
        let decision = options.grants.decide(&path, Access::Read);
        if decision.verdict == Verdict::Allowed {
            continue;
        }
        let (rule, origin, explicit) = Denial::rule_from_decision(&decision);
        let denial = Denial {
            operation: Operation::Read,
            target: path.to_string(),
            rule,
            origin,
            explicit,
            pid: 0,
            program: "sh".into(),
            time_ms: 0,
            evidence: DenialEvidence::Guard,
            count: 1,
            optional: false,
        };
        let ask = Ask { denial: denial.clone(), options: AskAnswer::ALL.to_vec() };
        match options.asker.as_ref().map_or(AskAnswer::Deny, |asker| asker.ask(&ask)) {
            AskAnswer::Deny => denials.push(denial),
            answer => granted.push(GrantedAccess { denial, answer }),
        }
    }
    (denials, granted)
}

/// A process and the threads that serve it. Dropping it kills the process group.
struct RunningProcess {
    pid: Arc<AtomicI32>,
    shared: Arc<Mutex<(Option<ExecuteResult>, Option<Waker>)>>,
}

impl RunningProcess {
    fn start(options: &SandboxCreateOptions, mut command: Command) -> Self {
        let child = Process::new(&options.shell)
            .arg("-c")
            .arg(String::from_utf8_lossy(command.text()).into_owned())
            .env_clear()
            .envs(options.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&options.cwd)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, shared) = (Arc::new(AtomicI32::new(child.id() as i32)), <_>::default());
        let running = Self { pid: pid.clone(), shared };
        let shared = running.shared.clone();
        thread::spawn(move || {
            let result = finish(child, &mut command);
            pid.store(0, Ordering::SeqCst);
            let mut shared = shared.lock().unwrap();
            shared.0 = Some(result);
            if let Some(waker) = shared.1.take() {
                waker.wake();
            }
        });
        running
    }
}

/// Serves a process to its end. Only standard output is streamed.
fn finish(mut child: Child, command: &mut Command) -> ExecuteResult {
    if let ringfence::api::StdinInput::Given(bytes) = &command.line().input {
        child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }
    drop(child.stdin.take());
    let mut errors = child.stderr.take().unwrap();
    let stderr = thread::spawn(move || {
        let mut bytes = Vec::new();
        errors.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let (mut stdout, mut buffer) = (Vec::new(), [0; 4096]);
    let mut stream = child.stdout.take().unwrap();
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        command.emit_output(OutputStream::Out, &buffer[..length]);
        stdout.extend_from_slice(&buffer[..length]);
    }
    let status = child.wait().unwrap();
    ExecuteResult {
        exit_code: status.code().unwrap_or(137),
        stdout: stdout.into(),
        stderr: stderr.join().unwrap().into(),
        ..ExecuteResult::default()
    }
}

impl Future for RunningProcess {
    type Output = ExecuteResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ExecuteResult> {
        let mut shared = self.shared.lock().unwrap();
        shared.1 = Some(context.waker().clone());
        shared.0.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid.load(Ordering::SeqCst)) {
            kill_process_group(pid, Signal::KILL).unwrap();
        }
    }
}
