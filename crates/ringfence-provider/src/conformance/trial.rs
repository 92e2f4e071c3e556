//! One provider in one place, and the few words that checks are written in.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::time::Duration;

use ringfence_api::{CommandRequest, Outcome, StdioMode};
use ringfence_policy::{AbsPath, Flags, Grants, resolve};

use super::place::Fixture;
use super::{CheckFailure, CheckResult};
use crate::{PreparedSandbox, Provider, ProviderError};

/// One provider in one place.
pub(super) struct CheckRun<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) place: &'a Fixture,
}

/// How much of a stream is kept where a check does not say.
const KEPT: usize = 16 * 1024 * 1024;

/// A place that does not answer is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(30);

impl CheckRun<'_> {
    /// What the built-in policy and these flags come to here.
    pub(super) fn grants(&self, change: impl FnOnce(&mut Flags)) -> Result<Grants, CheckFailure> {
        let mut flags = Flags::none(self.place.workspace.clone());
        change(&mut flags);
        resolve(&[], &flags, &self.place.facts()).map_err(|source| CheckFailure::Policy { source })
    }

    /// A session with the policy that holds where nobody has said anything.
    pub(super) fn open(&self) -> Result<CheckSession<'_>, CheckFailure> {
        self.open_for(&self.grants(|_| {})?)
    }

    pub(super) fn open_with(
        &self,
        change: impl FnOnce(&mut Flags),
    ) -> Result<CheckSession<'_>, CheckFailure> {
        self.open_for(&self.grants(change)?)
    }

    pub(super) fn open_for(&self, grants: &Grants) -> Result<CheckSession<'_>, CheckFailure> {
        let opened = self.provider.open(grants, &self.place.person());
        let session =
            opened.map_err(|source| CheckFailure::NotRun { command: "open".into(), source })?;
        Ok(CheckSession { session, place: self.place })
    }

    /// A path of the workspace.
    pub(super) fn at(&self, name: &str) -> AbsPath {
        self.place.workspace.join(name)
    }
}

/// A session in a place.
pub(super) struct CheckSession<'a> {
    pub(super) session: Box<dyn PreparedSandbox>,
    place: &'a Fixture,
}

impl CheckSession<'_> {
    /// A command in the workspace, with a plain environment.
    pub(super) fn request<S: Into<OsString>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> CommandRequest {
        let variables = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.place.home.as_path().as_os_str().to_owned()),
            // Messages are looked at.
            ("LC_ALL", "C".into()),
        ];
        CommandRequest {
            command: words.into_iter().map(Into::into).collect(),
            cwd: self.place.workspace.clone(),
            variables: variables.map(|(name, value)| (name.into(), value)).into(),
            stdio: StdioMode::Capture { limit: KEPT },
            deadline: Some(PATIENCE),
        }
    }

    /// A line of shell in the workspace.
    pub(super) fn line(&self, line: &str) -> CommandRequest {
        self.request(["/bin/sh", "-c", line])
    }

    pub(super) fn run(&mut self, request: &CommandRequest) -> Result<CheckOutput, CheckFailure> {
        let command = spoken(request);
        match self.session.run(request) {
            Ok(outcome) => Ok(CheckOutput { command, outcome }),
            Err(source) => Err(CheckFailure::NotRun { command, source }),
        }
    }

    pub(super) fn sh(&mut self, line: &str) -> Result<CheckOutput, CheckFailure> {
        self.run(&self.line(line))
    }

    /// The error that the place must answer with.
    pub(super) fn refused(
        &mut self,
        request: &CommandRequest,
    ) -> Result<ProviderError, CheckFailure> {
        match self.session.run(request) {
            Err(error) => Ok(error),
            Ok(outcome) => {
                Err(differs(spoken(request), "an error", format!("status {}", outcome.exit_code())))
            }
        }
    }
}

fn spoken(request: &CommandRequest) -> String {
    request.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What a command came to.
pub(super) struct CheckOutput {
    command: String,
    pub(super) outcome: Outcome,
}

impl CheckOutput {
    /// Standard output, without the last line's end.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stdout.bytes()).trim_end_matches('\n').to_owned()
    }

    /// Standard error, in the same way.
    pub(super) fn talk(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stderr.bytes()).trim_end_matches('\n').to_owned()
    }

    pub(super) fn says(&self, wanted: &str) -> Result<&Self, CheckFailure> {
        same(format!("the output of `{}`", self.command), self.text().as_str(), wanted)
            .map(|()| self)
    }

    pub(super) fn ends(&self, wanted: i32) -> Result<&Self, CheckFailure> {
        same(format!("the status of `{}`", self.command), self.outcome.exit_code(), wanted)
            .map(|()| self)
    }
}

/// Fails unless `found` is what was `wanted`.
pub(super) fn same<T: PartialEq + Debug>(
    what: impl Into<String>,
    found: T,
    wanted: T,
) -> CheckResult {
    if found == wanted {
        Ok(())
    } else {
        Err(differs(what, &format!("{wanted:?}"), format!("{found:?}")))
    }
}

pub(super) fn differs(
    what: impl Into<String>,
    wanted: &str,
    found: impl Into<String>,
) -> CheckFailure {
    CheckFailure::Differs { what: what.into(), wanted: wanted.into(), found: found.into() }
}

/// Fails unless the host's file says `wanted`.
pub(super) fn host_has(path: &AbsPath, wanted: &str) -> CheckResult {
    let found = fs::read(path.as_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    same(
        format!("{path} on the host"),
        found.unwrap_or_else(|error| error.to_string()).as_str(),
        wanted,
    )
}

/// Fails if the host has anything at `path`.
pub(super) fn host_lacks(path: &AbsPath) -> CheckResult {
    match fs::symlink_metadata(path.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(differs(format!("{path} on the host"), "nothing", error.to_string())),
        Ok(_) => Err(differs(format!("{path} on the host"), "nothing", "something")),
    }
}

/// Names what was attempted on the host.
pub(super) trait CheckStep<T> {
    fn during(self, what: impl Into<String>) -> Result<T, CheckFailure>;
}

impl<T> CheckStep<T> for io::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T, CheckFailure> {
        self.map_err(|source| CheckFailure::Host { what: what.into(), source })
    }
}

/// A path as one word of a shell.
pub(super) fn quoted(path: &AbsPath) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// A name in `/tmp`, taken away again where that turns out to be the host's.
pub(super) struct TmpName(pub(super) AbsPath);

impl TmpName {
    pub(super) fn new(what: &str) -> Self {
        Self(AbsPath::root().join(format!("tmp/conformance-{what}-{}", std::process::id())))
    }
}

impl Drop for TmpName {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.as_path()).or_else(|_| fs::remove_dir_all(self.0.as_path()));
    }
}
