//! One provider in one place, and the few words that checks are written in.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::time::Duration;

use ringfence_api::{Outcome, Request, Stdio};
use ringfence_policy::{AbsPath, Flags, Grants, resolve};

use super::place::Place;
use super::{Failure, Verdict};
use crate::{Provider, ProviderError, Session};

/// One provider in one place.
pub(super) struct Trial<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) place: &'a Place,
}

/// How much of a stream is kept where a check does not say.
const KEPT: usize = 16 * 1024 * 1024;

/// A place that does not answer is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(30);

impl Trial<'_> {
    /// What the built-in policy and these flags come to here.
    pub(super) fn grants(&self, change: impl FnOnce(&mut Flags)) -> Result<Grants, Failure> {
        let mut flags = Flags::none(self.place.workspace.clone());
        change(&mut flags);
        resolve(&[], &flags, &self.place.facts()).map_err(|source| Failure::Policy { source })
    }

    /// A session with the policy that holds where nobody has said anything.
    pub(super) fn open(&self) -> Result<Opened<'_>, Failure> {
        self.open_for(&self.grants(|_| {})?)
    }

    pub(super) fn open_with(&self, change: impl FnOnce(&mut Flags)) -> Result<Opened<'_>, Failure> {
        self.open_for(&self.grants(change)?)
    }

    pub(super) fn open_for(&self, grants: &Grants) -> Result<Opened<'_>, Failure> {
        let opened = self.provider.open(grants, &self.place.person());
        let session =
            opened.map_err(|source| Failure::NotRun { command: "open".into(), source })?;
        Ok(Opened { session, place: self.place })
    }

    /// A path of the workspace.
    pub(super) fn at(&self, name: &str) -> AbsPath {
        self.place.workspace.join(name)
    }
}

/// A session in a place.
pub(super) struct Opened<'a> {
    pub(super) session: Box<dyn Session>,
    place: &'a Place,
}

impl Opened<'_> {
    /// A command in the workspace, with a plain environment.
    pub(super) fn request<S: Into<OsString>>(&self, words: impl IntoIterator<Item = S>) -> Request {
        let variables = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.place.home.as_path().as_os_str().to_owned()),
            // Messages are looked at.
            ("LC_ALL", "C".into()),
        ];
        Request {
            command: words.into_iter().map(Into::into).collect(),
            cwd: self.place.workspace.clone(),
            variables: variables.map(|(name, value)| (name.into(), value)).into(),
            stdio: Stdio::Capture { limit: KEPT },
            deadline: Some(PATIENCE),
        }
    }

    /// A line of shell in the workspace.
    pub(super) fn line(&self, line: &str) -> Request {
        self.request(["/bin/sh", "-c", line])
    }

    pub(super) fn run(&mut self, request: &Request) -> Result<Ran, Failure> {
        let command = spoken(request);
        match self.session.run(request) {
            Ok(outcome) => Ok(Ran { command, outcome }),
            Err(source) => Err(Failure::NotRun { command, source }),
        }
    }

    pub(super) fn sh(&mut self, line: &str) -> Result<Ran, Failure> {
        self.run(&self.line(line))
    }

    /// The error that the place must answer with.
    pub(super) fn refused(&mut self, request: &Request) -> Result<ProviderError, Failure> {
        match self.session.run(request) {
            Err(error) => Ok(error),
            Ok(outcome) => {
                Err(differs(spoken(request), "an error", format!("status {}", outcome.exit_code())))
            }
        }
    }
}

fn spoken(request: &Request) -> String {
    request.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What a command came to.
pub(super) struct Ran {
    command: String,
    pub(super) outcome: Outcome,
}

impl Ran {
    /// Standard output, without the last line's end.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stdout.bytes()).trim_end_matches('\n').to_owned()
    }

    /// Standard error, in the same way.
    pub(super) fn talk(&self) -> String {
        String::from_utf8_lossy(&self.outcome.stderr.bytes()).trim_end_matches('\n').to_owned()
    }

    pub(super) fn says(&self, wanted: &str) -> Result<&Self, Failure> {
        same(format!("the output of `{}`", self.command), self.text().as_str(), wanted)
            .map(|()| self)
    }

    pub(super) fn ends(&self, wanted: i32) -> Result<&Self, Failure> {
        same(format!("the status of `{}`", self.command), self.outcome.exit_code(), wanted)
            .map(|()| self)
    }
}

/// Fails unless `found` is what was `wanted`.
pub(super) fn same<T: PartialEq + Debug>(what: impl Into<String>, found: T, wanted: T) -> Verdict {
    if found == wanted {
        Ok(())
    } else {
        Err(differs(what, &format!("{wanted:?}"), format!("{found:?}")))
    }
}

pub(super) fn differs(what: impl Into<String>, wanted: &str, found: impl Into<String>) -> Failure {
    Failure::Differs { what: what.into(), wanted: wanted.into(), found: found.into() }
}

/// Fails unless the host's file says `wanted`.
pub(super) fn host_has(path: &AbsPath, wanted: &str) -> Verdict {
    let found = fs::read(path.as_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    same(
        format!("{path} on the host"),
        found.unwrap_or_else(|error| error.to_string()).as_str(),
        wanted,
    )
}

/// Fails if the host has anything at `path`.
pub(super) fn host_lacks(path: &AbsPath) -> Verdict {
    match fs::symlink_metadata(path.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(differs(format!("{path} on the host"), "nothing", error.to_string())),
        Ok(_) => Err(differs(format!("{path} on the host"), "nothing", "something")),
    }
}

/// Names what was attempted on the host.
pub(super) trait During<T> {
    fn during(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|source| Failure::Host { what: what.into(), source })
    }
}

/// A path as one word of a shell.
pub(super) fn quoted(path: &AbsPath) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// A name in `/tmp`, taken away again where that turns out to be the host's.
pub(super) struct Temporary(pub(super) AbsPath);

impl Temporary {
    pub(super) fn new(what: &str) -> Self {
        Self(AbsPath::root().join(format!("tmp/conformance-{what}-{}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.as_path()).or_else(|_| fs::remove_dir_all(self.0.as_path()));
    }
}
