//! The file for a learned policy, and the redirection of the command's output.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringfence_engine::learn::FIRST_LINE;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::commands::resolve_args::canonical_directory;
use crate::error::CliError;

/// The file to write after the command has ended.
///
/// Its directory is opened before the command starts, and no link is followed afterwards: the
/// command can write in the project, and must not redirect what ringfence writes.
pub(super) struct PolicyOutput {
    directory: OwnedFd,
    name: PathBuf,
    path: PathBuf,
}

impl PolicyOutput {
    pub(super) fn prepare(path: &Path) -> Result<Self, CliError> {
        let fail = |what: &'static str| {
            move |error: Errno| CliError::File {
                what,
                path: path.display().to_string(),
                source: error.into(),
            }
        };
        let name = path.file_name().ok_or(Errno::ISDIR).map_err(fail("write"))?;
        let above =
            path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = rustix::fs::open(
            canonical_directory(Some(above))?.as_path(),
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let output = Self {
            directory: opened.map_err(fail("write"))?,
            name: name.into(),
            path: path.to_owned(),
        };
        output.may_be_replaced()?;
        Ok(output)
    }

    /// Fails if the file exists and `learn` did not write it.
    fn may_be_replaced(&self) -> Result<(), CliError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let is_ours = match rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => true,
            Err(_) => false,
            Ok(file) => {
                let mut start = vec![0; FIRST_LINE.len()];
                File::from(file).read_exact(&mut start).is_ok() && start == FIRST_LINE.as_bytes()
            }
        };
        if is_ours {
            return Ok(());
        }
        Err(CliError::Usage {
            what: format!(
                "cannot write {}: it exists, and `learn` did not write it",
                self.path.display()
            ),
            hint: "use another file name, and merge the two files by hand".into(),
        })
    }

    pub(super) fn write(&self, text: &str) -> Result<(), CliError> {
        self.may_be_replaced()?;
        let fail = |source: std::io::Error| CliError::File {
            what: "write",
            path: self.path.display().to_string(),
            source,
        };
        match rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(fail(error.into())),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.directory, &self.name, flags, Mode::from_raw_mode(0o644))
                .map_err(|error| fail(error.into()))?;
        File::from(file).write_all(text.as_bytes()).map_err(fail)
    }
}

/// The saved standard output, while the command writes both streams to standard error.
pub(super) struct SavedStdout {
    stdout: OwnedFd,
}

impl SavedStdout {
    pub(super) fn begin() -> Result<Self, CliError> {
        let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(fail)?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(fail)?;
        Ok(Self { stdout })
    }

    pub(super) fn end(self) -> Result<(), CliError> {
        rustix::stdio::dup2_stdout(&self.stdout).map_err(fail)
    }
}

fn fail(error: Errno) -> CliError {
    CliError::File { what: "copy", path: "standard output".into(), source: error.into() }
}
