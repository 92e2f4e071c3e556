//! Commands of a sandbox that run beside its shell, in the background.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use axum::http::StatusCode;
use ringfence_api::whole;
use ringfence_provider::ProcessStdio;
use serde_json::Value;

use super::queue::{KEPT, result, tell};
use super::{QueuedLine, SandboxCommand, ServiceSandbox, TerminalSlot, gone};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::executions::executions_quota;

/// Commands that one sandbox has beside its shell at the same time.
const MOST: usize = 16;

/// Begins a command beside the shell. It ends with its time limit, if it has one, and with the
/// sandbox.
pub(crate) fn begin_background(
    house: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    line: QueuedLine,
) -> ApiResult<Arc<SandboxCommand>> {
    drop(sandbox.standing()?);
    let most = executions_quota(house, sandbox.user())?;
    let before = sandbox.beside.fetch_add(1, Ordering::SeqCst);
    let seat = TerminalSlot(sandbox.beside.clone());
    if before >= MOST {
        let message = format!("this sandbox has {MOST} commands in the background already");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "background", message)
            .hint("DELETE /v1/executions/{id} ends one")
            .after(1));
    }
    let place =
        house.sandboxes.background.take(sandbox.user(), most, usize::MAX).map_err(|_| {
            let message = format!(
                "`{}` may have {most} commands in the background, and has them",
                sandbox.user()
            );
            let hint = "DELETE /v1/executions/{id} ends one; the quota `executions` is the limit";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "background", message).hint(hint).after(1)
        })?;
    let turn = SandboxCommand::new(sandbox.user(), &sandbox.id, &line.command);
    house.sandboxes.turns.add(&turn);
    let (house, sandbox, begun) = (house.clone(), sandbox.clone(), turn.clone());
    let run = move || {
        begun.begins(&house);
        let end = run(&house, &sandbox, &begun, line);
        house.metrics.ended(end.as_ref().ok());
        // A caller that hears of the end may begin another.
        drop((seat, place));
        begun.ends(&house, end);
    };
    if let Err(error) = thread::Builder::new().name("background".into()).spawn(run) {
        let full = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no-thread",
            format!("no thread can be started: {error}"),
        );
        let full = full.hint("the machine is full: try again").after(1);
        turn.finish(Err(full.clone()));
        return Err(full);
    }
    Ok(turn)
}

fn run(
    house: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    turn: &Arc<SandboxCommand>,
    line: QueuedLine,
) -> ApiResult<Value> {
    let command: Vec<OsString> = vec!["/bin/bash".into(), "-c".into(), line.command.into()];
    let streams = ProcessStdio::Pipes { input: line.input.into(), limit: KEPT };
    let mut warnings = Vec::new();
    let beside = {
        let _stands = sandbox.standing()?;
        sandbox
            .opened
            .start(command, streams, line.timeout, &mut |error| warnings.push(whole(error)))?
    };
    turn.course.runs(beside.reach().interrupter);
    let output = turn.course.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        turn.course.stirs();
    };
    let executed = beside.wait(&mut sink, &mut |error| warnings.push(whole(error)));
    turn.course.stops();
    let executed = executed
        .map_err(|error| if sandbox.standing().is_err() { gone() } else { error.into() })?;
    tell(house, sandbox, &executed);
    result(sandbox, executed, warnings)
}
