//! Rules on files and hosts in Claude Code's own settings, as flags of the run that stands in for a
//! command.
//!
//! Its `permissions` bind its own tools, and its `sandbox` settings bind a sandbox that ringfence
//! stands in for: a command that goes through the hook would escape both.

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

/// The network that the settings leave to a command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum NetworkRequest {
    #[default]
    AsThePolicySays,
    /// `deniedDomains` has `*`.
    Shut,
}

/// The policy that settings are added to, and the mode that the command will run in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) grants: &'a Grants,
    /// Read-only while the agent plans, whatever the policy says.
    pub(super) mode: Mode,
}

impl Base<'_> {
    /// Settings of another tool do not make the workspace writable in read-only mode.
    fn can_widen_writes(self) -> bool {
        self.mode == Mode::WorkspaceWrite && self.grants.tools.against_writing().is_none()
    }

    /// Settings of another tool do not open a network whose mode a policy sets.
    fn can_widen_hosts(self) -> bool {
        let network = &self.grants.network;
        let is_unchosen = network.mode == NetworkMode::None && network.mode_origin.is_none();
        network.locked.is_none() && (network.mode == NetworkMode::AllowList || is_unchosen)
    }

    /// `run` refuses a `--write` that opens nothing. Settings are written once for many projects,
    /// so here such an entry is left out.
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
    /// Adds what a settings file says; `anchor` is the directory that its relative paths are
    /// relative to.
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
        // On the host's own network hosts cannot be denied, and a policy chose that.
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

    /// Shuts the network: a settings file denies every host.
    pub(super) fn shut_network(&mut self) {
        self.network = NetworkRequest::Shut;
    }

    /// All flags, in order.
    pub(super) fn flags(&self) -> Vec<String> {
        let network = match self.network {
            NetworkRequest::AsThePolicySays => self.allowed_hosts.clone(),
            NetworkRequest::Shut => vec!["--net=none".to_owned()],
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

/// An entry that means the same wherever the shell stands.
fn anchored(text: &str, anchor: &AbsPath) -> Result<String, String> {
    let Some(below) = text.strip_prefix("./").or((text == ".").then_some("")) else {
        return Ok(text.to_owned());
    };
    let anchor = anchor.as_path().to_str().ok_or("the project's path is no text")?;
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
    fn relative_paths_are_those_of_the_project() {
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
