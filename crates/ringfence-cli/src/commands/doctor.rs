//! `ringfence doctor`

mod apparmor;
mod findings;
mod history;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ringfence_api::{StdioMode, error_chain};
use ringfence_audit::session_id;
use ringfence_engine::{
    EngineError, OwnPolicy, OwnPolicyState, PolicyFiles, ResolvedPolicy, RunRequest,
    filtered_variables, gather_host_environment, own_policies, resolve_for, run as run_engine,
    withheld_settings,
};
use ringfence_linux::{HostDiagnosis, LocalProvider, UsernsObstacle, probe};

use ringfence_policy::{AbsPath, Flags, Mode, OnError, resolve};
use ringfence_provider::{DoctorFinding, FindingState, ProviderError};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{self, ColorMode};

/// Check this host, and show how to fix problems
///
/// Checks what a sandbox needs, then creates one. Each line is `ok`, `limited` or `missing`, with
/// one command that fixes the problem, if there is one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence doctor
  ringfence doctor --json

Exit status: 0 if ringfence can confine commands on this host, 1 if not.")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print an AppArmor profile that allows user namespaces to this binary, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) apparmor: bool,
}

/// Shown where namespaces are forbidden and Landlock is available.
const LANDLOCK_INSTEAD: &str = "  instead  `ringfence run --on-gap run …` confines by Landlock;\n           `ringfence plan --engine landlock` shows its gaps\n";

/// The result of all checks.
struct Diagnosis {
    host: HostDiagnosis,
    obstacle: Option<UsernsObstacle>,
    findings: Vec<DoctorFinding>,
}

