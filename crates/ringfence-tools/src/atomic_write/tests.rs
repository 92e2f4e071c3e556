//! File systems without `O_TMPFILE`, and concurrent writers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// A temporary directory, removed when dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir()
            .join(format!("ringfence-atomic-write-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        TempDir(fs::canonicalize(path).unwrap())
    }

    fn place(&self, name: &str) -> OpenedPath {
        OpenedPath::find(&self.0.join(name), &|_| true).ok().unwrap()
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn names(&self) -> Vec<OsString> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A constructor of a draft.
type MakeDraft = for<'a> fn(&'a OpenedPath, Mode) -> Result<UnnamedFile<'a>, ToolError>;

const DRAFTS: [MakeDraft; 2] = [
    |place, mode| UnnamedFile::new(place, mode),
    |place, mode| UnnamedFile::with_name(place, mode),
];

fn write<'a>(place: &'a OpenedPath, content: &'a str) -> AtomicWrite<'a> {
    AtomicWrite { place, content: content.as_bytes().into(), sync: FsyncMode::Wait }
}

#[test]
fn named_draft_works_like_an_unnamed_one() {
    let directory = TempDir::new("named");
    let place = directory.place("file");
    write(&place, "one").create(UnnamedFile::with_name(&place, DEFAULT_MODE).unwrap()).unwrap();
    assert_eq!(directory.content("file"), "one");
    fs::set_permissions(directory.0.join("file"), PermissionsExt::from_mode(0o640)).unwrap();
    let place = directory.place("file");
    write(&place, "two")
        .replace(
            UnnamedFile::with_name(&place, PRIVATE_MODE).unwrap(),
            place.target.as_ref().unwrap(),
        )
        .unwrap();
    assert_eq!(directory.content("file"), "two");
    assert_eq!(fs::metadata(directory.0.join("file")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(directory.names(), ["file"]);
}

#[test]
fn file_of_a_concurrent_writer_is_not_overwritten() {
    let directory = TempDir::new("quicker");
    for draft in DRAFTS {
        let place = directory.place("file");
        fs::write(directory.0.join("file"), "theirs").unwrap();
        assert_eq!(
            write(&place, "ours").create(draft(&place, DEFAULT_MODE).unwrap()).unwrap_err().code(),
            "unsettled"
        );
        let place = directory.place("file");
        fs::write(directory.0.join("other"), "newer").unwrap();
        fs::rename(directory.0.join("other"), directory.0.join("file")).unwrap();
        let replaced = write(&place, "ours")
            .replace(draft(&place, PRIVATE_MODE).unwrap(), place.target.as_ref().unwrap());
        assert_eq!(replaced.unwrap_err().code(), "unsettled");
        assert_eq!(directory.content("file"), "newer");
        assert_eq!(directory.names(), ["file"]);
        fs::remove_file(directory.0.join("file")).unwrap();
    }
}

#[test]
fn moved_directory_is_not_written() {
    let directory = TempDir::new("elsewhere");
    for draft in DRAFTS {
        fs::create_dir_all(directory.0.join("here")).unwrap();
        fs::write(directory.0.join("here/old"), "old").unwrap();
        let (new, old) = (directory.place("here/new"), directory.place("here/old"));
        fs::rename(directory.0.join("here"), directory.0.join("there")).unwrap();
        assert_eq!(
            write(&new, "ours").create(draft(&new, DEFAULT_MODE).unwrap()).unwrap_err().code(),
            "unsettled"
        );
        let replaced = write(&old, "ours")
            .replace(draft(&old, PRIVATE_MODE).unwrap(), old.target.as_ref().unwrap());
        assert_eq!(replaced.unwrap_err().code(), "unsettled");
        assert_eq!(directory.content("there/old"), "old");
        assert_eq!(fs::read_dir(directory.0.join("there")).unwrap().count(), 1);
        fs::remove_dir_all(directory.0.join("there")).unwrap();
    }
}
