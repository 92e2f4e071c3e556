//! `.gitmodules`: changes that a command may make, and the URLs in it.

use super::{GitConfigEntry, url};

/// The key of the first change that could make git run a program or leave the working tree; `None`
/// if there is none. `user` are the settings of the user, also those that a command removed.
pub(super) fn first_refused(
    user: &[GitConfigEntry],
    before: &[GitConfigEntry],
    after: &[GitConfigEntry],
) -> Option<String> {
    let is_kept = |entry: &GitConfigEntry| before.contains(entry);
    let refused = after.iter().find(|entry| !is_kept(entry) && !is_harmless(entry));
    // Git would fetch from a changed URL instead of the one that the user knows.
    let is_moved = |entry: &&GitConfigEntry| {
        let is_known =
            |known: &&GitConfigEntry| known.name() == entry.name() && known.value != entry.value;
        entry.key == "url" && user.iter().chain(before).any(|known| is_known(&known))
    };
    // The same holds for another submodule name at the same path.
    let is_replaced = |entry: &&GitConfigEntry| {
        let has_path = |known: &&GitConfigEntry| {
            known.section == "submodule" && known.key == "path" && known.value == entry.value
        };
        let is_other = |known: &GitConfigEntry| known.subsection != entry.subsection;
        entry.key == "path" && !is_kept(entry) && user.iter().filter(has_path).any(is_other)
    };
    refused
        .or_else(|| after.iter().find(is_moved))
        .or_else(|| after.iter().find(is_replaced))
        .map(GitConfigEntry::name)
}

fn is_harmless(entry: &GitConfigEntry) -> bool {
    let (Some(name), Some(value)) = (&entry.subsection, &entry.value) else { return false };
    if entry.section != "submodule" || !is_below(name) {
        return false;
    }
    match entry.key.as_str() {
        "path" => is_below(value),
        "url" => url::is_plain(value),
        "branch" => {
            !value.is_empty() && !value.starts_with('-') && !value.chars().any(|c| c.is_control())
        }
        "shallow" | "fetchrecursesubmodules" => {
            matches!(value.as_str(), "true" | "false" | "on-demand")
        }
        "ignore" => matches!(value.as_str(), "none" | "untracked" | "dirty" | "all"),
        "update" => is_update(value),
        _ => false,
    }
}

/// True if an update mode runs no program.
pub(super) fn is_update(value: &str) -> bool {
    matches!(value, "checkout" | "rebase" | "merge" | "none")
}

/// True if a path stays below its start, and does not lead into a git directory.
pub(super) fn is_below(path: &str) -> bool {
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.to_ascii_lowercase().starts_with(".git")
            && !part.contains(':')
    };
    !path.starts_with('-')
        && !path.contains('\\')
        && !path.chars().any(char::is_control)
        && path.split('/').all(is_part)
}

/// The URL of a submodule by its name; the last entry wins.
pub(super) fn address<'a>(entries: &'a [GitConfigEntry], name: &str) -> Option<&'a str> {
    entries
        .iter()
        .rev()
        .find(|entry| entry.is_in("submodule", name) && entry.key == "url")?
        .value
        .as_deref()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::first_refused;

    #[track_caller]
    fn check(before: &str, after: &str, refused: Option<&str>) {
        check_step(before, before, after, refused);
    }

    #[track_caller]
    fn check_step(user: &str, before: &str, after: &str, refused: Option<&str>) {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        assert_eq!(
            first_refused(&read(user), &read(before), &read(after)).as_deref(),
            refused,
            "{after}"
        );
    }

    #[test]
    fn removed_submodule_comes_back_with_its_old_url_only() {
        let one = "[submodule \"a\"]\npath = a\nurl = https://a.org/a\n";
        check_step(one, "", one, None);
        check_step(one, "", "[submodule \"a\"]\nurl = https://b.org/a\n", Some("submodule.a.url"));
        check_step(
            one,
            "",
            "[submodule \"b\"]\npath = a\nurl = https://b.org/a\n",
            Some("submodule.b.path"),
        );
    }

    #[test]
    fn submodules_are_added_and_removed() {
        let one = "[submodule \"a/b\"]\n\tpath = a/b\n\turl = ../lib\n";
        check("", one, None);
        check(one, "", None);
        check(
            one,
            &format!(
                "{one}[submodule \"c\"]\n\tpath = c\n\turl = https://a.org/c\n\tbranch = x\n\tupdate = rebase\n"
            ),
            None,
        );
    }

    #[test]
    fn programs_other_places_and_other_addresses_are_refused() {
        check("", "[submodule \"a\"]\nupdate = !x\n", Some("submodule.a.update"));
        check("", "[submodule \"a\"]\nurl = ext::x\n", Some("submodule.a.url"));
        check("", "[submodule \"a\"]\nurl = -x\n", Some("submodule.a.url"));
        for path in ["../x", "/x", "-x", ".git", "a/.GIT/hooks", "a//b", "", "a\\\\b", "git~1:x"] {
            check("", &format!("[submodule \"a\"]\npath = {path}\n"), Some("submodule.a.path"));
        }
        check("", "[submodule \"../a\"]\nurl = x\n", Some("submodule.../a.url"));
        check("", "[core]\nfsmonitor = x\n", Some("core.fsmonitor"));
        check("", "[submodule]\nurl = x\n", Some("submodule.url"));
        let one = "[submodule \"a\"]\nurl = https://a.org/a\n";
        check(one, "[submodule \"a\"]\nurl = https://b.org/a\n", Some("submodule.a.url"));
        check(one, &format!("{one}url = https://b.org/a\n"), Some("submodule.a.url"));
        // An existing entry is the user's.
        check(
            "[submodule \"a\"]\nupdate = !x\n",
            &format!("[submodule \"a\"]\nupdate = !x\n{one}"),
            None,
        );
    }
}
