//! Probes: one Python expression, tried inside the sandbox and bare.

use crate::output::TestOutput;
use crate::program::python;
use crate::project::TestProject;

/// Helpers for every probe: `call` for syscalls by name, `outcome` for the result.
pub const PRELUDE: &str = include_str!("prelude.py");

/// A probe. Its result is `ok`, the name of an errno, or its own output.
#[derive(Debug)]
pub struct ProbeResult<'a> {
    project: &'a TestProject,
    code: String,
    flags: Vec<String>,
}

impl std::fmt::Debug for TestProject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.root().display(), self.user)
    }
}

impl TestProject {
    /// Runs a Python program inside the sandbox.
    #[track_caller]
    pub fn python(&self, code: &str) -> TestOutput {
        let python = python().expect("ringfence's tests need python3");
        self.run(["--", python, "-Bc", &format!("{PRELUDE}\n{code}")])
    }

    /// Runs the same program without ringfence.
    #[track_caller]
    pub fn python_bare(&self, code: &str) -> TestOutput {
        let python = python().expect("ringfence's tests need python3");
        TestOutput::run(self.command(python).args(["-Bc", &format!("{PRELUDE}\n{code}")]), b"")
    }

    /// A Python expression to try. `HOME` and `ROOT` in it are the home and the project's
    /// directory.
    pub fn tries(&self, code: &str) -> ProbeResult<'_> {
        let code = code
            .replace("HOME", &self.home().to_string_lossy())
            .replace("ROOT", &self.root().to_string_lossy());
        ProbeResult { project: self, code, flags: Vec::new() }
    }
}

impl ProbeResult<'_> {
    /// Adds flags of `ringfence run`.
    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    fn program(&self) -> String {
        format!("{PRELUDE}\nattempt(lambda: {})", self.code)
    }

    /// Asserts that the result inside the sandbox is one of these.
    #[track_caller]
    pub fn inside(&self, expected: &[&str]) -> &Self {
        let python = python().expect("ringfence's tests need python3");
        let ran = self.project.run(self.flags.iter().map(String::as_str).chain([
            "--",
            python,
            "-Bc",
            &self.program(),
        ]));
        let result = ran.text();
        assert!(
            expected.contains(&result.as_str()),
            "{} inside gave `{result}`, expected {expected:?}\n{}",
            self.code,
            ran.stderr_text()
        );
        self
    }

    /// Asserts that the probe succeeds bare, so that a failure inside proves something.
    #[track_caller]
    pub fn bare_ok(&self) -> &Self {
        let python = python().expect("ringfence's tests need python3");
        let ran = TestOutput::run(self.project.command(python).args(["-Bc", &self.program()]), b"");
        assert!(
            ran.text() == "ok",
            "{} bare gave `{}`: the probe cannot succeed\n{}",
            self.code,
            ran.text(),
            ran.stderr_text()
        );
        self
    }

    /// As [`bare_ok`](Self::bare_ok), only as root.
    #[track_caller]
    pub fn bare_ok_as_root(&self) -> &Self {
        if self.project.user == crate::TestUser::Root {
            self.bare_ok();
        }
        self
    }
}
