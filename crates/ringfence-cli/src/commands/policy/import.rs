//! `ringfence policy import`

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_policy::import::{
    ImportFormat, ImportNote, ImportNoteKind, ImportedPolicy, detect, import,
};
use ringfence_policy::render;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::messages;
use crate::output;

/// Convert another tool's policy to a ringfence policy
///
/// Settings without an equivalent, or with another meaning, are listed in comments at the top and
/// on standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy import .claude/settings.json --output .ringfence/policy.toml
  ringfence policy import ~/.claude/settings.json --output ~/.config/ringfence/policy.toml
  ringfence policy import ~/.codex/config.toml
  ringfence policy import --format srt-json my-settings.json")]
pub(super) struct PolicyImportArgs {
    /// The other tool's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format of the file [default: detected from its name and content]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Write the policy to this new file; missing directories are created
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
    /// Print JSON: the policy and the notes
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// `sandbox.json` with an allow list and a deny list
    SandboxJson,
    /// `.uds/config.yaml`
    UdsYaml,
    /// `settings.json` with `sandbox` and `permissions`
    SettingsJson,
    /// The settings file of srt
    SrtJson,
    /// `config.toml` of Codex
    CodexToml,
}

impl FormatArg {
    fn format(self) -> ImportFormat {
        match self {
            FormatArg::SandboxJson => ImportFormat::SandboxJson,
            FormatArg::UdsYaml => ImportFormat::UdsYaml,
            FormatArg::SettingsJson => ImportFormat::SettingsJson,
            FormatArg::SrtJson => ImportFormat::SrtJson,
            FormatArg::CodexToml => ImportFormat::CodexToml,
        }
    }

    fn from_format(format: ImportFormat) -> Option<Self> {
        Self::value_variants().iter().copied().find(|known| known.format() == format)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

pub(super) fn run(arguments: PolicyImportArgs) -> Result<ExitCode, CliError> {
    let path = arguments.file.display().to_string();
    let bytes = fs::read(&arguments.file).map_err(|source| CliError::File {
        what: "read",
        path: path.clone(),
        source,
    })?;
    let text = String::from_utf8(bytes).map_err(|_| CliError::File {
        what: "read",
        path: path.clone(),
        source: io::ErrorKind::InvalidData.into(),
    })?;
    let guessed = || detect(&path, &text).and_then(FormatArg::from_format);
    let format = arguments.format.or_else(guessed).ok_or_else(|| unknown(&path))?;
    let imported = import(&text, format.format())
        .map_err(|source| CliError::Import { path: path.clone(), source })?;
    if arguments.json {
        output::print_json(&as_json(format, &imported)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // On a terminal the user sees the comments in the output.
    if arguments.output.is_some() || !io::stdout().is_terminal() {
        for note in &imported.notes {
            messages::print_note(&sentence(note));
        }
    }
    match &arguments.output {
        Some(output) => write_new(output, &as_toml(&path, &imported))?,
        None => output::print_text(&as_toml(&path, &imported))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a file that must not exist.
fn write_new(file: &Path, text: &str) -> Result<(), CliError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => CliError::Usage {
            what: format!("cannot write {}: it already exists", file.display()),
            hint: "omit `--output` to print the policy, and copy the lines you want into the file"
                .to_owned(),
        },
        _ => CliError::File { what: "write", path: file.display().to_string(), source },
    };
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let mut created = fs::File::create_new(file).map_err(failed)?;
    created.write_all(text.as_bytes()).map_err(failed)?;
    output::print_text(&(output::printable(&format!("written: {}", file.display())) + "\n"))
}

fn unknown(path: &str) -> CliError {
    let known = FormatArg::value_variants().iter().map(|format| format.name()).collect::<Vec<_>>();
    CliError::Usage {
        what: format!("cannot detect the format of {path}"),
        hint: format!("use `--format` with one of: {}", known.join(", ")),
    }
}

fn as_toml(path: &str, imported: &ImportedPolicy) -> String {
    let mut toml = format!("# imported from {}\n", output::printable(path));
    for note in &imported.notes {
        toml.push_str(&format!("# {}\n", output::printable(&sentence(note))));
    }
    toml + &render(&imported.policy)
}

fn as_json(format: FormatArg, imported: &ImportedPolicy) -> Result<Value, CliError> {
    let policy = serde_json::to_value(&imported.policy).map_err(|error| CliError::File {
        what: "write",
        path: "the policy".into(),
        source: error.into(),
    })?;
    let note = |note: &ImportNote| json!({ "kind": kind(note.kind).replace(' ', "-"), "key": note.key, "text": note.text });
    Ok(
        json!({ "format": format.name(), "policy": policy, "notes": imported.notes.iter().map(note).collect::<Vec<_>>() }),
    )
}

fn kind(kind: ImportNoteKind) -> &'static str {
    match kind {
        ImportNoteKind::Warning => "warning",
        ImportNoteKind::NotCarried => "not carried over",
        ImportNoteKind::Changed => "changed",
    }
}

fn sentence(note: &ImportNote) -> String {
    match note.key.as_str() {
        "" => format!("{}: {}", kind(note.kind), note.text),
        key => format!("{}: {key}: {}", kind(note.kind), note.text),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{AbsPath, Source, parse};

    use super::*;

    #[test]
    fn printed_policy_parses_to_the_imported_one() {
        let text = r#"{ "sandbox": { "enabled": true, "nonsense": 1 }, "permissions": { "deny": ["Read(./x\n)"] } }"#;
        let imported = import(text, ImportFormat::SettingsJson).unwrap();
        assert!(!imported.notes.is_empty());
        let toml = as_toml("a\nb.json", &imported);
        let layer = parse(&toml, &AbsPath::new("/p").unwrap(), Source::User).unwrap();
        assert_eq!(layer.policy, imported.policy, "{toml}");
    }

    #[test]
    fn every_format_has_a_name() {
        for format in FormatArg::value_variants() {
            assert_eq!(FormatArg::from_format(format.format()), Some(*format));
            assert!(format.name().contains('-'));
        }
        assert!(
            unknown("x")
                .hint()
                .unwrap()
                .contains("sandbox-json, uds-yaml, settings-json, srt-json, codex-toml")
        );
    }
}
