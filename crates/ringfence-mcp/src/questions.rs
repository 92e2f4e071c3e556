//! Questions to the person behind a client.
//!
//! Whoever wants something waits on a thread of the sandbox's. What may be sent to a client, and
//! how, is the business of the call that is being served: so a question is handed to a call, and
//! the call puts it.

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

use crate::quote::marked;
use crate::sandbox::lock;

/// How long a person may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Who is asked about what commands are about to be refused: the client whose call came last, of
/// those that can ask people, or else somebody elsewhere.
pub(crate) struct QuestionRouter {
    calls: Mutex<Vec<UnboundedSender<ClientQuestion>>>,
    elsewhere: Option<Arc<dyn Asker>>,
}

/// Somebody waits for the answer; dropped, it is no.
pub(crate) struct ClientQuestion {
    options: Vec<AskAnswer>,
    /// The question itself.
    message: String,
    answer: SyncSender<AskAnswer>,
}

impl QuestionRouter {
    pub(crate) fn new(elsewhere: Option<Arc<dyn Asker>>) -> Self {
        Self { calls: Mutex::default(), elsewhere }
    }

    /// For a call that can put questions, as long as the receiver is there.
    pub(crate) fn hear(
        &self,
    ) -> (UnboundedSender<ClientQuestion>, UnboundedReceiver<ClientQuestion>) {
        let (to, from) = unbounded_channel();
        let mut calls = lock(&self.calls);
        calls.retain(|call| !call.is_closed());
        calls.push(to.clone());
        (to, from)
    }

    pub(crate) fn elsewhere(&self) -> Option<Arc<dyn Asker>> {
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
        let asked = calls.iter().rev().find_map(|call| put(call, ask, None));
        asked.unwrap_or_else(|| {
            self.elsewhere.as_ref().map_or(AskAnswer::Deny, |elsewhere| elsewhere.ask(ask))
        })
    }
}

/// Asks by one call and no other, and says why.
#[derive(Debug)]
pub(crate) struct CallAsker {
    pub(crate) call: UnboundedSender<ClientQuestion>,
    pub(crate) why: String,
}

impl Asker for CallAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        put(&self.call, ask, Some(&self.why)).unwrap_or(AskAnswer::Deny)
    }
}

/// The answer; `None` if the call is over.
fn put(call: &UnboundedSender<ClientQuestion>, ask: &Ask, why: Option<&str>) -> Option<AskAnswer> {
    let options = ask.permission()?.options;
    let (answer, hears) = sync_channel(1);
    call.send(ClientQuestion { options, message: message(&ask.denial, why), answer }).ok()?;
    Some(hears.recv_timeout(PATIENCE).unwrap_or(AskAnswer::Deny))
}

impl ClientQuestion {
    /// As clients put it to people.
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

    /// What a person has said by a client.
    pub(crate) fn answer(self, said: Option<ElicitResult>) {
        let accepted = said.filter(|said| said.action == ElicitationAction::Accept);
        let word = accepted
            .and_then(|said| said.content)
            .map_or(Value::Null, |content| content["answer"].clone());
        // A word and nothing else: an object with that word for a key would be read as well.
        let answer = if word.is_string() {
            serde_json::from_value(word).unwrap_or(AskAnswer::Deny)
        } else {
            AskAnswer::Deny
        };
        // Whoever waited may be gone.
        let _ = self.answer.send(answer);
    }
}

/// What others have written stands between marks, so that none of it reads as ours.
fn message(denial: &Denial, why: Option<&str>) -> String {
    let who =
        if denial.program.is_empty() { "a program".to_owned() } else { marked(&denial.program) };
    let (target, refused) = (marked(&denial.target), denial.refused_by(marked));
    let why = why.map_or_else(String::new, |why| format!(" The agent says: {}.", marked(why)));
    format!(
        "ringfence: {who} wants to {} {target}: {refused}.{why} Allow it?",
        denial.operation.wish()
    )
}

fn title(answer: AskAnswer) -> &'static str {
    match answer {
        AskAnswer::AllowOnce => "Allow it once",
        AskAnswer::AllowSession => "Allow it for this session",
        AskAnswer::AllowPermanent => "Allow it for good",
        AskAnswer::Deny => "No",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::{DenialEvidence, Operation};

    /// What comes of a word that a client brings.
    fn said(content: Value) -> AskAnswer {
        let (answer, hears) = sync_channel(1);
        let question =
            ClientQuestion { options: AskAnswer::ALL.to_vec(), message: String::new(), answer };
        question
            .answer(serde_json::from_value(json!({ "action": "accept", "content": content })).ok());
        hears.recv().unwrap_or(AskAnswer::Deny)
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
    fn whatever_is_no_answer_is_no() {
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
    fn what_others_have_written_is_told_from_what_is_ours() {
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
