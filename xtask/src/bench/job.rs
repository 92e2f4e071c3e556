//! One job, the same for every contender.

use std::path::{Path, PathBuf};

/// A command and its directory.
pub(super) struct Job {
    /// Its writable directory, in which it starts.
    pub(super) project: PathBuf,
    /// Paths that it reads outside the project and the system.
    pub(super) reads: Vec<PathBuf>,
    pub(super) command: Vec<String>,
    /// Extra flags of ringfence.
    pub(super) flags: Vec<String>,
    pub(super) timing: Timing,
}

/// The way a sample is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// From start to exit status, measured outside.
    Whole,
    /// The same, for a command that must be denied.
    Refused,
    /// The probe measures each turn inside and prints it.
    Inside,
    /// A program that gets the contender's name measures each turn and prints it.
    Itself,
    /// The same, with bytes instead of time.
    Memory,
}

impl Timing {
    /// True if the command prints the number.
    pub(super) fn is_printed(self) -> bool {
        matches!(self, Timing::Inside | Timing::Itself | Timing::Memory)
    }

    /// True if the command gets the contender's name.
    pub(super) fn knows_all(self) -> bool {
        matches!(self, Timing::Itself | Timing::Memory)
    }
}

impl Job {
    /// `command` in `project`, measured outside.
    pub(super) fn whole(project: PathBuf, command: &[&str]) -> Job {
        let command = command.iter().map(ToString::to_string).collect();
        Job { project, reads: Vec::new(), command, flags: Vec::new(), timing: Timing::Whole }
    }

    /// A task of a program that gets the contender's name as its last argument.
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
