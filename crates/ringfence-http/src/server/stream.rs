//! Streams the output and the result of a command, in a skill or in a sandbox.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ringfence_api::{OutputStream, base64};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::schema;
use crate::error::ProblemJson;
use crate::executions::{OutputBuffer, Watchable};

/// True if the client asks for an event stream.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.as_bytes().starts_with(b"text/event-stream"))
}

/// Cancels the command if the client disconnects before the command ends.
pub(super) struct CancelOnDisconnect(Option<Arc<dyn Watchable>>);

impl CancelOnDisconnect {
    pub(super) fn new(what: Arc<dyn Watchable>) -> Self {
        Self(Some(what))
    }

    /// The client may disconnect without cancelling the command.
    pub(super) fn never() -> Self {
        Self(None)
    }

    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDisconnect {
    fn drop(&mut self) {
        if let Some(what) = self.0.take().filter(|what| what.end().is_none()) {
            what.progress().cancel();
        }
    }
}

/// The read position of a client in the output of a command.
pub(super) struct OutputCursor {
    command: Arc<dyn Watchable>,
    output: Option<Arc<OutputBuffer>>,
    changes: tokio::sync::watch::Receiver<u64>,
    next: usize,
    ready: VecDeque<ExecutionEvent>,
    is_over: bool,
    _cancel_guard: CancelOnDisconnect,
}

impl OutputCursor {
    pub(super) fn new(command: Arc<dyn Watchable>, cancel_guard: CancelOnDisconnect) -> Self {
        let (output, mut changes) = (command.progress().output(), command.progress().watch());
        changes.mark_changed();
        let ready = [ExecutionEvent::Begun(StartedEvent { id: command.id().to_owned() })].into();
        Self {
            command,
            output,
            changes,
            next: 0,
            ready,
            is_over: false,
            _cancel_guard: cancel_guard,
        }
    }

    /// The next event; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<ExecutionEvent> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.is_over {
                return None;
            }
            let _ = self.changes.changed().await;
            // Checked before the output: everything written before the end is then read below.
            let end = self.command.end();
            if let Some(output) = &self.output {
                let (chunks, next, missed) = output.read_from(self.next);
                self.next = next;
                if missed > 0 {
                    self.ready.push_back(ExecutionEvent::Missed(MissedEvent { chunks: missed }));
                }
                self.ready.extend(
                    chunks
                        .into_iter()
                        .map(|chunk| ExecutionEvent::output(chunk.stream, &chunk.bytes)),
                );
            }
            if let Some(end) = end {
                self.is_over = true;
                let end = match end {
                    Ok(result) => ExecutionEvent::Result(EndedEvent(result)),
                    Err(problem) => {
                        ExecutionEvent::Error(problem.unwrap_or_else(ProblemJson::outcome_lost))
                    }
                };
                self.ready.push_back(end);
            }
        }
    }
}

/// An event of a running command.
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
#[schema(as = ExecutionEvent)]
pub(super) enum ExecutionEvent {
    /// The first event.
    Begun(StartedEvent),
    /// Output on standard output.
    Stdout(OutputEvent),
    /// Output on standard error.
    Stderr(OutputEvent),
    /// Output chunks that are no longer kept.
    Missed(MissedEvent),
    /// The last event: the result.
    Result(EndedEvent),
    /// The last event, if there is no result.
    Error(ProblemJson),
}

/// The command has started.
#[derive(Serialize, ToSchema)]
pub(super) struct StartedEvent {
    id: String,
}

/// The number of lost chunks.
#[derive(Serialize, ToSchema)]
pub(super) struct MissedEvent {
    chunks: usize,
}

/// The result of the command.
#[derive(Serialize, ToSchema)]
#[schema(as = ExecutionResult, value_type = schema::ExecuteResult)]
pub(super) struct EndedEvent(Value);

/// A chunk of output.
#[derive(Serialize, ToSchema)]
pub(super) struct OutputEvent {
    /// As text; invalid UTF-8 is shown as `U+FFFD`.
    text: String,
    /// In base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl ExecutionEvent {
    fn output(stream: OutputStream, bytes: &[u8]) -> Self {
        let base64 = std::str::from_utf8(bytes).is_err().then(|| base64(bytes));
        let written = OutputEvent { text: String::from_utf8_lossy(bytes).into_owned(), base64 };
        match stream {
            OutputStream::Out => ExecutionEvent::Stdout(written),
            OutputStream::Err => ExecutionEvent::Stderr(written),
        }
    }

    fn event(&self) -> Event {
        let mut whole = serde_json::to_value(self).unwrap_or_default();
        let data = whole["data"].take().to_string();
        Event::default().event(whole["event"].as_str().unwrap_or_default()).data(data)
    }
}

/// A response that streams the events of a command.
pub(super) fn event_stream(
    command: Arc<dyn Watchable>,
    cancel_guard: CancelOnDisconnect,
) -> Response {
    let events =
        stream::unfold(OutputCursor::new(command, cancel_guard), |mut reading| async move {
            let event = reading.next().await?;
            Some((Ok::<_, Infallible>(event.event()), reading))
        });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
