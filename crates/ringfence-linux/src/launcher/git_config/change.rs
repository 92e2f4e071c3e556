//! Changes of a repository's config that a command may make: an allow list.
//!
//! All other settings must stay as they were, in the same order. A setting on the list names no
//! program and no other file.

use super::upstream::UPSTREAM;
use super::{GitConfigEntry, modules, url};

/// Facts of the repository that a change is compared with.
#[derive(Debug, Default)]
pub(super) struct Repository {
    /// The user's settings of the config, also those that a command removed.
    pub(super) user: Vec<GitConfigEntry>,
    /// The `.gitmodules` of its working trees, as they are and as the user wrote them.
    pub(super) modules: Vec<Vec<GitConfigEntry>>,
    /// Paths of its working trees.
    pub(super) trees: Vec<String>,
}

/// Settings whose value is one of these words, or true, or false.
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
const REFS: &[&str] = &["init.defaultbranch"];

/// Settings of a remote that a command adds.
const REMOTE_KEYS: &[&str] = &["remote.*.url", "remote.*.pushurl", "remote.*.fetch"];

/// The key of the first change that a command may not make; `None` if it may make them all.
pub(super) fn first_refused(
    before: &[GitConfigEntry],
    after: &[GitConfigEntry],
    repository: &Repository,
) -> Option<String> {
    let change = Change { before, after, user: &repository.user, repository };
    let frozen = |entries: &[GitConfigEntry]| {
        entries.iter().filter(|entry| !is_listed(entry)).cloned().collect::<Vec<_>>()
    };
    let (was, is) = (frozen(before), frozen(after));
    if was != is {
        let changed = is.iter().zip(&was).find(|(is, was)| is != was).map(|(is, _)| is);
        let more = is.get(was.len()).or_else(|| was.get(is.len()));
        return changed.or(more).map(GitConfigEntry::name);
    }
    let names = before.iter().chain(after).filter(|entry| is_listed(entry));
    names
        .into_iter()
        .find(|entry| change.differs(entry) && !change.may_become(entry))
        .map(GitConfigEntry::name)
}

/// The key of the first refused change of a `config.worktree`, which overrides the config: it may
/// name no address.
pub(super) fn first_refused_of_worktree(
    before: &[GitConfigEntry],
    after: &[GitConfigEntry],
) -> Option<String> {
    let names_address = |entry: &&GitConfigEntry| {
        matches!(entry.section.as_str(), "remote" | "branch" | "submodule" | "url" | "lfs")
    };
    let address_settings = |entries: &[GitConfigEntry]| {
        entries.iter().filter(names_address).cloned().collect::<Vec<_>>()
    };
    let (was, is) = (address_settings(before), address_settings(after));
    let changed = is
        .iter()
        .find(|entry| !was.contains(entry))
        .or_else(|| was.iter().find(|entry| !is.contains(entry)));
    let changed = changed
        .or_else(|| is.first().filter(|_| was != is))
        .or_else(|| was.first().filter(|_| was != is));
    changed.map(GitConfigEntry::name).or_else(|| {
        first_refused(before, after, &Repository { user: before.to_vec(), ..Repository::default() })
    })
}

/// True if a command may change a setting of this kind at all.
fn is_listed(entry: &GitConfigEntry) -> bool {
    let pattern = entry.pattern();
    let is_one = |list: &[&str]| list.contains(&pattern.as_str());
    is_one(TEXTS)
        || is_one(REFS)
        || is_one(UPSTREAM)
        || is_one(REMOTE_KEYS)
        || words(&pattern).is_some()
        || pattern == "submodule.*.url"
}

fn words(pattern: &str) -> Option<&'static [&'static str]> {
    WORDS.iter().find(|(known, _)| *known == pattern).map(|(_, words)| *words)
}

pub(super) struct Change<'a> {
    pub(super) before: &'a [GitConfigEntry],
    pub(super) after: &'a [GitConfigEntry],
    pub(super) user: &'a [GitConfigEntry],
    repository: &'a Repository,
}

