//! The pipeline of every command: guard, prepare, accept gaps, record, run, record.
//!
//! A [`RunTarget`] is the place where a command runs: a sandbox of its own, or that of a session.

use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{CommandRequest, Denial, Enforcement, Gap, GapKind, Outcome, StdioMode};
use ringfence_policy::{Grants, OnGap, Origin, ProviderSpec, Source};
use ringfence_provider::{PreparedSandbox, Provider, ProviderError, SandboxDescription};
use tracing::{debug, info, trace_span};

use crate::asking::RecordingAsker;
use crate::command_guard::{self, CommandText};
use crate::recorder::RunRecorder;
use crate::variables::variables;
use crate::{EngineError, ResolvedPolicy, RunRequest};

/// A message for the user about a command that runs anyway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunNotice {
    /// A record was not written: the policy accepts that, or the command has already run.
    #[error("not recorded in the audit log: {0}")]
    Unrecorded(String),
    /// The command is about to run without confinement.
    #[error("nothing is confined: the command has all your permissions")]
    Unconfined,
    /// No sandbox can be created, and the policy accepts that: the command is about to run without
    /// confinement.
    #[error(
        "the sandbox is unavailable here, and the policy accepts that: the command has all your permissions"
    )]
    Unavailable,
}

/// Receives notices when they arise.
pub type NoticeFn<'a> = dyn FnMut(&RunNotice) + 'a;

/// The place where a command runs.
pub(crate) trait RunTarget {
    /// The result, or the running command.
    type Output;

    /// Makes the sandbox ready, without running anything for the command.
    fn prepare(&mut self) -> Result<Readiness, EngineError>;

    /// Runs or starts the command. Called once, after [`RunTarget::prepare`].
    fn run(&mut self) -> Result<Self::Output, EngineError>;

    /// Takes the denials of a command that failed without an outcome.
    fn take_denials(&mut self) -> (Vec<Denial>, u64);

    /// Shows the refusal of the command by its text, if the output is shown as it arrives.
    fn show_refusal(&mut self, _: &Outcome) {}
}

/// The properties of a sandbox that is ready for a command.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    pub(crate) gaps: Vec<Gap>,
    /// The answer of the sandbox's policy to gaps.
    pub(crate) on_gap: OnGap,
    /// False if the provider confines nothing.
    pub(crate) is_confined: bool,
}

/// The end of the pipeline.
pub(crate) enum RunResult<T> {
    /// A rule on its text refused the command.
    Refused(Box<Outcome>),
    /// The command ran, or runs.
    Ran(T),
}

impl RunResult<Outcome> {
    pub(crate) fn into_outcome(self) -> Outcome {
        match self {
            RunResult::Refused(outcome) => *outcome,
            RunResult::Ran(outcome) => outcome,
        }
    }
}

/// Runs one command through the pipeline. The caller opens and finishes the recorder.
pub(crate) fn run_in<T: RunTarget>(
    target: &mut T,
    grants: &Grants,
    text: CommandText<'_>,
    recorder: &mut RunRecorder<'_>,
) -> Result<RunResult<T::Output>, EngineError> {
    if let Some(refused) = command_guard::check_command(grants, text) {
        info!(target: "engine", "a rule on its text refuses the command");
        target.show_refusal(&refused);
        return Ok(RunResult::Refused(Box::new(refused)));
    }
    let ready = target.prepare()?;
    check_gaps(&ready.gaps, ready.on_gap)?;
    // Written before the command starts: a crash may leave a record without a command, never a
    // command without a record.
    recorder.begin(&ready)?;
    debug!(target: "engine", "recorded the start of the command");
    if !recorder.is_confined() {
        (recorder.on_notice)(&RunNotice::Unconfined);
    }
    let ran = target.run();
    if ran.is_err() {
        recorder.refused_before = target.take_denials();
    }
    ran.map(RunResult::Ran)
}

