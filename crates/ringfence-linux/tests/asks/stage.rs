//! Fixture: a home, a project in it, a session, and scripted answers.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_api::HostFacts;
use ringfence_api::{Ask, AskAnswer, Asker, CommandRequest, Outcome, ShellCommand, StdioMode};
use ringfence_linux::LocalProvider;
use ringfence_policy::{AbsPath, Facts, Flags, Grants, resolve};
use ringfence_provider::{PreparedSandbox, Provider, Sandbox, SandboxShell, ShellSpec};

/// Time limit of a command in these tests.
const TIME_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct AskFixture {
    pub(crate) home: AbsPath,
    pub(crate) workspace: AbsPath,
    base: AbsPath,
}

impl AskFixture {
    pub(crate) fn new(directory: &Path) -> Self {
        let base = AbsPath::new(directory).expect("tests stand at absolute paths");
        let home = base.join("home");
        let stage = Self { workspace: home.join("code/app"), home, base };
        for (name, content) in [
            ("home/.ssh/id_test", "the key\n"),
            ("home/.ssh/other", "another key\n"),
            ("home/.bashrc", "settings\n"),
            ("home/notes.txt", "notes\n"),
            ("home/papers/plan.txt", "the plan\n"),
            ("home/papers/.env", "TOKEN=1\n"),
            ("home/papers/deep/id.pem", "a pem\n"),
            ("home/tool", "#!/bin/sh\necho ran\n"),
            ("home/code/app/README", "hello\n"),
            ("home/code/app/.env", "TOKEN=2\n"),
        ] {
            stage.write(name, content);
        }
        let program = stage.base.join("home/tool");
        fs::set_permissions(program.as_path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("it is there");
        fs::create_dir_all(stage.base.join("store").as_path()).expect("the directory is ours");
        stage
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.base.join(name);
        fs::create_dir_all(path.parent().expect("not the root").as_path())
            .expect("the directory is ours");
        fs::write(path.as_path(), content).expect("the directory is ours");
    }

    pub(crate) fn at(&self, name: &str) -> AbsPath {
        self.base.join(name)
    }

    /// The built-in policy, resolved here.
    pub(crate) fn grants(&self) -> Grants {
        let facts =
            Facts::minimal(self.workspace.clone(), self.home.clone(), self.base.join("store"));
        resolve(&[], &Flags::none(self.workspace.clone()), &facts)
            .expect("the built-in policy resolves")
    }

    pub(crate) fn open(&self, grants: &Grants, asker: Arc<dyn Asker>) -> Box<dyn PreparedSandbox> {
        let user = HostFacts::without_settings(self.base.join("store/quarantine"));
        let mut session = LocalProvider::default().prepare(grants, &user).expect("it opens");
        session.set_asker(asker);
        session
    }

    /// A persistent shell.
    pub(crate) fn shell(&self, asker: Arc<dyn Asker>) -> ShellFixture {
        let live_sandbox =
            self.open(&self.grants(), asker).start_sandbox(&self.workspace).expect("it stands");
        let CommandRequest { variables, cwd, .. } = self.request("");
        let shell = live_sandbox
            .start_shell(&ShellSpec { program: "bash".into(), environment: variables, cwd })
            .expect("there is a shell");
        ShellFixture { shell, live_sandbox }
    }

    pub(crate) fn request(&self, line: &str) -> CommandRequest {
        let variables = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.home.as_path().as_os_str().to_owned()),
            ("LC_ALL", "C".into()),
        ];
        CommandRequest {
            command: ["/bin/sh", "-c", line].map(Into::into).into(),
            cwd: self.workspace.clone(),
            variables: variables.map(|(name, value)| (name.into(), value)).into(),
            stdio: StdioMode::Capture { limit: 1 << 20 },
            deadline: Some(TIME_LIMIT),
        }
    }

    /// Runs a line of shell. It must not reach the time limit.
    pub(crate) fn run(
        &self,
        grants: &Grants,
        asker: &Arc<impl Asker + 'static>,
        line: &str,
    ) -> Ran {
        let begun = Instant::now();
        let outcome = self.open(grants, asker.clone()).run(&self.request(line)).expect("it runs");
        assert!(!outcome.timed_out, "{line}: {:?}", outcome.stderr);
        assert!(begun.elapsed() < TIME_LIMIT, "{line} took {:?}", begun.elapsed());
        Ran { home: self.home.to_string_lossy().into_owned(), outcome }
    }

    /// Runs a line without an asker.
    pub(crate) fn unasked(&self, line: &str) -> Ran {
        let user = HostFacts::without_settings(self.base.join("store/quarantine"));
        let outcome = LocalProvider::default()
            .prepare(&self.grants(), &user)
            .expect("it opens")
            .run(&self.request(line))
            .expect("it runs");
        Ran { home: self.home.to_string_lossy().into_owned(), outcome }
    }

    /// Runs a line with the built-in policy.
    pub(crate) fn sh(&self, asker: &Arc<impl Asker + 'static>, line: &str) -> Ran {
        self.run(&self.grants(), asker, line)
    }
}

