//! A file's current and proposed content.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};

use ringfence_engine::replace_policy;
use ringfence_policy::AbsPath;
use serde_json::{Value, json};

use super::diff;
use crate::error::CliError;
use crate::output::{ColorMode, printable};
use crate::read_file::read_text;

/// A file's current and proposed content.
pub(super) struct FileDraft {
    file: AbsPath,
    before: Option<String>,
    after: String,
    /// The file's purpose, in a few words.
    about: Option<&'static str>,
    writing: Writing,
}

/// The way to write the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// Replaces the file.
    Plain,
    /// Replaces the file under the policy lock, so that concurrent writers lose no lines.
    Locked,
}

impl FileDraft {
    /// Creates a draft of a project file. A project is untrusted: its symbolic links are refused.
    pub(super) fn in_project(
        file: AbsPath,
        before: Option<String>,
        after: String,
        project: &AbsPath,
    ) -> Result<FileDraft, CliError> {
        let is_link = |path: &AbsPath| {
            fs::symlink_metadata(path.as_path()).is_ok_and(|metadata| metadata.is_symlink())
        };
        let way = file.ancestors().take_while(|above| above != project).find(|path| is_link(path));
        match way {
            Some(link) => Err(CliError::Usage {
                what: format!(
                    "cannot write {file}: {link} is a symbolic link, and the project's author chose its target"
                ),
                hint: "replace the link with a file or directory".into(),
            }),
            None => Ok(FileDraft { file, before, after, about: None, writing: Writing::Plain }),
        }
    }

    /// Creates a draft of a user's file.
    pub(super) fn plain(file: AbsPath, before: Option<String>, after: String) -> FileDraft {
        FileDraft { file, before, after, about: None, writing: Writing::Plain }
    }

    /// Creates a draft of a user's policy file.
    pub(super) fn locked(file: AbsPath, before: Option<String>, after: String) -> FileDraft {
        FileDraft { writing: Writing::Locked, ..FileDraft::plain(file, before, after) }
    }

    pub(super) fn with_heading(self, about: &'static str) -> FileDraft {
        FileDraft { about: Some(about), ..self }
    }

    /// Returns the line above the diff.
    pub(super) fn heading(&self, paint: ColorMode) -> String {
        self.about.map_or_else(String::new, |about| format!("{}\n", paint.strong(about)))
    }

    pub(super) fn is_change(&self) -> bool {
        self.before.as_ref() != Some(&self.after)
    }

    /// Returns the diff, with context lines.
    pub(super) fn diff(&self, paint: ColorMode) -> String {
        let name =
            if self.before.is_some() { self.file.to_string() } else { "/dev/null".to_owned() };
        let mut text =
            format!("--- {}\n+++ {}\n", printable(&name), printable(&self.file.to_string()));
        for line in diff::diff_lines(self.before.as_deref().unwrap_or_default(), &self.after) {
            let shown = printable(&line);
            let painted = match shown.chars().next() {
                Some('+') => paint.good(&shown),
                Some('-') => paint.bad(&shown),
                Some('@') => paint.faint(&shown),
                _ => shown,
            };
            text.push_str(&painted);
            text.push('\n');
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let change = match (&self.before, self.is_change()) {
            (_, false) => "none",
            (None, true) => "create",
            (Some(_), true) => "change",
        };
        json!({ "path": self.file.to_string(), "about": self.about, "change": change, "diff": if self.is_change() { self.diff(ColorMode::Plain) } else { String::new() } })
    }

    /// Replaces the file atomically.
    pub(super) fn write(&self) -> Result<(), CliError> {
        if self.writing == Writing::Locked {
            return Ok(replace_policy(&self.file, self.before.as_deref(), &self.after)?);
        }
        let fail = |source| CliError::File { what: "write", path: self.file.to_string(), source };
        let directory = self.file.parent().unwrap_or_else(AbsPath::root);
        DirBuilder::new().recursive(true).mode(0o755).create(directory.as_path()).map_err(fail)?;
        if read_text(self.file.as_path())? != self.before {
            return Err(fail(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the file was changed in the meantime",
            )));
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(self.file.name().unwrap_or_default());
        name.push(format!(".{}.new", std::process::id()));
        let new = directory.join(&name);
        let put = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o644).open(new.as_path())?;
            file.write_all(self.after.as_bytes())?;
            if let Ok(metadata) = fs::metadata(self.file.as_path()) {
                file.set_permissions(Permissions::from_mode(
                    metadata.permissions().mode() & 0o777,
                ))?;
            }
            file.sync_all()?;
            fs::rename(new.as_path(), self.file.as_path())
        };
        put().map_err(|error| {
            let _ = fs::remove_file(new.as_path());
            fail(error)
        })
    }
}
