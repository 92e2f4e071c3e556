//! `ringfence policy check`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_engine::{EngineError, PolicyFiles, inspect_in, read_file_and_settings, read_layers};
use ringfence_policy::{AbsPath, Flags, PolicyLayer, ProviderSpec, Source, resolve_to_inspect};
use serde_json::{Value, json};

use crate::commands::resolve_args::{absolute_path, canonical_directory};
use crate::error::CliError;
use crate::messages;
use crate::output;
use crate::providers::plain_registry;

/// Check policy files
///
/// Without a file, checks the files that apply here: the managed one, your own two and the
/// repository's. Files that a file extends are checked too. Prints `ok FILE` for each valid file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy check
  ringfence policy check .ringfence/policy.toml
  ringfence policy check --as managed build/policy.toml

Exit status: 0 all files are valid, 125 a file is not.")]
pub(super) struct PolicyCheckArgs {
    /// The files
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check the file as this layer; `locked` is allowed in the managed policy only
    #[arg(long = "as", value_enum, value_name = "LAYER")]
    layer: Option<LayerArg>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayerArg {
    Managed,
    User,
    Project,
}

/// A file, and its error, if any.
struct CheckedFile {
    file: String,
    error: Option<CliError>,
}

pub(super) fn run(arguments: PolicyCheckArgs) -> Result<ExitCode, CliError> {
    let checked = if arguments.files.is_empty() {
        all()?
    } else {
        arguments.files.iter().flat_map(|file| one(file, arguments.layer)).collect()
    };
    if checked.is_empty() && !arguments.json {
        messages::print_note("no policy file found: the built-in policy applies");
    }
    for bad in checked.iter().filter_map(|checked| checked.error.as_ref()) {
        messages::print_error(bad);
    }
    if arguments.json {
        output::print_json(&Value::from(checked.iter().map(as_json).collect::<Vec<_>>()))?;
    } else {
        let good = checked.iter().filter(|checked| checked.error.is_none());
        output::print_text(
            &good
                .map(|checked| format!("ok {}\n", output::printable(&checked.file)))
                .collect::<String>(),
        )?;
    }
    Ok(ExitCode::from(if checked.iter().any(|checked| checked.error.is_some()) { 125 } else { 0 }))
}

/// Checks the files that apply here, and that they can be merged.
fn all() -> Result<Vec<CheckedFile>, CliError> {
    let cwd = canonical_directory(None)?;
    let surroundings = ringfence_engine::gather_host_environment(&cwd)?;
    let found = read_layers(&PolicyFiles::default(), &surroundings.facts);
    let together = found.and_then(|layers| {
        inspect_in(
            ringfence_engine::gather_host_environment(&cwd)?,
            &Flags::none(cwd.clone()),
            &PolicyFiles::default(),
        )?;
        Ok(layers)
    });
    Ok(match together {
        Ok(layers) => layers
            .into_iter()
            .map(|layer| CheckedFile {
                file: layer.file.to_string(),
                error: check_provider(&layer).err(),
            })
            .collect(),
        Err(error) => {
            let file = match &error {
                EngineError::Policy(error) => error.file().map(ToString::to_string),
                EngineError::Unreadable { file, .. }
                | EngineError::OtherProject { file, .. }
                | EngineError::ProjectKey { file } => Some(file.to_string()),
                _ => None,
            };
            vec![CheckedFile { file: file.unwrap_or_default(), error: Some(error.into()) }]
        }
    })
}

/// Checks one file, and the files that it extends.
fn one(file: &Path, layer: Option<LayerArg>) -> Vec<CheckedFile> {
    let checked = absolute_path(file).and_then(|file| {
        let cwd = canonical_directory(None)?;
        let facts = ringfence_engine::gather_host_environment(&cwd)?.facts;
        let layers = read_file_and_settings(&file, &source(&file, layer), &facts)?;
        resolve_to_inspect(&layers, &Flags::none(cwd.clone()), &facts)?;
        Ok(layers)
    });
    match checked {
        Ok(layers) => layers
            .into_iter()
            .rev()
            .map(|layer| CheckedFile {
                file: layer.file.to_string(),
                error: check_provider(&layer).err(),
            })
            .collect(),
        Err(error) => vec![CheckedFile { file: file.display().to_string(), error: Some(error) }],
    }
}

/// Checks the name and the options of the provider. The parser knows neither.
fn check_provider(layer: &PolicyLayer) -> Result<(), CliError> {
    let spec = layer.policy.sandbox.provider.as_deref().and_then(|text| text.parse().ok());
    let made = spec.map(|spec: ProviderSpec| plain_registry().get(&spec));
    made.transpose().map(drop).map_err(|error| EngineError::from(error).into())
}

/// Returns the layer of a file, by its directory.
fn source(file: &AbsPath, layer: Option<LayerArg>) -> Source {
    let is_in =
        |directory: &str| file.parent().is_some_and(|parent| parent.as_path().ends_with(directory));
    match layer {
        Some(LayerArg::Managed) => Source::Managed,
        Some(LayerArg::User) => Source::User,
        Some(LayerArg::Project) => Source::Project,
        None if is_in("/etc/ringfence") => Source::Managed,
        None if is_in(".ringfence") => Source::Project,
        None => Source::User,
    }
}

fn as_json(checked: &CheckedFile) -> Value {
    let position = |error: &CliError| match error {
        CliError::Engine(EngineError::Policy(error)) => {
            json!({ "line": error.line(), "column": error.column() })
        }
        _ => json!({ "line": null, "column": null }),
    };
    let error = checked.error.as_ref().map(|error| {
        let mut object = error.to_json();
        object["line"] = position(error)["line"].clone();
        object["column"] = position(error)["column"].clone();
        object
    });
    json!({ "file": checked.file, "ok": error.is_none(), "error": error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &str, layer: Option<LayerArg>, expect: Source) {
        assert_eq!(source(&AbsPath::new(file).unwrap(), layer), expect, "{file}");
    }

    #[test]
    fn layer_follows_from_the_directory() {
        check("/etc/ringfence/policy.toml", None, Source::Managed);
        check("/p/.ringfence/policy.toml", None, Source::Project);
        check("/p/x.toml", None, Source::User);
        check("/p/x.toml", Some(LayerArg::Managed), Source::Managed);
    }
}
