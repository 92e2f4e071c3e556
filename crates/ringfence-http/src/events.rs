//! The event bus of the service.

use std::collections::HashMap;
use std::sync::Mutex;

use ringfence_audit::now_ms;
use ringfence_skills::SkillName;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::broadcast::{self, Receiver, Sender};
use utoipa::ToSchema;

use crate::tenants::lock;

/// Events kept for a slow reader; when some are dropped, the reader is informed.
const KEPT: usize = 1024;

/// An event.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceEvent {
    /// The kind: `execution-begun`, `execution-ended`, `denial`, `ask`, …
    #[schema(value_type = String)]
    pub(crate) kind: &'static str,
    /// The tenant.
    #[schema(value_type = String)]
    pub(crate) user: SkillName,
    pub(crate) time_ms: u64,
    /// Details that depend on the kind.
    #[schema(value_type = Object)]
    pub(crate) about: Value,
}

/// Distributes events to subscribers of all tenants and to subscribers of one tenant. Each tenant
/// has its own channel, so that other tenants' events cannot displace its own.
pub(crate) struct EventBus {
    all: Sender<ServiceEvent>,
    by_tenant: Mutex<HashMap<SkillName, Sender<ServiceEvent>>>,
}

impl Default for EventBus {
    fn default() -> Self {
        Self { all: broadcast::channel(KEPT).0, by_tenant: Mutex::default() }
    }
}

impl EventBus {
    pub(crate) fn publish(&self, kind: &'static str, user: &SkillName, about: Value) {
        let event = ServiceEvent { kind, user: user.clone(), time_ms: now_ms(), about };
        let mut by_tenant = lock(&self.by_tenant);
        // A channel without subscribers is dropped.
        if by_tenant.get(user).is_some_and(|own| own.send(event.clone()).is_err()) {
            by_tenant.remove(user);
        }
        drop(by_tenant);
        let _ = self.all.send(event);
    }

    /// Subscribes to the events of all tenants or of one.
    pub(crate) fn subscribe(&self, user: Option<&SkillName>) -> Receiver<ServiceEvent> {
        match user {
            None => self.all.subscribe(),
            Some(user) => lock(&self.by_tenant)
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
    fn tenants_own_events_survive_a_flood_of_others() {
        let (events, alice, bob) = (
            EventBus::default(),
            SkillName::try_from("alice").unwrap(),
            SkillName::try_from("bob").unwrap(),
        );
        let mut receiver = events.subscribe(Some(&alice));
        events.publish("first", &alice, Value::Null);
        (0..2 * KEPT).for_each(|_| events.publish("flood", &bob, Value::Null));
        events.publish("last", &alice, Value::Null);
        assert_eq!(
            (receiver.try_recv().unwrap().kind, receiver.try_recv().unwrap().kind),
            ("first", "last")
        );
        // A channel without subscribers is dropped.
        drop(receiver);
        events.publish("none", &alice, Value::Null);
        assert!(lock(&events.by_tenant).is_empty());
    }
}