impl Change<'_> {
    fn differs(&self, entry: &GitConfigEntry) -> bool {
        values(self.before, entry) != values(self.after, entry)
    }

    /// True if all values that a setting has now are harmless.
    fn may_become(&self, entry: &GitConfigEntry) -> bool {
        let pattern = entry.pattern();
        let name = entry.subsection.as_deref().unwrap_or_default();
        let before = values(self.before, entry);
        if UPSTREAM.contains(&pattern.as_str()) {
            return self.keeps_upstream(entry);
        }
        // `git remote add` writes the URL first and the refspec next.
        let is_next = pattern == "remote.*.fetch" && before.is_empty();
        let is_known =
            |entries: &[GitConfigEntry]| entries.iter().any(|known| known.is_in("remote", name));
        let is_taken = || is_known(self.before) || is_known(self.user) || self.is_awaited(name);
        if REMOTE_KEYS.contains(&pattern.as_str()) && !is_next && is_taken() {
            return false;
        }
        let after = values(self.after, entry);
        if pattern == "submodule.*.url" && !after.is_empty() {
            let user = values(self.user, entry);
            // An existing URL stays; a removed one may come back.
            if !before.is_empty() || !user.is_empty() {
                return before.is_empty() && after == user;
            }
        }
        after.into_iter().filter(|value| !before.contains(value)).all(|value| match value {
            // A key without a value is true.
            None => words(&pattern).is_some(),
            Some(value) => self.is_harmless(&pattern, name, value),
        })
    }

    fn is_harmless(&self, pattern: &str, name: &str, value: &str) -> bool {
        match pattern {
            "remote.*.url" | "remote.*.pushurl" => is_name(name) && url::is_plain(value),
            "remote.*.fetch" => is_name(name) && is_refspec(value),
            "submodule.*.url" => {
                modules::is_below(name) && url::is_plain(value) && self.is_address(name, value)
            }
            _ if REFS.contains(&pattern) => is_ref(value),
            _ if TEXTS.contains(&pattern) => !value.chars().any(|c| c.is_control() && c != '\n'),
            _ => words(pattern)
                .is_some_and(|words| matches!(value, "true" | "false") || words.contains(&value)),
        }
    }

    /// True if each `.gitmodules` that has this submodule names this URL for it.
    fn is_address(&self, name: &str, value: &str) -> bool {
        let bases = self.bases();
        let is_same_address = |written: &str| {
            value == written
                || bases.iter().any(|base| {
                    url::resolve(base, written).as_deref() == Some(value.trim_end_matches('/'))
                })
        };
        let written: Vec<&str> = self
            .repository
            .modules
            .iter()
            .filter_map(|modules| modules::address(modules, name))
            .collect();
        !written.is_empty() && written.into_iter().all(is_same_address)
    }

    /// URLs that a relative one is resolved against: those of the user's `origin` or only remote,
    /// and the working trees if the user has no remote. Remotes that a command added do not count.
    fn bases(&self) -> Vec<&str> {
        let remotes: Vec<&GitConfigEntry> =
            self.user.iter().filter(|entry| entry.pattern() == "remote.*.url").collect();
        let is_origin = |entry: &&&GitConfigEntry| entry.subsection.as_deref() == Some("origin");
        let is_only = remotes.iter().all(|entry| entry.subsection == remotes[0].subsection);
        if remotes.is_empty() {
            return self.repository.trees.iter().map(String::as_str).collect();
        }
        remotes
            .iter()
            .filter(|entry| is_only || is_origin(entry))
            .filter_map(|entry| entry.value.as_deref())
            .collect()
    }
}

pub(super) fn values<'a>(
    entries: &'a [GitConfigEntry],
    wanted: &GitConfigEntry,
) -> Vec<Option<&'a str>> {
    let is_it = |entry: &&GitConfigEntry| {
        entry.section == wanted.section
            && entry.subsection == wanted.subsection
            && entry.key == wanted.key
    };
    entries.iter().filter(is_it).map(|entry| entry.value.as_deref()).collect()
}

pub(super) fn has_remote(entries: &[GitConfigEntry], name: &str) -> bool {
    is_name(name) && entries.iter().any(|entry| entry.is_in("remote", name) && entry.key == "url")
}

