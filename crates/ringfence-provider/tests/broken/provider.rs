//! A provider without confinement, and with one more fault.

use std::cell::RefCell;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{
    CommandRequest, Denial, DenialEvidence, Enforcement, ExitStatus, Gap, HostFacts, Operation,
    Outcome, ResourceUsage, StreamOutput,
};
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{PreparedSandbox, Provider, ProviderError, Sandbox};

/// The fault besides the missing confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    None,
    /// Nothing is run; every command is reported as successful.
    Idle,
    SignalsBecomeStatuses,
    ExecFailureBecomesAnExit,
    TimeoutIsNotReported,
    DeadlineIsIgnored,
    UsageIsNotReported,
    StreamsAreMerged,
    OutputIsText,
    OutputIsCut,
    OutputLimitIsIgnored,
    OutputIsLost,
    InheritedStreamsAreCaptured,
    InputIsEmpty,
    ArgumentsAreJoined,
    EnvironmentIsTheCallers,
    CommandStartsInTheRoot,
    OnlyOneCommandRuns,
    FirstOutcomeIsRepeated,
    DenialsAreGuessed,
}

pub(crate) struct Broken {
    pub(crate) fault: Fault,
}

impl Provider for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn prepare(
        &self,
        _: &Grants,
        _: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        Ok(Box::new(BrokenSandbox { fault: self.fault, before: RefCell::default() }))
    }
}

struct BrokenSandbox {
    fault: Fault,
    /// The outcome of the first command.
    before: RefCell<Option<Outcome>>,
}

impl PreparedSandbox for BrokenSandbox {
    fn enforced(&self) -> &[Enforcement] {
        &[]
    }

    fn gaps(&self) -> &[Gap] {
        &[]
    }

    fn start_sandbox(&mut self, _: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        Err(ProviderError::Gone { what: "sandbox" })
    }

    fn set_asker(&mut self, _asker: std::sync::Arc<dyn ringfence_api::Asker>) {}

    fn take_denials(&mut self) -> (Vec<ringfence_api::Denial>, u64) {
        (Vec::new(), 0)
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        match (self.fault, self.before.borrow().as_ref()) {
            (Fault::Idle, _) => return Ok(Outcome::default()),
            (Fault::OnlyOneCommandRuns, Some(_)) => {
                return Err(system("run again", io::ErrorKind::BrokenPipe.into()));
            }
            (Fault::FirstOutcomeIsRepeated, Some(before)) => return Ok(before.clone()),
            _ => {}
        }
        let outcome = match self.bare(request) {
            Err(error) if self.fault == Fault::ExecFailureBecomesAnExit => {
                Outcome { status: ExitStatus::Exited(error.status()), ..Outcome::default() }
            }
            other => other?,
        };
        let outcome = self.apply_fault(outcome);
        self.before.replace(Some(outcome.clone()));
        Ok(outcome)
    }
}

fn system(what: &'static str, source: io::Error) -> ProviderError {
    ProviderError::System { what, source }
}

impl BrokenSandbox {
    /// Runs the command correctly, without confinement.
    fn bare(&self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        let (begun, used) = (Instant::now(), cpu_time());
        let mut child = self.command(request).spawn().map_err(|source| {
            let command = request.command[0].to_string_lossy().into_owned();
            ProviderError::NotExecuted { command, source }
        })?;
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let deadline = request.deadline.filter(|_| self.fault != Fault::DeadlineIsIgnored);
        let (status, timed_out) =
            wait(&mut child, deadline).map_err(|source| system("wait for the command", source))?;
        let limit = match request.stdio {
            ringfence_api::StdioMode::Capture { limit }
                if self.fault != Fault::OutputLimitIsIgnored =>
            {
                limit
            }
            _ => usize::MAX,
        };
        let keep = |reader: thread::JoinHandle<Vec<u8>>| {
            limit_output(reader.join().expect("reading does not panic"), limit)
        };
        Ok(Outcome {
            stdout: keep(stdout),
            stderr: keep(stderr),
            status: status
                .signal()
                .map_or_else(|| ExitStatus::Exited(status.code().unwrap_or(0)), ExitStatus::Killed),
            timed_out,
            duration_ms: begun.elapsed().as_millis() as u64,
            usage: ResourceUsage { user_us: cpu_time() - used, ..ResourceUsage::default() },
            ..Outcome::default()
        })
    }

