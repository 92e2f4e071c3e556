//! Checks the agent's own file tools, which run outside any sandbox.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_api::{Operation, error_chain};
use ringfence_policy::{AbsPath, Access, Tool};
use ringfence_tools::{FileTools, ToolError};
use serde_json::Value;

use super::answer::HookReply;
use super::call::HookCall;
use crate::error::CliError;
use crate::messages;

pub(super) fn answer(hook_call: &HookCall, tool: Tool) -> Result<HookReply, CliError> {
    let input = &hook_call.input;
    match tool {
        Tool::Read | Tool::Write => {
            check_file(hook_call, tool, input.string_argument("file_path")?.as_ref())
        }
        Tool::Edit if input.tool == "NotebookEdit" => {
            check_file(hook_call, tool, input.string_argument("notebook_path")?.as_ref())
        }
        Tool::Edit => check_file(hook_call, tool, input.string_argument("file_path")?.as_ref()),
        Tool::List => list(hook_call),
        Tool::Search => search(hook_call),
        Tool::Shell => unreachable!("`shell::answer` handles commands"),
    }
}

/// Checks a tool that uses one file.
pub(super) fn check_file(
    hook_call: &HookCall,
    tool: Tool,
    path: &Path,
) -> Result<HookReply, CliError> {
    check_each_spelling(hook_call, path, |path| {
        if is_agents_own(hook_call, path, access(tool)) {
            let rule = ("the agent's own files".to_owned(), "built in".to_owned());
            return hook_call.allow_unchanged(Operation::Call, &path.to_string_lossy(), rule);
        }
        check_path(hook_call, &open_tools(hook_call)?, tool, path)
    })
}

/// Checks a path literally, and as the agent may rewrite it: without surrounding blanks, with `~`
/// expanded, and with `..` resolved lexically.
fn check_each_spelling(
    hook_call: &HookCall,
    path: &Path,
    judge: impl Fn(&Path) -> Result<HookReply, CliError>,
) -> Result<HookReply, CliError> {
    let answer = judge(path)?;
    if answer != HookReply::Nothing {
        return Ok(answer);
    }
    let text = path.to_string_lossy();
    let text = text.trim_matches(is_blank);
    let home = hook_call.grants().home.as_path();
    let rewritten = match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(text),
    };
    match AbsPath::new(hook_call.cwd.as_path().join(rewritten)) {
        Some(rewritten) if rewritten.as_path() != hook_call.cwd.as_path().join(path) => {
            judge(rewritten.as_path())
        }
        _ => Ok(answer),
    }
}

/// True for characters that JavaScript's `trim` removes.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

fn access(tool: Tool) -> Access {
    if matches!(tool, Tool::Write | Tool::Edit) { Access::Write } else { Access::Read }
}

fn check_path(
    hook_call: &HookCall,
    tools: &FileTools,
    tool: Tool,
    path: &Path,
) -> Result<HookReply, CliError> {
    decision_reply(hook_call, tools.check_call(tool, path, access(tool)))
}

/// Checks a listing of a directory, or of the matches of a pattern.
fn list(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let path = optional(hook_call, "path")?.unwrap_or_default().trim_matches(is_blank);
    let pattern = optional(hook_call, "pattern")?.unwrap_or_default();
    if hook_call.grants().is_confined() && leads_away(pattern) {
        return Ok(HookReply::Denied {
            reason: format!(
                "ringfence cannot tell which directory `{pattern}` lists; pass the directory as `path`"
            ),
        });
    }
    // Leading directory names in the pattern change the listed directory.
    let lead: PathBuf = Path::new(pattern).iter().take_while(|name| !is_pattern(name)).collect();
    let below = Path::new(path).join(lead);
    check_file(
        hook_call,
        Tool::List,
        if below.as_os_str().is_empty() { Path::new(".") } else { &below },
    )
}

/// True if a pattern may lead up or elsewhere, after its leading plain names.
fn leads_away(pattern: &str) -> bool {
    let is_up = |name: &OsStr| name.to_string_lossy().contains("..");
    pattern.contains("{/")
        || pattern.contains(",/")
        || Path::new(pattern).iter().skip_while(|name| !is_pattern(name)).any(is_up)
}

