//! Changes of a repository's config that a command may make: an allow list.
//!
//! All other settings must be there as they were, in the same order. A setting on the list names no
//! program and no other file.

use super::{Entry, modules, url};

/// Facts of the repository that a change is compared with.
#[derive(Debug, Default)]
pub(super) struct Repository {
    /// The `.gitmodules` of its working trees.
    pub(super) modules: Vec<Vec<Entry>>,
    /// Paths of its working trees.
    pub(super) trees: Vec<String>,
}

/// Settings with a value of one of these words, or true, or false.
const WORDS: &[(&str, &[&str])] = &[
    ("branch.*.rebase", &["merges"]),
    ("submodule.*.active", &[]),
    ("submodule.*.update", &["checkout", "rebase", "merge", "none"]),
    ("pull.rebase", &["merges"]),
    ("pull.ff", &["only"]),
    ("merge.ff", &["only"]),
    ("push.default", &["nothing", "current", "upstream", "simple"]),
    ("push.autosetupremote", &[]),
    ("push.followtags", &[]),
    ("fetch.prune", &[]),
    ("rebase.autosquash", &[]),
    ("rebase.autostash", &[]),
    ("rebase.updaterefs", &[]),
    ("rerere.enabled", &[]),
    ("commit.verbose", &[]),
    ("color.ui", &["auto", "always", "never"]),
    // Git LFS writes both by itself.
    ("lfs.repositoryformatversion", &["0"]),
    ("lfs.*.locksverify", &[]),
    ("branch.autosetuprebase", &["never", "local", "remote", "always"]),
    ("branch.autosetupmerge", &["always", "inherit", "simple"]),
];

/// Settings with any text.
const TEXTS: &[&str] = &[
    "branch.*.description",
    "user.name",
    "user.email",
    "author.name",
    "author.email",
    "committer.name",
    "committer.email",
    "gui.geometry",
    "gui.wmstate",
];

/// Settings with the name of a ref.
const REFS: &[&str] = &["branch.*.merge", "init.defaultbranch"];

/// Settings with the name of a remote.
const REMOTES: &[&str] = &["branch.*.remote", "branch.*.pushremote"];

/// Settings of a remote that a command adds.
const OF_REMOTE: &[&str] = &["remote.*.url", "remote.*.pushurl", "remote.*.fetch"];

/// The key of the first change that a command may not make; `None` if it may make them all.
pub(super) fn first_refused(before: &[Entry], after: &[Entry], repository: &Repository) -> Option<String> {
    let change = Change { before, after, repository };
    let frozen = |entries: &[Entry]| entries.iter().filter(|entry| !is_listed(entry)).cloned().collect::<Vec<_>>();
    let (was, is) = (frozen(before), frozen(after));
    if was != is {
        let changed = is.iter().zip(&was).find(|(is, was)| is != was).map(|(is, _)| is);
        let more = is.get(was.len()).or_else(|| was.get(is.len()));
        return changed.or(more).map(Entry::name);
    }
    let names = before.iter().chain(after).filter(|entry| is_listed(entry));
    names.into_iter().find(|entry| change.differs(entry) && !change.may_become(entry)).map(Entry::name)
}

/// Answers whether a setting is of a kind that a command may change at all.
fn is_listed(entry: &Entry) -> bool {
    let pattern = entry.pattern();
    let is_one = |list: &[&str]| list.contains(&pattern.as_str());
    is_one(TEXTS) || is_one(REFS) || is_one(REMOTES) || is_one(OF_REMOTE) || words(&pattern).is_some() || pattern == "submodule.*.url"
}

fn words(pattern: &str) -> Option<&'static [&'static str]> {
    WORDS.iter().find(|(known, _)| *known == pattern).map(|(_, words)| *words)
}

struct Change<'a> {
    before: &'a [Entry],
    after: &'a [Entry],
    repository: &'a Repository,
}

