//! Facts about the host, the user and the project.

#[cfg(unix)]
#[path = "host/unix.rs"]
pub(crate) mod system;
#[cfg(windows)]
#[path = "host/windows.rs"]
pub(crate) mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringfence_api::{HostFacts, SecretValue, SettingsCopy};
use ringfence_policy::presets::PRESETS;
use ringfence_policy::{AbsPath, Facts, GitLayout, GitRemote, Grants, NetworkMode, Platform};
use tracing::trace_span;

use crate::project_root::find_project;
use crate::{EngineError, command_config, company, files, gitconfig, package_settings};

/// The environment of a command on the host.
#[derive(Debug, Clone)]
pub struct HostEnvironment {
    /// The facts that the policy is resolved against.
    pub facts: Facts,
    /// All environment variables of the caller.
    pub variables: Vec<(OsString, OsString)>,
    shell: String,
}

impl HostEnvironment {
    /// For a user other than the one that runs ringfence, such as a service's tenant. Only these
    /// facts are known.
    pub fn for_other_user(facts: Facts, variables: Vec<(OsString, OsString)>) -> Self {
        Self { facts, variables, shell: "/bin/sh".into() }
    }

    /// The user of the command, for the files that ringfence writes for it.
    pub fn host_facts(&self, grants: &Grants) -> HostFacts {
        let resolver = (grants.network.mode == NetworkMode::Full)
            .then(|| fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
        HostFacts {
            user: self.facts.user.clone(),
            shell: self.shell.clone(),
            resolver,
            git_config: gitconfig::filtered_config(
                &self.facts.home,
                &config_directory(&self.facts),
            ),
            git_ignore: gitconfig::global_ignore(&self.facts.home, &config_directory(&self.facts)),
            settings: self.settings(grants),
            quarantine: self.facts.store.join("quarantine"),
            secrets: self.secret_values(grants),
            proxies: self.proxies(),
            certificates: self
                .facts
                .variables
                .get("SSL_CERT_FILE")
                .filter(|file| !file.is_empty())
                .map(PathBuf::from),
            trust: None,
        }
    }

    /// Copies of settings and certificates. The sandbox sees them instead of the files.
    fn settings(&self, grants: &Grants) -> Vec<SettingsCopy> {
        let mut copies = package_settings::settings_copies(&self.facts, grants);
        copies.extend(company::certificate_copies(&self.variables, grants));
        copies
    }

    /// The proxies of the host's network.
    fn proxies(&self) -> BTreeMap<String, SecretValue> {
        let known = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
        let proxies = self
            .facts
            .variables
            .iter()
            .filter(|(name, _)| known.iter().any(|known| known.eq_ignore_ascii_case(name)));
        proxies.map(|(name, value)| (name.clone(), SecretValue::new(value.clone()))).collect()
    }

    /// The secret values that ringfence puts into requests outside the sandbox.
    fn secret_values(&self, grants: &Grants) -> BTreeMap<String, SecretValue> {
        let kept = grants.network.secrets.iter().filter(|secret| secret.is_set);
        kept.filter_map(|secret| {
            Some((
                secret.env.clone(),
                SecretValue::new(self.facts.variables.get(&secret.env)?.clone()),
            ))
        })
        .collect()
    }
}

/// Gathers the facts for `cwd`.
pub fn gather_host_environment(cwd: &AbsPath) -> Result<HostEnvironment, EngineError> {
    let _stage = trace_span!(target: "stage", "gather_host_environment").entered();
    let variables: Vec<(OsString, OsString)> = env::vars_os().collect();
    let text: BTreeMap<String, String> = variables
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())))
        .collect();
    let account = system::account();
    let home = match text.get(system::HOME_VARIABLE).filter(|home| !home.is_empty()) {
        Some(home) => home.clone(),
        None => account.home.clone(),
    };
    // A missing home directory is common: service accounts have none.
    let home = canonical(Path::new(&home)).or_else(|source| {
        AbsPath::new(&home).ok_or(EngineError::Surroundings { what: "the home directory", source })
    })?;
    let workspace = find_project(cwd, &home, &text);
    let (path_dirs, programs) =
        programs(text.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str));
    // A command that writes in the project could redirect the store by a link.
    let cache = text
        .get("XDG_CACHE_HOME")
        .and_then(AbsPath::new)
        .filter(|cache| is_outside(cache, &workspace));
    let cache = cache.unwrap_or_else(|| home.join(".cache"));
    // A missing directory is accepted: ringfence creates it where the variable says.
    let is_usable =
        |state: &AbsPath| !state.is_within(&workspace) && is_outside(&nearest(state), &workspace);
    let state = text.get("XDG_STATE_HOME").and_then(AbsPath::new).filter(is_usable);
    let state = state.unwrap_or_else(|| home.join(".local/state"));
    let git = git_layout(&workspace);
    let store = cache.join("ringfence/projects").join(slug(&workspace));
    let facts = Facts {
        remotes: remotes(&workspace, git.as_ref(), &store),
        installations: installations(&path_dirs, &home),
        git,
        store,
        state: state.join("ringfence"),
        workspace,
        home,
        user: account.name,
        platform: platform(),
        variables: text,
        path_dirs,
        programs,
    };
    Ok(HostEnvironment { facts, variables, shell: account.shell })
}

