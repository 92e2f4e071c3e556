//! Skills on a server.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use ringfence_api::decode_base64;
use ringfence_client::ServiceClient;
use serde_json::{Value, json};

use super::{RemoteOutput, pack};
use crate::error::CliError;
use crate::output::{self, fit_cell, printable};

/// The tenant and the agent that own a skill.
#[derive(Debug, Args)]
pub(super) struct AgentArgs {
    /// The tenant
    #[arg(value_name = "USER")]
    user: String,
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: String,
}

/// One skill.
#[derive(Debug, Args)]
pub(super) struct SkillArgs {
    #[command(flatten)]
    owner: AgentArgs,
    /// The skill
    #[arg(value_name = "SKILL")]
    skill: String,
}

impl SkillArgs {
    pub(super) fn path<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let AgentArgs { user, agent } = &self.owner;
        [&["v1", "skills", user, agent, &self.skill], more].concat()
    }
}

/// Upload skills to a server
///
/// Packs a directory before the upload: either a skill, or a directory of skills. Each skill
/// replaces the one with the same name; other skills are kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote upload alice helper skills.zip
  ringfence remote upload alice helper ./skills")]
pub(super) struct UploadArgs {
    #[command(flatten)]
    owner: AgentArgs,
    /// A ZIP file, or a directory
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

pub(super) fn upload(
    service: &ServiceClient,
    arguments: &UploadArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let archive = pack::pack_archive(&arguments.path)?;
    let AgentArgs { user, agent } = &arguments.owner;
    let uploaded = service.upload(&["v1", "skills", user, agent, "upload"], &archive)?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&uploaded);
    }
    warn(&uploaded);
    for skill in array_field(&uploaded, "skills") {
        warn(skill);
        let what = if skill["replaced"] == true { "replaced" } else { "new" };
        output::print_text(&format!("{}  {what}\n", text_field(skill, "skillId")))?;
    }
    Ok(())
}

/// List the skills of an agent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote list alice helper")]
pub(super) struct RemoteListArgs {
    #[command(flatten)]
    owner: AgentArgs,
}

pub(super) fn list(
    service: &ServiceClient,
    arguments: &RemoteListArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let AgentArgs { user, agent } = &arguments.owner;
    let listed = service.get(&["v1", "skills", user, agent, "list"], &[])?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&listed);
    }
    for skill in array_field(&listed, "skills") {
        warn(skill);
        let description = text_field(skill, "description");
        output::print_text(&format!(
            "{}  {}\n",
            fit_cell(&text_field(skill, "skillId"), 24),
            description.lines().next().unwrap_or_default()
        ))?;
    }
    Ok(())
}

/// List the files of a skill
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote files alice helper weather")]
pub(super) struct RemoteFilesArgs {
    #[command(flatten)]
    skill: SkillArgs,
}

pub(super) fn files(
    service: &ServiceClient,
    arguments: &RemoteFilesArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let listed = service.get(&arguments.skill.path(&["files"]), &[])?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&listed);
    }
    for file in array_field(&listed, "files") {
        let end = if file["kind"] == "directory" { "/" } else { "" };
        output::print_text(&format!(
            "{:>10}  {}{end}\n",
            file["bytes"].as_u64().unwrap_or_default(),
            text_field(file, "path")
        ))?;
    }
    if listed["truncated"] == true {
        crate::messages::print_warning("the list is incomplete: the server limits its length");
    }
    Ok(())
}

/// Print a file of a skill
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote cat alice helper weather run.py --lines 1:20")]
pub(super) struct CatArgs {
    #[command(flatten)]
    skill: SkillArgs,
    /// The path, relative to the skill's directory
    #[arg(value_name = "PATH")]
    path: String,
    /// Only these lines, counted from 1
    #[arg(long, value_name = "FIRST:LAST", value_parser = lines)]
    lines: Option<LineRangeArg>,
}

