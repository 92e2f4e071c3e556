//! A file as it is, and as it would be.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};

use ringfence_engine::replace_policy;
use ringfence_policy::AbsPath;
use serde_json::{Value, json};

use super::diff;
use crate::error::CliError;
use crate::output::{ColorMode, printable};
use crate::read_file::text_of;

/// A file as it is, and as it would be.
pub(super) struct FileDraft {
    file: AbsPath,
    before: Option<String>,
    after: String,
    /// The file's purpose, in a few words.
    about: Option<&'static str>,
    writing: Writing,
}

/// The way to write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// It takes the place of the old one.
    Plain,
    /// As that, and none of those who write policies at the same time loses a line.
    Locked,
}

impl FileDraft {
    /// A file of the project. What came with a project may lead anywhere, and is not followed.
    pub(super) fn within(
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
            Some(link) => Err(CliError::Words {
                what: format!(
                    "{file} is not written: {link} is a link, and whoever wrote the project chose where it leads"
                ),
                hint: "put a file or directory in its place".into(),
            }),
            None => Ok(FileDraft { file, before, after, about: None, writing: Writing::Plain }),
        }
    }

    /// A file of the person's own.
    pub(super) fn anywhere(file: AbsPath, before: Option<String>, after: String) -> FileDraft {
        FileDraft { file, before, after, about: None, writing: Writing::Plain }
    }

    /// A policy file of the user's own.
    pub(super) fn locked(file: AbsPath, before: Option<String>, after: String) -> FileDraft {
        FileDraft { writing: Writing::Locked, ..FileDraft::anywhere(file, before, after) }
    }

    pub(super) fn about(self, about: &'static str) -> FileDraft {
        FileDraft { about: Some(about), ..self }
    }

    /// The line before the lines that come and go.
    pub(super) fn heading(&self, paint: ColorMode) -> String {
        self.about.map_or_else(String::new, |about| format!("{}\n", paint.strong(about)))
    }

    pub(super) fn is_change(&self) -> bool {
        self.before.as_ref() != Some(&self.after)
    }

    /// All lines that come and go, and some around them.
    pub(super) fn diff(&self, paint: ColorMode) -> String {
        let name =
            if self.before.is_some() { self.file.to_string() } else { "/dev/null".to_owned() };
        let mut text =
            format!("--- {}\n+++ {}\n", printable(&name), printable(&self.file.to_string()));
        for line in diff::lines(self.before.as_deref().unwrap_or_default(), &self.after) {
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

    /// Puts the new file in the place of the old one: there is the one or the other, never a part.
    pub(super) fn write(&self) -> Result<(), CliError> {
        if self.writing == Writing::Locked {
            return Ok(replace_policy(&self.file, self.before.as_deref(), &self.after)?);
        }
        let fail = |source| CliError::File { what: "write", path: self.file.to_string(), source };
        let directory = self.file.parent().unwrap_or_else(AbsPath::root);
        DirBuilder::new().recursive(true).mode(0o755).create(directory.as_path()).map_err(fail)?;
        if text_of(self.file.as_path())? != self.before {
            return Err(fail(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "it was changed meanwhile",
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
