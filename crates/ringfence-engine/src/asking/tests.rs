use std::fs;

use ringfence_api::DenialEvidence;
use ringfence_policy::{Flags, resolve};
use serde_json::Value;

use super::*;
use crate::files::read_layers;
use crate::testing::TestHome;

/// Answers every question the same way, and stores the offers and notes it gets.
#[derive(Debug)]
struct FixedAsker {
    answer: AskAnswer,
    offered: Mutex<Vec<Vec<AskAnswer>>>,
    notes: Mutex<Vec<String>>,
}

impl Asker for FixedAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        self.offered.lock().unwrap().push(ask.options.clone());
        self.answer
    }

    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }
}

struct Trial {
    home: TestHome,
    asker: Arc<FixedAsker>,
    recorder: RecordingAsker,
}

impl Trial {
    /// A run under this policy, with a user who always gives the same answer.
    fn new(policy: &str, answer: AskAnswer) -> Self {
        let home = TestHome::new();
        home.write(policy);
        let facts = home.facts();
        let grants = resolve(
            &read_layers(&PolicyFiles::default(), &facts).unwrap(),
            &Flags::none(facts.workspace.clone()),
            &facts,
        )
        .unwrap();
        let asker =
            Arc::new(FixedAsker { answer, offered: Mutex::default(), notes: Mutex::default() });
        let subject = RecordSubject { agent: Some("a".into()), session: "s".into() };
        let recorder = RecordingAsker {
            asker: asker.clone(),
            grants: grants.into(),
            facts,
            files: PolicyFiles::default(),
            subject,
            log: Mutex::new(None),
            session_grants: Arc::default(),
        };
        Self { home, asker, recorder }
    }

    fn denial(&self, operation: Operation, name: &str) -> Denial {
        Denial {
            operation,
            target: self.home.0.join(name).to_string(),
            rule: "~/.ssh".into(),
            origin: "built in".into(),
            explicit: true,
            pid: 42,
            program: "cat".into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        }
    }

    fn ask(&self, operation: Operation, name: &str) -> AskAnswer {
        self.recorder
            .ask(&Ask { denial: self.denial(operation, name), options: AskAnswer::ALL.to_vec() })
    }

    /// `operation target result policy reason` of each record, with the last component of the
    /// target.
    fn records(&self) -> Vec<String> {
        let log = self.recorder.grants().audit.directory.join("00000001.jsonl");
        let text = fs::read_to_string(log.as_path()).unwrap_or_default();
        let line = |line: &str| {
            let record: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| record[key].as_str().unwrap().to_owned();
            let name = text("target").rsplit('/').next().unwrap_or_default().to_owned();
            format!(
                "{} {name} {} {} {}",
                text("operation"),
                text("result"),
                text("policy"),
                text("reason")
            )
        };
        text.lines().map(line).collect()
    }
}

const PLAIN: &str = "version = 1 # mine\n";

/// Promise: answers-recorded
#[test]
fn every_answer_is_recorded() {
    for (answer, result) in [
        (AskAnswer::AllowOnce, "allowed"),
        (AskAnswer::AllowSession, "allowed"),
        (AskAnswer::Deny, "blocked"),
    ] {
        let trial = Trial::new(PLAIN, answer);
        assert_eq!(trial.ask(Operation::Read, ".ssh/id"), answer);
        assert_eq!(trial.records(), [format!("ask id {result} ~/.ssh answered {answer}")]);
        assert_eq!(trial.home.read(), PLAIN);
    }
}

/// Promise: answers-recorded
#[test]
fn permanent_grant_is_written_recorded_and_reported() {
    let trial = Trial::new(PLAIN, AskAnswer::AllowPermanent);
    assert_eq!(trial.ask(Operation::Read, ".ssh/id"), AskAnswer::AllowPermanent);
    assert_eq!(
        (trial.home.read_own(), trial.home.read()),
        ("[filesystem]\nread = [\"~/.ssh/id\"]\n".to_owned(), PLAIN.to_owned())
    );
    let place = format!("{}:6", trial.home.own_policy().display());
    let written = format!("permit id allowed read ~/.ssh/id {place}");
    assert_eq!(
        trial.records(),
        ["ask id allowed ~/.ssh answered allow_permanent".to_owned(), written]
    );
    assert_eq!(*trial.asker.notes.lock().unwrap(), [format!("added `read ~/.ssh/id` to {place}")]);
}

