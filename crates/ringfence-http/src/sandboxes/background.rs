//! Background commands of a sandbox, outside its shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use axum::http::StatusCode;
use ringfence_api::ShellCommand;
use ringfence_provider::ProcessStdio;
use serde_json::Value;

use super::queue::result;
use super::{SandboxCommand, ServiceSandbox, TerminalSlot};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::executions::executions_quota;

/// Background commands of one sandbox at once.
const MOST: usize = 16;

/// Starts a background command. It ends with its time limit, if it has one, and with the sandbox.
pub(crate) fn start_background(
    app: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    line: ShellCommand,
) -> ApiResult<Arc<SandboxCommand>> {
    drop(sandbox.require_live()?);
    let most = executions_quota(app, sandbox.user())?;
    let before = sandbox.background.fetch_add(1, Ordering::SeqCst);
    let sandbox_slot = TerminalSlot(sandbox.background.clone());
    if before >= MOST {
        let message = format!("this sandbox already has {MOST} background commands");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "background", message)
            .hint("DELETE /v1/executions/{id} ends one")
            .retry_after(1));
    }
    let tenant_slot =
        app.sandboxes.background.take(sandbox.user(), most, usize::MAX).map_err(|_| {
            let message =
                format!("too many background commands: `{}` already has {most}", sandbox.user());
            let hint = "DELETE /v1/executions/{id} ends one; the quota `executions` is the limit";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "background", message)
                .hint(hint)
                .retry_after(1)
        })?;
    let turn = SandboxCommand::new(sandbox.user(), &sandbox.id, &line.text);
    app.sandboxes.turns.add(&turn);
    let (app, sandbox, begun) = (app.clone(), sandbox.clone(), turn.clone());
    let run = move || {
        begun.mark_running(&app);
        let end = run(&app, &sandbox, &begun, line);
        app.metrics.count_execution(end.as_ref().ok());
        // Freed first: a caller that sees the end may start another command at once.
        drop((sandbox_slot, tenant_slot));
        begun.end_with(&app, end);
    };
    if let Err(error) = thread::Builder::new().name("background".into()).spawn(run) {
        let full = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no-thread",
            format!("cannot start a thread: {error}"),
        );
        let full = full.hint("the machine is overloaded: try again").retry_after(1);
        turn.finish(Err(full.clone()));
        return Err(full);
    }
    Ok(turn)
}

fn run(
    app: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    turn: &Arc<SandboxCommand>,
    line: ShellCommand,
) -> ApiResult<Value> {
    let command: Vec<OsString> =
        vec!["/bin/bash".into(), "-c".into(), OsString::from_vec(line.text)];
    let streams = ProcessStdio::Pipes { input: line.input, limit: line.limit };
    let process = {
        let _live = sandbox.require_live()?;
        sandbox.session.start(command, streams, line.deadline)?
    };
    turn.progress.set_interrupter(process.control().interrupter);
    let output = turn.progress.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        turn.progress.notify_change();
    };
    let mut warnings = Vec::new();
    let ended = process.wait(&mut sink, &mut |notice| warnings.push(notice.to_string()));
    result(app, sandbox, turn, ended, warnings)
}
