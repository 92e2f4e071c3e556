//! The `request_permission` tool.

use std::path::Path;
use std::sync::Arc;

use ringfence_api::{AskAnswer, Asker, Denial, shell_word};
use ringfence_engine::GrantTarget;
use ringfence_engine::session::{GrantEffect, GrantResult};
use ringfence_policy::{AbsPath, Access, HostRule};
use rmcp::model::{CallToolResult, ContentBlock};
use tokio::sync::mpsc::UnboundedSender;

use crate::questions::{CallAsker, ClientQuestion};
use crate::quote::quote;
use crate::reply;
use crate::sandbox::ClientSandbox;
use crate::schema::{
    PermissionAccess, PermissionParams, PermissionReply, PermissionReplyStatus, ToolFailure,
};

/// Asks the user and reports the result.
pub(crate) fn request(
    sandbox: &ClientSandbox,
    wanted: &PermissionParams,
    asks: Option<UnboundedSender<ClientQuestion>>,
) -> Result<CallToolResult, ToolFailure> {
    let Some(target) = grant_target(sandbox, wanted)? else {
        return Ok(to_result(&about_command(wanted)));
    };
    let by_call =
        asks.map(|call| Arc::new(CallAsker { call, why: wanted.reason.clone() }) as Arc<dyn Asker>);
    let asker = by_call.or_else(|| sandbox.questions.fallback_asker());
    let requested = sandbox.session.request_grant(&target, "the agent", asker);
    Ok(to_result(&describe_result(wanted, &target, requested)))
}

/// The path or host to open; `None` for a command.
fn grant_target(
    sandbox: &ClientSandbox,
    wanted: &PermissionParams,
) -> Result<Option<GrantTarget>, ToolFailure> {
    let resolved = sandbox.session.policy();
    let facts = &resolved.surroundings.facts;
    let path = || {
        if wanted.resource.is_empty() || wanted.resource.contains('\0') {
            return Err(ToolFailure::new("input", "`resource` is not a path", None));
        }
        let below =
            Path::new(&wanted.resource).strip_prefix("~").map(|below| facts.home.join(below));
        Ok::<AbsPath, ToolFailure>(
            below.unwrap_or_else(|_| sandbox.session.cwd().join(&wanted.resource)),
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
                    format!("{} is not a host: {error}", quote(&wanted.resource)),
                    Some("write HOST:PORT".into()),
                )
            })?;
            if rule.port.is_none() {
                return Err(ToolFailure::new(
                    "input",
                    format!("`{rule}` has no port"),
                    Some(format!("write {rule}:443")),
                ));
            }
            return Ok(Some(GrantTarget::Host(rule)));
        }
        PermissionAccess::Command => return Ok(None),
    };
    Ok(Some(GrantTarget::Path(path()?, access)))
}

fn describe_result(
    wanted: &PermissionParams,
    target: &GrantTarget,
    requested: GrantResult,
) -> PermissionReply {
    let resource = match target {
        GrantTarget::Path(path, _) => path.to_string_lossy().into_owned(),
        GrantTarget::Host(rule) => rule.to_string(),
    };
    let mut reply = PermissionReply {
        status: PermissionReplyStatus::Denied,
        resource,
        answer: None,
        message: String::new(),
        command: None,
        denial: None,
        permission: None,
    };
    let what = quote(&reply.resource);
    match requested {
        GrantResult::Open(origin) => {
            reply.status = PermissionReplyStatus::Granted;
            reply.message = format!("{what} is already allowed by {} ({origin})", origin.text);
        }
        GrantResult::Shut(denial) => {
            reply.message = describe_denial(&denial);
            reply.denial = Some(denial);
        }
        GrantResult::Said(answer, in_force) => {
            reply.answer = Some(answer);
            (reply.status, reply.message) = describe_answer(answer, &in_force, &what);
        }
        GrantResult::Unasked(permission) => {
            let command = command(wanted.access, &reply.resource);
            reply.status = PermissionReplyStatus::RequiresPermission;
            reply.message = format!(
                "{}. No user can be asked here; the user can type: {command}",
                permission.reason
            );
            reply.command = Some(command);
            reply.permission = Some(permission);
        }
    }
    reply
}

fn describe_answer(
    answer: AskAnswer,
    in_force: &GrantEffect,
    what: &str,
) -> (PermissionReplyStatus, String) {
    let duration =
        if answer == AskAnswer::AllowPermanent { "permanently" } else { "for this session" };
    match in_force {
        GrantEffect::Now => {
            (PermissionReplyStatus::Granted, format!("{what} is allowed {duration}"))
        }
        GrantEffect::Anew => {
            let lost = "the sandbox was restarted for it: the shell's directory, environment variables and jobs are lost";
            (PermissionReplyStatus::Granted, format!("{what} is allowed {duration}; {lost}"))
        }
        GrantEffect::Later(why) => (
            PermissionReplyStatus::Pending,
            format!(
                "{what} is allowed {duration}, but not yet in effect ({why}): ask again when no command runs"
            ),
        ),
        GrantEffect::Never => {
            (PermissionReplyStatus::Denied, format!("the user denied it: {what} stays closed"))
        }
    }
}

fn describe_denial(denial: &Denial) -> String {
    let (target, rule, origin) =
        (quote(&denial.target), quote(&denial.rule), quote(&denial.origin));
    format!(
        "cannot ask to {} {target}: {rule} ({origin}) takes precedence over every answer",
        denial.operation.verb_phrase()
    )
}

/// Rules on command text are changed in the policy only.
fn about_command(wanted: &PermissionParams) -> PermissionReply {
    let command = format!("ringfence explain command {}", shell_word(&wanted.resource));
    PermissionReply {
        status: PermissionReplyStatus::RequiresPermission,
        resource: wanted.resource.clone(),
        answer: None,
        message: format!(
            "only the user can change command rules, in the policy; this shows them: {command}"
        ),
        command: Some(command),
        denial: None,
        permission: None,
    }
}

/// The command the user types to allow it permanently; a session applies it at once.
fn command(requested: PermissionAccess, resource: &str) -> String {
    let access = match requested {
        PermissionAccess::Write => "write",
        PermissionAccess::Connect => "host",
        PermissionAccess::Read | PermissionAccess::Execute | PermissionAccess::Command => "read",
    };
    format!("ringfence allow {access} {}", shell_word(resource))
}

fn to_result(reply: &PermissionReply) -> CallToolResult {
    let content = vec![ContentBlock::text(reply.message.clone())];
    let answer = if reply.status == PermissionReplyStatus::Granted {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    reply::structured(answer, reply)
}