/// Runs one command, from the first audit record to the last.
pub(crate) fn run_recorded<T: RunTarget<Output = Outcome>>(
    target: &mut T,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    on_notice: &mut NoticeFn<'_>,
) -> Result<Outcome, EngineError> {
    let mut recorder = RunRecorder::open(request, resolved, on_notice)?;
    let text = CommandText::Words(&request.command);
    let result = run_in(target, &resolved.grants, text, &mut recorder);
    recorder.finish(result.map(RunResult::into_outcome))
}

/// Runs a command with `run`, and once more without a sandbox if none can be created and the policy
/// accepts that.
pub(crate) fn run_with_fallback(
    resolved: &ResolvedPolicy,
    on_notice: &mut NoticeFn<'_>,
    mut run: impl FnMut(&ResolvedPolicy, &mut NoticeFn<'_>) -> Result<Outcome, EngineError>,
) -> Result<Outcome, EngineError> {
    let result = run(resolved, on_notice);
    let Some(outside) = result.as_ref().err().and_then(|error| without_sandbox(error, resolved))
    else {
        return result;
    };
    run(&outside, &mut |notice| match notice {
        RunNotice::Unconfined => on_notice(&RunNotice::Unavailable),
        other => on_notice(other),
    })
}

/// The policy without a sandbox, if this machine can create none and the policy accepts that. The
/// commands of another provider are not meant for this machine.
pub(crate) fn without_sandbox(
    error: &EngineError,
    resolved: &ResolvedPolicy,
) -> Option<ResolvedPolicy> {
    let rules = &resolved.grants.sandbox;
    let is_unavailable = matches!(error, EngineError::Provider(ProviderError::NotStarted { .. }));
    let is_local = rules.provider.name == ProviderSpec::LOCAL;
    if !is_unavailable || !is_local || rules.fail_if_unavailable || rules.is_required {
        return None;
    }
    let off = Origin::new(Source::User, "fail-if-unavailable = false, and no sandbox is available");
    let mut outside = resolved.clone().without_sandbox(off);
    outside.grants.commands = outside.grants.commands.with_doubt_refused();
    Some(outside)
}

/// A sandbox as it would be, without a command.
#[derive(Debug, Clone, Default)]
pub struct SandboxPreview {
    /// The protections.
    pub enforced: Vec<Enforcement>,
    /// The gaps.
    pub gaps: Vec<Gap>,
    /// The paths and protections as data.
    pub description: SandboxDescription,
}

/// The sandbox that a command would get.
pub fn plan(
    provider: &dyn Provider,
    resolved: &ResolvedPolicy,
) -> Result<SandboxPreview, EngineError> {
    let prepared = open(provider, resolved)?;
    let gaps = prepared.gaps().iter().cloned();
    Ok(SandboxPreview {
        enforced: prepared.enforced().to_vec(),
        gaps: gaps.chain(output_gap(&resolved.grants, StdioMode::Inherit)).collect(),
        description: prepared.describe(),
    })
}

/// Prepares a sandbox. Nothing runs yet.
pub(crate) fn open(
    provider: &dyn Provider,
    resolved: &ResolvedPolicy,
) -> Result<Box<dyn PreparedSandbox>, EngineError> {
    let host_facts = resolved.surroundings.host_facts(&resolved.grants);
    let prepared = provider.prepare(&resolved.grants, &host_facts)?;
    let sandbox = &resolved.grants.sandbox;
    if sandbox.is_required && !prepared.is_confined() {
        if !resolved.grants.is_confined() {
            return Err(EngineError::SandboxOff);
        }
        let provider = sandbox.provider.name.clone();
        let origin = sandbox.provider_origin.to_string();
        return Err(EngineError::Unconfined { provider, origin });
    }
    let backend = &sandbox.provider.name;
    debug!(
        target: "engine",
        backend,
        steps = prepared.enforced().len(),
        gaps = prepared.gaps().len(),
        "planned the sandbox"
    );
    for gap in prepared.gaps() {
        info!(target: "engine", what = gap.what, why = gap.why, "gap");
    }
    Ok(prepared)
}

/// Lets the request's asker answer denials in a prepared sandbox.
pub(crate) fn set_asker(
    prepared: &mut dyn PreparedSandbox,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
) {
    if let Some(asker) = request.asker.clone() {
        let asker = RecordingAsker::new(asker, request, resolved, Arc::default());
        prepared.set_asker(Arc::new(asker));
    }
}

/// Runs one command in a sandbox of its own, from the first audit record to the last.
///
/// If no sandbox can be created and the policy accepts that, it runs without one.
pub fn run(
    provider: &dyn Provider,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    on_notice: &mut NoticeFn<'_>,
) -> Result<Outcome, EngineError> {
    let _stage = trace_span!(target: "stage", "run").entered();
    run_with_fallback(resolved, on_notice, |resolved, on_notice| {
        let output_gap = output_gap(&resolved.grants, request.stdio);
        let mut target = OwnSandbox { provider, request, resolved, output_gap, prepared: None };
        run_recorded(&mut target, request, resolved, on_notice)
    })
}

/// A sandbox that runs one command and ends with it.
struct OwnSandbox<'a> {
    provider: &'a dyn Provider,
    request: &'a RunRequest,
    resolved: &'a ResolvedPolicy,
    output_gap: Option<Gap>,
    prepared: Option<Box<dyn PreparedSandbox>>,
}

