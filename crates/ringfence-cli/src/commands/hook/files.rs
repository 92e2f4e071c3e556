//! Tools that the agent has for files: it uses them itself, outside of any sandbox.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_api::{Operation, whole};
use ringfence_policy::{AbsPath, Access, Tool};
use ringfence_tools::{FileTools, ToolError};
use serde_json::Value;

use super::answer::HookReply;
use super::call::HookCall;
use crate::error::CliError;
use crate::messages;

pub(super) fn answer(scene: &HookCall, tool: Tool) -> Result<HookReply, CliError> {
    let input = &scene.input;
    match tool {
        Tool::Read | Tool::Write => one(scene, tool, input.text("file_path")?.as_ref()),
        Tool::Edit if input.tool == "NotebookEdit" => {
            one(scene, tool, input.text("notebook_path")?.as_ref())
        }
        Tool::Edit => one(scene, tool, input.text("file_path")?.as_ref()),
        Tool::List => list(scene),
        Tool::Search => search(scene),
        Tool::Shell => unreachable!("commands are answered elsewhere"),
    }
}

/// A tool that uses one file.
pub(super) fn one(scene: &HookCall, tool: Tool, path: &Path) -> Result<HookReply, CliError> {
    each_reading(scene, path, |path| {
        if is_agents_own(scene, path, access(tool)) {
            let rule = ("the agent's own files".to_owned(), "built in".to_owned());
            return scene.pass(Operation::Call, &path.to_string_lossy(), rule);
        }
        judged(scene, &tools(scene)?, tool, path)
    })
}

/// Judges a path by the letter, and by what the agent may make of it before it goes there: without
/// blanks around it, with the home for `~`, and without names that a `..` takes back.
fn each_reading(
    scene: &HookCall,
    path: &Path,
    judge: impl Fn(&Path) -> Result<HookReply, CliError>,
) -> Result<HookReply, CliError> {
    let answer = judge(path)?;
    if answer != HookReply::Nothing {
        return Ok(answer);
    }
    let text = path.to_string_lossy();
    let text = text.trim_matches(is_blank);
    let home = scene.grants().home.as_path();
    let meant = match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(text),
    };
    match AbsPath::new(scene.cwd.as_path().join(meant)) {
        Some(meant) if meant.as_path() != scene.cwd.as_path().join(path) => judge(meant.as_path()),
        _ => Ok(answer),
    }
}

/// What is taken away around a path, by agents in JavaScript.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

fn access(tool: Tool) -> Access {
    if matches!(tool, Tool::Write | Tool::Edit) { Access::Write } else { Access::Read }
}

fn judged(
    scene: &HookCall,
    tools: &FileTools,
    tool: Tool,
    path: &Path,
) -> Result<HookReply, CliError> {
    told(scene, tools.judge(tool, path, access(tool)))
}

/// Names in a directory, or of whatever a pattern finds.
fn list(scene: &HookCall) -> Result<HookReply, CliError> {
    let path = optional(scene, "path")?.unwrap_or_default().trim_matches(is_blank);
    let pattern = optional(scene, "pattern")?.unwrap_or_default();
    if scene.grants().is_confined() && leads_away(pattern) {
        return Ok(HookReply::Denied {
            reason: format!(
                "ringfence: it cannot be told where `{pattern}` leads; name the directory as `path`"
            ),
        });
    }
    // A pattern that names directories leads there, whatever the path is.
    let lead: PathBuf = Path::new(pattern).iter().take_while(|name| !is_pattern(name)).collect();
    let below = Path::new(path).join(lead);
    one(scene, Tool::List, if below.as_os_str().is_empty() { Path::new(".") } else { &below })
}

/// Whether a pattern may lead up, or elsewhere, behind the names that stand in front.
fn leads_away(pattern: &str) -> bool {
    let is_up = |name: &OsStr| name.to_string_lossy().contains("..");
    pattern.contains("{/")
        || pattern.contains(",/")
        || Path::new(pattern).iter().skip_while(|name| !is_pattern(name)).any(is_up)
}

fn is_pattern(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().any(|byte| b"*?[{".contains(byte))
}

/// Text in all files of a tree, the denied ones among them.
fn search(scene: &HookCall) -> Result<HookReply, CliError> {
    let path = Path::new(optional(scene, "path")?.unwrap_or("."));
    // A glob that others read in another way leaves out nothing for certain.
    let glob = optional(scene, "glob")?.filter(|glob| !is_odd(glob));
    each_reading(scene, path, |path| searched(scene, path, glob))
}

