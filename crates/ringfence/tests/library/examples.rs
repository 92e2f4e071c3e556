//! Runs the examples.

use ringfence_testkit::{SECRET, TestOutput};
use serde_json::Value;

use crate::stage::{home, part};

tests! { "examples":
    #[test]
    fn agent_loop_keeps_state_and_reports_a_blocked_command(at) {
        let lines = |input: &[u8]| -> Vec<Value> {
            TestOutput::run(&mut part("agent_loop", at), input).ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let own = lines(b"");
        assert_eq!(own[1]["stdout"], "hello from /tmp\n");
        assert_eq!((&own[2]["blocked"], &own[2]["stdout"]), (&true.into(), &"".into()));
        assert_eq!(own[2]["blockedResource"], home(at).join(".ssh/id_rsa").display().to_string());
        let given = lines(b"mkdir src; cd src\npwd\n");
        assert_eq!(given[1]["stdout"], format!("{}\n", at.join("src").display()));
    }

    #[test]
    fn permission_example_applies_each_answer(at) {
        let run = |answer: &str| TestOutput::run(part("permission", at).args(["../notes.txt", answer]), b"").ok();
        let denied = run("deny");
        let asked: Value = serde_json::from_str(denied.lines().next().unwrap()).unwrap();
        assert_eq!(asked["status"], "requires_permission");
        assert_eq!(asked["permission"]["type"], "sandbox_access");
        assert_eq!(asked["permission"]["options"], serde_json::json!(["allow_once", "allow_session", "allow_permanent", "deny"]));
        assert!(denied.contains("the agent gets: ") && !denied.contains(SECRET));
        // Any other text means deny.
        assert!(!run("yes").contains(SECRET));
        for answer in ["allow_once", "allow_session", "allow_permanent"] {
            let said = run(answer);
            assert!(said.contains(&format!("{answer}: status 0, {SECRET}")), "{said}");
        }
    }
}
