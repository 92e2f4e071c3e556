//! Filter of git configs: removes settings that make git run programs.
//!
//! It is an allow list: every release of git adds settings that run programs, so a deny list would
//! always be too short.

use crate::launcher::git_config::GitConfigEntry;

/// A filtered config file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilteredConfig {
    /// The text that may stay.
    pub(super) kept: Vec<u8>,
    /// Names of the settings that were removed.
    pub(super) dropped: Vec<String>,
}

/// Settings that name no program, as `section.key`; `section.*.key` has a subsection.
const HARMLESS: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.quotepath",
    "core.abbrev",
    "core.compression",
    "core.untrackedcache",
    "core.preloadindex",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.sharedrepository",
    "core.commitgraph",
    "core.multipackindex",
    "remote.*.url",
    "remote.*.pushurl",
    "remote.*.fetch",
    "remote.*.push",
    "remote.*.tagopt",
    "remote.*.prune",
    "remote.*.promisor",
    "remote.*.partialclonefilter",
    "branch.*.remote",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.description",
    "branch.*.pushremote",
    "branch.autosetuprebase",
    "branch.autosetupmerge",
    "branch.sort",
    "submodule.active",
    "submodule.*.active",
    "submodule.*.url",
    "submodule.*.branch",
    "submodule.*.ignore",
    "submodule.recurse",
    "extensions.objectformat",
    "extensions.worktreeconfig",
    "extensions.partialclone",
    "extensions.refstorage",
    "extensions.compatobjectformat",
    "extensions.relativeworktrees",
    "user.name",
    "user.email",
    "author.name",
    "author.email",
    "committer.name",
    "committer.email",
    "init.defaultbranch",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "push.autosetupremote",
    "fetch.prune",
    "merge.conflictstyle",
    "merge.ff",
    "rebase.autosquash",
    "rebase.autostash",
    "rerere.enabled",
    "diff.algorithm",
    "diff.renames",
    "commit.verbose",
    "tag.sort",
    "log.date",
    "index.version",
    "index.threads",
    "pack.threads",
    "gc.auto",
    "feature.manyfiles",
    "color.ui",
    "advice.detachedhead",
    "lfs.repositoryformatversion",
];

/// Filters a config file. Lines that cannot be parsed are removed. `tree`: the value of
/// `core.worktree` that may stay, that of a submodule.
pub(super) fn filter(text: &[u8], tree: Option<&str>) -> FilteredConfig {
    let mut filtered = FilteredConfig { kept: Vec::new(), dropped: Vec::new() };
    let Ok(text) = std::str::from_utf8(text) else {
        filtered.dropped.push("(not text)".into());
        return filtered;
    };
    let mut section = None;
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            filtered.kept.extend_from_slice(line.as_bytes());
        } else if bare.starts_with('[') {
            section = header(bare);
            match &section {
                Some(_) => filtered.kept.extend_from_slice(line.as_bytes()),
                None => filtered.dropped.push(bare.to_owned()),
            }
        } else {
            // A value continues after a backslash; git itself does not write such lines.
            let mut is_plain = !bare.ends_with('\\');
            let mut rest = bare;
            while rest.ends_with('\\') {
                is_plain = false;
                match lines.next() {
                    Some(next) => rest = next.trim_end(),
                    None => break,
                }
            }
            match section.as_ref().map(|section| setting(section, bare)) {
                Some((entry, value))
                    if is_plain
                        && (is_harmless(&entry, &value) || is_tree(&entry, &value, tree)) =>
                {
                    filtered.kept.extend_from_slice(line.as_bytes())
                }
                Some((entry, _)) => filtered.dropped.push(entry.name()),
                None => filtered.dropped.push(bare.to_owned()),
            }
        }
    }
    filtered
}

/// The working tree that a config file names, as written.
pub(super) fn worktree(text: &[u8]) -> Option<String> {
    last_value(text, |entry, value| is_tree(entry, value, Some(value)))
}

/// The hooks directory that a config file names, as written.
pub(super) fn hooks_path(text: &[u8]) -> Option<String> {
    last_value(text, |entry, _| entry.name() == "core.hookspath")
        .map(|value| value.trim_matches('"').to_owned())
}

/// The value of the last matching setting.
fn last_value(text: &[u8], is_wanted: impl Fn(&GitConfigEntry, &str) -> bool) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let mut section = None;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = header(line);
        } else if let Some((entry, value)) = section.as_ref().map(|section| setting(section, line))
            && is_wanted(&entry, &value)
        {
            found = Some(value);
        }
    }
    found
}

fn is_tree(entry: &GitConfigEntry, value: &str, tree: Option<&str>) -> bool {
    let is_plain = !value.contains(['"', '\\', '#', ';']);
    entry.name() == "core.worktree" && is_plain && tree == Some(value)
}

/// Parses `[section]` or `[section "sub"]` without trailing text.
fn header(line: &str) -> Option<(String, Option<String>)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (name, sub) = match inner.split_once(char::is_whitespace) {
        None => (inner, None),
        Some((name, sub)) => {
            let sub = sub.trim().strip_prefix('"')?.strip_suffix('"')?;
            // A quote inside would end the name early, and the rest would be a setting.
            if sub.contains(['"', '\\']) {
                return None;
            }
            (name, Some(sub.to_owned()))
        }
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_name.then(|| (name.to_ascii_lowercase(), sub))
}

