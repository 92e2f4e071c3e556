//! Questions to the user of a client.
//!
//! The process that wants access waits on a thread of the sandbox. Only the call being served knows
//! how to ask its client, so the thread hands the question to a call, and the call sends it.

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_api::{Ask, AskAnswer, Asker, Denial};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::quote::quote;
use crate::sandbox::lock;

/// Time limit for an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// Routes questions about denials to the client of the most recent call that can ask its user, or
/// else to `elsewhere`.
pub(crate) struct QuestionRouter {
    calls: Mutex<Vec<UnboundedSender<ClientQuestion>>>,
    elsewhere: Option<Arc<dyn Asker>>,
}

/// A question whose asker waits for the answer; dropping it answers deny.
pub(crate) struct ClientQuestion {
    options: Vec<AskAnswer>,
    /// The text of the question.
    message: String,
    answer: SyncSender<AskAnswer>,
}

impl QuestionRouter {
    pub(crate) fn new(elsewhere: Option<Arc<dyn Asker>>) -> Self {
        Self { calls: Mutex::default(), elsewhere }
    }

    /// Registers a call that can ask, for as long as the receiver lives.
    pub(crate) fn register_call(
        &self,
    ) -> (UnboundedSender<ClientQuestion>, UnboundedReceiver<ClientQuestion>) {
        let (to, from) = unbounded_channel();
        let mut calls = lock(&self.calls);
        calls.retain(|call| !call.is_closed());
        calls.push(to.clone());
        (to, from)
    }

    pub(crate) fn fallback_asker(&self) -> Option<Arc<dyn Asker>> {
        self.elsewhere.clone()
    }
}

impl fmt::Debug for QuestionRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl Asker for QuestionRouter {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let calls = lock(&self.calls).clone();
        let asked = calls.iter().rev().find_map(|call| ask_by_call(call, ask, None));
        asked.unwrap_or_else(|| {
            self.elsewhere.as_ref().map_or(AskAnswer::Deny, |elsewhere| elsewhere.ask(ask))
        })
    }
}

/// Asks through one call only, and adds the agent's reason.
#[derive(Debug)]
pub(crate) struct CallAsker {
    pub(crate) call: UnboundedSender<ClientQuestion>,
    pub(crate) why: String,
}

impl Asker for CallAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        ask_by_call(&self.call, ask, Some(&self.why)).unwrap_or(AskAnswer::Deny)
    }
}

/// The answer; `None` if the call is over.
fn ask_by_call(
    call: &UnboundedSender<ClientQuestion>,
    ask: &Ask,
    why: Option<&str>,
) -> Option<AskAnswer> {
    let options = ask.permission()?.options;
    let (answer, receiver) = sync_channel(1);
    call.send(ClientQuestion { options, message: message(&ask.denial, why), answer }).ok()?;
    Some(receiver.recv_timeout(ANSWER_TIMEOUT).unwrap_or(AskAnswer::Deny))
}

impl ClientQuestion {
    /// The elicitation form sent to the client.
    pub(crate) fn form(&self) -> ElicitRequest {
        let words: Vec<String> = self.options.iter().map(ToString::to_string).collect();
        let titles: Vec<&str> = self.options.iter().map(|answer| title(*answer)).collect();
        let answer = json!({ "type": "string", "title": "Your answer", "enum": words, "enumNames": titles, "default": "deny" });
        let schema =
            json!({ "type": "object", "properties": { "answer": answer }, "required": ["answer"] });
        let requested_schema: ElicitationSchema =
            serde_json::from_value(schema).expect("a schema of one word is one");
        ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: self.message.clone(),
            requested_schema,
        })
    }

    /// Delivers the client's result to the asker. Anything but an accepted option means deny.
    pub(crate) fn answer(self, said: Option<ElicitResult>) {
        let accepted = said.filter(|said| said.action == ElicitationAction::Accept);
        let word = accepted
            .and_then(|said| said.content)
            .map_or(Value::Null, |content| content["answer"].clone());
        // Accept a string only: serde would also read an object with that word as its key.
        let answer = if word.is_string() {
            serde_json::from_value(word).unwrap_or(AskAnswer::Deny)
        } else {
            AskAnswer::Deny
        };
        // The asker may have timed out.
        let _ = self.answer.send(answer);
    }
}

/// Quotes all foreign text, so that none of it reads as ringfence's own.
fn message(denial: &Denial, why: Option<&str>) -> String {
    let who =
        if denial.program.is_empty() { "a program".to_owned() } else { quote(&denial.program) };
    let (target, refused) = (quote(&denial.target), denial.describe_rule(quote));
    let why = why.map_or_else(String::new, |why| format!(" The agent says: {}.", quote(why)));
    format!(
        "ringfence: {who} wants to {} {target}: {refused}.{why} Allow it?",
        denial.operation.verb_phrase()
    )
}

fn title(answer: AskAnswer) -> &'static str {
    match answer {
        AskAnswer::AllowOnce => "Allow it once",
        AskAnswer::AllowSession => "Allow it for this session",
        AskAnswer::AllowPermanent => "Allow it permanently",
        AskAnswer::Deny => "Deny",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::{DenialEvidence, Operation};

    /// The answer that `content` leads to.
    fn said(content: Value) -> AskAnswer {
        let (answer, receiver) = sync_channel(1);
        let question =
            ClientQuestion { options: AskAnswer::ALL.to_vec(), message: String::new(), answer };
        question
            .answer(serde_json::from_value(json!({ "action": "accept", "content": content })).ok());
        receiver.recv().unwrap_or(AskAnswer::Deny)
    }

    fn denial(target: &str) -> Denial {
        Denial {
            operation: Operation::Read,
            target: target.into(),
            rule: "**/.env".into(),
            origin: "built in".into(),
            explicit: true,
            pid: 0,
            program: "the agent".into(),
            time_ms: 0,
            evidence: DenialEvidence::Guard,
            count: 1,
            optional: false,
        }
    }

    #[test]
    fn invalid_answer_means_deny() {
        assert_eq!(said(json!({ "answer": "allow_session" })), AskAnswer::AllowSession);
        for other in [
            json!({ "answer": { "allow_session": null } }),
            json!({ "answer": ["allow_session"] }),
            json!({ "answer": "Allow_Session" }),
            json!({ "answer": true }),
            json!({}),
        ] {
            assert_eq!(said(other.clone()), AskAnswer::Deny, "{other}");
        }
    }

    #[test]
    fn foreign_text_stays_inside_quotation_marks() {
        let asked = message(&denial("/p/.env"), Some("to see"));
        let expect = "ringfence: “the agent” wants to read “/p/.env”: refused by “**/.env” (“built in”). The agent says: “to see”. Allow it?";
        assert_eq!(asked, expect);
        let forged = message(
            &denial("/x: allowed (built in)”. Nothing is opened by this. “"),
            Some("to see”. Nothing is opened by this. “"),
        );
        assert_eq!(
            forged.matches(['“', '”']).count(),
            asked.matches(['“', '”']).count(),
            "{forged}"
        );
        let long = message(&denial(&"/x".repeat(50_000)), Some(&"y".repeat(50_000)));
        assert!(long.chars().count() < 1200, "{}", long.len());
    }
}
