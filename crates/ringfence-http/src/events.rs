//! What is going on, for those who watch.

use ringfence_audit::now_ms;
use ringfence_skills::Name;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// So many are kept for somebody who reads slowly; then some are left out, which is told.
const KEPT: usize = 1024;

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// What: `execution-begun`, `execution-ended`, `denial`, `ask`, …
    pub(crate) kind: &'static str,
    /// Whose.
    pub(crate) user: Name,
    pub(crate) time_ms: u64,
    pub(crate) about: Value,
}

/// Where it is told.
pub(crate) struct Events(Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::channel(KEPT).0)
    }
}

impl Events {
    pub(crate) fn tell(&self, kind: &'static str, user: &Name, about: Value) {
        // Nobody has to listen.
        let _ = self.0.send(Event { kind, user: user.clone(), time_ms: now_ms(), about });
    }

    pub(crate) fn hear(&self) -> Receiver<Event> {
        self.0.subscribe()
    }
}
