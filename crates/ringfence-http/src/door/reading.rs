//! Telling somebody of a command while it runs, whatever it runs in.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ringfence_api::{Stream, base64};
use serde_json::{Value, json};

use crate::executions::{Output, Watchable};

/// Whether somebody wants to hear of it as it comes.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/event-stream"))
}

/// Whoever waits for the end. Dropped before it, they do not want it any more.
pub(super) struct Leaves(Option<Arc<dyn Watchable>>);

impl Leaves {
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

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some(what) = self.0.take().filter(|what| what.end().is_none()) {
            what.course().cancel();
        }
    }
}

/// How far somebody has read.
pub(super) struct Reading {
    of: Arc<dyn Watchable>,
    output: Option<Arc<Output>>,
    changes: tokio::sync::watch::Receiver<u64>,
    next: usize,
    ready: VecDeque<(&'static str, Value)>,
    is_over: bool,
    _leaves: Leaves,
}

impl Reading {
    pub(super) fn new(of: Arc<dyn Watchable>, leaves: Leaves) -> Self {
        let (output, mut changes) = (of.course().output(), of.course().watch());
        changes.mark_changed();
        let ready = [("begun", json!({ "id": of.id() }))].into();
        Self { of, output, changes, next: 0, ready, is_over: false, _leaves: leaves }
    }

    /// What comes next; `None` after the end.
    pub(super) async fn next(&mut self) -> Option<(&'static str, Value)> {
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
                    self.ready.push_back(("missed", json!({ "chunks": missed })));
                }
                self.ready.extend(chunks.into_iter().map(|chunk| (name(chunk.stream), spelt(&chunk.bytes))));
            }
            if let Some(end) = end {
                self.is_over = true;
                let end = match end {
                    Ok(result) => ("result", result),
                    Err(error) => ("error", serde_json::to_value(error).unwrap_or_default()),
                };
                self.ready.push_back(end);
            }
        }
    }
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => "stdout",
        Stream::Err => "stderr",
    }
}

/// As text, and exactly where it is none.
fn spelt(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "text": String::from_utf8_lossy(bytes), "base64": base64(bytes) }),
    }
}

/// As a stream of events.
pub(super) fn told(of: Arc<dyn Watchable>, leaves: Leaves) -> Response {
    let events = stream::unfold(Reading::new(of, leaves), |mut reading| async move {
        let (kind, value) = reading.next().await?;
        Some((Ok::<_, Infallible>(Event::default().event(kind).data(value.to_string())), reading))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
