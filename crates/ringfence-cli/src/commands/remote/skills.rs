//! Skills on a service.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::url::{path, query};
use super::wire::{RequestBody, ServiceClient};
use super::{RemoteOutput, pack, sse};
use crate::error::CliError;
use crate::output::{self, cell, printable};

/// Whose, and which agent's.
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
    shelf: AgentArgs,
    /// The skill
    #[arg(value_name = "SKILL")]
    skill: String,
}

impl SkillArgs {
    pub(super) fn path(&self, more: &[&str]) -> String {
        let AgentArgs { user, agent } = &self.shelf;
        path(&["v1", "skills", user, agent, &self.skill]) + &path(more)
    }
}

/// Bring skills to a service
///
/// A directory is packed on the way: one that is a skill, or one whose directories are skills. Each
/// replaces the one of its name as a whole; others stay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote upload alice helper skills.zip
  ringfence remote upload alice helper ./skills")]
pub(super) struct UploadArgs {
    #[command(flatten)]
    shelf: AgentArgs,
    /// A ZIP file, or a directory
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

pub(super) fn upload(
    service: &ServiceClient,
    arguments: &UploadArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let archive = pack::archive(&arguments.path)?;
    let boundary = format!("ringfence-{}", ringfence_audit::session_id());
    let head = "Content-Disposition: form-data; name=\"file\"; filename=\"skills.zip\"\r\nContent-Type: application/zip";
    let mut bytes = format!("--{boundary}\r\n{head}\r\n\r\n").into_bytes();
    bytes.extend(archive);
    bytes.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    let AgentArgs { user, agent } = &arguments.shelf;
    let to = path(&["v1", "skills", user, agent, "upload"]);
    let uploaded =
        service.json("POST", &to, &RequestBody::Form { boundary: &boundary, bytes: &bytes })?;
    if shown == RemoteOutput::AsJson {
        return output::json(&uploaded);
    }
    warn(&uploaded);
    for skill in list_of(&uploaded, "skills") {
        warn(skill);
        let what = if skill["replaced"] == true { "replaced" } else { "new" };
        output::text(&format!("{}  {what}\n", text(skill, "skillId")))?;
    }
    Ok(())
}

/// List the skills of an agent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote list alice helper")]
pub(super) struct RemoteListArgs {
    #[command(flatten)]
    shelf: AgentArgs,
}

pub(super) fn list(
    service: &ServiceClient,
    arguments: &RemoteListArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let AgentArgs { user, agent } = &arguments.shelf;
    let listed = service.get(&path(&["v1", "skills", user, agent, "list"]))?;
    if shown == RemoteOutput::AsJson {
        return output::json(&listed);
    }
    for skill in list_of(&listed, "skills") {
        warn(skill);
        let description = text(skill, "description");
        output::text(&format!(
            "{}  {}\n",
            cell(&text(skill, "skillId"), 24),
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
    let listed = service.get(&arguments.skill.path(&["files"]))?;
    if shown == RemoteOutput::AsJson {
        return output::json(&listed);
    }
    for file in list_of(&listed, "files") {
        let end = if file["kind"] == "directory" { "/" } else { "" };
        output::text(&format!(
            "{:>10}  {}{end}\n",
            file["bytes"].as_u64().unwrap_or_default(),
            text(file, "path")
        ))?;
    }
    if listed["truncated"] == true {
        crate::messages::warning("there is more than the service lists");
    }
    Ok(())
}

/// Read a file of a skill
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote cat alice helper weather run.py --lines 1:20")]
pub(super) struct CatArgs {
    #[command(flatten)]
    skill: SkillArgs,
    /// From the skill's directory on
    #[arg(value_name = "PATH")]
    path: String,
    /// Only these lines, from 1
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
    let of =
        [("path", Some(arguments.path.clone())), ("start", number(start)), ("end", number(end))];
    let content = service.get(&(arguments.skill.path(&["content"]) + &query(&of)))?;
    if shown == RemoteOutput::AsJson {
        return output::json(&content);
    }
    let held = content["content"].as_str().unwrap_or_default();
    if content["truncated"] == true {
        crate::messages::warning(
            "there is more than the service hands out at once; `--lines` chooses",
        );
    }
    match content["encoding"].as_str() {
        Some("base64") => output::bytes(&sse::decoded(held).unwrap_or_default()),
        _ => output::text(held),
    }
}

/// Write a file of a skill, or replace lines of it, by what comes on standard input
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote edit alice helper csv SKILL.md < SKILL.md
  echo 'import sys' | ringfence remote edit alice helper csv convert.py --lines 1:1")]
pub(super) struct RemoteEditArgs {
    #[command(flatten)]
    skill: SkillArgs,
    /// From the skill's directory on
    #[arg(value_name = "PATH")]
    path: String,
    /// Only these lines, from 1
    #[arg(long, value_name = "FIRST:LAST", value_parser = lines)]
    lines: Option<LineRangeArg>,
    /// Only if the file is still the one with this etag
    #[arg(long, value_name = "ETAG")]
    expect: Option<String>,
}

pub(super) fn edit(
    service: &ServiceClient,
    arguments: &RemoteEditArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let content = input()?;
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
    let edited =
        service.json("PUT", &arguments.skill.path(&["edit"]), &RequestBody::Json(&change))?;
    if shown == RemoteOutput::AsJson {
        return output::json(&edited);
    }
    warn(&edited);
    Ok(())
}

/// Text on standard input.
pub(super) fn input() -> Result<String, CliError> {
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
    let removed = service.json("DELETE", &arguments.skill.path(&[]), &RequestBody::Nothing)?;
    if shown == RemoteOutput::AsJson { output::json(&removed) } else { Ok(()) }
}

/// Lines as they are typed: `3:7`, `3:`, `:7` or `3`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineRangeArg {
    start: Option<u64>,
    end: Option<u64>,
}

fn lines(text: &str) -> Result<LineRangeArg, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| "write for example `1:20`, `20:` or `7`".to_owned())
        }
    };
    match text.split_once(':') {
        Some((start, end)) => Ok(LineRangeArg { start: number(start)?, end: number(end)? }),
        None => Ok(LineRangeArg { start: number(text)?, end: number(text)? }),
    }
}

/// What a service says of something that is not as it should be.
fn warn(of: &Value) {
    for warning in list_of(of, "warnings") {
        let line = warning["line"].as_u64().map_or(String::new(), |line| format!("line {line}: "));
        crate::messages::warning(&format!("{line}{}", text(warning, "what")));
    }
}

pub(super) fn list_of<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

/// A text, without anything that a terminal would obey; `-` if there is none.
pub(super) fn text(of: &Value, name: &str) -> String {
    of[name].as_str().map_or_else(|| "-".to_owned(), printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_typed() {
        let of = |start, end| Ok(LineRangeArg { start, end });
        assert_eq!(lines("1:20"), of(Some(1), Some(20)));
        assert_eq!(lines("5:"), of(Some(5), None));
        assert_eq!(lines(":5"), of(None, Some(5)));
        assert_eq!(lines("5"), of(Some(5), Some(5)));
        assert!(lines("a:b").is_err());
    }
}
