//! An agent that asks for something in so many words.

use std::path::Path;
use std::sync::Arc;

use ringfence_api::{AskAnswer, Asker, Denial, typed};
use ringfence_engine::GrantTarget;
use ringfence_engine::session::{GrantEffect, GrantResult};
use ringfence_policy::{AbsPath, Access, HostRule};
use rmcp::model::{CallToolResult, ContentBlock};
use tokio::sync::mpsc::UnboundedSender;

use crate::questions::{CallAsker, ClientQuestion};
use crate::quote::marked;
use crate::reply;
use crate::sandbox::ClientSandbox;
use crate::schema::{
    PermissionAccess, PermissionParams, PermissionReply, PermissionReplyStatus, ToolFailure,
};

/// Asks, and says what came of it.
pub(crate) fn request(
    room: &ClientSandbox,
    wanted: &PermissionParams,
    asks: Option<UnboundedSender<ClientQuestion>>,
) -> Result<CallToolResult, ToolFailure> {
    let Some(opening) = opening(room, wanted)? else { return Ok(told(&about_command(wanted))) };
    let by_call =
        asks.map(|call| Arc::new(CallAsker { call, why: wanted.reason.clone() }) as Arc<dyn Asker>);
    let asker = by_call.or_else(|| room.questions.elsewhere());
    let requested = room.opened.request(&opening, "the agent", asker);
    Ok(told(&understood(wanted, &opening, requested)))
}

/// What is to be opened; `None` for what is neither file nor host.
fn opening(
    room: &ClientSandbox,
    wanted: &PermissionParams,
) -> Result<Option<GrantTarget>, ToolFailure> {
    let resolved = room.opened.policy();
    let facts = &resolved.surroundings.facts;
    let path = || {
        if wanted.resource.is_empty() || wanted.resource.contains('\0') {
            return Err(ToolFailure::new("input", "`resource` names no path", None));
        }
        let below =
            Path::new(&wanted.resource).strip_prefix("~").map(|below| facts.home.join(below));
        Ok::<AbsPath, ToolFailure>(
            below.unwrap_or_else(|_| room.opened.cwd().join(&wanted.resource)),
        )
    };
    let access = match wanted.access {
        PermissionAccess::Read => Access::Read,
        PermissionAccess::Write => Access::Write,
        PermissionAccess::Execute => Access::Execute,
        PermissionAccess::Connect => {
            let rule = HostRule::parse(&wanted.resource).map_err(|error| {
                ToolFailure::new(
                    "input",
                    format!("{} is no host: {error}", marked(&wanted.resource)),
                    Some("write HOST:PORT".into()),
                )
            })?;
            if rule.port.is_none() {
                return Err(ToolFailure::new(
                    "input",
                    format!("`{rule}` names no port"),
                    Some(format!("write {rule}:443")),
                ));
            }
            return Ok(Some(GrantTarget::Host(rule)));
        }
        PermissionAccess::Command => return Ok(None),
    };
    Ok(Some(GrantTarget::Path(path()?, access)))
}

fn understood(
    wanted: &PermissionParams,
    opening: &GrantTarget,
    requested: GrantResult,
) -> PermissionReply {
    let resource = match opening {
        GrantTarget::Path(path, _) => path.to_string_lossy().into_owned(),
        GrantTarget::Host(rule) => rule.to_string(),
    };
    let mut told = PermissionReply {
        status: PermissionReplyStatus::Denied,
        resource,
        answer: None,
        message: String::new(),
        command: None,
        denial: None,
        permission: None,
    };
    let what = marked(&told.resource);
    match requested {
        GrantResult::Open(origin) => {
            told.status = PermissionReplyStatus::Granted;
            told.message = format!("{what} is open already, by {} ({origin})", origin.text);
        }
        GrantResult::Shut(denial) => {
            told.message = shut(&denial);
            told.denial = Some(denial);
        }
        GrantResult::Said(answer, in_force) => {
            told.answer = Some(answer);
            (told.status, told.message) = said(answer, &in_force, &what);
        }
        GrantResult::Unasked(permission) => {
            let command = command(wanted.access, &told.resource);
            told.status = PermissionReplyStatus::RequiresPermission;
            told.message = format!(
                "{}. Nobody can be asked here; a person can type: {command}",
                permission.reason
            );
            told.command = Some(command);
            told.permission = Some(permission);
        }
    }
    told
}

fn said(answer: AskAnswer, in_force: &GrantEffect, what: &str) -> (PermissionReplyStatus, String) {
    let how_long =
        if answer == AskAnswer::AllowPermanent { "for good" } else { "for this session" };
    match in_force {
        GrantEffect::Now => (PermissionReplyStatus::Granted, format!("{what} is open {how_long}")),
        GrantEffect::Anew => {
            let lost = "the sandbox was made anew for it: the shell's directory, variables and jobs are gone";
            (PermissionReplyStatus::Granted, format!("{what} is open {how_long}; {lost}"))
        }
        GrantEffect::Later(why) => (
            PermissionReplyStatus::Pending,
            format!(
                "{what} is allowed {how_long}, but not open yet ({why}): ask again when no command runs"
            ),
        ),
        GrantEffect::Never => {
            (PermissionReplyStatus::Denied, format!("the answer was no: {what} stays shut"))
        }
    }
}

fn shut(denial: &Denial) -> String {
    let (target, rule, origin) =
        (marked(&denial.target), marked(&denial.rule), marked(&denial.origin));
    format!(
        "nobody can be asked to {} {target}: {rule} ({origin}) stands above every answer",
        denial.operation.wish()
    )
}

/// Rules on the text of commands are changed where they stand.
fn about_command(wanted: &PermissionParams) -> PermissionReply {
    let command = format!("ringfence explain command {}", typed(&wanted.resource));
    PermissionReply {
        status: PermissionReplyStatus::RequiresPermission,
        resource: wanted.resource.clone(),
        answer: None,
        message: format!(
            "rules on commands are changed by a person, where they stand; this names them: {command}"
        ),
        command: Some(command),
        denial: None,
        permission: None,
    }
}

/// What a person types to allow it for good; a session follows at once.
fn command(wish: PermissionAccess, resource: &str) -> String {
    let access = match wish {
        PermissionAccess::Write => "write",
        PermissionAccess::Connect => "host",
        PermissionAccess::Read | PermissionAccess::Execute | PermissionAccess::Command => "read",
    };
    format!("ringfence allow {access} {}", typed(resource))
}

fn told(told: &PermissionReply) -> CallToolResult {
    let content = vec![ContentBlock::text(told.message.clone())];
    let answer = if told.status == PermissionReplyStatus::Granted {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    reply::structured(answer, told)
}
