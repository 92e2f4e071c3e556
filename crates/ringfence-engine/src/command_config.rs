//! git config files that a command wrote: values from them are not trusted as the user's.
//!
//! The project's store records this in `runs`. `.made` lists the repositories that commands made,
//! with inode and change time of their config after the last sweep. The mark of each run that has
//! not swept yet lists the git directories that its command could not change.

use std::fs::{self, Metadata};
use std::time::UNIX_EPOCH;

use ringfence_policy::AbsPath;

use crate::files;
use crate::host::{FileNumbers, FileStamp, system};

/// The size limit of a list, in MiB.
const MAX_MIB: u64 = 16;

/// Answers whether a command may have written the config of the git directory `git`. If a list
/// cannot be read, the answer is yes.
pub(crate) fn may_be_written_by_command(store: &AbsPath, git: &AbsPath) -> bool {
    let (Ok(directory), Ok(config)) =
        (fs::symlink_metadata(git.as_path()), fs::symlink_metadata(git.join("config").as_path()))
    else {
        return false;
    };
    let stamp = system::stamp(&config);
    let (Some(FileNumbers { inode, .. }), Some(numbers)) =
        (stamp.numbers, system::stamp(&directory).numbers)
    else {
        return true;
    };
    let guarded = guarded_entry(&directory, numbers);
    let runs = store.join("runs");
    let Ok(entries) = fs::read_dir(runs.as_path()) else { return false };
    entries.flatten().any(|entry| {
        let read = || files::read_regular_file(&entry.path(), MAX_MIB);
        match entry.file_name().as_encoded_bytes() {
            b".made" => read().map_or(true, |list| lists_config(&list, inode, stamp)),
            [b'.', ..] => false,
            // A mark that was removed just now belongs to a run that has swept.
            _ => read().is_ok_and(|mark| may_have_written(&mark, &guarded, stamp)),
        }
    })
}

/// True if the list holds a repository with this config: `git DEVICE INODE BIRTH STAMP …`, where
/// the stamp begins with that of the config.
fn lists_config(list: &[u8], inode: u64, FileStamp { changed, .. }: FileStamp) -> bool {
    let stamp = format!("{inode}.{}.{};", changed.0, changed.1);
    list.split(|byte| *byte == 0).any(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        matches!(words.next(), Some(b"git" | b"head"))
            && words.nth(3).is_some_and(|found| found.starts_with(stamp.as_bytes()))
    })
}

/// A git directory in the mark of a run that could not change it.
fn guarded_entry(directory: &Metadata, FileNumbers { device, inode }: FileNumbers) -> Vec<u8> {
    let born = directory.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.unwrap_or_default();
    let (major, minor) = device;
    format!("{major}:{minor}:{inode}:{}:{}", born.as_secs(), born.subsec_nanos()).into_bytes()
}

/// True if a run that began before the config changed could change it.
fn may_have_written(mark: &[u8], guarded: &[u8], config: FileStamp) -> bool {
    let (mut begun, mut is_guarded) = (None, false);
    for line in mark.split(|byte| *byte == 0) {
        let mut words = line.splitn(4, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        match (word(), word(), word(), word()) {
            (b"begun", seconds, nanoseconds, _) => {
                begun = parse_number(seconds).zip(parse_number(nanoseconds))
            }
            (b"git", _, _, entry) => is_guarded |= entry == guarded,
            _ => {}
        }
    }
    begun.is_some_and(|begun| begun <= config.changed) && !is_guarded
}

fn parse_number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
