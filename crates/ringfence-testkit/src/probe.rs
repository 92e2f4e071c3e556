//! Probes: a line of Python that tries one thing, inside and bare.

use crate::output::TestOutput;
use crate::program::python;
use crate::project::TestProject;

/// What every probe can use: `call` for system calls by name, `outcome` for what came of it.
pub const PRELUDE: &str = include_str!("prelude.py");

/// What one attempt came to: `ok`, the name of an error, or whatever the probe said.
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
    /// A Python program inside.
    #[track_caller]
    pub fn python(&self, code: &str) -> TestOutput {
        let python = python().expect("the tests of ringfence need python3");
        self.run(["--", python, "-Bc", &format!("{PRELUDE}\n{code}")])
    }

    /// The same program bare.
    #[track_caller]
    pub fn python_bare(&self, code: &str) -> TestOutput {
        let python = python().expect("the tests of ringfence need python3");
        TestOutput::of(self.command(python).args(["-Bc", &format!("{PRELUDE}\n{code}")]), b"")
    }

    /// A Python expression to be tried. `HOME` and `ROOT` in it are the home and the
    /// project's directory.
    pub fn tries(&self, code: &str) -> ProbeResult<'_> {
        let code = code
            .replace("HOME", &self.home().to_string_lossy())
            .replace("ROOT", &self.root().to_string_lossy());
        ProbeResult { project: self, code, flags: Vec::new() }
    }
}

impl ProbeResult<'_> {
    /// With flags of `ringfence run`.
    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    fn program(&self) -> String {
        format!("{PRELUDE}\nattempt(lambda: {})", self.code)
    }

    /// Fails unless the attempt inside comes to one of these.
    #[track_caller]
    pub fn inside(&self, expected: &[&str]) -> &Self {
        let python = python().expect("the tests of ringfence need python3");
        let ran = self.project.run(self.flags.iter().map(String::as_str).chain([
            "--",
            python,
            "-Bc",
            &self.program(),
        ]));
        let came = ran.text();
        assert!(
            expected.contains(&came.as_str()),
            "{} inside came to `{came}`, expected {expected:?}\n{}",
            self.code,
            ran.talk()
        );
        self
    }

    /// Fails unless the attempt bare succeeds: so the probe can.
    #[track_caller]
    pub fn bare_ok(&self) -> &Self {
        let python = python().expect("the tests of ringfence need python3");
        let ran = TestOutput::of(self.project.command(python).args(["-Bc", &self.program()]), b"");
        assert!(
            ran.text() == "ok",
            "{} bare came to `{}`: the probe cannot succeed\n{}",
            self.code,
            ran.text(),
            ran.talk()
        );
        self
    }

    /// As [`bare_ok`](Self::bare_ok), but only the superuser can.
    #[track_caller]
    pub fn bare_ok_as_root(&self) -> &Self {
        if self.project.user == crate::TestUser::Root {
            self.bare_ok();
        }
        self
    }
}