/// Result of a line.
pub(crate) struct Ran {
    home: String,
    pub(crate) outcome: Outcome,
}

impl Ran {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stdout.bytes()).into_owned()
    }

    pub(crate) fn talk(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stderr.bytes()).into_owned()
    }

    /// The denials, each as `operation target`.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.outcome
            .denials
            .iter()
            .map(|one| format!("{} {}", one.operation.word(), one.target.replace(&self.home, "~")))
            .collect()
    }

    /// The granted accesses, each as `answer operation target count`.
    pub(crate) fn granted(&self) -> Vec<String> {
        let shown = self.outcome.granted.iter().map(|one| {
            let denial = &one.denial;
            format!(
                "{} {} {} {}",
                one.answer,
                denial.operation.word(),
                denial.target.replace(&self.home, "~"),
                denial.count
            )
        });
        shown.collect()
    }
}

type ScriptedRule = dyn Fn(&Ask) -> AskAnswer + Send + Sync;

/// Answers by a rule, and records the questions.
pub(crate) struct ScriptedAsker {
    home: String,
    rule: Box<ScriptedRule>,
    asked: Mutex<Vec<String>>,
}

impl ScriptedAsker {
    pub(crate) fn new(
        stage: &AskFixture,
        rule: impl Fn(&Ask) -> AskAnswer + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            home: stage.home.to_string_lossy().into_owned(),
            rule: Box::new(rule),
            asked: Mutex::default(),
        })
    }

    pub(crate) fn always(stage: &AskFixture, answer: AskAnswer) -> Arc<Self> {
        Self::new(stage, move |_| answer)
    }

    /// The questions, each as `operation target`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("the lock is not poisoned").clone()
    }
}

impl fmt::Debug for ScriptedAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Asker for ScriptedAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let question = format!(
            "{} {}",
            ask.denial.operation.word(),
            ask.denial.target.replace(&self.home, "~")
        );
        self.asked.lock().expect("the lock is not poisoned").push(question);
        (self.rule)(ask)
    }
}

/// A persistent shell in a running sandbox.
pub(crate) struct ShellFixture {
    pub(crate) shell: Box<dyn SandboxShell>,
    live_sandbox: Box<dyn Sandbox>,
}

impl ShellFixture {
    /// Output of a line, its number of denials, and its number of grants.
    pub(crate) fn say(&mut self, text: &str) -> (String, usize, usize) {
        let ran = self.shell.execute(&ShellCommand::new(text), &mut |_, _| {}).expect("it runs");
        (
            String::from_utf8_lossy(&ran.stdout.bytes()).into_owned(),
            ran.denials.len(),
            ran.granted.len(),
        )
    }

    pub(crate) fn end(self) {
        drop(self.shell);
        self.live_sandbox.end().expect("it ends");
    }
}
