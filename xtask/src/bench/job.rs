//! One thing to do, the same for every contender.

use std::path::{Path, PathBuf};

/// A command and where it runs.
pub(super) struct Job {
    /// The directory it may write, and starts in.
    pub(super) project: PathBuf,
    /// What it reads outside of the project and the system.
    pub(super) reads: Vec<PathBuf>,
    pub(super) command: Vec<String>,
    /// What ringfence is told besides.
    pub(super) flags: Vec<String>,
    pub(super) timing: Timing,
}

/// How a sample is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// From start to exit status, on the outside.
    Whole,
    /// The same, of a command that must be refused.
    Refused,
    /// The probe times each turn on the inside and prints it.
    Inside,
    /// A program that knows the contenders by their names times each turn and prints it.
    Itself,
    /// The same, but it is bytes that it prints.
    Memory,
}

impl Timing {
    /// Whether what is run prints the number.
    pub(super) fn is_told(self) -> bool {
        matches!(self, Timing::Inside | Timing::Itself | Timing::Memory)
    }

    /// Whether what is run knows the contenders by their names.
    pub(super) fn knows_all(self) -> bool {
        matches!(self, Timing::Itself | Timing::Memory)
    }
}

impl Job {
    /// `command` as it is, in `project`.
    pub(super) fn whole(project: PathBuf, command: &[&str]) -> Job {
        let command = command.iter().map(ToString::to_string).collect();
        Job { project, reads: Vec::new(), command, flags: Vec::new(), timing: Timing::Whole }
    }

    /// A task of a program that is told who is measured by the last word.
    pub(super) fn itself(project: PathBuf, program: &Path, task: &[&str]) -> Job {
        let command = [program.to_string_lossy().into_owned()]
            .into_iter()
            .chain(task.iter().map(ToString::to_string))
            .collect();
        Job { project, reads: Vec::new(), command, flags: Vec::new(), timing: Timing::Itself }
    }

    /// A task of the probe, in `project`.
    pub(super) fn inside(project: PathBuf, probe: PathBuf, task: &[&str]) -> Job {
        let words = [probe.to_string_lossy().into_owned(), "probe".into()];
        let command = words.into_iter().chain(task.iter().map(ToString::to_string)).collect();
        Job { project, reads: vec![probe], command, flags: Vec::new(), timing: Timing::Inside }
    }
}
