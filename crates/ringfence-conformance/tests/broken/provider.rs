//! The provider `process`, with one fault.

use std::sync::{Arc, Weak};

use ringfence_api::{
    CommandRequest, Denial, DenialEvidence, Enforcement, ExitStatus, Gap, HostFacts, Operation,
    Outcome, PathMap, QuarantinedFile, ResourceUsage, ShellCommand, ShellState, StdinInput,
    StdioMode, StreamOutput,
};
use ringfence_linux::ProcessProvider;
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{
    Capabilities, Interrupter, OutputSink, PreparedSandbox, ProcessSpec, Provider, ProviderError,
    Sandbox, SandboxShell, SandboxedProcess, ShellSpec, StdinFeeder,
};

/// The fault besides the missing confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    None,
    /// Nothing is run; every command is reported as successful.
    Idle,
    SignalsBecomeStatuses,
    ErrorsBecomeStatuses,
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
    GapsAreHidden,
    StatusIsZero,
    EachCommandHasANewShell,
    ShellEndIsHidden,
    DroppedOutputIsNotCounted,
    BackgroundOutputIsMixed,
    LongCommandsAreCut,
    EndedSandboxLivesOn,
    FilesAreCut,
}

pub(crate) struct Broken {
    pub(crate) fault: Fault,
}

impl Provider for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn capabilities(&self) -> Capabilities {
        ProcessProvider.capabilities()
    }

    fn prepare(
        &self,
        grants: &Grants,
        facts: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        let bare = ProcessProvider.prepare(grants, facts)?;
        Ok(Box::new(BrokenPrepared { fault: self.fault, bare, before: None }))
    }
}

struct BrokenPrepared {
    fault: Fault,
    bare: Box<dyn PreparedSandbox>,
    /// The outcome of the first command.
    before: Option<Outcome>,
}

impl PreparedSandbox for BrokenPrepared {
    fn enforced(&self) -> &[Enforcement] {
        &[]
    }

    fn gaps(&self) -> &[Gap] {
        if self.fault == Fault::GapsAreHidden { &[] } else { self.bare.gaps() }
    }

    fn start_sandbox(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        match self.fault {
            Fault::Idle => Err(ProviderError::Gone { what: "sandbox" }),
            fault => {
                let bare: Arc<dyn Sandbox> = self.bare.start_sandbox(cwd)?.into();
                Ok(Box::new(BrokenSandbox { fault, bare }))
            }
        }
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        match (self.fault, &self.before) {
            (Fault::Idle, _) => return Ok(Outcome::default()),
            (Fault::OnlyOneCommandRuns, Some(_)) => {
                return Err(ProviderError::Gone { what: "sandbox" });
            }
            (Fault::FirstOutcomeIsRepeated, Some(before)) => return Ok(before.clone()),
            _ => {}
        }
        let outcome = match self.bare.run(&self.change_request(request.clone())) {
            Err(error) if self.fault == Fault::ErrorsBecomeStatuses => {
                Outcome { status: ExitStatus::Exited(error.status()), ..Outcome::default() }
            }
            other => self.change_outcome(other?),
        };
        self.before.get_or_insert_with(|| outcome.clone());
        Ok(outcome)
    }
}

impl BrokenPrepared {
    fn change_request(&self, mut request: CommandRequest) -> CommandRequest {
        match self.fault {
            Fault::DeadlineIsIgnored => request.deadline = None,
            Fault::OutputLimitIsIgnored => request.stdio = StdioMode::Capture { limit: usize::MAX },
            Fault::InheritedStreamsAreCaptured => {
                request.stdio = StdioMode::Capture { limit: 1 << 20 }
            }
            Fault::InputIsEmpty => {
                let words = ["/bin/sh", "-c", "exec \"$@\" </dev/null", "sh"].map(Into::into);
                request.command = words.into_iter().chain(request.command).collect();
            }
            Fault::ArgumentsAreJoined => {
                request.command =
                    vec!["/bin/sh".into(), "-c".into(), request.command.join(" ".as_ref())]
            }
            Fault::EnvironmentIsTheCallers => request.variables.extend(std::env::vars_os()),
            Fault::CommandStartsInTheRoot => request.cwd = AbsPath::root(),
            _ => {}
        }
        request
    }

