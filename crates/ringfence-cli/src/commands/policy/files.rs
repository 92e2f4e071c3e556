//! `ringfence policy list`

use std::process::ExitCode;

use clap::Args;
use ringfence_api::shell_word;
use ringfence_engine::{
    EnclosingPolicy, FoundSettings, OwnPolicy, OwnPolicyState, PolicyFiles,
    existing_enclosing_policies, found_settings, gather_host_environment, is_enclosing_policy,
    own_policies, own_policy_file, policy_file_paths, read_layers, user_policy_file,
};
use ringfence_policy::{AbsPath, Facts, PolicyLayer};
use serde_json::{Value, json};

use crate::commands::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, printable};

/// List the policy files that apply here, weakest first
///
/// Also lists files that do not exist, with the path they would have. Settings of other tools that
/// the files extend follow. Then lists your policies for single projects that are unused: the project was moved or deleted, or the file is invalid.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy list
  ringfence policy list --json")]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The location of a policy file.
pub(super) struct PolicyFile {
    /// The layer name.
    layer: &'static str,
    file: AbsPath,
    exists: bool,
}

impl PolicyFile {
    pub(super) fn json(&self) -> Value {
        json!({ "layer": self.layer, "file": self.file.to_string(), "present": self.exists })
    }

    pub(super) fn line(&self) -> String {
        let absent = if self.exists { "" } else { "  (absent)" };
        printable(&format!("{:<14} {}{absent}", self.layer, self.file))
    }
}

/// Returns the files that apply, weakest first, existing or not. Absent policies for the directories
/// around the project are left out. Settings of other tools that they extend come last.
pub(super) fn policy_files(files: &PolicyFiles, facts: &Facts) -> Vec<PolicyFile> {
    let layer = |number: usize, file: &AbsPath| match number {
        0 => "managed",
        _ if *file == user_policy_file(facts) => "yours",
        _ if *file == own_policy_file(facts) => "yours, here",
        _ if is_enclosing_policy(file, facts) => "yours, around",
        _ if files.project.as_ref() == Some(file) => "--policy",
        _ => "repository",
    };
    let one = |(number, file): (usize, AbsPath)| PolicyFile {
        layer: layer(number, &file),
        exists: file.as_path().symlink_metadata().is_ok(),
        file,
    };
    let own = policy_file_paths(files, facts).into_iter().enumerate().map(one);
    let own = own.filter(|file| file.exists || !is_enclosing_policy(&file.file, facts));
    // A policy with a mistake is reported elsewhere.
    let layers = read_layers(files, facts).unwrap_or_default();
    let of_tool = |layer: PolicyLayer| {
        Some(PolicyFile { layer: layer.tool?.name(), file: layer.file, exists: true })
    };
    own.chain(layers.into_iter().filter_map(of_tool)).collect()
}

/// Prints a note for each policy of the user for a directory around the project.
pub(crate) fn print_enclosing_policies(facts: &Facts) {
    enclosing_policy_lines(facts).iter().for_each(|line| messages::print_note(&printable(line)));
}

/// Returns one line for each policy of the user for a directory around the project.
pub(crate) fn enclosing_policy_lines(facts: &Facts) -> Vec<String> {
    let line = |around: EnclosingPolicy| {
        format!("your policy for {} applies here too: {}", around.directory, around.file)
    };
    existing_enclosing_policies(facts).into_iter().map(line).collect()
}

/// Settings of other tools that are not part of the policy.
pub(crate) struct UnusedSettings {
    pub(crate) files: Vec<AbsPath>,
    /// The command that makes them a part of it.
    pub(crate) command: String,
}

impl UnusedSettings {
    /// Returns `None` if every tool with rules for the project is part of the policy.
    pub(crate) fn find(facts: &Facts) -> Option<Self> {
        let found: Vec<FoundSettings> =
            found_settings(facts).into_iter().filter(|found| !found.is_extended).collect();
        let own = own_policy_file(facts);
        let layers = read_layers(&PolicyFiles::default(), facts).unwrap_or_default();
        let layer = layers.into_iter().find(|layer| layer.file == own);
        let mut extends = layer.map(|layer| layer.policy.extends).unwrap_or_default();
        extends.extend(found.iter().map(|found| found.tool.name().to_owned()));
        let value = shell_word(&format!("{extends:?}"));
        (!found.is_empty()).then(|| Self {
            files: found.into_iter().flat_map(|found| found.files).collect(),
            command: format!("ringfence configure set extends {value}"),
        })
    }

    /// Returns the files, for messages.
    pub(crate) fn list(&self) -> String {
        self.files.iter().map(AbsPath::to_string).collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn run(arguments: List) -> Result<ExitCode, CliError> {
    let facts = gather_host_environment(&canonical_directory(None)?)?.facts;
    let files = policy_files(&PolicyFiles::default(), &facts);
    let unused: Vec<OwnPolicy> =
        own_policies(&facts).into_iter().filter(|own| own.state != OwnPolicyState::Used).collect();
    if arguments.json {
        let unused: Vec<Value> = unused.iter().map(unused_as_json).collect();
        output::print_json(
            &json!({ "files": files.iter().map(PolicyFile::json).collect::<Vec<_>>(), "unused": unused }),
        )?;
    } else {
        let mut text: String = files.iter().map(|file| file.line() + "\n").collect();
        for own in &unused {
            text.push_str(&format!(
                "\nunused         {}\n               {}\n",
                printable(&own.file.to_string()),
                printable(&unused_reason(own))
            ));
        }
        output::print_text(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn unused_as_json(own: &OwnPolicy) -> Value {
    let project = own.project.as_ref().map(ToString::to_string);
    json!({ "file": own.file.to_string(), "project": project, "state": own.state.as_str(), "why": unused_reason(own) })
}

/// Returns the reason why a file is unused, and how to fix it.
pub(crate) fn unused_reason(own: &OwnPolicy) -> String {
    let project = own.project.as_ref().map_or_else(String::new, ToString::to_string);
    match own.state {
        OwnPolicyState::Used => format!("for {project}"),
        OwnPolicyState::Gone => {
            format!(
                "for {project}, which does not exist; if you moved it, copy the rules into the file `yours, here` of the new location, then delete this file"
            )
        }
        OwnPolicyState::Misnamed => {
            format!("for {project}, which uses another file: delete this one, or merge it by hand")
        }
        OwnPolicyState::Broken => {
            "it has an error, or no `project`: run `ringfence policy check FILE`".to_owned()
        }
    }
}
