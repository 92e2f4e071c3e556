//! Telling somebody of a command while it runs, whatever it runs in.

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

/// Whether somebody wants to hear of it as it comes.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.as_bytes().starts_with(b"text/event-stream"))
}

/// Whoever waits for the end. Dropped before it, they do not want it any more.
pub(super) struct CancelOnDisconnect(Option<Arc<dyn Watchable>>);

impl CancelOnDisconnect {
    pub(super) fn of(what: Arc<dyn Watchable>) -> Self {
        Self(Some(what))
    }

    /// They may leave, and it goes on.
    pub(super) fn alone() -> Self {
        Self(None)
    }

    pub(super) fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDisconnect {
    fn drop(&mut self) {
        if let Some(what) = self.0.take().filter(|what| what.end().is_none()) {
            what.course().cancel();
        }
    }
}

/// How far somebody has read.
pub(super) struct OutputCursor {
    of: Arc<dyn Watchable>,
    output: Option<Arc<OutputBuffer>>,
    changes: tokio::sync::watch::Receiver<u64>,
    next: usize,
    ready: VecDeque<ExecutionEvent>,
    is_over: bool,
    _leaves: CancelOnDisconnect,
}

impl OutputCursor {
    pub(super) fn new(of: Arc<dyn Watchable>, leaves: CancelOnDisconnect) -> Self {
        let (output, mut changes) = (of.course().output(), of.course().watch());
        changes.mark_changed();
        let ready = [ExecutionEvent::Begun(StartedEvent { id: of.id().to_owned() })].into();
        Self { of, output, changes, next: 0, ready, is_over: false, _leaves: leaves }
    }

    /// What comes next; `None` after the end.
    pub(super) async fn next(&mut self) -> Option<ExecutionEvent> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.is_over {
                return None;
            }
            let _ = self.changes.changed().await;
            // Looked at first: what it wrote before its end is read below.
            let end = self.of.end();
            if let Some(output) = &self.output {
                let (chunks, next, missed) = output.from(self.next);
                self.next = next;
                if missed > 0 {
                    self.ready.push_back(ExecutionEvent::Missed(MissedEvent { chunks: missed }));
                }
                self.ready.extend(
                    chunks
                        .into_iter()
                        .map(|chunk| ExecutionEvent::wrote(chunk.stream, &chunk.bytes)),
                );
            }
            if let Some(end) = end {
                self.is_over = true;
                let end = match end {
                    Ok(result) => ExecutionEvent::Result(EndedEvent(result)),
                    Err(problem) => {
                        ExecutionEvent::Error(problem.unwrap_or_else(ProblemJson::lost))
                    }
                };
                self.ready.push_back(end);
            }
        }
    }
}

/// What is told of a command as it comes.
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
#[schema(as = ExecutionEvent)]
pub(super) enum ExecutionEvent {
    /// First of all.
    Begun(StartedEvent),
    /// What it wrote to standard output.
    Stdout(OutputEvent),
    /// What it wrote to standard error.
    Stderr(OutputEvent),
    /// So much was written that is not kept any more.
    Missed(MissedEvent),
    /// At the end.
    Result(EndedEvent),
    /// At the end, where there is no result.
    Error(ProblemJson),
}

/// What is known from the beginning.
#[derive(Serialize, ToSchema)]
pub(super) struct StartedEvent {
    id: String,
}

/// How much is missing.
#[derive(Serialize, ToSchema)]
pub(super) struct MissedEvent {
    chunks: usize,
}

/// What became of it.
#[derive(Serialize, ToSchema)]
#[schema(as = ExecutionResult, value_type = schema::ExecuteResult)]
pub(super) struct EndedEvent(Value);

/// Something that was written in one go.
#[derive(Serialize, ToSchema)]
pub(super) struct OutputEvent {
    /// What is no text is shown as `U+FFFD`.
    text: String,
    /// Exactly, where text would not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl ExecutionEvent {
    fn wrote(stream: OutputStream, bytes: &[u8]) -> Self {
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

/// As a stream of events.
pub(super) fn told(of: Arc<dyn Watchable>, leaves: CancelOnDisconnect) -> Response {
    let events = stream::unfold(OutputCursor::new(of, leaves), |mut reading| async move {
        let told = reading.next().await?;
        Some((Ok::<_, Infallible>(told.event()), reading))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
