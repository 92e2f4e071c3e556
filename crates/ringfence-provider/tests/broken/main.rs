//! Every check can fail, and reports it by name.
//!
//! A provider without confinement fails every confinement and shell check and no other; a provider
//! that runs nothing fails all of them; and each small fault fails the checks made for it.

mod provider;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_policy::AbsPath;
use ringfence_provider::conformance::{
    CheckTopic, ConformanceCheck, ConformanceFixture, INPUT, VARIABLE, checks,
};
use ringfence_testkit::ProcessPerTest;

use provider::{Broken, Fault};

type FaultResult = Result<(), Box<dyn Error>>;

/// Faults of a provider, and the checks that must find them.
const FAULTS: &[(&str, Fault, &[&str])] = &[
    ("signals_become_statuses", Fault::SignalsBecomeStatuses, &["statuses_pass_through"]),
    (
        "exec_failure_becomes_an_exit",
        Fault::ExecFailureBecomesAnExit,
        &["missing_program_is_an_error", "unexecutable_program_is_an_error"],
    ),
    (
        "timeout_is_not_reported",
        Fault::TimeoutIsNotReported,
        &["deadline_ends_the_command_and_is_reported"],
    ),
    (
        "deadline_is_ignored",
        Fault::DeadlineIsIgnored,
        &["deadline_ends_the_command_and_is_reported"],
    ),
    ("usage_is_not_reported", Fault::UsageIsNotReported, &["resource_usage_is_reported"]),
    (
        "streams_are_merged",
        Fault::StreamsAreMerged,
        &["streams_are_separate", "binary_output_is_unchanged", "long_output_is_complete"],
    ),
    (
        "output_is_text",
        Fault::OutputIsText,
        &[
            "binary_output_is_unchanged",
            "input_comes_from_the_caller",
            "arguments_arrive_unchanged",
        ],
    ),
    (
        "output_is_cut",
        Fault::OutputIsCut,
        &["long_output_is_complete", "output_beyond_the_limit_is_counted"],
    ),
    (
        "output_limit_is_ignored",
        Fault::OutputLimitIsIgnored,
        &["output_beyond_the_limit_is_counted"],
    ),
    (
        "output_is_lost",
        Fault::OutputIsLost,
        &[
            "granted_paths_are_accessible",
            "loopback_works_inside",
            "uid_and_gid_are_the_same_inside",
        ],
    ),
    (
        "inherited_streams_are_captured",
        Fault::InheritedStreamsAreCaptured,
        &["inherited_streams_are_not_captured"],
    ),
    ("input_is_empty", Fault::InputIsEmpty, &["input_comes_from_the_caller"]),
    ("arguments_are_joined", Fault::ArgumentsAreJoined, &["arguments_arrive_unchanged"]),
    (
        "environment_is_the_callers",
        Fault::EnvironmentIsTheCallers,
        &["environment_is_exactly_the_given_one"],
    ),
    (
        "command_starts_in_the_root",
        Fault::CommandStartsInTheRoot,
        &["command_starts_in_the_given_directory", "workspace_is_readable_and_writable"],
    ),
    (
        "only_one_command_runs",
        Fault::OnlyOneCommandRuns,
        &["prepared_sandbox_runs_several_commands"],
    ),
    (
        "first_outcome_is_repeated",
        Fault::FirstOutcomeIsRepeated,
        &["host_changes_are_visible", "prepared_sandbox_runs_several_commands"],
    ),
    (
        "denials_are_guessed",
        Fault::DenialsAreGuessed,
        &["printed_permission_error_is_not_a_denial"],
    ),
];

const BARE: &str = "unconfined_provider_fails_every_confinement_and_shell_check";
const IDLE: &str = "idle_provider_fails_every_check";
const WHOLE: &str = "every_running_check_finds_a_fault";

fn main() -> ExitCode {
    let named = FAULTS.iter().map(|(name, ..)| format!("fault::{name}"));
    let names = [BARE, IDLE, WHOLE].into_iter().map(String::from).chain(named).collect();
    ProcessPerTest { names, input: INPUT, variable: VARIABLE, body }.main()
}

fn body(name: &str, directory: &Path) -> FaultResult {
    match name {
        BARE => {
            // It has no shells either.
            let confinement = checks().filter(|check| check.about != CheckTopic::Running);
            check_found(
                directory,
                Fault::None,
                checks(),
                &confinement.map(|check| check.name).collect(),
            )
        }
        IDLE => check_found(
            directory,
            Fault::Idle,
            checks(),
            &checks().map(|check| check.name).collect(),
        ),
        WHOLE => {
            let found: BTreeSet<&str> =
                FAULTS.iter().flat_map(|(_, _, found)| *found).copied().collect();
            same(
                &found,
                &checks()
                    .filter(|check| check.about == CheckTopic::Running)
                    .map(|check| check.name)
                    .collect(),
            )
        }
        fault => {
            let fault = fault.trim_start_matches("fault::");
            let (_, fault, found) =
                FAULTS.iter().find(|(name, ..)| *name == fault).ok_or("no such fault")?;
            let tried = checks().filter(|check| found.contains(&check.name));
            check_found(directory, *fault, tried, &found.iter().copied().collect())
        }
    }
}

/// Runs the checks on a provider with this fault; exactly the `wanted` ones must fail.
fn check_found<'a>(
    directory: &Path,
    fault: Fault,
    tried: impl Iterator<Item = &'a ConformanceCheck>,
    wanted: &BTreeSet<&str>,
) -> FaultResult {
    let mut failed = BTreeSet::new();
    for check in tried {
        let base = directory.join(check.name);
        std::fs::create_dir(&base)?;
        let fixture = ConformanceFixture::prepare(
            &AbsPath::new(&base).ok_or("the directory is not absolute")?,
        )?;
        if let Err(failure) = check.run(&Broken { fault }, &fixture) {
            eprintln!("{}: {failure}", check.name);
            failed.insert(check.name);
        }
    }
    same(&failed, wanted)
}

fn same(found: &BTreeSet<&str>, wanted: &BTreeSet<&str>) -> FaultResult {
    let missing: Vec<_> = wanted.difference(found).collect();
    let beyond: Vec<_> = found.difference(wanted).collect();
    if missing.is_empty() && beyond.is_empty() {
        Ok(())
    } else {
        Err(format!("not found: {missing:?}; found in addition: {beyond:?}").into())
    }
}
