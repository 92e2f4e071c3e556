//! Running and recently ended commands of sandboxes.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use ringfence_skills::SkillName;
use serde_json::Value;

use super::SandboxCommand;
use crate::executions::{Listed, OUTPUT, Watchable};
use crate::tenants::lock;

/// Commands remembered per tenant.
const REMEMBERED: usize = 200;
/// The most recently ended commands, whose output is kept as well.
const WITH_OUTPUT: usize = 8;

/// Commands by tenant, oldest first.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<SkillName, VecDeque<Arc<SandboxCommand>>>>);

impl Turns {
    pub(super) fn add(&self, turn: &Arc<SandboxCommand>) {
        let mut all = lock(&self.0);
        let own = all.entry(turn.user().clone()).or_default();
        own.push_back(turn.clone());
        while own.len() > REMEMBERED {
            // Running commands stay: there are never that many.
            let Some(over) = own.iter().position(|turn| turn.is_over()) else { break };
            own.remove(over);
        }
        forget_output(own);
    }

    /// Drops the output of a tenant's older commands.
    pub(crate) fn trim(&self, user: &SkillName) {
        if let Some(own) = lock(&self.0).get(user) {
            forget_output(own);
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<SandboxCommand>> {
        lock(&self.0).values().flatten().find(|turn| turn.id() == id).cloned()
    }

    pub(crate) fn list(&self) -> Vec<Arc<SandboxCommand>> {
        lock(&self.0).values().flatten().cloned().collect()
    }
}

/// Keeps the output of the commands that ended last, and of those that a caller waits for.
fn forget_output(own: &VecDeque<Arc<SandboxCommand>>) {
    let over = own.iter().rev().filter(|turn| turn.is_over());
    let mut over: Vec<(Option<u64>, &Arc<SandboxCommand>)> =
        over.map(|turn| (lock(&turn.status).ended_ms, turn)).collect();
    over.sort_by_key(|(ended_ms, _)| Reverse(*ended_ms));
    let old = over.iter().skip(WITH_OUTPUT).map(|(_, turn)| turn);
    old.filter(|turn| !turn.is_awaited()).for_each(|turn| drop_output(turn));
}

/// Drops the output of a command. Its result keeps its schema: empty and truncated.
fn drop_output(turn: &SandboxCommand) {
    if let Some(Value::Object(result)) = &mut lock(&turn.status).result {
        OUTPUT.iter().for_each(|name| drop(result.remove(*name)));
        result.extend([
            ("stdout".to_owned(), Value::from("")),
            ("stderr".to_owned(), Value::from("")),
            ("enforced".to_owned(), Value::Array(Vec::new())),
            ("truncated".to_owned(), Value::from(true)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use serde_json::json;

    use super::*;

    fn begun(turns: &Turns, user: &SkillName) -> Arc<SandboxCommand> {
        let turn = SandboxCommand::new(user, "box", b"echo x");
        turns.add(&turn);
        turn
    }

    fn end(turns: &Turns, turn: &SandboxCommand) {
        turn.finish(Ok(json!({ "stdout": "x", "truncated": false })));
        turns.trim(turn.user());
    }

    fn wrote(turn: &SandboxCommand) -> String {
        turn.status().result.unwrap()["stdout"].as_str().unwrap().to_owned()
    }

    #[test]
    fn output_is_forgotten_when_later_commands_end() {
        let (turns, user) = (Turns::default(), SkillName::try_from("alice").unwrap());
        let all: Vec<Arc<SandboxCommand>> =
            (0..WITH_OUTPUT + 2).map(|_| begun(&turns, &user)).collect();
        all.iter().for_each(|turn| end(&turns, turn));
        let with_output: Vec<bool> = all.iter().map(|turn| wrote(turn) == "x").collect();
        assert_eq!(with_output[..3], [false, false, true]);
        assert_eq!(with_output.iter().filter(|has| **has).count(), WITH_OUTPUT);
        assert_eq!(all[0].status().result.unwrap()["truncated"], true);
    }

    #[test]
    fn command_that_ends_last_keeps_its_output_though_it_began_first() {
        let (turns, user) = (Turns::default(), SkillName::try_from("alice").unwrap());
        let first = begun(&turns, &user);
        (0..WITH_OUTPUT + 2).for_each(|_| end(&turns, &begun(&turns, &user)));
        // End times are in milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(5));
        end(&turns, &first);
        assert_eq!(wrote(&first), "x");
    }

    #[test]
    fn output_stays_while_a_caller_waits_for_it() {
        let (turns, user) = (Turns::default(), SkillName::try_from("alice").unwrap());
        let awaited = begun(&turns, &user);
        let mut ended = Box::pin(awaited.ended());
        let mut context = Context::from_waker(Waker::noop());
        assert!(ended.as_mut().poll(&mut context).is_pending());
        end(&turns, &awaited);
        std::thread::sleep(std::time::Duration::from_millis(5));
        (0..WITH_OUTPUT).for_each(|_| end(&turns, &begun(&turns, &user)));
        assert_eq!(wrote(&awaited), "x");
        assert!(ended.as_mut().poll(&mut context).is_ready());
        drop(ended);
        turns.trim(&user);
        assert_eq!(wrote(&awaited), "");
    }
}
