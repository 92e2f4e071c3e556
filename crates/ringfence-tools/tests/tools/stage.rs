//! A home directory with a project, and the tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_api::Denial;
use ringfence_audit::RecordSubject;
use ringfence_policy::{AbsPath, Facts, Flags, Grants, Source, parse, resolve};
use ringfence_tools::{FileTools, PolicySource, ReadParams, ToolError};

/// The content of every file that no tool may show or change.
pub(crate) const SECRET: &str = "xyzzy-never-to-be-seen";

pub(crate) struct ToolStage {
    pub(crate) home: AbsPath,
    pub(crate) workspace: AbsPath,
    base: AbsPath,
}

impl ToolStage {
    pub(crate) fn new(directory: &Path) -> Self {
        let base = AbsPath::new(fs::canonicalize(directory).expect("it was made for us"))
            .expect("tests have absolute paths");
        let home = base.join("home");
        let stage = Self { workspace: home.join("code/app"), home, base };
        for secret in [
            "home/.ssh/id_test",
            "home/notes.txt",
            "home/code/other/main.rs",
            "home/code/app/.env",
            "home/code/app/sub/x.pem",
        ] {
            stage.put_at(&stage.base.join(secret), SECRET);
        }
        for (name, content) in [
            ("README", "hello\nworld\n"),
            ("src/main.rs", "fn main() {}\n"),
            (".git/config", "[core]\n"),
            (".git/HEAD", "x\n"),
        ] {
            stage.put(name, content);
        }
        fs::create_dir_all(stage.at(".git/hooks")).expect("the directory is ours");
        fs::create_dir_all(stage.base.join("store").as_path()).expect("the directory is ours");
        stage
    }

    /// A path in the project.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.workspace.join(name).as_path().to_owned()
    }

    /// Writes a file of the project, without the tools.
    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        self.put_at(&self.workspace.join(name), content);
    }

    pub(crate) fn put_at(&self, path: &AbsPath, content: impl AsRef<[u8]>) {
        fs::create_dir_all(path.parent().expect("not the root").as_path())
            .expect("the directory is ours");
        fs::write(path.as_path(), content).expect("the directory is ours");
    }

    /// The content of a file of the project, read without the tools.
    #[track_caller]
    pub(crate) fn content(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.at(name)).expect("it is there")).into_owned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.at(name).symlink_metadata().is_ok()
    }

    /// The sorted entries of a directory of the project.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(directory)).expect("it is there");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("it is listed").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The grants of a user policy.
    pub(crate) fn grants(&self, policy: &str) -> Grants {
        let facts =
            Facts::minimal(self.workspace.clone(), self.home.clone(), self.base.join("store"));
        let file = self.home.join(".config/ringfence/policy.toml");
        let layer = parse(&format!("version = 1\n{policy}"), &file, Source::User)
            .expect("the policy is valid");
        resolve(&[layer], &Flags::none(self.workspace.clone()), &facts)
            .expect("the policy resolves")
    }

    pub(crate) fn tools_with(&self, policy: &str) -> FileTools {
        self.open(self.grants(policy)).expect("the tools open")
    }

    pub(crate) fn open(&self, grants: Grants) -> Result<FileTools, ToolError> {
        let grants = Arc::new(grants);
        self.open_with(Box::new(move || Ok(grants.clone())))
    }

    pub(crate) fn open_with(
        &self,
        policy_source: Box<PolicySource>,
    ) -> Result<FileTools, ToolError> {
        let subject =
            RecordSubject { agent: Some("code-architect".into()), session: "a session".into() };
        FileTools::open_with(
            policy_source,
            subject,
            self.workspace.clone(),
            Box::new(|error| panic!("{error}")),
        )
    }

    /// The tools under the built-in policy.
    pub(crate) fn tools(&self) -> FileTools {
        self.tools_with("")
    }
}

/// The text of a file, read by the tools.
#[track_caller]
pub(crate) fn text(tools: &FileTools, path: impl Into<PathBuf>) -> String {
    tools
        .read(&ReadParams::new(path))
        .unwrap_or_else(|error| panic!("{error}"))
        .text
        .expect("it is text")
}

/// The denial of a call.
#[track_caller]
pub(crate) fn denial<T>(result: Result<T, ToolError>) -> Denial {
    match result {
        Ok(_) => panic!("the call was not denied"),
        Err(error) => error.denial().unwrap_or_else(|| panic!("not a denial: {error}")).clone(),
    }
}

/// The stable code of an error.
#[track_caller]
pub(crate) fn code<T>(result: Result<T, ToolError>) -> &'static str {
    result.err().expect("it fails").code()
}