/// True if git takes a remote's name for nothing else.
fn is_name(name: &str) -> bool {
    !name.contains(':') && !name.starts_with('/') && is_ref(name)
}

pub(super) fn is_ref(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.');
    let is_plain = |c: char| {
        !c.is_control()
            && !c.is_whitespace()
            && !matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\' | '"' | '\'')
    };
    !name.starts_with('-')
        && !name.contains("..")
        && name.chars().all(is_plain)
        && name.split('/').all(is_part)
}

/// True for `+refs/a/*:refs/remotes/b/*` or the like: it fetches into remotes or tags only, never
/// over a branch of the user.
fn is_refspec(value: &str) -> bool {
    let Some((from, to)) = value.strip_prefix('+').unwrap_or(value).split_once(':') else {
        return false;
    };
    let is_side = |side: &str| side.matches('*').count() <= 1 && is_ref(&side.replace('*', "x"));
    let is_own = to.starts_with("refs/remotes/") || to.starts_with("refs/tags/");
    is_own && from.starts_with("refs/") && is_side(from) && is_side(to)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::{Repository, first_refused, first_refused_of_worktree};

    const BEFORE: &str = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.org/me/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                          [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[alias]\n\tst = status\n";

    #[track_caller]
    fn check(added: &str, refused: Option<&str>) {
        check_change(BEFORE, &format!("{BEFORE}{added}"), refused);
    }

    #[track_caller]
    fn check_change(before: &str, after: &str, refused: Option<&str>) {
        check_step(before, before, after, refused);
    }

    /// `before` holds changes of commands as well.
    #[track_caller]
    fn check_step(user: &str, before: &str, after: &str, refused: Option<&str>) {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        let modules = vec![read(
            "[submodule \"lib\"]\npath = lib\nurl = ../lib.git\n[submodule \"b\"]\nurl = https://b.org/b\n",
        )];
        let repository = Repository { user: read(user), modules, trees: vec!["/srv/x".into()] };
        assert_eq!(
            first_refused(&read(before), &read(after), &repository).as_deref(),
            refused,
            "{after}"
        );
    }

    #[test]
    fn settings_of_everyday_commands_pass() {
        check("", None);
        check(
            "[branch \"dev\"]\n\tremote = origin\n\tmerge = refs/heads/dev\n\trebase = true\n",
            None,
        );
        check(
            "[branch \"dev\"]\n\tremote = .\n\tmerge = refs/heads/main\n\tdescription = a\\nb\n",
            None,
        );
        check(
            "[remote \"fork\"]\n\turl = git@a.org:you/x.git\n\tfetch = +refs/heads/*:refs/remotes/fork/*\n[branch \"d\"]\n\tremote = fork\n",
            None,
        );
        check(
            "[user]\n\tname = A B\n\temail = a@b\n[pull]\n\trebase = true\n[push]\n\tautoSetupRemote\n",
            None,
        );
        check(
            "[submodule \"lib\"]\n\tactive = true\n\turl = https://a.org/me/lib.git\n\tupdate = none\n",
            None,
        );
        check("[submodule \"b\"]\n\turl = https://b.org/b\n", None);
        check_change("", "[submodule \"lib\"]\n\turl = /srv/lib.git\n", None);
        check_change(
            "[remote \"n\"]\n\turl = x\n",
            "[remote \"n\"]\n\turl = x\n\tfetch = +refs/heads/*:refs/remotes/n/*\n",
            None,
        );
        // `git branch -m` and `-d`.
        check_change(BEFORE, &BEFORE.replace("\"main\"", "\"trunk\""), None);
        check_change(
            BEFORE,
            &BEFORE
                .replace("[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", ""),
            None,
        );
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
    fn values_that_redirect_git_are_refused() {
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
            (
                "[remote \"n\"]\n\turl = x\n[branch \"main\"]\n\tpushRemote = n\n",
                "branch.main.pushremote",
            ),
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
        check_change(
            BEFORE,
            &BEFORE.replace("https://a.org", "https://b.org"),
            Some("remote.origin.url"),
        );
        check_change(BEFORE, "", Some("core.bare"));
        let before = "[core]\n\tpager = a\n\tpager = b\n";
        check_change(before, "[core]\n\tpager = b\n\tpager = a\n", Some("core.pager"));
        check_change(
            before,
            "[core]\n\tpager = a\n[user]\n\tname = x\n[core]\n\tpager = b\n",
            None,
        );
        let without =
            BEFORE.replace("[remote \"origin\"]\n\turl = https://a.org/me/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", "");
        check_change(BEFORE, &without, Some("remote.origin.url"));
    }

    /// Each step alone would be harmless.
    #[test]
    fn several_steps_cannot_redirect_the_users_branches() {
        let evil = "[remote \"evil\"]\n\turl = https://b.org/x\n";
        let added = format!("{BEFORE}{evil}");
        let without =
            added.replace("[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", "");
        let unset = added.replace("\tremote = origin\n", "");
        check_step(
            BEFORE,
            &added,
            &added.replace("= origin\n", "= evil\n"),
            Some("branch.main.remote"),
        );
        check_step(BEFORE, &added, &unset, Some("branch.main.remote"));
        check_step(
            BEFORE,
            &added,
            &added.replace("\tmerge = refs/heads/main\n", ""),
            Some("branch.main.merge"),
        );
        check_step(
            BEFORE,
            &added,
            &format!("{added}[branch \"main\"]\n\tpushRemote = evil\n"),
            Some("branch.main.pushremote"),
        );
        check_step(
            BEFORE,
            &without,
            &format!("{without}[branch \"main\"]\n\tremote = evil\n"),
            Some("branch.main.remote"),
        );
        check_step(
            BEFORE,
            &without,
            &format!("{without}[branch \"main\"]\n\tremote = origin\n"),
            None,
        );
        let half = BEFORE.replace("\tremote = origin\n", "");
        check_step(
            &half,
            &unset,
            &added.replace("= origin\n", "= evil\n"),
            Some("branch.main.remote"),
        );
        check_step(&half, &unset, &added, None);
        // A branch that a command made.
        let dev = format!("{added}[branch \"dev\"]\n\tremote = origin\n");
        check_step(
            BEFORE,
            &dev,
            &dev.replace("\"dev\"]\n\tremote = origin", "\"dev\"]\n\tremote = evil"),
            None,
        );
        check_step(
            BEFORE,
            &dev,
            &format!("{dev}\tpushRemote = evil\n"),
            Some("branch.dev.pushremote"),
        );
        check_step(
            BEFORE,
            &added,
            &format!("{added}[submodule \"lib\"]\n\turl = https://b.org/lib.git\n"),
            Some("submodule.lib.url"),
        );
        let user = format!("{BEFORE}[submodule \"b\"]\n\turl = https://a.org/old\n");
        check_step(
            &user,
            BEFORE,
            &format!("{BEFORE}[submodule \"b\"]\n\turl = https://b.org/b\n"),
            Some("submodule.b.url"),
        );
        check_step(&user, BEFORE, &user, None);
        // The user's branch waits for a remote of this name.
        let waiting = "[branch \"main\"]\n\tremote = later\n";
        check_change(
            waiting,
            &format!("{waiting}[remote \"later\"]\n\turl = https://b.org/x\n"),
            Some("remote.later.url"),
        );
    }

    #[test]
    fn worktree_config_may_name_no_address() {
        let check = |before: &str, after: &str, refused: Option<&str>| {
            let read = |text: &str| parse(text.as_bytes()).unwrap();
            assert_eq!(
                first_refused_of_worktree(&read(before), &read(after)).as_deref(),
                refused,
                "{after}"
            );
        };
        check("", "[user]\nname = x\n", None);
        check("", "[core]\nfsmonitor = x\n", Some("core.fsmonitor"));
        check("", "[remote \"n\"]\npushurl = https://b.org/x\n", Some("remote.n.pushurl"));
        check("", "[branch \"n\"]\nrebase = true\n", Some("branch.n.rebase"));
        check("", "[submodule \"b\"]\nurl = https://b.org/b\n", Some("submodule.b.url"));
        check("[branch \"n\"]\nremote = a\n", "", Some("branch.n.remote"));
    }
}
