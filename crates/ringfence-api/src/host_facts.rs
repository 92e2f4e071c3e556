//! Facts about the user and the host that a provider gets with the grants.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_policy::AbsPath;

use crate::SecretValue;

/// A copy of a settings file without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsCopy {
    /// Path of the file, inside and outside.
    pub path: AbsPath,
    /// Content without secrets.
    pub content: String,
}

/// The user, and host settings that a command may see or that a provider uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Login name.
    pub user: String,
    /// Login shell.
    pub shell: String,
    /// The host's `resolv.conf`, if the host's network is used.
    pub resolver: Option<String>,
    /// The user's git settings that are safe to show, if any.
    pub git_config: Option<String>,
    /// The user's global git ignore patterns, if any.
    pub git_ignore: Option<String>,
    /// Settings of package managers, without their secrets.
    pub settings: Vec<SettingsCopy>,
    /// Directory for quarantined files.
    pub quarantine: AbsPath,
    /// Secrets that stay outside, by environment variable. No plan contains them.
    pub secrets: BTreeMap<String, SecretValue>,
    /// Proxy variables of the user, which may contain passwords.
    pub proxies: BTreeMap<String, SecretValue>,
    /// CA bundle of the user, if it is not the system's.
    pub certificates: Option<PathBuf>,
    /// CA certificates for programs, if ringfence terminates TLS.
    pub trust: Option<CaTrust>,
}

/// CA certificates for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaTrust {
    /// The host's CA certificates and the sandbox CA.
    pub bundle: String,
    /// Bundle paths of the host to replace.
    pub bundle_paths: Vec<AbsPath>,
}

impl HostFacts {
    /// A user without settings, for tests.
    pub fn without_settings(quarantine: AbsPath) -> Self {
        let (user, shell) = ("user".into(), "/bin/sh".into());
        let (resolver, git_config, git_ignore, trust) = (None, None, None, None);
        Self {
            user,
            shell,
            resolver,
            git_config,
            git_ignore,
            settings: Vec::new(),
            quarantine,
            secrets: BTreeMap::new(),
            proxies: BTreeMap::new(),
            certificates: None,
            trust,
        }
    }
}
