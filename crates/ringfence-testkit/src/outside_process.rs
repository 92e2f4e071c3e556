//! Processes of the host that a command must not reach.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::program::python;
use crate::project::TestProject;

/// A process of the same user outside; ended when dropped.
#[derive(Debug)]
pub struct OutsideProcess {
    child: Child,
    /// The first line it said.
    pub said: String,
}

impl TestProject {
    /// Starts a Python program outside and waits for its first line.
    #[track_caller]
    pub fn bystander(&self, code: &str) -> OutsideProcess {
        let python = python().expect("the tests of ringfence need python3");
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
            .expect("it says something");
        assert!(!said.is_empty(), "the bystander ended at once");
        OutsideProcess { child, said: said.trim().to_owned() }
    }
}

impl OutsideProcess {
    /// Its process id on the host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
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
