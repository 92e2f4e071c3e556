//! Where a line ended, for the shell that goes on from there.
//!
//! The line says it, and the line is not to be trusted. So what it says goes into no command line:
//! it becomes where a link leads whose path was known before, and only if it is a directory of
//! the project.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use ringfence_policy::{AbsPath, Access, Grants, Verdict};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::commands::hook::link;
use crate::error::CliError;
use crate::messages;

/// A link that leads to where a line ended.
pub(super) struct CwdLink {
    link: PathBuf,
    said: OwnedFd,
}

impl CwdLink {
    /// Makes the link lead to where the line begins, and has the line say more on standard input.
    pub(super) fn begin(
        state: &AbsPath,
        session: &str,
        cwd: &AbsPath,
    ) -> Result<CwdLink, CliError> {
        let link = link(state, session);
        let fail =
            |source| CliError::File { what: "make", path: link.display().to_string(), source };
        begin_at(&link, cwd).map_err(fail)?;
        // Whoever does not read it is not waited for, and nobody else has it: it goes with us.
        let (said, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| fail(error.into()))?;
        rustix::stdio::dup2_stdin(&theirs).map_err(|error| fail(error.into()))?;
        Ok(CwdLink { link, said })
    }

    /// Makes the link lead to where the line ended, if that is in the project.
    pub(super) fn end(self, grants: &Grants) {
        let mut said = Vec::new();
        let _ = fs::File::from(self.said).take(4096).read_to_end(&mut said);
        let text = String::from_utf8(said).ok();
        let Some(path) = text
            .as_deref()
            .and_then(|text| text.strip_suffix('\n'))
            .and_then(|path| place(path, grants))
        else {
            return;
        };
        if let Err(error) = lead(&self.link, &path) {
            messages::warning(&format!("the directory is not kept: {error}"));
        }
    }
}

/// Makes the link, leading to where the line begins.
pub(crate) fn begin_at(link: &Path, cwd: &AbsPath) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(link.parent().unwrap_or(Path::new("/")))?;
    lead(link, cwd)
}

/// Makes the link lead to where the line ended, if that is in the project.
pub(crate) fn end_at(link: &Path, cwd: &AbsPath, grants: &Grants) -> io::Result<()> {
    match cwd.as_path().to_str().and_then(|path| place(path, grants)) {
        Some(path) => lead(link, &path),
        None => Ok(()),
    }
}

/// A directory of the project that can be gone to, by its one name.
fn place(path: &str, grants: &Grants) -> Option<AbsPath> {
    let is_odd = path.chars().any(ringfence_api::is_hidden);
    let asked = AbsPath::new(path).filter(|_| !is_odd && path.starts_with('/'))?;
    let real = AbsPath::new(fs::canonicalize(asked.as_path()).ok()?)?;
    let is_theirs = real == asked && real.is_within(&grants.workspace) && real.as_path().is_dir();
    (is_theirs && grants.verdict(&real, Access::Read) == Verdict::Allowed).then_some(real)
}

/// Puts a link in place of the one that was there.
fn lead(link: &Path, to: &AbsPath) -> io::Result<()> {
    let mut name = link.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = link.with_file_name(name);
    let _ = fs::remove_file(&new);
    symlink(to.as_path(), &new)?;
    fs::rename(&new, link)
}