pub(crate) fn run(arguments: DoctorArgs) -> Result<ExitCode, CliError> {
    if arguments.apparmor {
        let binary = std::env::current_exe().and_then(std::fs::canonicalize);
        let binary = binary.map_err(|source| CliError::File {
            what: "find",
            path: "the binary of ringfence".into(),
            source,
        })?;
        output::print_text(&apparmor::profile(&binary)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let host = HostDiagnosis::detect();
    let tried = match probe() {
        Some(obstacle) => Err(obstacle),
        None => try_sandbox().map_err(|error| sandbox_obstacle(&error, &host)),
    };
    let mut findings = vec![findings::report_sandbox(tried.as_ref().ok().map(|trial| &trial.took))];
    findings.extend(
        tried
            .as_ref()
            .ok()
            .map(|trial| findings::report_log(&trial.log, trial.unrecorded.as_deref())),
    );
    findings.extend(host.findings());
    let here = std::env::current_dir().ok().and_then(AbsPath::new);
    findings.extend(
        here.and_then(|cwd| history::tracked_secrets(&cwd))
            .map(|tracked| findings::report_history(&tracked)),
    );
    findings.extend(findings::report_own_policies(&unused_policies()));
    if let Some(resolved) = resolve_here() {
        findings.extend(findings::report_variables(&filtered_variables(&resolved)));
        findings.extend(findings::report_settings(&withheld_settings(&resolved)));
        findings.extend(findings::report_other_tools(&resolved.surroundings.facts));
    }
    let diagnosis = Diagnosis { host, obstacle: tried.err(), findings };
    if arguments.json {
        output::print_json(&diagnosis.json())?;
    } else {
        output::print_text(&diagnosis.text(ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(diagnosis.obstacle.is_some())))
}

/// Returns the user's policies for single projects that are not in use.
fn unused_policies() -> Vec<OwnPolicy> {
    let Ok(surroundings) = gather_host_environment(&AbsPath::root()) else { return Vec::new() };
    own_policies(&surroundings.facts)
        .into_iter()
        .filter(|own| own.state != OwnPolicyState::Used)
        .collect()
}

/// Resolves the policy of a sandbox in this directory.
fn resolve_here() -> Option<ResolvedPolicy> {
    let cwd = std::env::current_dir().ok().and_then(AbsPath::new)?;
    resolve_for(&cwd, &Flags::none(cwd.clone()), &PolicyFiles::default()).ok()
}

/// The result of a trial sandbox.
struct SandboxTrial {
    took: Duration,
    /// The audit log directory.
    log: AbsPath,
    /// The reason why the run was not recorded, if it was not.
    unrecorded: Option<String>,
}

/// Creates a sandbox without a project and without policy files, and ends it.
///
/// Creating namespaces is not enough: AppArmor on Ubuntu allows them and then refuses the mounts.
fn try_sandbox() -> Result<SandboxTrial, CliError> {
    // A project that does not exist needs no walk.
    let nowhere = AbsPath::root().join("nonexistent/ringfence");
    let cwd = AbsPath::root();
    let flags = Flags { mode: Some(Mode::ReadOnly), ..Flags::none(cwd.clone()) };
    let surroundings = gather_host_environment(&nowhere)?;
    let mut grants = resolve(&[], &flags, &surroundings.facts)?;
    grants.audit.on_error = OnError::Run;
    let command = ["/bin/sh", "-c", ":"].map(Into::into).to_vec();
    let request = RunRequest {
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
    let resolved = ResolvedPolicy { grants, surroundings, files: Vec::new(), absent: Vec::new() };
    run_engine(&LocalProvider::default(), &request, &resolved, &mut |error| {
        unrecorded = Some(error_chain(error))
    })?;
    Ok(SandboxTrial { took: begun.elapsed(), log: resolved.grants.audit.directory, unrecorded })
}

/// Names an obstacle that appeared only when the sandbox was created.
fn sandbox_obstacle(error: &CliError, host: &HostDiagnosis) -> UsernsObstacle {
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
            "AppArmor removes the capabilities in user namespaces from programs without a profile (Ubuntu 23.10 and later)",
            apparmor::INSTALL,
        )
    } else if host.container.is_some() {
        (
            "the container around ringfence forbids it",
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined …",
        )
    } else {
        (
            "the environment of this process forbids it",
            "run ringfence outside the sandbox or service that started it",
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
            text.push_str(&format!("  {state}  {:<16} {}\n", finding.name, finding.text));
            if let Some(fix) = &finding.fix {
                text.push_str(&format!("{:28}{} {fix}\n", "", paint.faint("fix:")));
            }
        }
        text.push('\n');
        match &self.obstacle {
            None => text.push_str(&paint.good("ringfence can confine commands on this host\n")),
            Some(UsernsObstacle { symptom, cause, fix }) => {
                text.push_str(&format!(
                    "{}\n",
                    paint.bad("ringfence cannot confine commands on this host: `run` refuses")
                ));
                text.push_str(&format!(
                    "  cause    {cause}\n  symptom  {symptom}\n  fix      {}\n",
                    paint.strong(fix)
                ));
                if self.host.has_landlock() {
                    text.push_str(LANDLOCK_INSTEAD);
                }
            }
        }
        text
    }

    fn json(&self) -> Value {
        let finding = |finding: &DoctorFinding| json!({ "name": finding.name, "state": finding.state.word(), "what": finding.text, "fix": finding.fix });
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

    fn restricted() -> HostDiagnosis {
        let mut host = HostDiagnosis::example();
        host.apparmor_restricts = true;
        host
    }

    #[test]
    fn cause_and_fix_are_printed_last() {
        let obstacle = UsernsObstacle {
            symptom: "unshare failed".into(),
            cause: "switched off".into(),
            fix: "sudo sysctl -w x=1".into(),
        };
        let host = HostDiagnosis::example();
        let diagnosis = Diagnosis {
            findings: vec![findings::report_sandbox(None)],
            host,
            obstacle: Some(obstacle),
        };
        let text = diagnosis.text(ColorMode::Plain);
        let end =
            "  cause    switched off\n  symptom  unshare failed\n  fix      sudo sysctl -w x=1\n";
        assert!(text.ends_with(&format!("{end}{LANDLOCK_INSTEAD}")), "{text}");
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
            sandbox_obstacle(&error, &restricted()).fix.contains("ringfence doctor --apparmor")
        );
        assert_eq!(
            sandbox_obstacle(&error, &HostDiagnosis::example()).symptom,
            "mount /proc failed"
        );
    }

    #[test]
    fn other_errors_keep_their_own_cause_and_fix() {
        let error = CliError::Usage { what: "no home".into(), hint: "export HOME".into() };
        let found = sandbox_obstacle(&error, &restricted());
        assert_eq!((found.cause.as_str(), found.fix.as_str()), ("no home", "export HOME"));
    }
}
