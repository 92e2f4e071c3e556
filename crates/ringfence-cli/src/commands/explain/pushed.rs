//! Denials of a push to a repository on this machine.

use std::path::Path;

use ringfence_audit::RecordFields;
use ringfence_policy::AbsPath;

use super::last::text;

/// The program that serves a push, in the repository that receives it.
const RECEIVER: &str = "git-receive-pack";

/// The bare repository that a denied access of git belongs to, if git wanted to push to it: it
/// writes there, or the run has a denial of the receiving program there.
///
/// The push needs the whole repository. The denied path alone would be no help: git reads the
/// directory first, and then makes files with random names.
pub(super) fn pushed_repository(
    record: &RecordFields,
    path: &AbsPath,
    refused: &[RecordFields],
) -> Option<AbsPath> {
    let repository = path.ancestors().find(|above| is_bare_repository(above.as_path()))?;
    let writes = matches!(text(record, "operation"), "write" | "create" | "rename");
    let is_received = || {
        refused.iter().any(|other| {
            program_name(other) == RECEIVER
                && AbsPath::new(text(other, "target"))
                    .is_some_and(|target| target.is_within(&repository))
        })
    };
    let is_git = program_name(record).starts_with("git");
    (is_git && (writes || is_received())).then_some(repository)
}

fn program_name(record: &RecordFields) -> &str {
    text(record, "program").rsplit('/').next().unwrap_or_default()
}

fn is_bare_repository(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name != ".git")
        && directory.join("HEAD").is_file()
        && ["objects", "refs"].iter().all(|name| directory.join(name).is_dir())
}
