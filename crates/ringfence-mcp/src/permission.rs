//! An agent that asks for something in so many words.

use std::path::Path;
use std::sync::Arc;

use ringfence_api::{Answer, Asker, Denial, typed};
use ringfence_engine::Opening;
use ringfence_engine::session::{InForce, Requested};
use ringfence_policy::{AbsPath, Access, HostRule};
use rmcp::model::{CallToolResult, ContentBlock};
use tokio::sync::mpsc::UnboundedSender;

use crate::answer;
use crate::marked::marked;
use crate::questions::{ByCall, Question};
use crate::room::Room;
use crate::words::{Failure, Status, Told, Wanted, Wish};

/// Asks, and says what came of it.
pub(crate) fn request(
    room: &Room,
    wanted: &Wanted,
    asks: Option<UnboundedSender<Question>>,
) -> Result<CallToolResult, Failure> {
    let Some(opening) = opening(room, wanted)? else { return Ok(told(&about_command(wanted))) };
    let by_call =
        asks.map(|call| Arc::new(ByCall { call, why: wanted.reason.clone() }) as Arc<dyn Asker>);
    let asker = by_call.or_else(|| room.questions.elsewhere());
    let requested = room.opened.request(&opening, "the agent", asker);
    Ok(told(&understood(wanted, &opening, requested)))
}

/// What is to be opened; `None` for what is neither file nor host.
fn opening(room: &Room, wanted: &Wanted) -> Result<Option<Opening>, Failure> {
    let resolved = room.opened.policy();
    let facts = &resolved.surroundings.facts;
    let path = || {
        if wanted.resource.is_empty() || wanted.resource.contains('\0') {
            return Err(Failure::new("input", "`resource` names no path", None));
        }
        let below =
            Path::new(&wanted.resource).strip_prefix("~").map(|below| facts.home.join(below));
        Ok::<AbsPath, Failure>(below.unwrap_or_else(|_| room.opened.cwd().join(&wanted.resource)))
    };
    let access = match wanted.access {
        Wish::Read => Access::Read,
        Wish::Write => Access::Write,
        Wish::Execute => Access::Execute,
        Wish::Connect => {
            let rule = HostRule::parse(&wanted.resource).map_err(|error| {
                Failure::new(
                    "input",
                    format!("{} is no host: {error}", marked(&wanted.resource)),
                    Some("write HOST:PORT".into()),
                )
            })?;
            if rule.port.is_none() {
                return Err(Failure::new(
                    "input",
                    format!("`{rule}` names no port"),
                    Some(format!("write {rule}:443")),
                ));
            }
            return Ok(Some(Opening::Host(rule)));
        }
        Wish::Command => return Ok(None),
    };
    Ok(Some(Opening::Path(path()?, access)))
}

fn understood(wanted: &Wanted, opening: &Opening, requested: Requested) -> Told {
    let resource = match opening {
        Opening::Path(path, _) => path.to_string_lossy().into_owned(),
        Opening::Host(rule) => rule.to_string(),
    };
    let mut told = Told {
        status: Status::Denied,
        resource,
        answer: None,
        message: String::new(),
        command: None,
        denial: None,
        permission: None,
    };
    let what = marked(&told.resource);
    match requested {
        Requested::Open(origin) => {
            told.status = Status::Granted;
            told.message = format!("{what} is open already, by {} ({origin})", origin.text);
        }
        Requested::Shut(denial) => {
            told.message = shut(&denial);
            told.denial = Some(denial);
        }
        Requested::Said(answer, in_force) => {
            told.answer = Some(answer);
            (told.status, told.message) = said(answer, &in_force, &what);
        }
        Requested::Unasked(permission) => {
            let command = command(wanted.access, &told.resource);
            told.status = Status::RequiresPermission;
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

fn said(answer: Answer, in_force: &InForce, what: &str) -> (Status, String) {
    let how_long = if answer == Answer::AllowPermanent { "for good" } else { "for this session" };
    match in_force {
        InForce::Now => (Status::Granted, format!("{what} is open {how_long}")),
        InForce::Anew => {
            let lost = "the sandbox was made anew for it: the shell's directory, variables and jobs are gone";
            (Status::Granted, format!("{what} is open {how_long}; {lost}"))
        }
        InForce::Later(why) => (
            Status::Pending,
            format!(
                "{what} is allowed {how_long}, but not open yet ({why}): ask again when no command runs"
            ),
        ),
        InForce::Never => (Status::Denied, format!("the answer was no: {what} stays shut")),
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
fn about_command(wanted: &Wanted) -> Told {
    let command = format!("ringfence explain command {}", typed(&wanted.resource));
    Told {
        status: Status::RequiresPermission,
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
fn command(wish: Wish, resource: &str) -> String {
    let access = match wish {
        Wish::Write => "write",
        Wish::Connect => "host",
        Wish::Read | Wish::Execute | Wish::Command => "read",
    };
    format!("ringfence allow {access} {}", typed(resource))
}

fn told(told: &Told) -> CallToolResult {
    let content = vec![ContentBlock::text(told.message.clone())];
    let answer = if told.status == Status::Granted {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    answer::structured(answer, told)
}
