//! A project for tests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::output::TestOutput;
use crate::user::TestUser;

/// The content of every file that no command inside may read.
pub const SECRET: &str = "xyzzy-never-to-be-seen";

/// The `PATH` of tests.
pub(crate) const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The content of a tree: paths with a description.
pub type TreeListing = BTreeMap<PathBuf, String>;

/// A new home directory with a project, another project, and secrets.
pub struct TestProject {
    /// The owner and user.
    pub user: TestUser,
    base: PathBuf,
    binary: PathBuf,
}

/// Secrets of the home directory.
const HOME_SECRETS: &[&str] = &[
    ".ssh/id_rsa",
    ".aws/credentials",
    ".netrc",
    ".config/gh/hosts.yml",
    "code/other/main.rs",
    "notes.txt",
];
/// Secrets within the project, denied by their names.
const PROJECT_SECRETS: &[&str] = &[
    ".env",
    ".env.local",
    "x.pem",
    "sub/.env",
    "SECRET.txt",
    "server.KEY",
    "sub/deeper/credentials.json",
];
/// Files that look similar and are not secrets.
const PROJECT_FILES: &[(&str, &str)] = &[
    ("README", "hello\n"),
    ("src/main.rs", "fn main() {}\n"),
    (".env.example", "TOKEN=\n"),
    ("secrets.rs", "// code about secrets\n"),
    ("id.pub", "public\n"),
];

/// The path of the user's own policy for the project at `root`.
pub fn own_policy(home: &Path, root: &Path) -> PathBuf {
    let path = root.to_str().expect("a path of ASCII letters").trim_start_matches('/');
    let name = path.replace('%', "%25").replace('+', "%2B").replace('/', "+");
    home.join(format!(".config/ringfence/projects/{name}.toml"))
}