/// The platform, as named in settings.
pub fn platform() -> Platform {
    static KNOWN: OnceLock<Platform> = OnceLock::new();
    // The kernel of WSL has `microsoft` in its release.
    let is_wsl = || {
        fs::read_to_string("/proc/sys/kernel/osrelease")
            .is_ok_and(|release| release.to_lowercase().contains("microsoft"))
    };
    *KNOWN.get_or_init(|| match Platform::from_word(env::consts::OS) {
        Some(Platform::Linux) if is_wsl() => Platform::Wsl,
        known => known.unwrap_or(Platform::Linux),
    })
}

/// The directory of the user's settings. Never inside the project, even if the variable says so:
/// files there have the user's authority.
pub(crate) fn config_directory(facts: &Facts) -> AbsPath {
    config_directory_in(&facts.variables, &facts.home, &facts.workspace)
}

/// As [`config_directory`], for any project.
pub(crate) fn config_directory_in(
    variables: &BTreeMap<String, String>,
    home: &AbsPath,
    workspace: &AbsPath,
) -> AbsPath {
    let moved = variables
        .get("XDG_CONFIG_HOME")
        .and_then(AbsPath::new)
        .filter(|config| is_outside(config, workspace));
    moved.unwrap_or_else(|| home.join(".config"))
}

/// The directory of a tool's settings: named by a variable, or below the home directory. Never inside
/// the project, even if the variable says so.
pub(crate) fn config_directory_of(variable: &str, below_home: &str, facts: &Facts) -> AbsPath {
    let named = facts.variables.get(variable).and_then(AbsPath::new);
    let moved = named.filter(|directory| is_outside(directory, &facts.workspace));
    moved.unwrap_or_else(|| facts.home.join(below_home))
}

/// True if a directory exists and is not in the project, by its path or its real path.
fn is_outside(directory: &AbsPath, workspace: &AbsPath) -> bool {
    !directory.is_within(workspace)
        && canonical(directory.as_path()).is_ok_and(|real| !real.is_within(workspace))
}

/// The nearest ancestor that exists.
fn nearest(path: &AbsPath) -> AbsPath {
    path.ancestors().find(|above| above.as_path().exists()).unwrap_or_else(AbsPath::root)
}

/// The owner of the project, if ringfence runs as root and the owner is another user.
pub(crate) fn foreign_owner(workspace: &AbsPath) -> Option<u32> {
    let owner = system::owner(&fs::metadata(workspace.as_path()).ok()?)?;
    (system::user_id() == Some(0) && owner != 0).then_some(owner)
}

