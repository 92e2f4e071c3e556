//! One call of an agent among the commands of a session.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use ringfence_api::{ExitStatus, ShellCommand, quoted};
use ringfence_policy::AbsPath;
use ringfence_provider::{ProviderError, SandboxShell};

use crate::{EngineError, RunRequest};

/// How long a shell may take to change its directory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Facts of one command that differ from those of its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The name in the audit log, if it is not the session's.
    pub name: Option<String>,
    /// The directory, if it is not where the shell stands.
    pub cwd: Option<AbsPath>,
}

impl Call {
    /// The request for this call in a session that began with `asked`.
    pub(super) fn of(&self, asked: &RunRequest, command: Vec<OsString>) -> RunRequest {
        let mut asked = RunRequest { command, ..asked.clone() };
        if let Some(name) = &self.name {
            asked.session = name.clone();
        }
        if let Some(cwd) = &self.cwd {
            asked.cwd = cwd.clone();
        }
        asked
    }

    /// Lets the shell stand where the call begins.
    pub(super) fn enter(&self, shell: &mut dyn SandboxShell) -> Result<(), EngineError> {
        let Some(cwd) = self.cwd.as_ref().filter(|cwd| shell.cwd().as_ref() != Some(cwd)) else {
            return Ok(());
        };
        let fail =
            |source| ProviderError::System { what: "enter the directory of the call", source };
        let path =
            cwd.as_path().to_str().ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let line = ShellCommand {
            deadline: Some(PATIENCE),
            ..ShellCommand::new(format!("\\builtin cd -- {}", quoted(path)))
        };
        let ran = shell.execute(&line, &mut |_, _| {})?;
        if ran.status == ExitStatus::Exited(0) && shell.cwd().as_ref() == Some(cwd) {
            return Ok(());
        }
        Err(fail(io::Error::new(io::ErrorKind::NotFound, cwd.to_string())).into())
    }
}
