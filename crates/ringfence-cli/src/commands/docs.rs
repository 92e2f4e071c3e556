//! `ringfence completions`, `ringfence man`, and the reference: all out of the one
//! definition of the arguments.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Arguments;
use crate::error::CliError;
use crate::output;

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence completions bash > ~/.local/share/bash-completion/completions/ringfence
  ringfence completions zsh > ~/.zfunc/_ringfence
  ringfence completions fish > ~/.config/fish/completions/ringfence.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write those of all commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence man | man -l -
  ringfence man --out ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write one page for each command into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Print the reference of all commands as Markdown
#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {}

pub(crate) fn completions(arguments: CompletionsArgs) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "ringfence", &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: ManArgs) -> Result<ExitCode, CliError> {
    let Some(directory) = arguments.out else {
        let mut page = Vec::new();
        let fail =
            |source| CliError::File { what: "write", path: "the manual page".into(), source };
        clap_mangen::Man::new(Arguments::command()).render(&mut page).map_err(fail)?;
        output::bytes(&page)?;
        return Ok(ExitCode::SUCCESS);
    };
    let fail = |what: &'static str| {
        let path = directory.display().to_string();
        move |source| CliError::File { what, path, source }
    };
    fs::create_dir_all(&directory).map_err(fail("make"))?;
    clap_mangen::generate_to(Arguments::command(), &directory)
        .map_err(fail("write manual pages into"))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn reference(_: ReferenceArgs) -> Result<ExitCode, CliError> {
    output::text(&markdown())?;
    Ok(ExitCode::SUCCESS)
}

/// The help of every command, at a width that no terminal changes.
fn markdown() -> String {
    let mut root = Arguments::command().term_width(100).disable_help_subcommand(true);
    root.build();
    let mut text = String::from(
        "# The command line\n\nWritten by `ringfence reference` from the same definitions that `--help` shows.\n",
    );
    describe(&mut root, &mut text);
    text
}

fn describe(command: &mut Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let help: String = command
        .render_long_help()
        .to_string()
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end()));
    for below in command
        .get_subcommands_mut()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        describe(below, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_reference_has_every_command_and_no_hidden_one() {
        let text = markdown();
        for name in [
            "ringfence",
            "ringfence run",
            "ringfence explain",
            "ringfence policy import",
            "ringfence man",
        ] {
            assert!(text.contains(&format!("\n## {name}\n")), "{name}");
        }
        assert!(!text.contains("## ringfence reference"));
        assert!(text.lines().all(|line| line == line.trim_end()));
    }

    #[test]
    fn every_command_says_in_a_line_what_it_does_and_gives_examples() {
        fn check(command: &Command) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(
                !about.is_empty() && !about.ends_with('.') && !about.contains('\n'),
                "{}: {about:?}",
                command.get_name()
            );
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                examples.contains("Examples:\n") || command.is_hide_set(),
                "{}",
                command.get_name()
            );
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }
}