pub(super) fn cat(
    service: &ServiceClient,
    arguments: &CatArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let LineRangeArg { start, end } = arguments.lines.unwrap_or_default();
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let query =
        [("path", Some(arguments.path.clone())), ("start", number(start)), ("end", number(end))];
    let content = service.get(&arguments.skill.path(&["content"]), &query)?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&content);
    }
    let held = content["content"].as_str().unwrap_or_default();
    if content["truncated"] == true {
        crate::messages::print_warning(
            "the file is truncated: the server limits the length; use `--lines` to read the rest",
        );
    }
    match content["encoding"].as_str() {
        Some("base64") => output::print_bytes(&decode_base64(held).unwrap_or_default()),
        _ => output::print_text(held),
    }
}

/// Write a file of a skill, or replace lines of it, from standard input
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote edit alice helper csv SKILL.md < SKILL.md
  echo 'import sys' | ringfence remote edit alice helper csv convert.py --lines 1:1")]
pub(super) struct RemoteEditArgs {
    #[command(flatten)]
    skill: SkillArgs,
    /// The path, relative to the skill's directory
    #[arg(value_name = "PATH")]
    path: String,
    /// Only these lines, counted from 1
    #[arg(long, value_name = "FIRST:LAST", value_parser = lines)]
    lines: Option<LineRangeArg>,
    /// Write only if the file still has this etag
    #[arg(long, value_name = "ETAG")]
    expect: Option<String>,
}

pub(super) fn edit(
    service: &ServiceClient,
    arguments: &RemoteEditArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let content = read_stdin()?;
    let LineRangeArg { start, end } = arguments.lines.unwrap_or_default();
    let mut change = json!({ "path": arguments.path, "content": content });
    for (name, value) in [
        ("start", start.map(Value::from)),
        ("end", end.map(Value::from)),
        ("expect", arguments.expect.clone().map(Value::from)),
    ] {
        if let Some(value) = value {
            change[name] = value;
        }
    }
    let edited = service.json("PUT", &arguments.skill.path(&["edit"]), &[], Some(&change))?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&edited);
    }
    warn(&edited);
    Ok(())
}

/// Reads text from standard input.
pub(super) fn read_stdin() -> Result<String, CliError> {
    let fail = |source| CliError::File { what: "read", path: "standard input".into(), source };
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// Remove a skill
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote rm alice helper weather")]
pub(super) struct RmArgs {
    #[command(flatten)]
    skill: SkillArgs,
}

pub(super) fn rm(
    service: &ServiceClient,
    arguments: &RmArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let removed = service.json("DELETE", &arguments.skill.path(&[]), &[], None)?;
    if shown == RemoteOutput::AsJson { output::print_json(&removed) } else { Ok(()) }
}

/// A line range: `3:7`, `3:`, `:7` or `3`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineRangeArg {
    start: Option<u64>,
    end: Option<u64>,
}

fn lines(text: &str) -> Result<LineRangeArg, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| "use for example `1:20`, `20:` or `7`".to_owned())
        }
    };
    match text.split_once(':') {
        Some((start, end)) => Ok(LineRangeArg { start: number(start)?, end: number(end)? }),
        None => Ok(LineRangeArg { start: number(text)?, end: number(text)? }),
    }
}

/// Prints the warnings in a server's response.
fn warn(response: &Value) {
    for warning in array_field(response, "warnings") {
        let line = warning["line"].as_u64().map_or(String::new(), |line| format!("line {line}: "));
        crate::messages::print_warning(&format!("{line}{}", text_field(warning, "what")));
    }
}

pub(super) fn array_field<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    object[name].as_array().into_iter().flatten()
}

/// Returns a text field without control characters; `-` if it is missing.
pub(super) fn text_field(object: &Value, name: &str) -> String {
    object[name].as_str().map_or_else(|| "-".to_owned(), printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ranges_are_parsed() {
        let range = |start, end| Ok(LineRangeArg { start, end });
        assert_eq!(lines("1:20"), range(Some(1), Some(20)));
        assert_eq!(lines("5:"), range(Some(5), None));
        assert_eq!(lines(":5"), range(None, Some(5)));
        assert_eq!(lines("5"), range(Some(5), Some(5)));
        assert!(lines("a:b").is_err());
    }
}
