//! Processes of the host that a command must not reach.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::program::python;
use crate::project::TestProject;

/// A process of the same user outside the sandbox; killed when dropped.
#[derive(Debug)]
pub struct OutsideProcess {
    child: Child,
    /// The first line of its output.
    pub said: String,
}

impl TestProject {
    /// Starts a Python program outside the sandbox and waits for its first line.
    #[track_caller]
    pub fn outside_process(&self, code: &str) -> OutsideProcess {
        let python = python().expect("ringfence's tests need python3");
        let code = format!(
            "{}\n{code}\nprint(said if 'said' in globals() else 'ready', flush=True)\ntime.sleep(120)",
            crate::probe::PRELUDE
        );
        let mut child = self
            .command(python)
            .args(["-Bc", &code])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped just above"))
            .read_line(&mut said)
            .expect("it prints a line");
        assert!(!said.is_empty(), "the outside process ended at once");
        OutsideProcess { child, said: said.trim().to_owned() }
    }
}

impl OutsideProcess {
    /// Its pid on the host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True if it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OutsideProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
