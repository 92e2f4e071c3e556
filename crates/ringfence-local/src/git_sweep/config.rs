//! Git config without what makes git run programs.
//!
//! By a list of what may stay: git learns new settings that run programs with every
//! release, and a list of those would always be too short.

/// A config file, sorted out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilteredConfig {
    /// What may stay.
    pub(super) kept: Vec<u8>,
    /// Names of the settings that may not.
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

/// Sorts out a config file. What is not understood does not stay. `tree` is the value of
/// `core.worktree` that may stay: that of a submodule.
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
            // A value goes on behind a backslash; such a one is not written by git itself.
            let mut is_plain = !bare.ends_with('\\');
            let mut rest = bare;
            while rest.ends_with('\\') {
                is_plain = false;
                match lines.next() {
                    Some(next) => rest = next.trim_end(),
                    None => break,
                }
            }
            let name = section.as_ref().map(|section| setting(section, bare));
            match name {
                Some((name, value))
                    if is_plain && (may_stay(&name, &value) || is_tree(&name, &value, tree)) =>
                {
                    filtered.kept.extend_from_slice(line.as_bytes())
                }
                Some((name, _)) => filtered.dropped.push(name.display()),
                None => filtered.dropped.push(bare.to_owned()),
            }
        }
    }
    filtered
}

/// The working tree that a config file names, as it is written.
pub(super) fn worktree(text: &[u8]) -> Option<String> {
    last(text, |name, value| is_tree(name, value, Some(value)))
}

/// The directory of hooks that a config file names, as it is written.
pub(super) fn hooks_path(text: &[u8]) -> Option<String> {
    let is_it = |name: &ConfigKey, _: &str| {
        (name.section.as_str(), &name.sub, name.key.as_str()) == ("core", &None, "hookspath")
    };
    last(text, is_it).map(|value| value.trim_matches('"').to_owned())
}

/// The value of the last setting that is wanted.
fn last(text: &[u8], is_wanted: impl Fn(&ConfigKey, &str) -> bool) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let mut section = None;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = header(line);
        } else if let Some((name, value)) = section.as_ref().map(|section| setting(section, line))
            && is_wanted(&name, &value)
        {
            found = Some(value);
        }
    }
    found
}

fn is_tree(name: &ConfigKey, value: &str, tree: Option<&str>) -> bool {
    let is_plain = !value.contains(['"', '\\', '#', ';']);
    (name.section.as_str(), &name.sub, name.key.as_str()) == ("core", &None, "worktree")
        && is_plain
        && tree == Some(value)
}

/// Every setting of a file, as `section.key` and its value; `None` if it is not as plain as git
/// writes it.
pub(super) fn settings(text: &[u8]) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(text).ok()?;
    let (mut section, mut found) = (None, Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            section = Some(header(line)?);
            continue;
        }
        let (name, value) = setting(section.as_ref()?, line);
        if value.contains(['"', '\\', '#', ';']) {
            return None;
        }
        found.push((name.display(), value));
    }
    Some(found)
}

/// `[section]` or `[section "sub"]`, and nothing behind it.
fn header(line: &str) -> Option<(String, Option<String>)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (name, sub) = match inner.split_once(char::is_whitespace) {
        None => (inner, None),
        Some((name, sub)) => {
            let sub = sub.trim().strip_prefix('"')?.strip_suffix('"')?;
            // A quote within would end the name early, and the rest would be a setting.
            if sub.contains(['"', '\\']) {
                return None;
            }
            (name, Some(sub.to_owned()))
        }
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_name.then(|| (name.to_ascii_lowercase(), sub))
}

struct ConfigKey {
    section: String,
    sub: Option<String>,
    key: String,
}

impl ConfigKey {
    fn display(&self) -> String {
        match &self.sub {
            Some(sub) => format!("{}.{sub}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }
}

fn setting(section: &(String, Option<String>), line: &str) -> (ConfigKey, String) {
    let (key, value) = line.split_once('=').unwrap_or((line, "true"));
    let name = ConfigKey {
        section: section.0.clone(),
        sub: section.1.clone(),
        key: key.trim().to_ascii_lowercase(),
    };
    (name, value.trim().to_owned())
}

fn may_stay(name: &ConfigKey, value: &str) -> bool {
    let pattern = match &name.sub {
        Some(_) => format!("{}.*.{}", name.section, name.key),
        None => format!("{}.{}", name.section, name.key),
    };
    // `ext::` and other helpers are programs; a name that begins with a dash is an option.
    // Quotes and backslashes could stand between the two colons. A remote need not be a
    // name: git takes an address as well.
    let is_address = ["url", "remote", "partialclone"].iter().any(|end| name.key.ends_with(end));
    let is_harmless_address =
        !value.contains("::") && !value.starts_with('-') && !value.contains(['"', '\\']);
    HARMLESS.contains(&pattern.as_str()) && (!is_address || is_harmless_address)
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
    fn what_git_init_and_clone_write_stays() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = https://host/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        check(text, text, &[]);
    }

    #[test]
    fn what_runs_programs_goes() {
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
    fn what_is_not_understood_goes() {
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
