//! A running service for the tests.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence_testkit::{TestProject, TestUser, fuse_for_all, signal, wait_at_most};

use crate::client::HttpTestClient;

/// The administrator's token in every test.
pub(crate) const ADMIN: &str = "admin-0123456789abcdef";
/// A minimal `SKILL.md`.
pub(crate) const SKILL: &str = "---\nname: tool\ndescription: does things\n---\n# Tool\n";

/// A running service; it dereferences to a client with the administrator's token.
pub(crate) struct Service {
    child: Child,
    client: HttpTestClient,
    project: Option<TestProject>,
    said: Option<JoinHandle<String>>,
}

impl Deref for Service {
    type Target = HttpTestClient;

    fn deref(&self) -> &HttpTestClient {
        &self.client
    }
}

impl Service {
    pub(crate) fn start(user: TestUser) -> Service {
        fuse_for_all();
        Self::start_in(TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e")), &[])
    }

    /// Starts with a policy that lets every program run, so that only the sandbox confines.
    pub(crate) fn start_open(user: TestUser) -> Service {
        fuse_for_all();
        let project = TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"));
        let service = Self::start_in(project, &[]);
        service.set_policy("version = 1\n[environment]\nprofile = \"clean\"\n");
        service
    }

    pub(crate) fn start_in(project: TestProject, words: &[&str]) -> Service {
        Self::start_with(project, words, &[("RINGFENCE_ADMIN_TOKEN", ADMIN)])
    }

    pub(crate) fn start_with(
        project: TestProject,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> Service {
        let data = project.home().join("data");
        let mut command = project.ringfence();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).args(words);
        if !words.contains(&"--profile") {
            // The rules of the source document, which most tests use.
            command.args(["--profile", "filesecbox"]);
        }
        Self::serve(project, command, variables)
    }

    /// Starts a command that becomes `ringfence serve`.
    pub(crate) fn serve(
        project: TestProject,
        mut command: std::process::Command,
        variables: &[(&str, &str)],
    ) -> Service {
        command
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("ringfence starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            if lines.read_line(&mut line).expect("it can be read") == 0 {
                panic!("the service does not serve: {said}");
            }
            said.push_str(&line);
            if let Some(address) = line.split("://").nth(1).and_then(|rest| rest.split(',').next())
            {
                break address.parse::<SocketAddr>().expect("an address");
            }
        };
        let said = thread::spawn(move || {
            let mut rest = String::new();
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = lines.read(&mut bytes) {
                rest.push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
            rest
        });
        let client = HttpTestClient { address, token: Some(ADMIN.into()) };
        Service { child, client, project: Some(project), said: Some(said) }
    }

    pub(crate) fn project(&self) -> &TestProject {
        self.project.as_ref().expect("it has not ended")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.project().home().join("data")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes the policy of all tenants.
    pub(crate) fn set_policy(&self, text: &str) {
        self.project().write_at(&self.data().join("policy.toml"), text);
    }

    /// Creates a token for a tenant.
    #[track_caller]
    pub(crate) fn token(&self, user: &str, scopes: &[&str]) -> HttpTestClient {
        let made = self
            .post("/v1/tokens", &serde_json::json!({ "userId": user, "scopes": scopes }))
            .is(201);
        self.with(made["token"].as_str().expect("a word"))
    }

    /// Ends the service by SIGTERM and returns its log.
    #[track_caller]
    pub(crate) fn end(mut self) -> (TestProject, String) {
        signal(self.child.id(), 15);
        let status =
            wait_at_most(&mut self.child, Duration::from_secs(30)).expect("it ends on SIGTERM");
        assert!(status.success(), "{status}");
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        (self.take(), said)
    }

    /// Kills the service with SIGKILL.
    pub(crate) fn kill(mut self) -> TestProject {
        signal(self.child.id(), 9);
        let _ = self.child.wait();
        self.take()
    }

    fn take(&mut self) -> TestProject {
        self.project.take().expect("it ends once")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
