//! `ringfence policy list`

use std::process::ExitCode;

use clap::Args;
use ringfence_engine::{
    OwnPolicy, OwnPolicyState, PolicyFiles, gather, of_the_person, own_policies, own_policy_file,
    places,
};
use ringfence_policy::{AbsPath, Facts};
use serde_json::{Value, json};

use crate::commands::resolve_args::directory;
use crate::error::CliError;
use crate::output::{self, printable};

/// List the policy files that apply here, weakest first
///
/// Files that are not there are named too: that is where they would be. Then come your policies for
/// single projects whose project was moved or deleted, and those that count nowhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy list
  ringfence policy list --json")]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A place of a policy file.
pub(super) struct PolicyFile {
    /// The one who speaks in it.
    whose: &'static str,
    file: AbsPath,
    is_there: bool,
}

impl PolicyFile {
    pub(super) fn json(&self) -> Value {
        json!({ "layer": self.whose, "file": self.file.to_string(), "present": self.is_there })
    }

    pub(super) fn line(&self) -> String {
        let absent = if self.is_there { "" } else { "  (absent)" };
        printable(&format!("{:<14} {}{absent}", self.whose, self.file))
    }
}

/// The files that apply, weakest first, there or not.
pub(super) fn policy_files(files: &PolicyFiles, facts: &Facts) -> Vec<PolicyFile> {
    let whose = |number: usize, file: &AbsPath| match number {
        0 => "managed",
        _ if *file == of_the_person(facts) => "yours",
        _ if *file == own_policy_file(facts) => "yours, here",
        _ if files.project.as_ref() == Some(file) => "--policy",
        _ => "repository",
    };
    let one = |(number, file): (usize, AbsPath)| PolicyFile {
        whose: whose(number, &file),
        is_there: file.as_path().symlink_metadata().is_ok(),
        file,
    };
    places(files, facts).into_iter().enumerate().map(one).collect()
}

pub(super) fn run(arguments: List) -> Result<ExitCode, CliError> {
    let facts = gather(&directory(None)?)?.facts;
    let files = policy_files(&PolicyFiles::default(), &facts);
    let stray: Vec<OwnPolicy> =
        own_policies(&facts).into_iter().filter(|own| own.state != OwnPolicyState::Used).collect();
    if arguments.json {
        let stray: Vec<Value> = stray.iter().map(stray_as_json).collect();
        output::json(
            &json!({ "files": files.iter().map(PolicyFile::json).collect::<Vec<_>>(), "unused": stray }),
        )?;
    } else {
        let mut text: String = files.iter().map(|file| file.line() + "\n").collect();
        for own in &stray {
            text.push_str(&format!(
                "\nunused         {}\n               {}\n",
                printable(&own.file.to_string()),
                printable(&why(own))
            ));
        }
        output::text(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn stray_as_json(own: &OwnPolicy) -> Value {
    let project = own.project.as_ref().map(ToString::to_string);
    json!({ "file": own.file.to_string(), "project": project, "state": own.state.word(), "why": why(own) })
}

/// The reason why a file counts nowhere, with what helps.
pub(crate) fn why(own: &OwnPolicy) -> String {
    let project = own.project.as_ref().map_or_else(String::new, ToString::to_string);
    match own.state {
        OwnPolicyState::Used => format!("for {project}"),
        OwnPolicyState::Gone => {
            format!(
                "for {project}, which is gone; if it was moved, put its rules into the file `yours, here` of its new place, then delete it"
            )
        }
        OwnPolicyState::Misnamed => {
            format!("for {project}, which has another file: delete this one, or merge it by hand")
        }
        OwnPolicyState::Broken => {
            "it has a mistake in it, or no `project`: see `ringfence policy check FILE`".to_owned()
        }
    }
}