fn canonical(path: &Path) -> io::Result<AbsPath> {
    let real = fs::canonicalize(path)?;
    AbsPath::new(&real).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The directories on `PATH`, and the known programs in them.
fn programs(path: &str) -> (Vec<AbsPath>, BTreeSet<String>) {
    let mut directories: Vec<AbsPath> = Vec::new();
    for directory in env::split_paths(path).filter(|directory| directory.is_absolute()) {
        if let Ok(real) = canonical(&directory)
            && !directories.contains(&real)
        {
            directories.push(real);
        }
    }
    let is_there = |name: &str| {
        directories
            .iter()
            .any(|directory| directory.as_path().join(name).symlink_metadata().is_ok())
    };
    // The first program of a preset that is found is enough.
    let first =
        |probes: &[&str]| probes.iter().find(|name| is_there(name)).map(|name| (*name).to_owned());
    let programs = PRESETS.iter().filter_map(|preset| first(preset.probes)).collect();
    (directories, programs)
}

/// The parents of `bin` directories on `PATH` that look like an installed program: with `lib` or
/// similar, and without project files.
fn installations(path_dirs: &[AbsPath], home: &AbsPath) -> BTreeSet<AbsPath> {
    const BIN_NAMES: [&str; 4] = ["bin", "sbin", "shims", "libexec"];
    let is_bin = |directory: &&AbsPath| {
        directory.name().is_some_and(|name| BIN_NAMES.iter().any(|bin| name == *bin))
    };
    path_dirs
        .iter()
        .filter(is_bin)
        .filter_map(AbsPath::parent)
        .filter(|nearest_with| is_installation(nearest_with, home))
        .collect()
}

fn is_installation(directory: &AbsPath, home: &AbsPath) -> bool {
    const INSTALLED: [&str; 7] =
        ["lib", "lib64", "libexec", "share", "libs", "conda-meta", "pyvenv.cfg"];
    const PROJECTS: [&str; 9] = [
        ".git",
        ".hg",
        ".svn",
        "Cargo.toml",
        "package.json",
        "go.mod",
        "pyproject.toml",
        "Gemfile",
        "composer.json",
    ];
    // Outside the home directory only the administrator installs.
    let mut is_installed = !directory.is_within(home);
    for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if PROJECTS.iter().any(|known| name == *known)
            || name.as_encoded_bytes().starts_with(b".env")
        {
            return false;
        }
        is_installed |= INSTALLED.iter().any(|known| name == *known);
    }
    is_installed
}

/// The location of git's files, if `.git` is a pointer to it.
fn git_layout(workspace: &AbsPath) -> Option<GitLayout> {
    // Only a regular file: opening a pipe or a device may block forever.
    let read = |path: &Path| {
        let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
        is_file.then(|| fs::read_to_string(path).ok()).flatten()
    };
    let dot_git = workspace.join(".git");
    let pointer = read(dot_git.as_path())?;
    let git_dir =
        canonical(workspace.join(pointer.strip_prefix("gitdir:")?.trim()).as_path()).ok()?;
    let read_in_git_dir = |name: &str| read(git_dir.join(name).as_path());
    let common_dir = match read_in_git_dir("commondir") {
        Some(common) => canonical(git_dir.join(common.trim()).as_path()).ok()?,
        None => git_dir.clone(),
    };
    // The pointer is a file of the project, which a command may have written. Accept only a
    // directory that git made for this workspace.
    let is_git = |path: &Path| {
        path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
    };
    let points_back = match read_in_git_dir("gitdir") {
        Some(back) => canonical(git_dir.join(back.trim()).as_path()).ok()? == dot_git,
        None => match gitconfig::worktree(&read_in_git_dir("config")?) {
            // A submodule.
            Some(tree) => canonical(git_dir.join(tree).as_path()).ok()? == *workspace,
            // Made by `git init --separate-git-dir`, which writes nothing that points back.
            None => git_dir.name()? != ".git" && is_checked_out_in(&git_dir, workspace),
        },
    };
    (is_git(common_dir.as_path())
        && git_dir.is_within(&common_dir)
        && points_back
        && !git_dir.is_within(workspace))
    .then_some(GitLayout { git_dir, common_dir })
}