impl RunTarget for OwnSandbox<'_> {
    type Output = Outcome;

    fn prepare(&mut self) -> Result<Readiness, EngineError> {
        let prepared = self.prepared.insert(open(self.provider, self.resolved)?);
        let gaps = prepared.gaps().iter().chain(&self.output_gap).cloned().collect();
        Ok(Readiness {
            gaps,
            on_gap: self.resolved.grants.on_gap,
            is_confined: prepared.is_confined(),
        })
    }

    fn run(&mut self) -> Result<Outcome, EngineError> {
        let Self { request, resolved, .. } = *self;
        let grants = &resolved.grants;
        let prepared = self.prepared.as_deref_mut().expect("the pipeline prepares it first");
        set_asker(prepared, request, resolved);
        let mut outcome = prepared.run(&CommandRequest {
            command: request.command.clone(),
            cwd: request.cwd.clone(),
            variables: variables(grants, &request.cwd, resolved),
            stdio: limit_capture(request.stdio, grants.limits.output),
            deadline: grants.limits.wall_ms.map(Duration::from_millis),
        })?;
        outcome.gaps.extend(self.output_gap.take());
        Ok(outcome)
    }

    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        self.prepared.as_mut().map(|prepared| prepared.take_denials()).unwrap_or_default()
    }
}

/// Refuses gaps that the policy does not accept. A gap in reporting only is always accepted.
pub(crate) fn check_gaps(gaps: &[Gap], on_gap: OnGap) -> Result<(), EngineError> {
    let refusing: Vec<Gap> = gaps.iter().filter(|gap| gap.refuses_run()).cloned().collect();
    match on_gap {
        OnGap::Refuse if !refusing.is_empty() => Err(EngineError::Gaps { gaps: refusing }),
        OnGap::Refuse | OnGap::Run => Ok(()),
    }
}

/// Limits the captured output to the policy's limit.
fn limit_capture(stdio: StdioMode, limit: Option<u64>) -> StdioMode {
    match (stdio, limit.and_then(|limit| usize::try_from(limit).ok())) {
        (StdioMode::Capture { limit }, Some(most)) => StdioMode::Capture { limit: limit.min(most) },
        (stdio, _) => stdio,
    }
}

/// The gap of `limits.output` with inherited standard streams, which cannot be counted.
fn output_gap(grants: &Grants, stdio: StdioMode) -> Option<Gap> {
    let is_uncounted =
        grants.is_confined() && grants.limits.output.is_some() && stdio == StdioMode::Inherit;
    is_uncounted.then(|| Gap {
        what: "limits.output".into(),
        why: "the command writes to your own standard streams, which ringfence does not count"
            .into(),
        hint: "use `--json`, remove it from [limits], or accept with `--on-gap run`".into(),
        kind: GapKind::Enforcement,
    })
}
