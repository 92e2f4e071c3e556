//! A Rust toolchain for everybody.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::project::TestProject;

impl TestProject {
    /// The programs of the toolchain, where the project's user can reach them. It may stand
    /// in a home that nobody else can enter; then it gets other names, in the project's home.
    #[track_caller]
    pub fn toolchain(&self) -> PathBuf {
        let said =
            Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc starts");
        let root = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
        let is_shut =
            |path: &Path| path.metadata().is_ok_and(|metadata| metadata.mode() & 0o001 == 0);
        if !root.ancestors().any(is_shut) {
            return root.join("bin");
        }
        let named = self.home().join("toolchain");
        for part in ["bin", "lib"] {
            link_tree(&root.join(part), &named.join(part));
        }
        named.join("bin")
    }
}

fn link_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the home is writable");
    for entry in fs::read_dir(from).expect("a toolchain can be listed").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            link_tree(&from, &to);
        } else {
            // Between two filesystems there are no links.
            fs::hard_link(&from, &to)
                .or_else(|_| fs::copy(&from, &to).map(drop))
                .expect("a toolchain can be read");
        }
    }
}
