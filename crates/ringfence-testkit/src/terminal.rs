//! Commands on a pseudo-terminal.

use crate::output::TestOutput;
use crate::program::python;
use crate::project::TestProject;

/// Starts a program on a new terminal and plays the user's part.
const DRIVER: &str = include_str!("terminal.py");

impl TestProject {
    /// Runs `words` on a terminal of 80 by 24 while `script`, in Python, plays the user:
    /// `expect(text)`, `type(text)`, `wait()`, `resize(rows, columns)`, `pid`.
    #[track_caller]
    pub fn on_terminal(&self, words: &[&str], script: &str) -> TestOutput {
        let python = python().expect("ringfence's tests need python3");
        let mut command = self.command(python);
        command.env("TERM", "xterm").args(["-Bc", &format!("{DRIVER}\n{script}")]).args(words);
        TestOutput::run(&mut command, b"")
    }

    /// `ringfence run` with `words` on a terminal.
    #[track_caller]
    pub fn run_on_terminal(&self, words: &[&str], script: &str) -> TestOutput {
        let binary = self.binary().to_string_lossy().into_owned();
        self.on_terminal(&[&[binary.as_str(), "run"], words].concat(), script)
    }
}