    fn command(&self, request: &CommandRequest) -> Command {
        let name = &request.command[0];
        let is_path = name.as_encoded_bytes().contains(&b'/');
        let mut command = Command::new(if is_path {
            request.cwd.as_path().join(name).into_os_string()
        } else {
            name.clone()
        });
        if self.fault == Fault::ArgumentsAreJoined {
            command = Command::new("/bin/sh");
            command.arg("-c").arg(request.command.join(" ".as_ref()));
        } else {
            command.args(&request.command[1..]);
        }
        if self.fault != Fault::EnvironmentIsTheCallers {
            command.env_clear();
        }
        let streams = || match request.stdio {
            ringfence_api::StdioMode::Inherit
                if self.fault != Fault::InheritedStreamsAreCaptured =>
            {
                Stdio::inherit()
            }
            _ => Stdio::piped(),
        };
        command
            .envs(request.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(if self.fault == Fault::CommandStartsInTheRoot {
                "/".as_ref()
            } else {
                request.cwd.as_path()
            })
            .stdin(if self.fault == Fault::InputIsEmpty { Stdio::null() } else { Stdio::inherit() })
            .stdout(streams())
            .stderr(streams())
            .process_group(0);
        command
    }

    /// Applies the fault to the outcome.
    fn apply_fault(&self, mut outcome: Outcome) -> Outcome {
        match self.fault {
            Fault::SignalsBecomeStatuses if matches!(outcome.status, ExitStatus::Killed(_)) => {
                outcome.status = ExitStatus::Exited(1)
            }
            Fault::TimeoutIsNotReported => outcome.timed_out = false,
            Fault::UsageIsNotReported => outcome.usage = ResourceUsage::default(),
            Fault::StreamsAreMerged => outcome.stdout.head.append(&mut outcome.stderr.head),
            Fault::OutputIsText => {
                outcome.stdout.head =
                    String::from_utf8_lossy(&outcome.stdout.head).into_owned().into_bytes()
            }
            Fault::OutputIsCut => {
                outcome.stdout.head.truncate(1000);
                outcome.stdout.tail.clear();
            }
            Fault::OutputIsLost => {
                (outcome.stdout, outcome.stderr) =
                    (StreamOutput::default(), StreamOutput::default())
            }
            Fault::DenialsAreGuessed
                if String::from_utf8_lossy(&outcome.stderr.head).contains("denied") =>
            {
                outcome.denials.push(guess())
            }
            _ => {}
        }
        outcome
    }
}

fn guess() -> Denial {
    Denial {
        operation: Operation::Read,
        target: "?".into(),
        rule: "?".into(),
        origin: "?".into(),
        explicit: false,
        pid: 0,
        program: "?".into(),
        time_ms: 0,
        evidence: DenialEvidence::Guessed,
        count: 1,
        optional: false,
    }
}

fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn limit_output(mut bytes: Vec<u8>, limit: usize) -> StreamOutput {
    if bytes.len() <= limit {
        return StreamOutput { head: bytes, ..StreamOutput::default() };
    }
    let (half, all) = (limit / 2, bytes.len());
    let tail = bytes.split_off(all - half);
    bytes.truncate(half);
    StreamOutput { head: bytes, tail, dropped: (all - 2 * half) as u64 }
}

/// Waits for the end; at the deadline kills the process group.
fn wait(child: &mut Child, deadline: Option<Duration>) -> io::Result<(process::ExitStatus, bool)> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        if deadline.is_some_and(|limit| begun.elapsed() > limit) {
            Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status()?;
            return Ok((child.wait()?, true));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// CPU microseconds of ended children, in steps of 10 ms.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10_000
}