impl Change<'_> {
    fn differs(&self, entry: &Entry) -> bool {
        values(self.before, entry) != values(self.after, entry)
    }

    /// Answers whether all values that a setting has now are harmless.
    fn may_become(&self, entry: &Entry) -> bool {
        let pattern = entry.pattern();
        let name = entry.subsection.as_deref().unwrap_or_default();
        let before = values(self.before, entry);
        // `git remote add` writes the address first and what to fetch next.
        let is_next = pattern == "remote.*.fetch" && before.is_empty();
        if OF_REMOTE.contains(&pattern.as_str()) && !is_next && self.before.iter().any(|known| known.is_in("remote", name)) {
            return false;
        }
        values(self.after, entry).into_iter().filter(|value| !before.contains(value)).all(|value| match value {
            // A key without a value is true.
            None => words(&pattern).is_some(),
            Some(value) => self.is_harmless(&pattern, name, value, &before),
        })
    }

    fn is_harmless(&self, pattern: &str, name: &str, value: &str, before: &[Option<&str>]) -> bool {
        match pattern {
            "remote.*.url" | "remote.*.pushurl" => is_name(name) && url::is_plain(value),
            "remote.*.fetch" => is_name(name) && is_refspec(value),
            "branch.*.remote" if before.is_empty() => value == "." || has_remote(self.after, value),
            // Another remote must be one that the user added.
            "branch.*.remote" | "branch.*.pushremote" => value == "." || has_remote(self.before, value),
            "submodule.*.url" => modules::is_below(name) && url::is_plain(value) && self.is_address(name, value),
            _ if REFS.contains(&pattern) => is_ref(value),
            _ if TEXTS.contains(&pattern) => !value.chars().any(|c| c.is_control() && c != '\n'),
            _ => words(pattern).is_some_and(|words| matches!(value, "true" | "false") || words.contains(&value)),
        }
    }

    /// Answers whether `.gitmodules` of a working tree names this address for a submodule. A relative one
    /// is relative to a remote, or to the tree if there is none.
    fn is_address(&self, name: &str, value: &str) -> bool {
        let remotes = self.after.iter().filter(|entry| entry.pattern() == "remote.*.url").filter_map(|entry| entry.value.as_deref());
        let bases: Vec<&str> = remotes.chain(self.repository.trees.iter().map(String::as_str)).collect();
        let written = self.repository.modules.iter().filter_map(|modules| modules::address(modules, name));
        written.into_iter().any(|written| {
            value == written || bases.iter().any(|base| url::resolve(base, written).as_deref() == Some(value.trim_end_matches('/')))
        })
    }
}

fn values<'a>(entries: &'a [Entry], wanted: &Entry) -> Vec<Option<&'a str>> {
    let is_it = |entry: &&Entry| entry.section == wanted.section && entry.subsection == wanted.subsection && entry.key == wanted.key;
    entries.iter().filter(is_it).map(|entry| entry.value.as_deref()).collect()
}

fn has_remote(entries: &[Entry], name: &str) -> bool {
    is_name(name) && entries.iter().any(|entry| entry.is_in("remote", name) && entry.key == "url")
}

/// Answers whether a remote's name is one that git takes for nothing else.
fn is_name(name: &str) -> bool {
    !name.contains(':') && !name.starts_with('/') && is_ref(name)
}

fn is_ref(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.');
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\' | '"' | '\'');
    !name.starts_with('-') && !name.contains("..") && name.chars().all(is_plain) && name.split('/').all(is_part)
}

