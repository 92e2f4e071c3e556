//! `ringfence policy show`

use std::process::ExitCode;

use clap::Args;
use ringfence_policy::Origin;
use serde_json::{Map, Value, json};

use super::files::{PolicyFile, policy_files};
use super::list::{ListedSection, sections};
use crate::args::PolicyArgs;
use crate::commands::resolve_args::{
    ResolvedArgs, fsync_word, gap_word, on_error_word, resolve_for_display,
};
use crate::error::CliError;
use crate::origins::PolicyOrigins;
use crate::output::{self, ColorMode, printable};

/// Show the resolved policy
///
/// Prints every rule that applies in this project, after all files and flags, with absolute paths.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy show
  ringfence policy show --origin | grep -v 'built in'
  ringfence policy show --mode read-only --json")]
pub(super) struct PolicyShowArgs {
    /// Show the origin of each line
    #[arg(long)]
    origin: bool,
    /// Print JSON, origins included
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(super) fn run(arguments: PolicyShowArgs) -> Result<ExitCode, CliError> {
    let resolved_args = resolve_for_display(&arguments.policy)?;
    let origins = PolicyOrigins::read(&resolved_args)?;
    let sections = sections(&resolved_args.resolved.grants, &origins);
    if arguments.json {
        output::print_json(&as_json(&resolved_args, &sections))?;
    } else {
        let column = if arguments.origin { OriginColumn::Origin } else { OriginColumn::Nothing };
        let mut head = format!(
            "workspace  {}\nhome       {}\n",
            resolved_args.resolved.grants.workspace, resolved_args.resolved.grants.home
        );
        head.push_str("\nfiles, weakest first\n");
        for file in
            policy_files(&resolved_args.request.files, &resolved_args.resolved.surroundings.facts)
        {
            head.push_str(&format!("  {}\n", file.line()));
        }
        output::print_text(&format!(
            "{}{}",
            printable_lines(&head),
            as_text(&sections, column, ColorMode::for_stdout())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The second column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OriginColumn {
    Nothing,
    Origin,
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}

fn as_text(sections: &[ListedSection], column: OriginColumn, paint: ColorMode) -> String {
    /// Origins are aligned at this column, except after longer lines.
    const COLUMN: usize = 40;
    let mut text = String::new();
    for section in sections {
        text.push_str(&format!("\n{}\n", paint.strong(section.name)));
        for entry in &section.entries {
            let line = printable(&entry.text);
            match column {
                OriginColumn::Nothing => text.push_str(&format!("  {line}\n")),
                OriginColumn::Origin => text.push_str(&format!(
                    "  {line:<COLUMN$}  {}\n",
                    paint.faint(&format!("# {}", printable(&entry.origin.to_string())))
                )),
            }
        }
    }
    text
}

fn as_json(resolved_args: &ResolvedArgs, sections: &[ListedSection]) -> Value {
    let grants = &resolved_args.resolved.grants;
    let entries = |section: &ListedSection| {
        section
            .entries
            .iter()
            .map(|entry| json!({ "text": entry.text, "origin": origin(&entry.origin) }))
            .collect::<Vec<_>>()
    };
    let limits: Map<String, Value> = grants
        .limits
        .set_limits()
        .into_iter()
        .map(|(limit, most)| (limit.to_string(), most.into()))
        .collect();
    json!({
        "mode": grants.mode.word(),
        "workspace": grants.workspace,
        "files": policy_files(&resolved_args.request.files, &resolved_args.resolved.surroundings.facts).iter().map(PolicyFile::json).collect::<Vec<_>>(),
        "home": grants.home,
        "enabled": grants.enabled,
        "provider": grants.sandbox.provider.to_string(),
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

    use super::super::list::ListedSetting;
    use super::*;

    #[test]
    fn origins_are_aligned() {
        let entry =
            ListedSetting { text: "/usr".into(), origin: Origin::new(Source::BuiltIn, "/usr") };
        let sections = [ListedSection { name: "read", entries: vec![entry] }];
        assert_eq!(as_text(&sections, OriginColumn::Nothing, ColorMode::Plain), "\nread\n  /usr\n");
        assert_eq!(
            as_text(&sections, OriginColumn::Origin, ColorMode::Plain),
            format!("\nread\n  {:<40}  # built in\n", "/usr")
        );
    }
}
