//! A Rust toolchain for every test user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::project::TestProject;

impl TestProject {
    /// The `bin` directory of the toolchain, accessible to the project's user. A toolchain in a
    /// private home directory is hard-linked into the project's home.
    #[track_caller]
    pub fn toolchain(&self) -> PathBuf {
        let sysroot =
            Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc starts");
        let root = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
        let is_private =
            |path: &Path| path.metadata().is_ok_and(|metadata| metadata.mode() & 0o001 == 0);
        if !root.ancestors().any(is_private) {
            return root.join("bin");
        }
        let copy = self.home().join("toolchain");
        for part in ["bin", "lib"] {
            link_tree(&root.join(part), &copy.join(part));
        }
        copy.join("bin")
    }
}

fn link_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the home is writable");
    for entry in fs::read_dir(from).expect("a toolchain can be listed").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            link_tree(&from, &to);
        } else {
            // Hard links do not work across file systems.
            fs::hard_link(&from, &to)
                .or_else(|_| fs::copy(&from, &to).map(drop))
                .expect("a toolchain can be read");
        }
    }
}