/// Answers whether a value is `+refs/a/*:refs/remotes/b/*` or the like: fetched into remotes or tags only,
/// never over a branch of the user.
fn is_refspec(value: &str) -> bool {
    let Some((from, to)) = value.strip_prefix('+').unwrap_or(value).split_once(':') else { return false };
    let is_side = |side: &str| side.matches('*').count() <= 1 && is_ref(&side.replace('*', "x"));
    let is_own = to.starts_with("refs/remotes/") || to.starts_with("refs/tags/");
    is_own && from.starts_with("refs/") && is_side(from) && is_side(to)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::{Repository, first_refused};

    const BEFORE: &str = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.org/me/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                          [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[alias]\n\tst = status\n";

    #[track_caller]
    fn check(added: &str, refused: Option<&str>) {
        check_change(BEFORE, &format!("{BEFORE}{added}"), refused);
    }

    #[track_caller]
    fn check_change(before: &str, after: &str, refused: Option<&str>) {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        let modules = vec![read("[submodule \"lib\"]\npath = lib\nurl = ../lib.git\n[submodule \"b\"]\nurl = https://b.org/b\n")];
        let repository = Repository { modules, trees: vec!["/srv/x".into()] };
        assert_eq!(first_refused(&read(before), &read(after), &repository).as_deref(), refused, "{after}");
    }

    #[test]
    fn settings_of_everyday_commands_pass() {
        check("", None);
        check("[branch \"dev\"]\n\tremote = origin\n\tmerge = refs/heads/dev\n\trebase = true\n", None);
        check("[branch \"dev\"]\n\tremote = .\n\tmerge = refs/heads/main\n\tdescription = a\\nb\n", None);
        check(
            "[remote \"fork\"]\n\turl = git@a.org:you/x.git\n\tfetch = +refs/heads/*:refs/remotes/fork/*\n[branch \"d\"]\n\tremote = fork\n",
            None,
        );
        check("[user]\n\tname = A B\n\temail = a@b\n[pull]\n\trebase = true\n[push]\n\tautoSetupRemote\n", None);
        check("[submodule \"lib\"]\n\tactive = true\n\turl = https://a.org/me/lib.git\n\tupdate = none\n", None);
        check("[submodule \"lib\"]\n\turl = /srv/lib.git\n[submodule \"b\"]\n\turl = https://b.org/b\n", None);
        check_change("[remote \"n\"]\n\turl = x\n", "[remote \"n\"]\n\turl = x\n\tfetch = +refs/heads/*:refs/remotes/n/*\n", None);
        // `git branch -m`, `-d` and `--unset-upstream`.
        check_change(BEFORE, &BEFORE.replace("\"main\"", "\"trunk\""), None);
        check_change(BEFORE, &BEFORE.replace("[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", ""), None);
    }

    #[test]
    fn programs_and_other_files_are_refused() {
        for (added, key) in [
            ("[core]\n\tfsmonitor = x\n", "core.fsmonitor"),
            ("[CORE]\n\tHooksPath = x\n", "core.hookspath"),
            ("[core]\n\tsshCommand = x\n", "core.sshcommand"),
            ("[core]\n\tworktree = /\n", "core.worktree"),
            ("[core]\n\tbare = true\n", "core.bare"),
            ("[include]\n\tpath = x\n", "include.path"),
            ("[includeIf \"gitdir:/\"]\n\tpath = x\n", "includeif.gitdir:/.path"),
            ("[alias]\n\tx = !y\n", "alias.x"),
            ("[filter \"x\"]\n\tclean = y\n", "filter.x.clean"),
            ("[diff \"x\"]\n\ttextconv = y\n", "diff.x.textconv"),
            ("[merge \"x\"]\n\tdriver = y\n", "merge.x.driver"),
            ("[gpg]\n\tprogram = x\n", "gpg.program"),
            ("[credential]\n\thelper = x\n", "credential.helper"),
            ("[url \"x\"]\n\tinsteadOf = y\n", "url.x.insteadof"),
            ("[extensions]\n\tworktreeConfig = true\n", "extensions.worktreeconfig"),
            ("[remote \"n\"]\n\tuploadpack = x\n", "remote.n.uploadpack"),
            ("[remote \"n\"]\n\tvcs = x\n", "remote.n.vcs"),
            ("[remote \"n\"]\n\tproxy = x\n", "remote.n.proxy"),
            ("[branch \"m\"]\n\tmergeOptions = -s x\n", "branch.m.mergeoptions"),
            ("[pager]\n\tlog = x\n", "pager.log"),
            ("[user]\n\tsigningKey = x\n", "user.signingkey"),
            ("[pull \"x\"]\n\trebase = true\n", "pull.x.rebase"),
        ] {
            check(added, Some(key));
        }
    }

    #[test]
    fn values_that_lead_elsewhere_are_refused() {
        for (added, key) in [
            ("[remote \"n\"]\n\turl = ext::sh\n", "remote.n.url"),
            ("[remote \"n\"]\n\turl = \"ext:\":sh\n", "remote.n.url"),
            ("[remote \"n\"]\n\turl = ext:\\\n:sh\n", "remote.n.url"),
            ("[remote \"n\"]\n\turl = -x\n", "remote.n.url"),
            ("[remote \"-n\"]\n\turl = x\n", "remote.-n.url"),
            ("[remote \"../n\"]\n\turl = x\n", "remote.../n.url"),
            ("[remote \"n\"]\n\tfetch = +refs/heads/*:refs/heads/*\n", "remote.n.fetch"),
            ("[remote \"origin\"]\n\turl = https://b.org/x\n", "remote.origin.url"),
            ("[remote \"origin\"]\n\tpushurl = https://b.org/x\n", "remote.origin.pushurl"),
            ("[branch \"m\"]\n\tremote = /srv/evil\n", "branch.m.remote"),
            ("[branch \"m\"]\n\tremote = ext::sh\n", "branch.m.remote"),
            ("[remote \"n\"]\n\turl = x\n[branch \"main\"]\n\tremote = n\n", "branch.main.remote"),
            ("[remote \"n\"]\n\turl = x\n[branch \"main\"]\n\tpushRemote = n\n", "branch.main.pushremote"),
            ("[submodule \"lib\"]\n\turl = https://b.org/lib.git\n", "submodule.lib.url"),
            ("[submodule \"other\"]\n\turl = https://b.org/b\n", "submodule.other.url"),
            ("[submodule \"lib\"]\n\tupdate = !x\n", "submodule.lib.update"),
            ("[branch \"m\"]\n\trebase = interactive\n", "branch.m.rebase"),
        ] {
            check(added, Some(key));
        }
    }

    #[test]
    fn settings_of_the_user_stay_as_they_are_and_where_they_are() {
        check_change(BEFORE, &BEFORE.replace("\tst = status\n", ""), Some("alias.st"));
        check_change(BEFORE, &BEFORE.replace("https://a.org", "https://b.org"), Some("remote.origin.url"));
        check_change(BEFORE, "", Some("core.bare"));
        let before = "[core]\n\tpager = a\n\tpager = b\n";
        check_change(before, "[core]\n\tpager = b\n\tpager = a\n", Some("core.pager"));
        check_change(before, "[core]\n\tpager = a\n[user]\n\tname = x\n[core]\n\tpager = b\n", None);
        let without =
            BEFORE.replace("[remote \"origin\"]\n\turl = https://a.org/me/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", "");
        check_change(BEFORE, &without, Some("remote.origin.url"));
    }
}