fn is_pattern(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().any(|byte| b"*?[{".contains(byte))
}

/// Checks a search in all files of a tree, including the denied ones.
fn search(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let path = Path::new(optional(hook_call, "path")?.unwrap_or("."));
    // A glob that tools interpret differently excludes no file for certain.
    let glob = optional(hook_call, "glob")?.filter(|glob| !is_odd(glob));
    check_each_spelling(hook_call, path, |path| check_search(hook_call, path, glob))
}

/// True for a glob that may be several globs, an exclusion, or has escapes.
fn is_odd(glob: &str) -> bool {
    glob.starts_with('!')
        || glob.contains(|c: char| is_blank(c) || c == '\\')
        || glob.contains(',') && !glob.contains('{')
}

fn check_search(
    hook_call: &HookCall,
    path: &Path,
    glob: Option<&str>,
) -> Result<HookReply, CliError> {
    if is_agents_own(hook_call, path, Access::Read) {
        return check_file(hook_call, Tool::Search, path);
    }
    let tools = open_tools(hook_call)?;
    let answer = check_path(hook_call, &tools, Tool::Search, path)?;
    if answer != HookReply::Nothing || !hook_call.grants().is_confined() {
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
        Err(error) => return decision_reply(hook_call, Err(error)),
    };
    let Some(first) = denied.first() else { return Ok(answer) };
    let decided = tools.check_call(Tool::Search, first.as_path(), Access::Read);
    Ok(match decision_reply(hook_call, decided)? {
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

/// Opens the file tools for one call.
pub(super) fn open_tools(hook_call: &HookCall) -> Result<FileTools, CliError> {
    let opened = FileTools::open(
        hook_call.grants().clone(),
        hook_call.subject(),
        hook_call.cwd.clone(),
        Box::new(messages::warn_unrecorded),
    );
    opened.map_err(CliError::from)
}

/// Converts a decision to a reply.
pub(super) fn decision_reply(
    hook_call: &HookCall,
    check_path: Result<(), ToolError>,
) -> Result<HookReply, CliError> {
    match check_path {
        Ok(()) => Ok(HookReply::Nothing),
        Err(ToolError::Audit { source }) => {
            Err(ringfence_engine::EngineError::Audit { source }.into())
        }
        Err(error) => Ok(match error.denial() {
            Some(denial) => hook_call.refusal_reply(denial, error.hint()),
            None => HookReply::Denied { reason: format!("ringfence: {}", error_chain(&error)) },
        }),
    }
}

/// True for the agent's own files, used with its own tools: long command outputs, plans, notes, a
/// scratchpad. No command in the sandbox can write there. Skills and plugins are only readable: the
/// agent follows and runs their content.
fn is_agents_own(hook_call: &HookCall, path: &Path, access: Access) -> bool {
    let Some(given) = AbsPath::new(hook_call.cwd.as_path().join(path)) else { return false };
    let real = given.ancestors().find_map(|above| {
        let real = AbsPath::new(std::fs::canonicalize(above.as_path()).ok()?)?;
        Some(real.join(given.relative_to(&above)?))
    });
    let config = hook_call.config();
    let notes = hook_call
        .input
        .transcript
        .as_deref()
        .and_then(Path::parent)
        .filter(|notes| notes.starts_with(config.join("projects")));
    let mut own = vec![config.join("plans")];
    own.extend(hook_call.input.scratchpad.clone().filter(|scratchpad| {
        scratchpad.starts_with(env::temp_dir()) && *scratchpad != env::temp_dir()
    }));
    match access {
        Access::Write => own.extend(notes.map(|notes| notes.join("memory"))),
        Access::Read | Access::Execute => own.extend(
            [config.join("skills"), config.join("plugins")]
                .into_iter()
                .chain(notes.map(Path::to_owned)),
        ),
    }
    let is_own = |path: &AbsPath| own.iter().any(|own| path.as_path().starts_with(own));
    is_own(&given) && real.is_some_and(|real| is_own(&real))
}

fn optional<'a>(hook_call: &'a HookCall, key: &str) -> Result<Option<&'a str>, CliError> {
    match hook_call.input.arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(_) => hook_call.input.string_argument(key).map(Some),
    }
}