/// Whether a glob may be several, or what is left out, or has characters that mean another.
fn is_odd(glob: &str) -> bool {
    glob.starts_with('!')
        || glob.contains(|c: char| is_blank(c) || c == '\\')
        || glob.contains(',') && !glob.contains('{')
}

fn searched(scene: &HookCall, path: &Path, glob: Option<&str>) -> Result<HookReply, CliError> {
    if is_agents_own(scene, path, Access::Read) {
        return one(scene, Tool::Search, path);
    }
    let tools = tools(scene)?;
    let answer = judged(scene, &tools, Tool::Search, path)?;
    if answer != HookReply::Nothing || !scene.grants().is_confined() {
        return Ok(answer);
    }
    let denied = match tools.denied_below(path, glob) {
        Err(ToolError::Glob { .. }) => tools.denied_below(path, None),
        other => other,
    };
    let denied = match denied {
        Ok(denied) => denied,
        Err(ToolError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(answer);
        }
        Err(error) => return told(scene, Err(error)),
    };
    let Some(first) = denied.first() else { return Ok(answer) };
    let decided = tools.judge(Tool::Search, first.as_path(), Access::Read);
    Ok(match told(scene, decided)? {
        HookReply::Nothing => HookReply::Nothing,
        HookReply::Denied { reason } | HookReply::Asked { reason } => {
            let many = if denied.len() > 1 {
                format!(" ({} such files)", denied.len())
            } else {
                String::new()
            };
            let instead = "the search would read it. Search with `rg` or `grep` in Bash, which runs in the sandbox, or give a `glob` that leaves it out";
            HookReply::Denied { reason: format!("{reason}{many}; {instead}") }
        }
        other => other,
    })
}

/// The tools, for one call.
pub(super) fn tools(scene: &HookCall) -> Result<FileTools, CliError> {
    let opened = FileTools::open(
        scene.grants().clone(),
        scene.subject(),
        scene.cwd.clone(),
        Box::new(messages::unrecorded),
    );
    opened.map_err(|error| ringfence_engine::EngineError::from(error).into())
}

/// What is said of a call that was judged.
pub(super) fn told(scene: &HookCall, judged: Result<(), ToolError>) -> Result<HookReply, CliError> {
    match judged {
        Ok(()) => Ok(HookReply::Nothing),
        Err(ToolError::Audit { source }) => {
            Err(ringfence_engine::EngineError::Audit { source }.into())
        }
        Err(error) => Ok(match error.denial() {
            Some(denial) => scene.refused(denial, error.hint()),
            None => HookReply::Denied { reason: format!("ringfence: {}", whole(&error)) },
        }),
    }
}

/// What the agent keeps for itself and uses with its own tools: what a command printed that was too
/// long, plans, notes, a directory for scraps. No command in the sandbox can write there. Skills
/// and plugins are only read: what stands in them, the agent obeys and runs.
fn is_agents_own(scene: &HookCall, path: &Path, access: Access) -> bool {
    let Some(asked) = AbsPath::new(scene.cwd.as_path().join(path)) else { return false };
    let real = asked.ancestors().find_map(|above| {
        let real = AbsPath::new(std::fs::canonicalize(above.as_path()).ok()?)?;
        Some(real.join(asked.relative_to(&above)?))
    });
    let config = scene.config();
    let notes = scene
        .input
        .transcript
        .as_deref()
        .and_then(Path::parent)
        .filter(|notes| notes.starts_with(config.join("projects")));
    let mut own = vec![config.join("plans")];
    own.extend(
        scene
            .input
            .scraps
            .clone()
            .filter(|scraps| scraps.starts_with(env::temp_dir()) && *scraps != env::temp_dir()),
    );
    match access {
        Access::Write => own.extend(notes.map(|notes| notes.join("memory"))),
        Access::Read | Access::Execute => own.extend(
            [config.join("skills"), config.join("plugins")]
                .into_iter()
                .chain(notes.map(Path::to_owned)),
        ),
    }
    let is_own = |path: &AbsPath| own.iter().any(|own| path.as_path().starts_with(own));
    is_own(&asked) && real.is_some_and(|real| is_own(&real))
}

fn optional<'a>(scene: &'a HookCall, key: &str) -> Result<Option<&'a str>, CliError> {
    match scene.input.arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(_) => scene.input.text(key).map(Some),
    }
}
