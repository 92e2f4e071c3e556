//! A link to the directory a line ended in, for the shell that continues there.
//!
//! The line reports the directory, and the line is untrusted. So the reported path never becomes
//! part of a command line: it becomes the target of a symbolic link with a fixed path, and only
//! if it is a directory of the project.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use ringfence_policy::{AbsPath, Access, Grants, Verdict};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::commands::hook::cwd_link_path;
use crate::error::CliError;
use crate::messages;

/// A symbolic link to the directory a line ended in.
pub(super) struct CwdLink {
    link: PathBuf,
    report: OwnedFd,
}

impl CwdLink {
    /// Points the link at the start directory. The line reports its directory on standard input.
    pub(super) fn begin(
        state: &AbsPath,
        session: &str,
        cwd: &AbsPath,
    ) -> Result<CwdLink, CliError> {
        let link = cwd_link_path(state, session);
        let fail =
            |source| CliError::File { what: "make", path: link.display().to_string(), source };
        create_link(&link, cwd).map_err(fail)?;
        // Non-blocking: the pipe buffer is enough, and no other process holds the read end.
        let (report, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| fail(error.into()))?;
        rustix::stdio::dup2_stdin(&writer).map_err(|error| fail(error.into()))?;
        Ok(CwdLink { link, report })
    }

    /// Points the link at the reported directory, if that is in the project.
    pub(super) fn end(self, grants: &Grants) {
        let mut report = Vec::new();
        let _ = fs::File::from(self.report).take(4096).read_to_end(&mut report);
        let text = String::from_utf8(report).ok();
        let Some(path) = text
            .as_deref()
            .and_then(|text| text.strip_suffix('\n'))
            .and_then(|path| project_directory(path, grants))
        else {
            return;
        };
        if let Err(error) = replace_link(&self.link, &path) {
            messages::print_warning(&format!("cannot keep the working directory: {error}"));
        }
    }
}

/// Creates the link, pointing at the start directory.
pub(crate) fn create_link(link: &Path, cwd: &AbsPath) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(link.parent().unwrap_or(Path::new("/")))?;
    replace_link(link, cwd)
}

/// Points the link at `cwd`, if that is in the project.
pub(crate) fn update_link(link: &Path, cwd: &AbsPath, grants: &Grants) -> io::Result<()> {
    match cwd.as_path().to_str().and_then(|path| project_directory(path, grants)) {
        Some(path) => replace_link(link, &path),
        None => Ok(()),
    }
}

/// Returns `path` if it is a canonical, readable directory of the project.
fn project_directory(path: &str, grants: &Grants) -> Option<AbsPath> {
    let is_odd = path.chars().any(ringfence_api::is_hidden);
    let given = AbsPath::new(path).filter(|_| !is_odd && path.starts_with('/'))?;
    let real = AbsPath::new(fs::canonicalize(given.as_path()).ok()?)?;
    let is_in_project =
        real == given && real.is_within(&grants.workspace) && real.as_path().is_dir();
    (is_in_project && grants.verdict(&real, Access::Read) == Verdict::Allowed).then_some(real)
}

/// Replaces the link atomically.
fn replace_link(link: &Path, to: &AbsPath) -> io::Result<()> {
    let mut name = link.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = link.with_file_name(name);
    let _ = fs::remove_file(&new);
    symlink(to.as_path(), &new)?;
    fs::rename(&new, link)
}
