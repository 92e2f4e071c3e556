//! `ringfence doctor`

mod findings;
mod history;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ringfence_api::{StdioMode, whole};
use ringfence_audit::session_id;
use ringfence_enforce::apply::{UsernsObstacle, probe, support};
use ringfence_engine::{
    EngineError, FilteredVariable, OwnPolicy, OwnPolicyState, PolicyFiles, ResolvedPolicy,
    RunRequest, filtered_variables, gather, own_policies, resolve_for, run as run_engine,
};
use ringfence_local::LocalProvider;
use ringfence_policy::{AbsPath, Flags, Mode, OnError, resolve};
use ringfence_provider::ProviderError;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{self, ColorMode};
use findings::{DoctorFinding, FindingState, HostFacts};

/// Show what this host can do, and what fixes what it cannot
///
/// Tries what a sandbox needs and then makes one. Each line is `ok`, `limited` or `missing`, with
/// one command that helps where something does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence doctor
  ringfence doctor --json

Exit status: 0 commands can be confined here, 1 they cannot.")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What was found out.
struct Diagnosis {
    host: HostFacts,
    obstacle: Option<UsernsObstacle>,
    findings: Vec<DoctorFinding>,
}

pub(crate) fn run(arguments: DoctorArgs) -> Result<ExitCode, CliError> {
    let host = HostFacts::look(support());
    let tried = match probe() {
        Some(obstacle) => Err(obstacle),
        None => trial().map_err(|error| untold(&error, &host)),
    };
    let mut findings = vec![DoctorFinding::sandbox(tried.as_ref().ok().map(|trial| &trial.took))];
    findings.extend(
        tried
            .as_ref()
            .ok()
            .map(|trial| DoctorFinding::log(&trial.log, trial.unrecorded.as_deref())),
    );
    findings.extend(host.findings());
    let here = std::env::current_dir().ok().and_then(AbsPath::new);
    findings.extend(
        here.and_then(|cwd| history::tracked_secrets(&cwd))
            .map(|tracked| DoctorFinding::history(&tracked)),
    );
    findings.extend(DoctorFinding::own_policies(&unused_policies()));
    findings.extend(filtered().and_then(|filtered| DoctorFinding::variables(&filtered)));
    let diagnosis = Diagnosis { host, obstacle: tried.err(), findings };
    if arguments.json {
        output::json(&diagnosis.json())?;
    } else {
        output::text(&diagnosis.text(ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(diagnosis.obstacle.is_some())))
}

/// Policies for single projects that count nowhere.
fn unused_policies() -> Vec<OwnPolicy> {
    let Ok(surroundings) = gather(&AbsPath::root()) else { return Vec::new() };
    own_policies(&surroundings.facts)
        .into_iter()
        .filter(|own| own.state != OwnPolicyState::Used)
        .collect()
}

/// The caller's variables that do not reach a sandbox in this directory.
fn filtered() -> Option<Vec<FilteredVariable>> {
    let cwd = std::env::current_dir().ok().and_then(AbsPath::new)?;
    let resolved = resolve_for(&cwd, &Flags::none(cwd.clone()), &PolicyFiles::default()).ok()?;
    Some(filtered_variables(&resolved))
}

/// What came of a sandbox that was made.
struct SandboxTrial {
    took: Duration,
    /// Where it was recorded.
    log: AbsPath,
    /// Why it was not.
    unrecorded: Option<String>,
}

/// Makes a sandbox over nobody's project, with nobody's policy, and ends it.
///
/// The namespaces alone do not tell: AppArmor on Ubuntu grants them and then refuses the mounts.
fn trial() -> Result<SandboxTrial, CliError> {
    // A project that is not there has nothing in it to be looked through.
    let nowhere = AbsPath::root().join("nonexistent/ringfence");
    let cwd = AbsPath::root();
    let flags = Flags { mode: Some(Mode::ReadOnly), ..Flags::none(cwd.clone()) };
    let surroundings = gather(&nowhere)?;
    let mut grants = resolve(&[], &flags, &surroundings.facts)?;
    grants.audit.on_error = OnError::Run;
    let command = ["/bin/sh", "-c", ":"].map(Into::into).to_vec();
    let asked = RunRequest {
        command,
        cwd,
        flags,
        files: PolicyFiles::default(),
        stdio: StdioMode::Capture { limit: 4096 },
        asker: None,
        agent: Some("ringfence doctor".into()),
        session: session_id(),
    };
    let mut unrecorded = None;
    let begun = Instant::now();
    let resolved = ResolvedPolicy { grants, surroundings, files: Vec::new() };
    run_engine(&LocalProvider::default(), &asked, &resolved, &mut |error| {
        unrecorded = Some(whole(error))
    })?;
    Ok(SandboxTrial { took: begun.elapsed(), log: resolved.grants.audit.directory, unrecorded })
}

/// An obstacle that showed only when a sandbox was made.
fn untold(error: &CliError, host: &HostFacts) -> UsernsObstacle {
    let causes = error.causes();
    let symptom = if causes.is_empty() { error.to_string() } else { causes.join(": ") };
    let is_forbidden =
        matches!(error, CliError::Engine(EngineError::Provider(ProviderError::NotStarted { .. })));
    if !is_forbidden {
        return UsernsObstacle {
            symptom,
            cause: error.to_string(),
            fix: error.hint().unwrap_or_default(),
        };
    }
    let (cause, fix) = if host.apparmor_restricts {
        (
            "AppArmor takes the capabilities in user namespaces from programs without a profile (Ubuntu 23.10 and later)",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    } else if host.container.is_some() {
        (
            "the container around ringfence forbids it",
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined …",
        )
    } else {
        (
            "something around this process forbids it",
            "run ringfence outside of the sandbox or service that started it",
        )
    };
    UsernsObstacle { symptom, cause: cause.into(), fix: fix.into() }
}

impl Diagnosis {
    fn text(&self, paint: ColorMode) -> String {
        let mut text = format!("{}\n\n", paint.strong(&self.host.headline()));
        for finding in &self.findings {
            let state = match finding.state {
                FindingState::Ok => paint.good("ok     "),
                FindingState::Limited => paint.weak("limited"),
                FindingState::Missing => paint.bad("missing"),
            };
            text.push_str(&format!("  {state}  {:<16} {}\n", finding.name, finding.what));
            if let Some(fix) = &finding.fix {
                text.push_str(&format!("{:28}{} {fix}\n", "", paint.faint("fix:")));
            }
        }
        text.push('\n');
        match &self.obstacle {
            None => text.push_str(&paint.good("commands can be confined here\n")),
            Some(UsernsObstacle { symptom, cause, fix }) => {
                text.push_str(&format!(
                    "{}\n",
                    paint.bad("commands cannot be confined here, and `run` will refuse")
                ));
                text.push_str(&format!(
                    "  cause    {cause}\n  symptom  {symptom}\n  fix      {}\n",
                    paint.strong(fix)
                ));
            }
        }
        text
    }

    fn json(&self) -> Value {
        let finding = |finding: &DoctorFinding| json!({ "name": finding.name, "state": finding.state.word(), "what": finding.what, "fix": finding.fix });
        json!({
            "works": self.obstacle.is_none(),
            "obstacle": self.obstacle.as_ref().map(|found| json!({ "symptom": found.symptom, "cause": found.cause, "fix": found.fix })),
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": self.host.kernel,
            "architecture": std::env::consts::ARCH,
            "uid": self.host.support.uid,
            "container": self.host.container,
            "landlock": self.host.support.landlock,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted() -> HostFacts {
        let mut host = HostFacts::example();
        host.apparmor_restricts = true;
        host
    }

    #[test]
    fn the_cause_and_the_fix_stand_at_the_end() {
        let obstacle = UsernsObstacle {
            symptom: "unshare failed".into(),
            cause: "switched off".into(),
            fix: "sudo sysctl -w x=1".into(),
        };
        let host = HostFacts::example();
        let diagnosis = Diagnosis {
            findings: vec![DoctorFinding::sandbox(None)],
            host,
            obstacle: Some(obstacle),
        };
        let text = diagnosis.text(ColorMode::Plain);
        assert!(text.ends_with("  cause    switched off\n  symptom  unshare failed\n  fix      sudo sysctl -w x=1\n"), "{text}");
        assert!(text.contains("  missing  sandbox "), "{text}");
        assert_eq!(diagnosis.json()["works"], false);
    }

    #[test]
    fn apparmor_is_named_when_only_the_mounts_fail() {
        let source = "mount /proc failed".into();
        let error = CliError::Engine(EngineError::Provider(ProviderError::NotStarted {
            command: ":".into(),
            hint: String::new(),
            source,
        }));
        assert!(
            untold(&error, &restricted()).fix.contains("apparmor_restrict_unprivileged_userns=0")
        );
        assert_eq!(untold(&error, &HostFacts::example()).symptom, "mount /proc failed");
    }

    #[test]
    fn what_is_not_the_kernels_fault_is_not_blamed_on_it() {
        let error = CliError::Words { what: "no home".into(), hint: "export HOME".into() };
        let found = untold(&error, &restricted());
        assert_eq!((found.cause.as_str(), found.fix.as_str()), ("no home", "export HOME"));
    }
}
