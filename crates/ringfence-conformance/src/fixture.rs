//! The files around a command under test.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};

use ringfence_api::HostFacts;
use ringfence_policy::{AbsPath, Facts};

/// The content of every file that no command may read.
pub(crate) const SECRET: &str = "xyzzy-never-to-be-seen";

/// A home with a project, another project, and a directory that no rule opens; each contains a
/// secret.
#[derive(Debug, Clone)]
pub(crate) struct ConformanceFixture {
    /// The project under work.
    pub(crate) workspace: AbsPath,
    /// Another project of the same user.
    pub(crate) other: AbsPath,
    /// A directory that no rule opens.
    pub(crate) outside: AbsPath,
    /// The user's home.
    pub(crate) home: AbsPath,
    /// The provider's own directory.
    pub(crate) store: AbsPath,
    base: AbsPath,
}

/// Files of the user, relative to the fixture's directory.
const FILES: &[(&str, &str)] = &[
    ("home/.ssh/id_rsa", SECRET),
    ("home/.aws/credentials", SECRET),
    ("home/notes.txt", SECRET),
    ("home/code/other/main.rs", SECRET),
    ("home/code/app/README", "hello\n"),
    ("home/code/app/.env", SECRET),
    ("home/code/app/sub/x.pem", SECRET),
    ("home/code/app/sub/plain", "plain\n"),
    ("home/code/app/not-executable", "#!/bin/sh\n"),
    ("home/code/app/beat", BEAT),
    ("home/code/app/.git/HEAD", "ref: refs/heads/main\n"),
    ("home/code/app/.git/config", "[core]\n\tbare = false\n"),
    ("home/code/app/.git/hooks/pre-commit", "#!/bin/sh\n"),
    ("outside/note.txt", SECRET),
    ("outside/open/data", "open\n"),
    ("outside/open/shut/data", SECRET),
];

const DIRECTORIES: &[&str] = &[
    "home/.cache",
    "home/code/app/.git/objects",
    "home/code/app/.git/refs",
    "outside/drop",
    "store",
];

/// A script that lets the named file grow until a file with `.stop` appended exists. It ends by
/// itself soon, for providers that do not end it.
const BEAT: &str = "i=0; while [ $i -lt 120 ] && [ ! -e \"$1.stop\" ]; do i=$((i+1)); echo x >> \"$1\"; sleep 0.05; done\n";

impl ConformanceFixture {
    /// Creates a fixture in `base`, an empty directory. It must not be below `/tmp`, which is
    /// private inside.
    pub(crate) fn prepare(base: &AbsPath) -> io::Result<Self> {
        for directory in DIRECTORIES {
            fs::create_dir_all(base.join(directory).as_path())?;
        }
        for (name, content) in FILES {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap_or_else(AbsPath::root).as_path())?;
            fs::write(path.as_path(), content)?;
        }
        let hook = base.join("home/code/app/.git/hooks/pre-commit");
        fs::set_permissions(hook.as_path(), fs::Permissions::from_mode(0o755))?;
        symlink("../other/main.rs", base.join("home/code/app/link").as_path())?;
        Ok(Self {
            workspace: base.join("home/code/app"),
            other: base.join("home/code/other"),
            outside: base.join("outside"),
            home: base.join("home"),
            store: base.join("store"),
            base: base.clone(),
        })
    }

    /// The facts to resolve a policy against.
    pub(super) fn facts(&self) -> Facts {
        Facts::minimal(self.workspace.clone(), self.home.clone(), self.store.clone())
    }

    pub(super) fn user(&self) -> HostFacts {
        HostFacts::without_settings(self.store.join("quarantine"))
    }

    /// All entries except the provider's own, with the content of each file.
    pub(super) fn entries(&self) -> io::Result<BTreeMap<AbsPath, Vec<u8>>> {
        let mut entries = BTreeMap::new();
        let mut left = vec![self.base.clone()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory.as_path())? {
                let entry = entry?;
                let (path, kind) = (directory.join(entry.file_name()), entry.file_type()?);
                let content = if kind.is_file() { fs::read(path.as_path())? } else { Vec::new() };
                if kind.is_dir() && path != self.store {
                    left.push(path.clone());
                }
                entries.insert(path, content);
            }
        }
        Ok(entries)
    }
}
