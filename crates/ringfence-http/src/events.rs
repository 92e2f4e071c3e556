//! What is going on, for those who watch.

use std::collections::HashMap;
use std::sync::Mutex;

use ringfence_audit::now_ms;
use ringfence_skills::SkillName;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::broadcast::{self, Receiver, Sender};
use utoipa::ToSchema;

use crate::tenants::lock;

/// So many are kept for somebody who reads slowly; then some are left out, which is told.
const KEPT: usize = 1024;

/// Something that happened.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceEvent {
    /// What: `execution-begun`, `execution-ended`, `denial`, `ask`, …
    #[schema(value_type = String)]
    pub(crate) kind: &'static str,
    /// Whose.
    #[schema(value_type = String)]
    pub(crate) user: SkillName,
    pub(crate) time_ms: u64,
    /// What depends on the kind.
    #[schema(value_type = Object)]
    pub(crate) about: Value,
}

/// Where it is told: to those who watch all tenants, and to those who watch one, whom others cannot
/// keep from hearing of their own.
pub(crate) struct EventBus {
    all: Sender<ServiceEvent>,
    of: Mutex<HashMap<SkillName, Sender<ServiceEvent>>>,
}

impl Default for EventBus {
    fn default() -> Self {
        Self { all: broadcast::channel(KEPT).0, of: Mutex::default() }
    }
}

impl EventBus {
    pub(crate) fn tell(&self, kind: &'static str, user: &SkillName, about: Value) {
        let event = ServiceEvent { kind, user: user.clone(), time_ms: now_ms(), about };
        let mut of = lock(&self.of);
        // Nobody has to listen.
        if of.get(user).is_some_and(|own| own.send(event.clone()).is_err()) {
            of.remove(user);
        }
        drop(of);
        let _ = self.all.send(event);
    }

    /// What happens from now on, to all or to one.
    pub(crate) fn hear(&self, user: Option<&SkillName>) -> Receiver<ServiceEvent> {
        match user {
            None => self.all.subscribe(),
            Some(user) => lock(&self.of)
                .entry(user.clone())
                .or_insert_with(|| broadcast::channel(KEPT).0)
                .subscribe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_hears_of_its_own_however_much_others_do() {
        let (events, alice, bob) = (
            EventBus::default(),
            SkillName::try_from("alice").unwrap(),
            SkillName::try_from("bob").unwrap(),
        );
        let mut hears = events.hear(Some(&alice));
        events.tell("first", &alice, Value::Null);
        (0..2 * KEPT).for_each(|_| events.tell("flood", &bob, Value::Null));
        events.tell("last", &alice, Value::Null);
        assert_eq!(
            (hears.try_recv().unwrap().kind, hears.try_recv().unwrap().kind),
            ("first", "last")
        );
        // Nothing is kept for those who have left.
        drop(hears);
        events.tell("none", &alice, Value::Null);
        assert!(lock(&events.of).is_empty());
    }
}
