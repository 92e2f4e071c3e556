//! Converts file and host rules of Claude Code's own settings to flags of `ringfence run`.
//!
//! Its `permissions` apply to its own tools, and its `sandbox` settings to the sandbox that
//! ringfence replaces: a command that goes through the hook would escape both.

use std::path::Path;

use ringfence_policy::import::{ImportFormat, ImportedPolicy, import};
use ringfence_policy::policy::PathEntry;
use ringfence_policy::{AbsPath, Glob, Grants, Mode, NetworkMode};

use super::settings::SettingsAuthor;

/// Flags of `ringfence run`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileRules {
    flags: Vec<String>,
    allowed_hosts: Vec<String>,
    network: NetworkRequest,
}

/// The network mode that the settings request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum NetworkRequest {
    #[default]
    FromPolicy,
    /// `deniedDomains` has `*`.
    Disabled,
}

/// The policy that settings are added to, and the mode that the command will run in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) grants: &'a Grants,
    /// Read-only in plan mode, also if the policy allows writes.
    pub(super) mode: Mode,
}

impl Base<'_> {
    /// True if settings may add writable paths; they do not override read-only mode.
    fn can_widen_writes(self) -> bool {
        self.mode == Mode::WorkspaceWrite && self.grants.tools.rule_against_writing().is_none()
    }

    /// True if settings may add hosts; they do not override a network mode set by a policy.
    fn can_widen_hosts(self) -> bool {
        let network = &self.grants.network;
        let is_unchosen = network.mode == NetworkMode::None && network.mode_origin.is_none();
        network.locked.is_none() && (network.mode == NetworkMode::AllowList || is_unchosen)
    }

    /// True if the path does not exist. `run` refuses a `--write` without effect; settings are
    /// shared by many projects, so such an entry is skipped here.
    fn is_absent(self, entry: &str) -> bool {
        let path = match entry.strip_prefix("~/") {
            Some(below) => self.grants.home.join(below),
            None => match AbsPath::new(entry) {
                Some(path) => path,
                None => return false,
            },
        };
        std::fs::symlink_metadata(path.as_path()).is_err()
    }
}

impl FileRules {
    /// Adds the rules of a settings file; its relative paths are relative to `anchor`.
    pub(super) fn add(
        &mut self,
        text: &str,
        anchor: &AbsPath,
        author: SettingsAuthor,
        base: Base<'_>,
    ) -> Result<(), String> {
        let ImportedPolicy { policy, .. } =
            import(text, ImportFormat::SettingsJson).map_err(|error| error.to_string())?;
        let files = &policy.filesystem;
        self.paths("--deny", &files.deny, anchor)?;
        self.paths("--protect", &files.protect, anchor)?;
        // Hosts cannot be denied on the host's own network, and a policy chose that.
        if base.grants.network.mode != NetworkMode::Full {
            self.flags.extend(policy.network.deny.iter().map(|host| format!("--deny-host={host}")));
        }
        if author == SettingsAuthor::Trusted {
            self.paths("--read", &files.read, anchor)?;
            if base.can_widen_writes() {
                let paths = files
                    .write
                    .iter()
                    .map(|entry| anchored(entry.path(), anchor))
                    .collect::<Result<Vec<_>, _>>()?;
                self.flags.extend(
                    paths
                        .iter()
                        .filter(|path| !base.is_absent(path))
                        .map(|path| format!("--write={path}")),
                );
            }
            if base.can_widen_hosts() {
                self.allowed_hosts
                    .extend(policy.network.allow.iter().map(|host| format!("--allow-host={host}")));
            }
        }
        Ok(())
    }

    /// Disables the network: a settings file denies every host.
    pub(super) fn disable_network(&mut self) {
        self.network = NetworkRequest::Disabled;
    }

    /// Returns all flags, in order.
    pub(super) fn flags(&self) -> Vec<String> {
        let network = match self.network {
            NetworkRequest::FromPolicy => self.allowed_hosts.clone(),
            NetworkRequest::Disabled => vec!["--net=none".to_owned()],
        };
        [self.flags.clone(), network].concat()
    }

    fn paths(&mut self, flag: &str, entries: &[PathEntry], anchor: &AbsPath) -> Result<(), String> {
        for entry in entries {
            self.flags.push(format!("{flag}={}", anchored(entry.path(), anchor)?));
        }
        Ok(())
    }
}

/// Makes an entry independent of the current directory.
fn anchored(text: &str, anchor: &AbsPath) -> Result<String, String> {
    let Some(below) = text.strip_prefix("./").or((text == ".").then_some("")) else {
        return Ok(text.to_owned());
    };
    let anchor = anchor.as_path().to_str().ok_or("the project's path is not UTF-8")?;
    let anchor = if Glob::is_glob(below.trim_end_matches("/**")) {
        Glob::escape(anchor)
    } else {
        anchor.to_owned()
    };
    Ok(Path::new(&anchor).join(below).to_string_lossy().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_relative_to_the_project() {
        let anchor = AbsPath::new("/p/it [1]").unwrap();
        for (text, expect) in [
            (".", "/p/it [1]"),
            ("./private/**", "/p/it [1]/private/**"),
            (".env", ".env"),
            ("**/x", "**/x"),
            ("~/notes", "~/notes"),
            ("/srv", "/srv"),
        ] {
            assert_eq!(anchored(text, &anchor).unwrap(), expect);
        }
        assert!(anchored("./a/*.txt", &anchor).unwrap().starts_with(&Glob::escape("/p/it [1]")));
    }
}
