//! One agent call among the commands of a session.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use ringfence_api::{ExitStatus, ShellCommand, shell_quote};
use ringfence_policy::AbsPath;
use ringfence_provider::{ProviderError, SandboxShell};

use crate::{EngineError, RunRequest};

/// The time limit for a change of the shell's directory.
const CD_TIMEOUT: Duration = Duration::from_secs(10);

/// Properties of one command that differ from its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionCall {
    /// The name in the audit log, if it differs from the session's.
    pub name: Option<String>,
    /// The directory, if it differs from the shell's.
    pub cwd: Option<AbsPath>,
}

impl SessionCall {
    /// The request for this call in a session that began with `request`.
    pub(super) fn apply_to(&self, request: &RunRequest, command: Vec<OsString>) -> RunRequest {
        let mut request = RunRequest { command, ..request.clone() };
        if let Some(name) = &self.name {
            request.session = name.clone();
        }
        if let Some(cwd) = &self.cwd {
            request.cwd = cwd.clone();
        }
        request
    }

    /// Changes the shell's directory to that of the call.
    pub(super) fn change_directory(&self, shell: &mut dyn SandboxShell) -> Result<(), EngineError> {
        let Some(cwd) = self.cwd.as_ref().filter(|cwd| shell.cwd().as_ref() != Some(cwd)) else {
            return Ok(());
        };
        let fail =
            |source| ProviderError::System { what: "enter the directory of the call", source };
        let path =
            cwd.as_path().to_str().ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let line = ShellCommand {
            deadline: Some(CD_TIMEOUT),
            ..ShellCommand::new(format!("\\builtin cd -- {}", shell_quote(path)))
        };
        let ran = shell.execute(&line, &mut |_, _| {})?;
        if ran.status == ExitStatus::Exited(0) && shell.cwd().as_ref() == Some(cwd) {
            return Ok(());
        }
        Err(fail(io::Error::new(io::ErrorKind::NotFound, cwd.to_string())).into())
    }
}