impl TestProject {
    /// Creates a project for `user`, with `binary` as the ringfence to test.
    #[track_caller]
    pub fn new(user: TestUser, binary: impl Into<PathBuf>) -> TestProject {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base =
            projects_directory().join(format!("ringfence-test-{}-{count}", std::process::id()));
        // Left by a killed test with the same pid.
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(&base)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", base.display()));
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755))
            .expect("the directory was just created");
        user.chown(&base);
        let project =
            TestProject { user, binary: executable_path(&binary.into(), user, &base), base };
        for secret in HOME_SECRETS {
            project.write_at(&project.home().join(secret), SECRET);
        }
        for secret in PROJECT_SECRETS {
            project.write(secret, SECRET);
        }
        for (name, content) in PROJECT_FILES {
            project.write(name, content);
        }
        project.write_at(
            &project.home().join(".gitconfig"),
            "[user]\n\tname = A Person\n\temail = person@example.org\n[init]\n\tdefaultBranch = main\n",
        );
        for directory in [".cache", ".config", ".local/state"] {
            project.make_directories(&project.home().join(directory));
        }
        project
    }

    /// The home directory.
    pub fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    /// The project's directory.
    pub fn root(&self) -> PathBuf {
        self.home().join("code/app")
    }

    /// The user's own policy for the project.
    pub fn own_policy(&self) -> PathBuf {
        own_policy(&self.home(), &self.root())
    }

    /// A path in the project.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file of the project.
    #[track_caller]
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        self.write_at(&self.at(name), content);
    }

    /// Writes a file anywhere below the home directory.
    #[track_caller]
    pub fn write_at(&self, path: &Path, content: impl AsRef<[u8]>) {
        self.make_directories(path.parent().expect("a file has a parent directory"));
        fs::write(path, content)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        self.user.chown(path);
    }

    /// Creates directories owned by the user.
    #[track_caller]
    pub fn make_directories(&self, path: &Path) {
        if path.is_dir() {
            return;
        }
        self.make_directories(path.parent().expect("the root is a directory"));
        fs::create_dir(path)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        self.user.chown(path);
    }

    /// Makes a file executable.
    #[track_caller]
    pub fn executable(&self, name: impl AsRef<Path>) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755))
            .expect("the file exists");
    }

    /// The content of a file of the project; `None` if it does not exist.
    pub fn read(&self, name: impl AsRef<Path>) -> Option<String> {
        fs::read(self.at(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// True if `name` exists, even as a dangling link.
    pub fn has(&self, name: impl AsRef<Path>) -> bool {
        self.at(name).symlink_metadata().is_ok()
    }

    /// A command as the project's user, in the project, with a minimal environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.runner_command(program);
        self.user.apply_to(&mut command);
        command
    }

    /// As [`TestProject::command`], as the user of the test runner.
    pub(crate) fn runner_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", self.home())
            .env("USER", "person")
            .env("LANG", "C.UTF-8");
        command
    }

    /// `ringfence` on a host where `/dev/fuse` cannot be opened, not even by root.
    pub fn ringfence_without_fuse(&self) -> Command {
        self.ringfence_after("[ ! -e /dev/fuse ] || { mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse; }")
    }

    /// `ringfence` after a shell line has changed the mounts in a private namespace.
    pub fn ringfence_after(&self, mounts: &str) -> Command {
        let mut command = self.runner_command("unshare");
        // An ordinary user becomes root of a user namespace, to be allowed to mount.
        command.arg(if TestUser::runner_is_root() { "-m" } else { "-rm" });
        command.args(["sh", "-c", &format!("{{ {mounts}; }} || exit 99; exec \"$@\""), "sh"]);
        if self.user == TestUser::User && TestUser::runner_is_root() {
            let (uid, gid) = self.user.ids();
            command.args([
                "setpriv",
                &format!("--reuid={uid}"),
                &format!("--regid={gid}"),
                "--clear-groups",
            ]);
        }
        command.arg(&self.binary);
        command
    }

    /// `ringfence` itself. A run treats a file as written by the command if its time is not before
    /// the run by the coarse clock of file systems, which ticks every few milliseconds. So this
    /// waits until files just written are older.
    pub fn ringfence(&self) -> Command {
        let now = clock_gettime(ClockId::Realtime);
        while clock_gettime(ClockId::RealtimeCoarse) <= now {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.command(&self.binary)
    }

    /// The path of `ringfence`.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs `ringfence run` with flags and a command.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> TestOutput {
        TestOutput::run(self.ringfence().arg("run").args(words), b"")
    }

    /// Runs a shell line inside the sandbox.
    #[track_caller]
    pub fn sh(&self, line: &str) -> TestOutput {
        self.run(["-c", line])
    }

    /// Runs a shell line without ringfence.
    #[track_caller]
    pub fn sh_bare(&self, line: &str) -> TestOutput {
        TestOutput::run(self.command("/bin/sh").args(["-c", line]), b"")
    }

    /// Everything in the project, with modes and sizes.
    pub fn entries(&self) -> TreeListing {
        let mut entries = TreeListing::new();
        list(&self.root(), &self.root(), &mut entries);
        entries
    }

    /// Everything in the home directory except ringfence's own files.
    pub fn home_entries(&self) -> TreeListing {
        let mut entries = TreeListing::new();
        list(&self.home(), &self.home(), &mut entries);
        entries.retain(|path, _| {
            !path.starts_with(".cache/ringfence") && !path.starts_with(".local/state/ringfence")
        });
        entries
    }
}

impl Drop for TestProject {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn list(directory: &Path, root: &Path, entries: &mut TreeListing) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
        let what =
            format!("{:o} {}", metadata.mode(), if metadata.is_dir() { 0 } else { metadata.len() });
        entries.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), what);
        if metadata.is_dir() {
            list(&path, root, entries);
        }
    }
}

/// The directory of test projects. Not below `/tmp`, which is private to the sandbox: users do not
/// keep projects there.
fn projects_directory() -> PathBuf {
    if let Some(chosen) = std::env::var_os("RINGFENCE_TEST_DIR") {
        return chosen.into();
    }
    if TestUser::runner_is_root() {
        let places = ["/srv", "/home", "/opt", "/var/lib"];
        return places
            .into_iter()
            .find(|place| Path::new(place).is_dir())
            .expect("one of these exists on every system")
            .into();
    }
    PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/ringfence-tests")
}

/// A path of the binary that the user can execute: the build directory may be below a private home
/// directory.
fn executable_path(binary: &Path, user: TestUser, base: &Path) -> PathBuf {
    static COPY: OnceLock<bool> = OnceLock::new();
    let is_private =
        |path: &Path| path.metadata().map_or(true, |metadata| metadata.mode() & 0o001 == 0);
    let needs_copy = *COPY.get_or_init(|| binary.ancestors().skip(1).any(is_private));
    if user == TestUser::Root || !TestUser::runner_is_root() || !needs_copy {
        return binary.to_owned();
    }
    let copy = base.join(binary.file_name().expect("a file has a name"));
    fs::copy(binary, &copy)
        .unwrap_or_else(|error| panic!("cannot copy {}: {error}", binary.display()));
    copy
}