#[test]
fn permanent_grant_that_cannot_be_written_lasts_for_the_session() {
    let trial = Trial::new(PLAIN, AskAnswer::AllowPermanent);
    // The policy breaks between the question and the answer.
    let options = AskAnswer::ALL.to_vec();
    trial.home.write("version = 1\n[filesystem\n");
    assert_eq!(
        trial.recorder.write_permanent(&trial.denial(Operation::Read, ".ssh/id"), &options),
        AskAnswer::AllowSession
    );
    assert_eq!(
        trial.recorder.write_permanent(
            &trial.denial(Operation::Read, ".ssh/id"),
            &[AskAnswer::AllowPermanent]
        ),
        AskAnswer::Deny
    );
    assert_eq!(trial.home.read(), "version = 1\n[filesystem\n");
    assert!(
        trial.records()[0].starts_with("permit id failed read ~/.ssh/id "),
        "{:?}",
        trial.records()
    );
    assert!(
        trial.asker.notes.lock().unwrap()[0].contains("policy.toml:2:12: not valid TOML"),
        "{:?}",
        trial.asker
    );
}

#[test]
fn permanent_answer_is_not_offered_if_a_rule_would_override_it() {
    let trial =
        Trial::new("version = 1\n[filesystem]\ndeny = [\"~/x\"]\n", AskAnswer::AllowPermanent);
    assert_eq!(trial.ask(Operation::Read, "x"), AskAnswer::Deny);
    let fewer = vec![AskAnswer::AllowOnce, AskAnswer::AllowSession, AskAnswer::Deny];
    assert_eq!(*trial.asker.offered.lock().unwrap(), [fewer]);
    assert_eq!(trial.records(), ["ask x blocked ~/.ssh answered deny"]);
}

#[test]
fn sandbox_own_directories_are_never_asked_about() {
    // No policy can allow these paths, and no sandbox would start with them.
    let trial = Trial::new(PLAIN, AskAnswer::AllowSession);
    for place in ["/", "/run"] {
        assert_eq!(trial.ask(Operation::Read, place), AskAnswer::Deny, "{place}");
        assert_eq!(trial.ask(Operation::Write, place), AskAnswer::Deny, "{place}");
    }
    assert_eq!(trial.ask(Operation::Read, "/run/lock"), AskAnswer::AllowSession);
    assert_eq!(trial.asker.offered.lock().unwrap().len(), 1);
}

/// Promise: permanent-grant
#[test]
fn locked_and_allowed_paths_are_not_asked_about() {
    let mut trial = Trial::new(PLAIN, AskAnswer::AllowOnce);
    for rule in trial
        .recorder
        .grants
        .get_mut()
        .unwrap()
        .rules
        .iter_mut()
        .filter(|rule| rule.root.as_path().ends_with(".ssh"))
    {
        rule.locked = true;
        rule.origin.source = ringfence_policy::Source::Managed;
    }
    assert_eq!(trial.ask(Operation::Read, ".ssh/id"), AskAnswer::Deny);
    assert_eq!(trial.ask(Operation::Read, "p/x"), AskAnswer::Deny);
    assert_eq!(trial.ask(Operation::Connect, ".netrc"), AskAnswer::Deny);
    assert_eq!((trial.asker.offered.lock().unwrap().len(), trial.records().len()), (0, 0));
    assert_eq!(trial.ask(Operation::Read, ".netrc"), AskAnswer::AllowOnce);
}

/// Promise: ask-write
#[test]
fn write_to_ringfence_files_is_never_asked_about() {
    let trial = Trial::new(PLAIN, AskAnswer::AllowOnce);
    let own = [
        ".config/ringfence/policy.toml",
        ".config/ringfence/projects/x.toml",
        ".local/state/ringfence/audit/head",
        "p/.ringfence/policy.toml",
        ".cache/ringfence/projects/p/x",
    ];
    for name in own {
        assert_eq!(
            [Operation::Write, Operation::Create].map(|operation| trial.ask(operation, name)),
            [AskAnswer::Deny; 2],
            "{name}"
        );
    }
    assert_eq!((trial.asker.offered.lock().unwrap().len(), trial.records().len()), (0, 0));
    assert_eq!(trial.ask(Operation::Create, "q/.vscode/x"), AskAnswer::AllowOnce);
}

