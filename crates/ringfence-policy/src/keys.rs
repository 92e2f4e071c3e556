//! Keys of the file format, and suggestions for misspelt ones.

/// Each section with its keys; the empty name is the top level.
pub(crate) const KEYS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "version",
            "project",
            "extends",
            "mode",
            "on-gap",
            "observe",
            "ask",
            "sandbox",
            "filesystem",
            "environment",
            "network",
            "commands",
            "tools",
            "limits",
            "audit",
            "secrets",
        ],
    ),
    (
        "sandbox",
        &[
            "enabled",
            "enabled-platforms",
            "provider",
            "fail-if-unavailable",
            "allow-unsandboxed-commands",
            "auto-allow-bash-if-sandboxed",
            "hook-session",
            "hook-session-idle",
        ],
    ),
    ("filesystem", &["read", "write", "deny", "hide", "protect", "except", "env-files", "tracked"]),
    ("environment", &["profile", "allow", "deny", "set"]),
    (
        "network",
        &[
            "mode",
            "allow",
            "deny",
            "localhost",
            "git",
            "unix-sockets",
            "bind",
            "sni",
            "proxy-variables",
            "locked",
        ],
    ),
    (
        "commands",
        &["deny", "allow-binaries", "deny-arguments", "anchor-arguments", "excluded", "doubt"],
    ),
    ("tools", &["allowed", "disallowed"]),
    (
        "limits",
        &["wall", "cpu", "memory", "processes", "open-files", "file-size", "disk", "output"],
    ),
    ("audit", &["fsync", "on-error", "rotate-size"]),
];

/// The keys of an entry in table form.
const ENTRY_KEYS: &[&str] = &["path", "locked", "reason"];

/// The keys of an entry of `[[secrets]]`.
pub(crate) const SECRET_KEYS: &[&str] = &["env", "hosts", "header"];

/// The keys of a section; `None` if the section does not exist.
pub(crate) fn section_keys(section: &str) -> Option<&'static [&'static str]> {
    KEYS.iter().find(|(name, _)| *name == section).map(|(_, keys)| *keys)
}

/// The keys of a table in the list `name` of a section; `None` if the list has no tables.
pub(crate) fn entry_keys(section: &str, name: &str) -> Option<&'static [&'static str]> {
    match (section, name) {
        ("filesystem", _) => Some(ENTRY_KEYS),
        ("", "secrets") => Some(SECRET_KEYS),
        _ => None,
    }
}

/// The known key that is most similar to `key`.
///
/// At most two edits, fewer in short words; a key of another section is returned with its section.
pub(crate) fn nearest(key: &str, known: &[&str]) -> Option<String> {
    if let Some(found) = nearest_word(key, known) {
        return Some(found);
    }
    let folded = fold(key);
    let elsewhere =
        KEYS.iter().find(|(section, keys)| !section.is_empty() && keys.contains(&folded.as_str()));
    elsewhere.map(|(section, _)| format!("{section}.{folded}"))
}

/// The word in `known` that is most similar to `key`.
pub fn nearest_word(key: &str, known: &[&str]) -> Option<String> {
    let folded = fold(key);
    let near =
        |candidate: &&&str| distance(&folded, candidate) <= (candidate.len() / 3).clamp(1, 2);
    known
        .iter()
        .filter(near)
        .min_by_key(|candidate| distance(&folded, candidate))
        .map(|found| (*found).to_owned())
}

fn fold(key: &str) -> String {
    key.to_lowercase().replace('_', "-")
}

/// Edit distance: changes, insertions, removals and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let swap = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = swap.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(section: &str, key: &str, expect: Option<&str>) {
        assert_eq!(nearest(key, section_keys(section).unwrap()).as_deref(), expect, "{key}");
    }

    #[test]
    fn misspelt_keys_get_suggestions_and_nonsense_does_not() {
        check("", "filesytem", Some("filesystem"));
        check("", "FileSystem", Some("filesystem"));
        check("", "on_gap", Some("on-gap"));
        check("filesystem", "dney", Some("deny"));
        check("network", "unixsockets", Some("unix-sockets"));
        check("", "excluded", Some("commands.excluded"));
        check("", "sandbox-mode", None);
        check("", "enabled", Some("sandbox.enabled"));
        check("limits", "x", None);
    }

    #[test]
    fn the_keys_are_those_of_the_types() {
        let schema = serde_json::to_value(schemars::schema_for!(crate::policy::Policy)).unwrap();
        for (section, keys) in KEYS {
            let properties = if section.is_empty() {
                &schema["properties"]
            } else {
                let reference = schema["properties"][section]["$ref"].as_str().unwrap();
                &schema["$defs"][reference.rsplit('/').next().unwrap()]["properties"]
            };
            let mut have: Vec<&str> =
                properties.as_object().unwrap().keys().map(String::as_str).collect();
            let mut want = keys.to_vec();
            have.sort_unstable();
            want.sort_unstable();
            assert_eq!(have, want, "{section}");
        }
        let mut secret: Vec<&str> = schema["$defs"]["SecretSection"]["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        secret.sort_unstable();
        assert_eq!(secret, ["env", "header", "hosts"]);
        assert!(secret.iter().all(|key| SECRET_KEYS.contains(key)));
    }
}