/// A setting and its value as written.
fn setting(section: &(String, Option<String>), line: &str) -> (GitConfigEntry, String) {
    let (key, value) = line.split_once('=').unwrap_or((line, "true"));
    let ((section, subsection), key) = (section.clone(), key.trim().to_ascii_lowercase());
    (GitConfigEntry { section, subsection, key, value: None }, value.trim().to_owned())
}

fn is_harmless(entry: &GitConfigEntry, value: &str) -> bool {
    // `ext::` and other helpers are programs; a leading dash is an option. Quotes and backslashes
    // could hide between the two colons. Git also accepts a URL as the name of a remote.
    let is_address = ["url", "remote", "partialclone"].iter().any(|end| entry.key.ends_with(end));
    let is_harmless_address =
        !value.contains("::") && !value.starts_with('-') && !value.contains(['"', '\\']);
    HARMLESS.contains(&entry.pattern().as_str()) && (!is_address || is_harmless_address)
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(input: &str, kept: &str, dropped: &[&str]) {
        let filtered = super::filter(input.as_bytes(), None);
        assert_eq!(String::from_utf8(filtered.kept).unwrap(), kept);
        assert_eq!(filtered.dropped, dropped);
    }

    #[test]
    fn settings_of_git_init_and_clone_stay() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = https://host/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        check(text, text, &[]);
    }

    #[test]
    fn settings_that_run_programs_are_removed() {
        check(
            "[core]\n\tfsmonitor = ./x\n\tbare = false\n",
            "[core]\n\tbare = false\n",
            &["core.fsmonitor"],
        );
        check(
            "[core]\n\thooksPath = h\n\tsshCommand = x\n\tpager=x\n",
            "[core]\n",
            &["core.hookspath", "core.sshcommand", "core.pager"],
        );
        check("[filter \"x\"]\n\tclean = y\n", "[filter \"x\"]\n", &["filter.x.clean"]);
        check("[alias]\n\tst = !sh\n", "[alias]\n", &["alias.st"]);
        check("[include]\n\tpath = x\n", "[include]\n", &["include.path"]);
        check("[remote \"o\"]\n\turl = ext::sh -c x\n", "[remote \"o\"]\n", &["remote.o.url"]);
        check("[remote \"o\"]\n\turl = ext:\"\":sh\n", "[remote \"o\"]\n", &["remote.o.url"]);
        check(
            "[branch \"m\"]\n\tremote = ext::sh\n\tpushRemote = x::y\n",
            "[branch \"m\"]\n",
            &["branch.m.remote", "branch.m.pushremote"],
        );
        check(
            "[remote \"o\"]\n\tpushurl = \"-upload\"\n",
            "[remote \"o\"]\n",
            &["remote.o.pushurl"],
        );
        check(
            "[submodule \"o\"]\n\turl = ext:\\\":\n",
            "[submodule \"o\"]\n",
            &["submodule.o.url"],
        );
        check("[remote \"o\"]\n\turl = -upload\n", "[remote \"o\"]\n", &["remote.o.url"]);
        check(
            "[diff \"x\"]\n\ttextconv = y\n[gpg]\n\tprogram = z\n",
            "[diff \"x\"]\n[gpg]\n",
            &["diff.x.textconv", "gpg.program"],
        );
    }

    #[test]
    fn only_the_given_working_tree_stays() {
        let text = "[core]\n\tworktree = ../../../sub\n\tbare = false\n";
        assert_eq!(super::worktree(text.as_bytes()).as_deref(), Some("../../../sub"));
        assert_eq!(super::filter(text.as_bytes(), Some("../../../sub")).dropped, [""; 0]);
        assert_eq!(super::filter(text.as_bytes(), Some("../../other")).dropped, ["core.worktree"]);
        check(text, "[core]\n\tbare = false\n", &["core.worktree"]);
        assert_eq!(
            super::worktree(b"[core \"x\"]\n\tworktree = a\n[core]\n\tworktree = \"a\"\n"),
            None
        );
    }

    #[test]
    fn unparsable_lines_are_removed() {
        check("[core] fsmonitor = x\n", "", &["[core] fsmonitor = x"]);
        check(
            "[includeIf \"gitdir:**\"] path = \"../evil\"]\n",
            "",
            &["[includeIf \"gitdir:**\"] path = \"../evil\"]"],
        );
        check("[filter \"x\"] clean = \"y\"]\n", "", &["[filter \"x\"] clean = \"y\"]"]);
        check("loose = x\n", "", &["loose = x"]);
        check("[core]\n\tbare = fal\\\nse\n", "[core]\n", &["core.bare"]);
        check(
            "[core]\n\tbare = x \\\n[core]\n\tfsmonitor = y\n",
            "[core]\n",
            &["core.bare", "core.fsmonitor"],
        );
        check("# note\n\n[core]\n", "# note\n\n[core]\n", &[]);
        assert_eq!(super::filter(b"[core]\n\xff = x\n", None).dropped, ["(not text)"]);
    }
}
