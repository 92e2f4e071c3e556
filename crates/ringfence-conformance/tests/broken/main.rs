//! Every check can fail, and reports it by name.
//!
//! A provider without confinement fails every confinement check and no other; a provider that runs
//! nothing fails all of them; and each small fault fails the checks made for it.

mod provider;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use ringfence_conformance::{ConformanceCheck, SuiteResult, checks, run_each};

use provider::{Broken, Fault};

/// Faults of a provider, and the checks that must find them.
const FAULTS: &[(&str, Fault, &[&str])] = &[
    ("signals_become_statuses", Fault::SignalsBecomeStatuses, &["statuses_pass_through"]),
    (
        "errors_become_statuses",
        Fault::ErrorsBecomeStatuses,
        &[
            "missing_program_is_an_error",
            "unexecutable_program_is_an_error",
            "shell_without_report_fds_is_abandoned",
            "command_with_nul_is_rejected",
        ],
    ),
    (
        "timeout_is_not_reported",
        Fault::TimeoutIsNotReported,
        &["deadline_ends_the_command_and_is_reported", "interrupted_shell_lives_on"],
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
        &[
            "streams_are_separate",
            "binary_output_is_unchanged",
            "long_output_is_complete",
            "shell_keeps_stdout_and_stderr_separate",
        ],
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
    (
        "input_is_empty",
        Fault::InputIsEmpty,
        &[
            "input_comes_from_the_caller",
            "shell_command_reads_only_its_own_input",
            "shell_command_is_fed_while_it_runs",
        ],
    ),
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
    (
        "gaps_are_hidden",
        Fault::GapsAreHidden,
        &["limit_holds_or_is_a_gap", "host_list_holds_or_is_a_gap", "broken_rule_is_a_gap"],
    ),
    (
        "status_is_zero",
        Fault::StatusIsZero,
        &[
            "shell_reports_each_exit_status",
            "shell_reports_exit_status_after_option_changes",
            "command_is_interrupted_from_another_thread",
            "output_cannot_fake_an_exit_status",
            "writing_to_every_fd_fakes_no_exit_status",
        ],
    ),
    (
        "each_command_has_a_new_shell",
        Fault::EachCommandHasANewShell,
        &["shell_state_persists_between_commands", "two_shells_of_one_sandbox_are_independent"],
    ),
    ("shell_end_is_hidden", Fault::ShellEndIsHidden, &["command_that_ends_its_shell_is_reported"]),
    (
        "dropped_output_is_not_counted",
        Fault::DroppedOutputIsNotCounted,
        &["large_output_is_counted_exactly"],
    ),
    (
        "background_output_is_mixed",
        Fault::BackgroundOutputIsMixed,
        &["background_output_is_kept_separate"],
    ),
    ("long_commands_are_cut", Fault::LongCommandsAreCut, &["long_command_runs_as_one"]),
    ("ended_sandbox_lives_on", Fault::EndedSandboxLivesOn, &["ended_sandbox_has_no_processes"]),
    ("files_are_cut", Fault::FilesAreCut, &["files_go_in_and_out"]),
];

const BARE: &str = "unconfined_provider_fails_every_confinement_check";
const IDLE: &str = "idle_provider_fails_every_check";
const WHOLE: &str = "every_other_check_finds_a_fault";

/// A check whose result depends on the fds that the test runner leaves open: an unconfined command
/// inherits them.
const DEPENDS_ON_RUNNER: &str = "writing_to_every_fd_fakes_no_exit_status";

fn main() -> ExitCode {
    let named = FAULTS.iter().map(|(name, ..)| format!("fault::{name}"));
    run_each([BARE, IDLE, WHOLE].into_iter().map(String::from).chain(named).collect(), body)
}

fn body(name: &str, directory: &Path) -> SuiteResult {
    let names = |is_meant: fn(&ConformanceCheck) -> bool| -> BTreeSet<&str> {
        checks().filter(|check| is_meant(check)).map(|check| check.name).collect()
    };
    match name {
        BARE => {
            let tried = checks().filter(|check| check.name != DEPENDS_ON_RUNNER);
            check_found(directory, Fault::None, tried, &names(ConformanceCheck::is_confinement))
        }
        IDLE => check_found(directory, Fault::Idle, checks(), &names(|_| true)),
        WHOLE => {
            let found = FAULTS.iter().flat_map(|(_, _, found)| *found).copied().collect();
            same(&found, &names(|check| !check.is_confinement()))
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
) -> SuiteResult {
    let mut failed = BTreeSet::new();
    for check in tried {
        let base = directory.join(check.name);
        std::fs::create_dir(&base)?;
        if let Err(failure) = check.run(&Broken { fault }, &base) {
            eprintln!("{}: {failure}", check.name);
            failed.insert(check.name);
        }
    }
    same(&failed, wanted)
}

fn same(found: &BTreeSet<&str>, wanted: &BTreeSet<&str>) -> SuiteResult {
    let missing: Vec<_> = wanted.difference(found).collect();
    let beyond: Vec<_> = found.difference(wanted).collect();
    if missing.is_empty() && beyond.is_empty() {
        Ok(())
    } else {
        Err(format!("not found: {missing:?}; found in addition: {beyond:?}").into())
    }
}
