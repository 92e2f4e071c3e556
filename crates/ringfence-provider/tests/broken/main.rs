//! Each check can fail, and says so by name.
//!
//! A place that runs commands without confining them fails every check of confinement and no
//! other; one that runs nothing fails all of them; and each of a row of small faults fails the
//! checks that are there for it.

mod place;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_policy::AbsPath;
use ringfence_provider::conformance::{
    CheckTopic, ConformanceCheck, Fixture, INPUT, VARIABLE, checks,
};
use ringfence_testkit::ProcessPerTest;

use place::{Broken, Fault};

type Done = Result<(), Box<dyn Error>>;

/// What is wrong with a place, and the checks that must find it.
const FAULTS: &[(&str, Fault, &[&str])] = &[
    ("signals_become_statuses", Fault::SignalsBecomeStatuses, &["statuses_pass_through"]),
    (
        "what_is_not_executed_ends",
        Fault::WhatIsNotExecutedEnds,
        &[
            "a_program_that_is_not_there_is_an_error",
            "a_program_that_cannot_be_executed_is_an_error",
        ],
    ),
    ("time_is_not_told", Fault::TimeIsNotTold, &["a_deadline_ends_the_command_and_is_told"]),
    ("time_is_not_kept", Fault::TimeIsNotKept, &["a_deadline_ends_the_command_and_is_told"]),
    ("usage_is_not_told", Fault::UsageIsNotTold, &["what_it_used_is_told"]),
    (
        "streams_are_one",
        Fault::StreamsAreOne,
        &["streams_are_separate", "bytes_are_bytes", "long_output_is_complete"],
    ),
    (
        "output_is_text",
        Fault::OutputIsText,
        &["bytes_are_bytes", "input_is_the_callers", "words_arrive_as_they_are"],
    ),
    (
        "output_is_cut",
        Fault::OutputIsCut,
        &["long_output_is_complete", "output_beyond_the_limit_is_counted"],
    ),
    ("output_is_all_kept", Fault::OutputIsAllKept, &["output_beyond_the_limit_is_counted"]),
    (
        "output_is_lost",
        Fault::OutputIsLost,
        &["what_is_opened_is_open", "loopback_works_inside", "the_user_inside_is_the_user_outside"],
    ),
    ("inherited_is_kept", Fault::InheritedIsKept, &["inherited_streams_are_not_kept"]),
    ("input_is_empty", Fault::InputIsEmpty, &["input_is_the_callers"]),
    ("words_are_a_line", Fault::WordsAreALine, &["words_arrive_as_they_are"]),
    ("variables_are_the_callers", Fault::VariablesAreTheCallers, &["variables_are_those_given"]),
    (
        "it_starts_at_the_root",
        Fault::ItStartsAtTheRoot,
        &["the_command_starts_where_it_is_told", "the_workspace_is_worked_in"],
    ),
    ("it_runs_once", Fault::ItRunsOnce, &["a_session_runs_several_commands"]),
    (
        "answers_are_repeated",
        Fault::AnswersAreRepeated,
        &["what_the_host_changes_is_seen", "a_session_runs_several_commands"],
    ),
    ("denials_are_guessed", Fault::DenialsAreGuessed, &["text_about_permissions_is_no_denial"]),
];

const BARE: &str = "what_is_not_confined_fails_every_check_of_confinement_and_no_other";
const IDLE: &str = "what_runs_nothing_fails_every_check";
const WHOLE: &str = "every_check_of_running_has_a_fault_that_it_finds";

fn main() -> ExitCode {
    let named = FAULTS.iter().map(|(name, ..)| format!("fault::{name}"));
    let names = [BARE, IDLE, WHOLE].into_iter().map(String::from).chain(named).collect();
    ProcessPerTest { names, input: INPUT, variable: VARIABLE, body }.main()
}

fn body(name: &str, directory: &Path) -> Done {
    match name {
        BARE => {
            // It has no shells either.
            let confinement = checks().filter(|check| check.about != CheckTopic::Running);
            finds(directory, Fault::None, checks(), &confinement.map(|check| check.name).collect())
        }
        IDLE => {
            finds(directory, Fault::Idle, checks(), &checks().map(|check| check.name).collect())
        }
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
            finds(directory, *fault, tried, &found.iter().copied().collect())
        }
    }
}

/// Puts a place with this fault to the checks; exactly the `wanted` must fail.
fn finds<'a>(
    directory: &Path,
    fault: Fault,
    tried: impl Iterator<Item = &'a ConformanceCheck>,
    wanted: &BTreeSet<&str>,
) -> Done {
    let mut failed = BTreeSet::new();
    for check in tried {
        let base = directory.join(check.name);
        std::fs::create_dir(&base)?;
        let place = Fixture::prepare(&AbsPath::new(&base).ok_or("the directory is not absolute")?)?;
        if let Err(failure) = check.run(&Broken { fault }, &place) {
            eprintln!("{}: {failure}", check.name);
            failed.insert(check.name);
        }
    }
    same(&failed, wanted)
}

fn same(found: &BTreeSet<&str>, wanted: &BTreeSet<&str>) -> Done {
    let missing: Vec<_> = wanted.difference(found).collect();
    let beyond: Vec<_> = found.difference(wanted).collect();
    if missing.is_empty() && beyond.is_empty() {
        Ok(())
    } else {
        Err(format!("not found: {missing:?}; found beside: {beyond:?}").into())
    }
}