/// True if the index of a git directory lists files of this working tree, by inode, time and size.
/// A copy of the pointer in another project does not match.
fn is_checked_out_in(git_dir: &AbsPath, workspace: &AbsPath) -> bool {
    /// The index of the Linux kernel has 9 MB.
    const MAX_LENGTH: u64 = 1 << 26;
    const MAX_ENTRIES: usize = 256;
    let index = git_dir.join("index");
    let is_plain = fs::symlink_metadata(index.as_path())
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_LENGTH);
    let Some(bytes) = is_plain.then(|| fs::read(index.as_path()).ok()).flatten() else {
        return false;
    };
    ringfence_plan::parse_entries(&bytes).iter().take(MAX_ENTRIES).any(|entry| {
        let found = fs::symlink_metadata(workspace.join(&entry.path).as_path());
        let recorded = (entry.inode, entry.modified, entry.size);
        found.is_ok_and(|found| {
            let stamp = system::stamp(&found);
            let current = |FileNumbers { inode, .. }| {
                (inode as u32, stamp.modified.0 as u32, stamp.size as u32)
            };
            found.is_file() && stamp.numbers.map(current) == Some(recorded)
        })
    })
}

/// The remotes of the project's repository. Commands cannot write its config, unless a command made
/// the repository.
fn remotes(workspace: &AbsPath, layout: Option<&GitLayout>, store: &AbsPath) -> Vec<GitRemote> {
    let dot_git = workspace.join(".git");
    let directory = layout.map_or(&dot_git, |layout| &layout.common_dir);
    let is_linked = |path: &AbsPath| {
        fs::symlink_metadata(path.as_path()).is_ok_and(|metadata| metadata.is_symlink())
    };
    let config = directory.join("config");
    // A link would give the remotes of another file.
    if is_linked(directory)
        || is_linked(&config)
        || command_config::may_be_written_by_command(store, directory)
    {
        return Vec::new();
    }
    let text =
        files::read_policy_file(&config).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(|text| gitconfig::remotes(&text)).unwrap_or_default()
}

/// A unique directory name for a project, made from its path.
pub(crate) fn slug(workspace: &AbsPath) -> PathBuf {
    const MAX_LENGTH: usize = 200;
    let mut name = String::new();
    for chunk in workspace.as_bytes()[1..].utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '/' => name.push('+'),
                '+' => name.push_str("%2B"),
                '%' => name.push_str("%25"),
                other => name.push(other),
            }
        }
        name.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02X}")));
    }
    if name.len() > MAX_LENGTH {
        // The prefix that fits, then FNV-1a of the whole name.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let cut = (0..=MAX_LENGTH).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(cut);
        name.push_str(&format!("%{hash:016x}"));
    }
    if name.is_empty() {
        name.push_str("%root");
    }
    PathBuf::from(name)
}

/// The account of the user that runs ringfence.
struct Account {
    name: String,
    home: String,
    shell: String,
}

/// The version of a file: it changes with the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileStamp {
    /// `None` where files have no numbers.
    pub(crate) numbers: Option<FileNumbers>,
    pub(crate) size: u64,
    /// Seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, i64),
    /// The same, of the last change of content or metadata.
    pub(crate) changed: (i64, i64),
}

/// The numbers of a file, which all its names share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileNumbers {
    /// The major and the minor number.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use ringfence_policy::AbsPath;

    #[track_caller]
    fn check(path: &str, expect: &str) {
        assert_eq!(super::slug(&AbsPath::new(path).unwrap()).to_str(), Some(expect));
    }

    #[test]
    fn every_project_has_its_own_store_name() {
        check("/home/me/project", "home+me+project");
        check("/home/me+project", "home+me%2Bproject");
        check("/home/me%2Bproject", "home+me%252Bproject");
        check("/", "%root");
        let odd = |byte: u8| {
            super::slug(&AbsPath::new(std::ffi::OsStr::from_bytes(&[b'/', b'a', byte])).unwrap())
        };
        assert_ne!(odd(0xfe), odd(0xff));
    }

    #[test]
    fn long_paths_have_different_store_names() {
        let long =
            |end: &str| super::slug(&AbsPath::new(format!("/{}/{end}", "x".repeat(300))).unwrap());
        assert_ne!(long("a"), long("b"));
        assert!(long("a").as_os_str().len() < 255);
    }
}
