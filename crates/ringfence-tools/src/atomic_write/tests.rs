//! Where a file system has no files without a name, and where somebody was quicker.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// A directory of its own, and nothing of it afterwards.
struct Ground(PathBuf);

impl Ground {
    fn new(name: &str) -> Ground {
        let path =
            std::env::temp_dir().join(format!("ringfence-deposit-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Ground(fs::canonicalize(path).unwrap())
    }

    fn place(&self, name: &str) -> OpenedPath {
        OpenedPath::find(&self.0.join(name), &|_| true).ok().unwrap()
    }

    fn says(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn names(&self) -> Vec<OsString> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a draft is made.
type Drafting = for<'a> fn(&'a OpenedPath, Mode) -> Result<UnnamedFile<'a>, ToolError>;

const DRAFTS: [Drafting; 2] = [
    |place, mode| UnnamedFile::new(place, mode),
    |place, mode| UnnamedFile::with_name(place, mode),
];

fn deposit<'a>(place: &'a OpenedPath, content: &'a str) -> AtomicWrite<'a> {
    AtomicWrite { place, content: content.as_bytes().into(), sync: FsyncMode::Wait }
}

#[test]
fn a_draft_that_has_a_name_is_as_good() {
    let ground = Ground::new("named");
    let place = ground.place("file");
    deposit(&place, "one").create(UnnamedFile::with_name(&place, OPEN).unwrap()).unwrap();
    assert_eq!(ground.says("file"), "one");
    fs::set_permissions(ground.0.join("file"), PermissionsExt::from_mode(0o640)).unwrap();
    let place = ground.place("file");
    deposit(&place, "two")
        .replace(UnnamedFile::with_name(&place, SHUT).unwrap(), place.there.as_ref().unwrap())
        .unwrap();
    assert_eq!(ground.says("file"), "two");
    assert_eq!(fs::metadata(ground.0.join("file")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(ground.names(), ["file"]);
}

#[test]
fn who_was_quicker_is_not_written_over() {
    let ground = Ground::new("quicker");
    for draft in DRAFTS {
        let place = ground.place("file");
        fs::write(ground.0.join("file"), "theirs").unwrap();
        assert_eq!(
            deposit(&place, "ours").create(draft(&place, OPEN).unwrap()).unwrap_err().code(),
            "unsettled"
        );
        let place = ground.place("file");
        fs::write(ground.0.join("other"), "newer").unwrap();
        fs::rename(ground.0.join("other"), ground.0.join("file")).unwrap();
        let replaced = deposit(&place, "ours")
            .replace(draft(&place, SHUT).unwrap(), place.there.as_ref().unwrap());
        assert_eq!(replaced.unwrap_err().code(), "unsettled");
        assert_eq!(ground.says("file"), "newer");
        assert_eq!(ground.names(), ["file"]);
        fs::remove_file(ground.0.join("file")).unwrap();
    }
}

#[test]
fn a_directory_that_went_elsewhere_is_not_written_to() {
    let ground = Ground::new("elsewhere");
    for draft in DRAFTS {
        fs::create_dir_all(ground.0.join("here")).unwrap();
        fs::write(ground.0.join("here/old"), "old").unwrap();
        let (new, old) = (ground.place("here/new"), ground.place("here/old"));
        fs::rename(ground.0.join("here"), ground.0.join("there")).unwrap();
        assert_eq!(
            deposit(&new, "ours").create(draft(&new, OPEN).unwrap()).unwrap_err().code(),
            "unsettled"
        );
        let replaced =
            deposit(&old, "ours").replace(draft(&old, SHUT).unwrap(), old.there.as_ref().unwrap());
        assert_eq!(replaced.unwrap_err().code(), "unsettled");
        assert_eq!(ground.says("there/old"), "old");
        assert_eq!(fs::read_dir(ground.0.join("there")).unwrap().count(), 1);
        fs::remove_dir_all(ground.0.join("there")).unwrap();
    }
}
