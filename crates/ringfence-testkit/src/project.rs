//! A project to try things in.

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

/// Stands in every file that nobody inside may read.
pub const SECRET: &str = "xyzzy-never-to-be-seen";

/// Where programs are looked for.
pub(crate) const SEARCHED: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// What stands in a tree: path and a word for what is there.
pub type TreeListing = BTreeMap<PathBuf, String>;

/// A fresh home with a project in it, another one beside, and secrets all around.
pub struct TestProject {
    /// Who owns and uses it.
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
/// Files like the secrets that are none.
const PROJECT_FILES: &[(&str, &str)] = &[
    ("README", "hello\n"),
    ("src/main.rs", "fn main() {}\n"),
    (".env.example", "TOKEN=\n"),
    ("secrets.rs", "// code about secrets\n"),
    ("id.pub", "public\n"),
];

/// The own policy, for the project at `root`, of the user with this home.
pub fn own_policy(home: &Path, root: &Path) -> PathBuf {
    let path = root.to_str().expect("a path of ASCII letters").trim_start_matches('/');
    let name = path.replace('%', "%25").replace('+', "%2B").replace('/', "+");
    home.join(format!(".config/ringfence/projects/{name}.toml"))
}

impl TestProject {
    /// Makes one for `user`, in which `binary` is the ringfence to try.
    #[track_caller]
    pub fn new(user: TestUser, binary: impl Into<PathBuf>) -> TestProject {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = ground().join(format!("ringfence-test-{}-{count}", std::process::id()));
        // Left by one that was killed and had the number that is ours now.
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(&base)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", base.display()));
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755))
            .expect("the directory was just made");
        user.own(&base);
        let project = TestProject { user, binary: reachable(&binary.into(), user, &base), base };
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
        self.make_directories(path.parent().expect("a file stands in a directory"));
        fs::write(path, content)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        self.user.own(path);
    }

    /// Makes directories that belong to the user.
    #[track_caller]
    pub fn make_directories(&self, path: &Path) {
        if path.is_dir() {
            return;
        }
        self.make_directories(path.parent().expect("the root is a directory"));
        fs::create_dir(path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        self.user.own(path);
    }

    /// Makes a file executable.
    #[track_caller]
    pub fn executable(&self, name: impl AsRef<Path>) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755))
            .expect("the file is there");
    }

    /// What a file of the project says; `None` if there is none.
    pub fn read(&self, name: impl AsRef<Path>) -> Option<String> {
        fs::read(self.at(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether something stands at `name`, be it a dangling link.
    pub fn has(&self, name: impl AsRef<Path>) -> bool {
        self.at(name).symlink_metadata().is_ok()
    }

    /// A program as the project's user, in the project, with a plain environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command_of_the_runner(program);
        self.user.put_on(&mut command);
        command
    }

    /// The same as whoever runs the tests.
    pub(crate) fn command_of_the_runner(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", SEARCHED)
            .env("HOME", self.home())
            .env("USER", "person")
            .env("LANG", "C.UTF-8");
        command
    }

    /// `ringfence` on a host where `/dev/fuse` cannot be opened, by the superuser neither.
    pub fn ringfence_without_fuse(&self) -> Command {
        self.ringfence_after("[ ! -e /dev/fuse ] || { mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse; }")
    }

    /// `ringfence` on a host whose mounts were changed, for it alone, by a line of shell.
    pub fn ringfence_after(&self, mounts: &str) -> Command {
        let mut command = self.command_of_the_runner("unshare");
        // Whoever is not the superuser becomes one of a namespace, to be allowed to mount.
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

    /// `ringfence` itself. A run takes a file for the command's own if it is as old as the run by
    /// the clock of file systems, which ticks every few milliseconds: so files that a test just
    /// wrote get older first.
    pub fn ringfence(&self) -> Command {
        let now = clock_gettime(ClockId::Realtime);
        while clock_gettime(ClockId::RealtimeCoarse) <= now {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.command(&self.binary)
    }

    /// Where `ringfence` is.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// `ringfence run` with flags and a command, to its end.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> TestOutput {
        TestOutput::of(self.ringfence().arg("run").args(words), b"")
    }

    /// A line of shell inside.
    #[track_caller]
    pub fn sh(&self, line: &str) -> TestOutput {
        self.run(["-c", line])
    }

    /// The same line without ringfence.
    #[track_caller]
    pub fn sh_bare(&self, line: &str) -> TestOutput {
        TestOutput::of(self.command("/bin/sh").args(["-c", line]), b"")
    }

    /// Everything in the project, and what kind and size it has.
    pub fn entries(&self) -> TreeListing {
        let mut entries = TreeListing::new();
        list(&self.root(), &self.root(), &mut entries);
        entries
    }

    /// Everything in the home directory but what is ringfence's own.
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

/// Where projects are made. Not below `/tmp`, which is the sandbox's own inside: a project
/// of a person does not stand there.
fn ground() -> PathBuf {
    if let Some(asked) = std::env::var_os("RINGFENCE_TEST_DIR") {
        return asked.into();
    }
    if TestUser::runner_is_root() {
        let places = ["/srv", "/home", "/opt", "/var/lib"];
        return places
            .into_iter()
            .find(|place| Path::new(place).is_dir())
            .expect("every system has one of these")
            .into();
    }
    PathBuf::from(std::env::var_os("HOME").expect("a user has a home"))
        .join(".cache/ringfence-tests")
}

/// The binary where the user can execute it: the build directory may be below a home that
/// nobody else can enter.
fn reachable(binary: &Path, user: TestUser, base: &Path) -> PathBuf {
    static COPY: OnceLock<bool> = OnceLock::new();
    let shut = |path: &Path| path.metadata().map_or(true, |metadata| metadata.mode() & 0o001 == 0);
    let needs_copy = *COPY.get_or_init(|| binary.ancestors().skip(1).any(shut));
    if user == TestUser::Root || !TestUser::runner_is_root() || !needs_copy {
        return binary.to_owned();
    }
    let copy = base.join("ringfence");
    fs::copy(binary, &copy)
        .unwrap_or_else(|error| panic!("cannot copy {}: {error}", binary.display()));
    copy
}
