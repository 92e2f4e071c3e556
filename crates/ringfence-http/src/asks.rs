//! Questions that wait for the user's answer, from the web page or any other client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_api::{Ask, AskAnswer, Asker, Denial, Operation, Permission};
use ringfence_audit::{now_ms, session_id};
use ringfence_policy::{AbsPath, Access, Grants, HostRule, Verdict};
use ringfence_skills::SkillName;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::events::EventBus;
use crate::state::is_service_data;
use crate::tenants::lock;

/// Time limit for an answer; then the access is denied.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Pending questions per tenant; further ones are denied at once.
const MOST: usize = 64;

/// A question, as clients see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskView {
    pub(crate) id: String,
    pub(crate) user_id: SkillName,
    /// The id of the execution or sandbox that waits.
    pub(crate) about: String,
    pub(crate) since_ms: u64,
    /// True if the tenant's policy allows it, so that a token of the tenant can allow it; otherwise
    /// only a token without a tenant can.
    pub(crate) is_within_policy: bool,
    #[serde(flatten)]
    pub(crate) permission: Permission,
}

struct PendingAsk {
    question: AskView,
    answer: SyncSender<AskAnswer>,
}

/// All pending questions.
pub(crate) struct AskRegistry {
    waiting: Mutex<BTreeMap<String, PendingAsk>>,
    events: Arc<EventBus>,
}

impl AskRegistry {
    pub(crate) fn new(events: Arc<EventBus>) -> Self {
        Self { waiting: Mutex::default(), events }
    }

    /// Oldest first.
    pub(crate) fn list(&self) -> Vec<AskView> {
        lock(&self.waiting).values().map(|waiting| waiting.question.clone()).collect()
    }

    pub(crate) fn find(&self, id: &str) -> Option<AskView> {
        lock(&self.waiting).get(id).map(|waiting| waiting.question.clone())
    }

    /// Delivers an answer; false if no command waits for it or it was not offered.
    pub(crate) fn answer(&self, id: &str, answer: AskAnswer) -> bool {
        let mut waiting = lock(&self.waiting);
        // An answer that was not offered leaves the question pending.
        if !waiting
            .get(id)
            .is_some_and(|waiting| waiting.question.permission.options.contains(&answer))
        {
            return false;
        }
        let Some(waited) = waiting.remove(id) else { return false };
        drop(waiting);
        self.events.publish(
            "ask-answered",
            &waited.question.user_id,
            json!({ "id": id, "answer": answer.to_string() }),
        );
        waited.answer.send(answer).is_ok()
    }

    /// Denies all pending questions of this execution or sandbox.
    pub(crate) fn deny_all(&self, about: &str) {
        lock(&self.waiting).retain(|_, waiting| waiting.question.about != about);
    }
}

/// Asks the user on behalf of one execution or sandbox.
pub(crate) struct TenantAsker {
    pub(crate) asks: Arc<AskRegistry>,
    pub(crate) user: SkillName,
    pub(crate) about: String,
    /// The service's data directory: no answer opens it to a command.
    pub(crate) data: AbsPath,
    /// The command's own directory, which is excepted.
    pub(crate) workspace: AbsPath,
    /// The tenant's policy before it was narrowed.
    pub(crate) ceiling: Grants,
}

impl TenantAsker {
    fn is_ours(&self, target: &str) -> bool {
        AbsPath::new(target).is_some_and(|path| is_service_data(&path, &self.data, &self.workspace))
    }

    /// True if the tenant's policy allows it already. A tenant may not allow more: that belongs to
    /// the host and its operator.
    fn is_within_policy(&self, denial: &Denial) -> bool {
        let access = match denial.operation {
            Operation::Read => Access::Read,
            Operation::Execute => Access::Execute,
            Operation::Write | Operation::Create | Operation::Rename => Access::Write,
            Operation::Connect => {
                let rule = HostRule::parse(&denial.target).ok();
                return rule
                    .and_then(|rule| self.ceiling.network.decide_rule(&rule))
                    .is_some_and(|decision| decision.is_open());
            }
            Operation::Call | Operation::Command => return false,
        };
        AbsPath::new(&denial.target)
            .is_some_and(|path| self.ceiling.decide(&path, access).verdict == Verdict::Allowed)
    }
}

impl fmt::Debug for TenantAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantAsker").field("about", &self.about).finish_non_exhaustive()
    }
}

impl Asker for TenantAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        if self.is_ours(&ask.denial.target) {
            return AskAnswer::Deny;
        }
        let Some(permission) = ask.permission() else { return AskAnswer::Deny };
        let (answer, receiver) = sync_channel(1);
        let id = session_id();
        let is_within_policy = self.is_within_policy(&ask.denial);
        let (user_id, about, since_ms) = (self.user.clone(), self.about.clone(), now_ms());
        let question =
            AskView { id: id.clone(), user_id, about, since_ms, is_within_policy, permission };
        {
            let mut waiting = lock(&self.asks.waiting);
            if waiting.values().filter(|other| other.question.user_id == self.user).count() >= MOST
            {
                return AskAnswer::Deny;
            }
            waiting.insert(id.clone(), PendingAsk { question: question.clone(), answer });
        }
        self.asks.events.publish(
            "ask",
            &self.user,
            serde_json::to_value(&question).unwrap_or_default(),
        );
        let said = receiver.recv_timeout(PATIENCE).unwrap_or(AskAnswer::Deny);
        if lock(&self.asks.waiting).remove(&id).is_some() {
            // The question timed out.
            self.asks.events.publish(
                "ask-answered",
                &self.user,
                json!({ "id": id, "answer": said.to_string() }),
            );
        }
        said
    }
}
