//! One provider in one fixture, and the helpers of the checks.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::time::Duration;

use ringfence_api::{CommandRequest, Outcome, PathMap, StdioMode};
use ringfence_policy::{AbsPath, Flags, Grants, resolve};
use ringfence_provider::{PreparedSandbox, Provider, ProviderError};

use super::fixture::ConformanceFixture;
use super::{CheckFailure, CheckResult};

/// One provider in one fixture.
pub(super) struct CheckRun<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) fixture: &'a ConformanceFixture,
}

/// Bytes kept of a stream by default.
const KEPT: usize = 16 * 1024 * 1024;

/// The time limit of a command.
const TIMEOUT: Duration = Duration::from_secs(30);

impl CheckRun<'_> {
    /// The grants from the built-in policy and these flags.
    pub(super) fn grants(&self, change: impl FnOnce(&mut Flags)) -> Result<Grants, CheckFailure> {
        let mut flags = Flags::none(self.fixture.workspace.clone());
        change(&mut flags);
        resolve(&[], &flags, &self.fixture.facts())
            .map_err(|source| CheckFailure::Policy { source })
    }

    /// A sandbox with the default policy.
    pub(super) fn open(&self) -> Result<PreparedCheck<'_>, CheckFailure> {
        self.open_with_grants(&self.grants(|_| {})?)
    }

    pub(super) fn open_with(
        &self,
        change: impl FnOnce(&mut Flags),
    ) -> Result<PreparedCheck<'_>, CheckFailure> {
        self.open_with_grants(&self.grants(change)?)
    }

    pub(super) fn open_with_grants(
        &self,
        grants: &Grants,
    ) -> Result<PreparedCheck<'_>, CheckFailure> {
        let opened = self.provider.prepare(grants, &self.fixture.user());
        let sandbox =
            opened.map_err(|source| CheckFailure::NotRun { command: "open".into(), source })?;
        Ok(PreparedCheck { paths: sandbox.paths(), sandbox, fixture: self.fixture })
    }

    /// A path in the workspace.
    pub(super) fn path(&self, name: &str) -> AbsPath {
        self.fixture.workspace.join(name)
    }
}

/// A prepared sandbox in a fixture.
pub(super) struct PreparedCheck<'a> {
    pub(super) sandbox: Box<dyn PreparedSandbox>,
    paths: PathMap,
    fixture: &'a ConformanceFixture,
}

impl PreparedCheck<'_> {
    /// A path of the host as a command sees it. A path that the sandbox does not have stays the
    /// same: a command tries it in vain.
    pub(super) fn inside(&self, path: &AbsPath) -> AbsPath {
        self.paths.to_guest(path).unwrap_or_else(|| path.clone())
    }

    /// As [`PreparedCheck::inside`], quoted for a shell.
    pub(super) fn quoted(&self, path: &AbsPath) -> String {
        format!("'{}'", self.inside(path).to_string_lossy().replace('\'', r"'\''"))
    }

    /// A command in the workspace, with a plain environment.
    pub(super) fn request<S: Into<OsString>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> CommandRequest {
        let variables = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.inside(&self.fixture.home).as_path().as_os_str().to_owned()),
            // Checks compare messages.
            ("LC_ALL", "C".into()),
        ];
        CommandRequest {
            command: words.into_iter().map(Into::into).collect(),
            cwd: self.fixture.workspace.clone(),
            variables: variables.map(|(name, value)| (name.into(), value)).into(),
            stdio: StdioMode::Capture { limit: KEPT },
            deadline: Some(TIMEOUT),
        }
    }

    /// A shell line in the workspace.
    pub(super) fn line(&self, line: &str) -> CommandRequest {
        self.request(["/bin/sh", "-c", line])
    }

    pub(super) fn run(&mut self, request: &CommandRequest) -> Result<CheckOutput, CheckFailure> {
        let command = command_text(request);
        match self.sandbox.run(request) {
            Ok(outcome) => Ok(CheckOutput { command, outcome }),
            Err(source) => Err(CheckFailure::NotRun { command, source }),
        }
    }

    pub(super) fn sh(&mut self, line: &str) -> Result<CheckOutput, CheckFailure> {
        self.run(&self.line(line))
    }

    /// The error that the provider must return.
    pub(super) fn expect_error(
        &mut self,
        request: &CommandRequest,
    ) -> Result<ProviderError, CheckFailure> {
        match self.sandbox.run(request) {
            Err(error) => Ok(error),
            Ok(outcome) => Err(difference(
                command_text(request),
                "an error",
                format!("status {}", outcome.exit_code()),
            )),
        }
    }
}

fn command_text(request: &CommandRequest) -> String {
    request.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The outcome of a command.
pub(super) struct CheckOutput {
    command: String,
    pub(super) outcome: Outcome,
}

impl CheckOutput {
    /// Standard output, without the final newline.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stdout.bytes()).trim_end_matches('\n').to_owned()
    }

    /// Standard error, without the final newline.
    pub(super) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stderr.bytes()).trim_end_matches('\n').to_owned()
    }

    pub(super) fn expect_output(&self, wanted: &str) -> Result<&Self, CheckFailure> {
        expect_equal(format!("the output of `{}`", self.command), self.text().as_str(), wanted)
            .map(|()| self)
    }

    pub(super) fn expect_status(&self, wanted: i32) -> Result<&Self, CheckFailure> {
        expect_equal(format!("the status of `{}`", self.command), self.outcome.exit_code(), wanted)
            .map(|()| self)
    }
}

/// Fails unless `found` equals `wanted`.
pub(super) fn expect_equal<T: PartialEq + Debug>(
    what: impl Into<String>,
    found: T,
    wanted: T,
) -> CheckResult {
    if found == wanted {
        Ok(())
    } else {
        Err(difference(what, &format!("{wanted:?}"), format!("{found:?}")))
    }
}

pub(super) fn difference(
    what: impl Into<String>,
    wanted: &str,
    found: impl Into<String>,
) -> CheckFailure {
    CheckFailure::Differs { what: what.into(), wanted: wanted.into(), found: found.into() }
}

/// Fails unless the host's file contains `wanted`.
pub(super) fn expect_host_file(path: &AbsPath, wanted: &str) -> CheckResult {
    let found = fs::read(path.as_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    expect_equal(
        format!("{path} on the host"),
        found.unwrap_or_else(|error| error.to_string()).as_str(),
        wanted,
    )
}

/// Fails if the host has anything at `path`.
pub(super) fn expect_no_host_file(path: &AbsPath) -> CheckResult {
    match fs::symlink_metadata(path.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(difference(format!("{path} on the host"), "nothing", error.to_string())),
        Ok(_) => Err(difference(format!("{path} on the host"), "nothing", "something")),
    }
}

/// Adds the attempted host operation to an error.
pub(super) trait CheckStep<T> {
    fn during(self, what: impl Into<String>) -> Result<T, CheckFailure>;
}

impl<T> CheckStep<T> for io::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T, CheckFailure> {
        self.map_err(|source| CheckFailure::Host { what: what.into(), source })
    }
}

/// A name in `/tmp`, removed in case it was created on the host.
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
