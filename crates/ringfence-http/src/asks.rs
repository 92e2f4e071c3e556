//! Questions that wait for a person's answer, by the page or by any other client.

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
use crate::state::is_ours;
use crate::tenants::lock;

/// How long a question waits; then it is denied.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// So many questions of a tenant wait at the same time; others are denied at once.
const MOST: usize = 64;

/// A question, as clients see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskView {
    pub(crate) id: String,
    pub(crate) user_id: SkillName,
    /// The execution or the sandbox that waits.
    pub(crate) about: String,
    pub(crate) since_ms: u64,
    /// Whether the tenant's policy opens it, so that a token of the tenant can allow it; else only
    /// one that is for no tenant can.
    pub(crate) is_within_policy: bool,
    #[serde(flatten)]
    pub(crate) permission: Permission,
}

struct PendingAsk {
    question: AskView,
    answer: SyncSender<AskAnswer>,
}

/// All that wait.
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

    /// Whether somebody waited for it, and it was among what may be said.
    pub(crate) fn answer(&self, id: &str, answer: AskAnswer) -> bool {
        let mut waiting = lock(&self.waiting);
        // What was not offered leaves the question where it is.
        if !waiting
            .get(id)
            .is_some_and(|waiting| waiting.question.permission.options.contains(&answer))
        {
            return false;
        }
        let Some(waited) = waiting.remove(id) else { return false };
        drop(waiting);
        self.events.tell(
            "ask-answered",
            &waited.question.user_id,
            json!({ "id": id, "answer": answer.to_string() }),
        );
        waited.answer.send(answer).is_ok()
    }

    /// Says no to everybody who waits in this execution or sandbox.
    pub(crate) fn withdraw(&self, about: &str) {
        lock(&self.waiting).retain(|_, waiting| waiting.question.about != about);
    }
}

/// Who is asked by the sandbox of one tenant.
pub(crate) struct TenantAsker {
    pub(crate) asks: Arc<AskRegistry>,
    pub(crate) user: SkillName,
    pub(crate) about: String,
    /// Where everything of the service is: nobody opens that to a command.
    pub(crate) data: AbsPath,
    /// But for what is the command's own.
    pub(crate) workspace: AbsPath,
    /// What the tenant's policy opens, before anything of it was taken away.
    pub(crate) ceiling: Grants,
}

impl TenantAsker {
    fn is_ours(&self, target: &str) -> bool {
        AbsPath::new(target).is_some_and(|path| is_ours(&path, &self.data, &self.workspace))
    }

    /// Whether the tenant could have it by its policy already. What is beyond is not for a tenant
    /// to open: it is the host's, and belongs to whoever runs the service.
    fn is_within_policy(&self, denial: &Denial) -> bool {
        let access = match denial.operation {
            Operation::Read => Access::Read,
            Operation::Execute => Access::Execute,
            Operation::Write | Operation::Create | Operation::Rename => Access::Write,
            Operation::Connect => {
                let rule = HostRule::parse(&denial.target).ok();
                return rule
                    .and_then(|rule| self.ceiling.network.about(&rule))
                    .is_some_and(|passage| passage.is_open());
            }
            Operation::Call | Operation::Command => return false,
        };
        AbsPath::new(&denial.target)
            .is_some_and(|path| self.ceiling.decide(&path, access).verdict == Verdict::Allowed)
    }
}

impl fmt::Debug for TenantAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("about", &self.about).finish_non_exhaustive()
    }
}

impl Asker for TenantAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        if self.is_ours(&ask.denial.target) {
            return AskAnswer::Deny;
        }
        let Some(permission) = ask.permission() else { return AskAnswer::Deny };
        let (answer, hears) = sync_channel(1);
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
        self.asks.events.tell(
            "ask",
            &self.user,
            serde_json::to_value(&question).unwrap_or_default(),
        );
        let said = hears.recv_timeout(PATIENCE).unwrap_or(AskAnswer::Deny);
        if lock(&self.asks.waiting).remove(&id).is_some() {
            // Nobody said anything.
            self.asks.events.tell(
                "ask-answered",
                &self.user,
                json!({ "id": id, "answer": said.to_string() }),
            );
        }
        said
    }
}