/// Promise: write-grant
#[test]
fn permanent_write_grant_becomes_a_write_entry() {
    let trial = Trial::new(PLAIN, AskAnswer::AllowPermanent);
    assert_eq!(trial.ask(Operation::Create, "q/new"), AskAnswer::AllowPermanent);
    assert_eq!(trial.home.read_own(), "[filesystem]\nwrite = [\"~/q/new\"]\n");
    assert_eq!(trial.records()[0], "ask new allowed ~/.ssh answered allow_permanent");
}

/// Promise: answers-recorded
#[test]
fn unrecordable_answer_denies() {
    for (policy, expect) in [
        (PLAIN, AskAnswer::Deny),
        ("version = 1\n[audit]\non-error = \"run\"\n", AskAnswer::AllowOnce),
    ] {
        let trial = Trial::new(policy, AskAnswer::AllowOnce);
        fs::write(trial.home.0.join(".local").as_path(), "in the way").unwrap();
        assert_eq!(trial.ask(Operation::Read, ".ssh/id"), expect);
    }
    let trial = Trial::new(PLAIN, AskAnswer::AllowPermanent);
    fs::write(trial.home.0.join(".local").as_path(), "in the way").unwrap();
    assert_eq!(trial.ask(Operation::Read, ".ssh/id"), AskAnswer::Deny);
    assert_eq!(trial.home.read(), PLAIN);
}

/// Promise: ask-connect
#[test]
fn permanent_host_grant_allows_only_that_port() {
    let trial = Trial::new(PLAIN, AskAnswer::AllowPermanent);
    let denial =
        |target: &str| Denial { target: target.into(), ..trial.denial(Operation::Connect, "") };
    let ask = |target: &str| {
        trial.recorder.ask(&Ask { denial: denial(target), options: AskAnswer::ALL.to_vec() })
    };
    assert_eq!(ask("app.test:443"), AskAnswer::AllowPermanent);
    assert_eq!(ask("[2001:db8::1]:80"), AskAnswer::AllowPermanent);
    assert_eq!(
        trial.home.read_own(),
        "[network]\nallow = [\"app.test:443\", \"[2001:db8::1]:80\"]\n"
    );
    assert_eq!(trial.asker.offered.lock().unwrap().as_slice(), [AskAnswer::ALL, AskAnswer::ALL]);
    assert!(
        trial.records()[1].starts_with("permit app.test:443 allowed allow app.test:443 "),
        "{:?}",
        trial.records()
    );
    // Not a port of a host, or the host itself.
    for target in ["app.test", "10.0.0.1:53/udp", "localhost:80", "127.0.0.1:80", "*.app.test:80"] {
        assert_eq!(ask(target), AskAnswer::Deny, "{target}");
    }
    assert_eq!(trial.asker.offered.lock().unwrap().len(), 2);
}

/// Promise: ask-connect
#[test]
fn denied_or_locked_host_is_not_asked_about() {
    let trial = Trial::new(
        "version = 1\n[network]\nallow = [\"a.test\"]\ndeny = [\"b.test\", \"10.0.0.0/8\"]\n",
        AskAnswer::AllowOnce,
    );
    let ask = |target: &str| {
        let denial = Denial { target: target.into(), ..trial.denial(Operation::Connect, "") };
        trial.recorder.ask(&Ask { denial, options: AskAnswer::ALL.to_vec() })
    };
    for target in ["b.test:80", "10.1.2.3:80", "[::ffff:10.1.2.3]:80", "a.test:80"] {
        assert_eq!(ask(target), AskAnswer::Deny, "{target}");
    }
    assert_eq!(ask("c.test:80"), AskAnswer::AllowOnce);
    trial.recorder.grants.write().unwrap().network.locked =
        Some(Origin::new(Source::Managed, "network.locked = true"));
    assert_eq!(ask("c.test:80"), AskAnswer::Deny);
    assert_eq!(trial.asker.offered.lock().unwrap().len(), 1);
}
