//! What the policy has to know of the machine and of the command line.
//!
//! Plain data: the engine gathers it, this crate only reads it.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::Platform;
use crate::grants::{Asking, Limits, Mode, NetworkMode, Observe, OnGap};
use crate::path::AbsPath;

/// What is known of the machine, the user and the project.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The project that is worked on, canonical.
    pub workspace: AbsPath,
    /// The user's home directory, canonical.
    pub home: AbsPath,
    /// The user's name.
    pub user: String,
    /// The system.
    pub platform: Platform,
    /// Variables that entries may name.
    pub variables: BTreeMap<String, String>,
    /// The existing directories on `PATH`, canonical, in order.
    pub path_dirs: Vec<AbsPath>,
    /// Which directories around those hold an installed program and no project.
    pub installations: BTreeSet<AbsPath>,
    /// For each [`Preset`](crate::presets::Preset) that has one on `PATH`, a program it is known
    /// by.
    pub programs: BTreeSet<String>,
    /// Where git keeps its files, if that is outside the workspace.
    pub git: Option<GitLayout>,
    /// The project's remotes, as git has them.
    pub remotes: Vec<Remote>,
    /// The project's own cache directory.
    pub store: AbsPath,
    /// Where ringfence keeps what it remembers of runs, such as the audit log.
    pub state: AbsPath,
}

impl Facts {
    /// A host of which nothing more is known than these three; what is remembered is kept in
    /// the home.
    pub fn plain(workspace: AbsPath, home: AbsPath, store: AbsPath) -> Self {
        Self {
            workspace,
            user: "somebody".into(),
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

/// Where a project is fetched from or pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// As git calls it: `origin`.
    pub name: String,
    /// As it is written.
    pub url: String,
}

/// The flags of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Flags {
    /// The directory that relative entries are relative to.
    pub cwd: AbsPath,
    /// The directory the agent was started in, where that is another one: it reads its settings
    /// there.
    pub started_in: Option<AbsPath>,
    /// `--sandbox`, `--no-sandbox`
    pub enabled: Option<bool>,
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
    /// No flag at all, given in `cwd`.
    pub fn none(cwd: AbsPath) -> Self {
        Self {
            cwd,
            started_in: None,
            enabled: None,
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