    fn change_outcome(&self, mut outcome: Outcome) -> Outcome {
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
            Fault::GapsAreHidden => outcome.gaps.clear(),
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

struct BrokenSandbox {
    fault: Fault,
    bare: Arc<dyn Sandbox>,
}

impl Sandbox for BrokenSandbox {
    fn enforced(&self) -> &[Enforcement] {
        &[]
    }

    fn gaps(&self) -> &[Gap] {
        self.bare.gaps()
    }

    fn paths(&self) -> &PathMap {
        self.bare.paths()
    }

    fn start_shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError> {
        Ok(Box::new(BrokenShell {
            fault: self.fault,
            bare: self.bare.start_shell(start)?,
            sandbox: Arc::downgrade(&self.bare),
            start: start.clone(),
        }))
    }

    fn start_process(
        &self,
        start: &ProcessSpec,
    ) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
        self.bare.start_process(start)
    }

    fn put(&self, path: &AbsPath, content: &[u8]) -> Result<(), ProviderError> {
        let length = if self.fault == Fault::FilesAreCut { 1000 } else { content.len() };
        self.bare.put(path, &content[..length.min(content.len())])
    }

    fn end(self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError> {
        if self.fault == Fault::EndedSandboxLivesOn {
            // Its programs end by themselves soon.
            std::mem::forget(self.bare);
        }
        Ok(Vec::new())
    }
}

struct BrokenShell {
    fault: Fault,
    bare: Box<dyn SandboxShell>,
    sandbox: Weak<dyn Sandbox>,
    start: ShellSpec,
}

impl BrokenShell {
    fn renew(&mut self) -> Result<(), ProviderError> {
        let sandbox = self.sandbox.upgrade().ok_or(ProviderError::Gone { what: "sandbox" })?;
        self.bare = sandbox.start_shell(&self.start)?;
        Ok(())
    }
}

impl SandboxShell for BrokenShell {
    fn execute(
        &mut self,
        line: &ShellCommand,
        sink: &mut OutputSink<'_>,
    ) -> Result<Outcome, ProviderError> {
        let mut line = line.clone();
        match self.fault {
            Fault::EachCommandHasANewShell => self.renew()?,
            Fault::InputIsEmpty => line.input = StdinInput::default(),
            Fault::LongCommandsAreCut => line.text.truncate(100_000),
            _ => {}
        }
        let mut ran = match self.bare.execute(&line, sink) {
            Err(_) if self.fault == Fault::ErrorsBecomeStatuses => {
                self.renew()?;
                self.bare.execute(&ShellCommand::new("(exit 1)"), sink)?
            }
            other => other?,
        };
        match self.fault {
            Fault::StatusIsZero => ran.status = ExitStatus::Exited(0),
            Fault::ShellEndIsHidden => ran.shell = ShellState::Alive,
            Fault::TimeoutIsNotReported => ran.timed_out = false,
            Fault::StreamsAreMerged => ran.stdout.head.append(&mut ran.stderr.head),
            Fault::DroppedOutputIsNotCounted => ran.stdout.dropped = 0,
            Fault::BackgroundOutputIsMixed => {
                ran.stdout.head.append(&mut std::mem::take(&mut ran.background).head)
            }
            _ => {}
        }
        Ok(ran)
    }

    fn interrupter(&self) -> Box<dyn Interrupter> {
        self.bare.interrupter()
    }

    fn feeder(&mut self) -> std::io::Result<Arc<dyn StdinFeeder>> {
        self.bare.feeder()
    }

    fn id(&self) -> &str {
        self.bare.id()
    }

    fn cwd(&self) -> Option<AbsPath> {
        self.bare.cwd()
    }
}
