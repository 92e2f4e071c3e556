//! Skills on a service.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::url::{path, query};
use super::wire::{Sent, Service};
use super::{Shown, pack, sse};
use crate::error::CliError;
use crate::show::{self, cell, printable};

/// Whose, and which agent's.
#[derive(Debug, Args)]
pub(super) struct Shelf {
    /// The tenant
    #[arg(value_name = "USER")]
    user: String,
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: String,
}

/// One skill.
#[derive(Debug, Args)]
pub(super) struct Skill {
    #[command(flatten)]
    shelf: Shelf,
    /// The skill
    #[arg(value_name = "SKILL")]
    skill: String,
}

impl Skill {
    pub(super) fn path(&self, more: &[&str]) -> String {
        let Shelf { user, agent } = &self.shelf;
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
pub(super) struct Upload {
    #[command(flatten)]
    shelf: Shelf,
    /// A ZIP file, or a directory
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

pub(super) fn upload(service: &Service, arguments: &Upload, shown: Shown) -> Result<(), CliError> {
    let archive = pack::archive(&arguments.path)?;
    let boundary = format!("ringfence-{}", ringfence_audit::session_id());
    let head = "Content-Disposition: form-data; name=\"file\"; filename=\"skills.zip\"\r\nContent-Type: application/zip";
    let mut bytes = format!("--{boundary}\r\n{head}\r\n\r\n").into_bytes();
    bytes.extend(archive);
    bytes.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    let Shelf { user, agent } = &arguments.shelf;
    let to = path(&["v1", "skills", user, agent, "upload"]);
    let uploaded = service.json("POST", &to, &Sent::Form { boundary: &boundary, bytes: &bytes })?;
    if shown == Shown::AsJson {
        return show::json(&uploaded);
    }
    warn(&uploaded);
    for skill in list_of(&uploaded, "skills") {
        warn(skill);
        let what = if skill["replaced"] == true { "replaced" } else { "new" };
        show::text(&format!("{}  {what}\n", text(skill, "skillId")))?;
    }
    Ok(())
}

/// List the skills of an agent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote list alice helper")]
pub(super) struct List {
    #[command(flatten)]
    shelf: Shelf,
}

pub(super) fn list(service: &Service, arguments: &List, shown: Shown) -> Result<(), CliError> {
    let Shelf { user, agent } = &arguments.shelf;
    let listed = service.get(&path(&["v1", "skills", user, agent, "list"]))?;
    if shown == Shown::AsJson {
        return show::json(&listed);
    }
    for skill in list_of(&listed, "skills") {
        warn(skill);
        let description = text(skill, "description");
        show::text(&format!(
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
pub(super) struct Files {
    #[command(flatten)]
    skill: Skill,
}

pub(super) fn files(service: &Service, arguments: &Files, shown: Shown) -> Result<(), CliError> {
    let listed = service.get(&arguments.skill.path(&["files"]))?;
    if shown == Shown::AsJson {
        return show::json(&listed);
    }
    for file in list_of(&listed, "files") {
        let end = if file["kind"] == "directory" { "/" } else { "" };
        show::text(&format!(
            "{:>10}  {}{end}\n",
            file["bytes"].as_u64().unwrap_or_default(),
            text(file, "path")
        ))?;
    }
    if listed["truncated"] == true {
        crate::say::warning("there is more than the service lists");
    }
    Ok(())
}

/// Read a file of a skill
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote cat alice helper weather run.py --lines 1:20")]
pub(super) struct Cat {
    #[command(flatten)]
    skill: Skill,
    /// From the skill's directory on
    #[arg(value_name = "PATH")]
    path: String,
    /// Only these lines, from 1
    #[arg(long, value_name = "FIRST:LAST", value_parser = lines)]
    lines: Option<Lines>,
}

pub(super) fn cat(service: &Service, arguments: &Cat, shown: Shown) -> Result<(), CliError> {
    let Lines { start, end } = arguments.lines.unwrap_or_default();
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let of =
        [("path", Some(arguments.path.clone())), ("start", number(start)), ("end", number(end))];
    let content = service.get(&(arguments.skill.path(&["content"]) + &query(&of)))?;
    if shown == Shown::AsJson {
        return show::json(&content);
    }
    let held = content["content"].as_str().unwrap_or_default();
    if content["truncated"] == true {
        crate::say::warning("there is more than the service hands out at once; `--lines` chooses");
    }
    match content["encoding"].as_str() {
        Some("base64") => show::bytes(&sse::decoded(held).unwrap_or_default()),
        _ => show::text(held),
    }
}

/// Write a file of a skill, or replace lines of it, by what comes on standard input
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote edit alice helper csv SKILL.md < SKILL.md
  echo 'import sys' | ringfence remote edit alice helper csv convert.py --lines 1:1")]
pub(super) struct Edit {
    #[command(flatten)]
    skill: Skill,
    /// From the skill's directory on
    #[arg(value_name = "PATH")]
    path: String,
    /// Only these lines, from 1
    #[arg(long, value_name = "FIRST:LAST", value_parser = lines)]
    lines: Option<Lines>,
    /// Only if the file is still the one with this etag
    #[arg(long, value_name = "ETAG")]
    expect: Option<String>,
}

pub(super) fn edit(service: &Service, arguments: &Edit, shown: Shown) -> Result<(), CliError> {
    let content = input()?;
    let Lines { start, end } = arguments.lines.unwrap_or_default();
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
    let edited = service.json("PUT", &arguments.skill.path(&["edit"]), &Sent::Json(&change))?;
    if shown == Shown::AsJson {
        return show::json(&edited);
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
pub(super) struct Rm {
    #[command(flatten)]
    skill: Skill,
}

pub(super) fn rm(service: &Service, arguments: &Rm, shown: Shown) -> Result<(), CliError> {
    let removed = service.json("DELETE", &arguments.skill.path(&[]), &Sent::Nothing)?;
    if shown == Shown::AsJson { show::json(&removed) } else { Ok(()) }
}

/// Lines as they are typed: `3:7`, `3:`, `:7` or `3`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lines {
    start: Option<u64>,
    end: Option<u64>,
}

fn lines(text: &str) -> Result<Lines, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| "write for example `1:20`, `20:` or `7`".to_owned())
        }
    };
    match text.split_once(':') {
        Some((start, end)) => Ok(Lines { start: number(start)?, end: number(end)? }),
        None => Ok(Lines { start: number(text)?, end: number(text)? }),
    }
}

/// What a service says of something that is not as it should be.
fn warn(of: &Value) {
    for warning in list_of(of, "warnings") {
        let line = warning["line"].as_u64().map_or(String::new(), |line| format!("line {line}: "));
        crate::say::warning(&format!("{line}{}", text(warning, "what")));
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
        let of = |start, end| Ok(Lines { start, end });
        assert_eq!(lines("1:20"), of(Some(1), Some(20)));
        assert_eq!(lines("5:"), of(Some(5), None));
        assert_eq!(lines(":5"), of(None, Some(5)));
        assert_eq!(lines("5"), of(Some(5), Some(5)));
        assert!(lines("a:b").is_err());
    }
}
