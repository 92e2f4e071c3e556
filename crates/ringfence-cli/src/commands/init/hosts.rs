//! Hosts that a project needs.
//!
//! A git remote is untrusted: the project's author chose it. Only well-known hosts are proposed;
//! all others are listed and not allowed.

use ringfence_policy::{GitRemote, HostRule, remote_rules};
use serde_json::{Value, json};

use super::languages::ProjectLanguage;

/// A host that a project needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectHost {
    /// `host:port`
    pub(super) rule: String,
    /// The purpose.
    pub(super) reason: String,
    /// The reason why the host is not allowed, if it is not.
    pub(super) doubt: Option<&'static str>,
}

impl ProjectHost {
    pub(super) fn json(&self) -> Value {
        json!({ "host": self.rule, "reason": self.reason, "proposed": self.doubt.is_none(), "doubt": self.doubt })
    }
}

/// Well-known public git hosts.
const FORGES: &[&str] = &[
    "github.com",
    "gitlab.com",
    "bitbucket.org",
    "codeberg.org",
    "git.sr.ht",
    "dev.azure.com",
    "ssh.dev.azure.com",
    "gitee.com",
    "salsa.debian.org",
    "gitlab.freedesktop.org",
    "gitlab.gnome.org",
    "invent.kde.org",
];

/// Returns the hosts, without duplicates.
pub(super) fn needed_hosts(
    languages: &[&ProjectLanguage],
    remotes: &[GitRemote],
) -> Vec<ProjectHost> {
    let of_language = |language: &&ProjectLanguage| {
        let name = language.name;
        language.hosts.iter().map(move |(rule, what)| ProjectHost {
            rule: (*rule).into(),
            reason: format!("{name}: {what}"),
            doubt: None,
        })
    };
    let mut hosts: Vec<ProjectHost> = languages.iter().flat_map(of_language).collect();
    for remote in remotes {
        for rule in remote_rules(&remote.url) {
            let host = ProjectHost {
                rule: rule.to_string(),
                reason: format!("git: the remote {}", word(&remote.name)),
                doubt: doubt(&rule),
            };
            if hosts.iter().all(|known| known.rule != host.rule) {
                hosts.push(host);
            }
        }
    }
    hosts
}

/// Returns the reason why a remote's host needs the user's review.
fn doubt(rule: &HostRule) -> Option<&'static str> {
    let text = rule.to_string();
    let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host);
    const LOCAL: [&str; 7] =
        [".local", ".internal", ".lan", ".corp", ".home", ".intranet", ".home.arpa"];
    if FORGES.contains(&host) {
        return None;
    }
    Some(if !host.contains(|c: char| c.is_ascii_alphabetic()) || host.contains(':') {
        "it is an address"
    } else if !host.contains('.') || LOCAL.iter().any(|end| host.ends_with(end)) {
        "it is a name on a local network"
    } else {
        "the project chose it, and it is not a well-known host"
    })
}

/// Sanitizes an untrusted name for use in a comment.
fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || "-_./".contains(*c)).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expect: &[(&str, bool)]) {
        let remote = GitRemote { name: "ori\ngin".into(), url: url.into() };
        let found = needed_hosts(&[], &[remote]);
        assert!(found.iter().all(|host| host.reason == "git: the remote origin"));
        assert_eq!(
            found.iter().map(|host| (host.rule.as_str(), host.doubt.is_none())).collect::<Vec<_>>(),
            expect,
            "{url}"
        );
    }

    /// Promise: init-writes
    #[test]
    fn only_well_known_hosts_are_proposed() {
        check("https://github.com/me/x", &[("github.com:443", true), ("github.com:22", true)]);
        check("git@gitlab.com:me/x.git", &[("gitlab.com:22", true), ("gitlab.com:443", true)]);
        check(
            "https://github.com.evil.org/x",
            &[("github.com.evil.org:443", false), ("github.com.evil.org:22", false)],
        );
        check("ssh://10.0.0.1/x", &[("10.0.0.1:22", false), ("10.0.0.1:443", false)]);
        check("https://*.org/x", &[]);
        check("https://localhost:3000/x", &[]);
        check("https://git.internal/x", &[("git.internal:443", false), ("git.internal:22", false)]);
        check("/srv/x", &[]);
        check("ext::sh -c id", &[]);
    }
}
