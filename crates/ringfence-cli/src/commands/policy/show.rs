//! `ringfence policy show`

use std::process::ExitCode;

use clap::Args;
use ringfence_policy::Origin;
use serde_json::{Map, Value, json};

use super::files::{PolicyFile, policy_files};
use super::list::{Section, sections};
use crate::args::PolicyArgs;
use crate::commands::words::{Meant, fsync_word, gap_word, meant, on_error_word};
use crate::error::CliError;
use crate::origins::Origins;
use crate::show::{self, Paint, printable};

/// Show what the policy comes to here
///
/// Every rule that holds in this project after all files and flags, with paths made absolute.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy show
  ringfence policy show --origin | grep -v 'built in'
  ringfence policy show --mode read-only --json")]
pub(super) struct Show {
    /// Say behind each line where it was written
    #[arg(long)]
    origin: bool,
    /// Print JSON, origins included
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(super) fn run(arguments: Show) -> Result<ExitCode, CliError> {
    let meant = meant(&arguments.policy)?;
    let origins = Origins::of(&meant)?;
    let sections = sections(&meant.resolved.grants, &origins);
    if arguments.json {
        show::json(&as_json(&meant, &sections))?;
    } else {
        let behind = if arguments.origin { Behind::Origin } else { Behind::Nothing };
        let mut head = format!(
            "workspace  {}\nhome       {}\n",
            meant.resolved.grants.workspace, meant.resolved.grants.home
        );
        head.push_str("\nfiles, weakest first\n");
        for file in policy_files(&meant.files, &meant.resolved.surroundings.facts) {
            head.push_str(&format!("  {}\n", file.line()));
        }
        show::text(&format!(
            "{}{}",
            printable_lines(&head),
            as_text(&sections, behind, Paint::for_stdout())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What stands behind each line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nothing,
    Origin,
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}

fn as_text(sections: &[Section], behind: Behind, paint: Paint) -> String {
    /// Origins stand in one column, but for the few longer lines.
    const COLUMN: usize = 40;
    let mut text = String::new();
    for section in sections {
        text.push_str(&format!("\n{}\n", paint.strong(section.name)));
        for entry in &section.entries {
            let line = printable(&entry.text);
            match behind {
                Behind::Nothing => text.push_str(&format!("  {line}\n")),
                Behind::Origin => text.push_str(&format!(
                    "  {line:<COLUMN$}  {}\n",
                    paint.faint(&format!("# {}", printable(&entry.origin.to_string())))
                )),
            }
        }
    }
    text
}

fn as_json(meant: &Meant, sections: &[Section]) -> Value {
    let grants = &meant.resolved.grants;
    let entries = |section: &Section| {
        section
            .entries
            .iter()
            .map(|entry| json!({ "text": entry.text, "origin": origin(&entry.origin) }))
            .collect::<Vec<_>>()
    };
    let limits: Map<String, Value> = grants
        .limits
        .asked()
        .into_iter()
        .map(|(limit, most)| (limit.to_string(), most.into()))
        .collect();
    json!({
        "mode": grants.mode.word(),
        "workspace": grants.workspace,
        "files": policy_files(&meant.files, &meant.resolved.surroundings.facts).iter().map(PolicyFile::json).collect::<Vec<_>>(),
        "home": grants.home,
        "enabled": grants.enabled,
        "onGap": gap_word(grants.on_gap),
        "observe": grants.observe.word(),
        "ask": grants.ask.word(),
        "network": grants.network.mode.word(),
        "limits": limits,
        "audit": {
            "directory": grants.audit.directory,
            "fsync": fsync_word(grants.audit.fsync),
            "onError": on_error_word(grants.audit.on_error),
            "rotateBytes": grants.audit.rotate_bytes,
        },
        "sections": sections.iter().map(|section| (section.name.to_owned(), entries(section).into())).collect::<Map<_, _>>(),
        "warnings": grants.warnings,
    })
}

fn origin(origin: &Origin) -> Value {
    json!({ "source": origin.source.to_string(), "text": origin.text, "file": origin.file, "line": origin.line, "why": origin.why() })
}

#[cfg(test)]
mod tests {
    use ringfence_policy::Source;

    use super::super::list::Entry;
    use super::*;

    #[test]
    fn origins_stand_in_a_column() {
        let entry = Entry { text: "/usr".into(), origin: Origin::new(Source::BuiltIn, "/usr") };
        let sections = [Section { name: "read", entries: vec![entry] }];
        assert_eq!(as_text(&sections, Behind::Nothing, Paint::Plain), "\nread\n  /usr\n");
        assert_eq!(
            as_text(&sections, Behind::Origin, Paint::Plain),
            format!("\nread\n  {:<40}  # built in\n", "/usr")
        );
    }
}
