//! Facts about the machine and the command line.
//!
//! Plain data: the engine collects it, this crate only reads it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::grants::{Asking, Limits, Mode, NetworkMode, Observe, OnGap};
use crate::path::AbsPath;
use crate::provider_spec::ProviderSpec;

/// A platform, named as in `enabledPlatforms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Linux.
    Linux,
    /// Windows Subsystem for Linux.
    Wsl,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
}

impl Platform {
    /// Parses the name of a platform.
    pub fn from_word(word: &str) -> Option<Platform> {
        Some(match word {
            "linux" => Platform::Linux,
            "wsl" => Platform::Wsl,
            "macos" => Platform::Macos,
            "windows" => Platform::Windows,
            _ => return None,
        })
    }
}

/// Facts about the machine, the user and the project.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The project directory, canonical.
    pub workspace: AbsPath,
    /// The user's home directory, canonical.
    pub home: AbsPath,
    /// The user's name.
    pub user: String,
    /// The platform.
    pub platform: Platform,
    /// Environment variables that entries may use.
    pub variables: BTreeMap<String, String>,
    /// The existing directories on `PATH`, canonical, in order.
    pub path_dirs: Vec<AbsPath>,
    /// The directories around those that contain an installed program and no project.
    pub installations: BTreeSet<AbsPath>,
    /// For each [`Preset`](crate::presets::Preset) with a program on `PATH`, the name of that
    /// program.
    pub programs: BTreeSet<String>,
    /// The git directories, if they are outside the workspace.
    pub git: Option<GitLayout>,
    /// The git remotes of the project.
    pub remotes: Vec<GitRemote>,
    /// The project's own cache directory.
    pub store: AbsPath,
    /// The state directory of ringfence, with the audit log.
    pub state: AbsPath,
}

impl Facts {
    /// Facts of a host with only these three paths; the state directory is below the home
    /// directory.
    pub fn minimal(workspace: AbsPath, home: AbsPath, store: AbsPath) -> Self {
        Self {
            workspace,
            user: "user".into(),
            platform: Platform::Linux,
            variables: BTreeMap::new(),
            path_dirs: Vec::new(),
            installations: BTreeSet::new(),
            programs: BTreeSet::new(),
            git: None,
            remotes: Vec::new(),
            store,
            state: home.join(".local/state/ringfence"),
            home,
        }
    }
}

/// The git directories of a linked worktree or a submodule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitLayout {
    /// The worktree's own directory, e.g. `/repo/.git/worktrees/x`.
    pub git_dir: AbsPath,
    /// The directory that all worktrees share, e.g. `/repo/.git`.
    pub common_dir: AbsPath,
}

/// A git remote of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRemote {
    /// Name in git: `origin`.
    pub name: String,
    /// The URL as written.
    pub url: String,
}

/// The flags of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Flags {
    /// The base directory of relative entries.
    pub cwd: AbsPath,
    /// The directory in which the agent was started, if different: it reads its settings there.
    pub started_in: Option<AbsPath>,
    /// `--sandbox`, `--no-sandbox`
    pub enabled: Option<bool>,
    /// `--provider`
    pub provider: Option<ProviderSpec>,
    /// `--mode`
    pub mode: Option<Mode>,
    /// `--read`
    pub read: Vec<String>,
    /// `--write`
    pub write: Vec<String>,
    /// `--deny`
    pub deny: Vec<String>,
    /// `--hide`
    pub hide: Vec<String>,
    /// `--protect`
    pub protect: Vec<String>,
    /// `--except`
    pub except: Vec<String>,
    /// `--env NAME` passes, `--env NAME=VALUE` sets.
    pub env: Vec<(String, Option<String>)>,
    /// `--net`
    pub net: Option<NetworkMode>,
    /// `--allow-host`
    pub allow_host: Vec<String>,
    /// `--deny-host`
    pub deny_host: Vec<String>,
    /// `--allow-localhost`
    pub allow_localhost: Vec<u16>,
    /// `--bind`
    pub bind: Vec<u16>,
    /// `--on-gap`
    pub on_gap: Option<OnGap>,
    /// `--observe`
    pub observe: Option<Observe>,
    /// `--ask`
    pub ask: Option<Asking>,
    /// `--timeout` and `--limit`
    pub limits: Limits,
}

impl Flags {
    /// No flags, with the current directory `cwd`.
    pub fn none(cwd: AbsPath) -> Self {
        Self {
            cwd,
            started_in: None,
            enabled: None,
            provider: None,
            mode: None,
            read: Vec::new(),
            write: Vec::new(),
            deny: Vec::new(),
            hide: Vec::new(),
            protect: Vec::new(),
            except: Vec::new(),
            env: Vec::new(),
            net: None,
            allow_host: Vec::new(),
            deny_host: Vec::new(),
            allow_localhost: Vec::new(),
            bind: Vec::new(),
            on_gap: None,
            observe: None,
            ask: None,
            limits: Limits::default(),
        }
    }
}
