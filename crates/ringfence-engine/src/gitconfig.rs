//! The part of the user's git settings that a sandbox may see: identity and preferences, never
//! credentials. The only programs in it are filters such as git-lfs. They run in the sandbox, and
//! without them `git add` would store different content than on the host.

mod values;

use ringfence_policy::{AbsPath, GitRemote};

use crate::files::read_policy_file;
use values::shown_value;

/// Settings that pass, as `section.key`; `section.*` is a whole section.
const SHOWN: &[&str] = &[
    "user.name",
    "user.email",
    "author.name",
    "author.email",
    "committer.name",
    "committer.email",
    "init.defaultbranch",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.quotepath",
    "core.whitespace",
    "core.abbrev",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "push.autosetupremote",
    "merge.conflictstyle",
    "merge.ff",
    "rebase.autosquash",
    "rebase.autostash",
    "rebase.updaterefs",
    "rerere.enabled",
    "diff.algorithm",
    "diff.renames",
    "diff.colormoved",
    "diff.mnemonicprefix",
    "fetch.prune",
    "commit.verbose",
    "branch.sort",
    "tag.sort",
    "log.date",
    "log.decorate",
    "status.*",
    "column.*",
    "color.*",
    "advice.*",
    "lfs.*",
];

/// Settings of a filter, in `[filter "NAME"]`.
const FILTER_KEYS: &[&str] = &["clean", "smudge", "process", "required"];

/// The settings to write into the sandbox's own `~/.gitconfig`; `None` if there are none.
pub(crate) fn filtered_config(home: &AbsPath, config: &AbsPath) -> Option<String> {
    let files = [config.join("git/config"), home.join(".gitconfig")];
    let read = |file: &AbsPath| {
        read_policy_file(file).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let text: String = files.iter().filter_map(read).map(|text| filter(&text)).collect();
    (!text.is_empty()).then_some(text)
}

/// The content of the user's global git ignore file; `None` if there is none.
pub(crate) fn global_ignore(home: &AbsPath, config: &AbsPath) -> Option<String> {
    let text = |file: &AbsPath| {
        read_policy_file(file).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let named = [home.join(".gitconfig"), config.join("git/config")]
        .iter()
        .find_map(|file| setting(&text(file)?, "core", "excludesfile"));
    let file = match named {
        // Only a file whose name contains `ignore` is shown. Any other file may hold a secret.
        Some(named) => AbsPath::new(
            named
                .strip_prefix("~/")
                .map_or_else(|| named.clone().into(), |rest| home.join(rest).as_path().to_owned()),
        )
        .filter(|file| file.name().is_some_and(|name| name.to_string_lossy().contains("ignore")))?,
        None => config.join("git/ignore"),
    };
    text(&file).filter(|text| !text.is_empty())
}

/// The working tree named by a git directory's config, as git writes it.
pub(crate) fn worktree(text: &str) -> Option<String> {
    setting(text, "core", "worktree")
}

/// The remotes of a repository's config, with fetch and push URLs.
pub(crate) fn remotes(text: &str) -> Vec<GitRemote> {
    let mut remotes = Vec::new();
    let mut here: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            here = quoted_name(section, "remote");
        } else if let (Some(name), Some((key, value))) = (&here, line.split_once('='))
            && (key.trim().eq_ignore_ascii_case("url")
                || key.trim().eq_ignore_ascii_case("pushurl"))
        {
            // Cuts a comment; no host name has these characters.
            let url = value.split([';', '#']).next().unwrap_or_default().trim().trim_matches('"');
            remotes.push(GitRemote { name: name.clone(), url: url.to_owned() });
        }
    }
    remotes
}

/// `remote "origin"]` gives `origin`.
fn quoted_name(section: &str, kind: &str) -> Option<String> {
    let (found, name) = section.strip_suffix(']')?.split_once('"')?;
    found.trim().eq_ignore_ascii_case(kind).then(|| name.strip_suffix('"').map(str::to_owned))?
}

/// The last value of a key in a section without a subsection.
fn setting(text: &str, section: &str, key: &str) -> Option<String> {
    let mut here = "";
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            here = name.strip_suffix(']').unwrap_or_default();
        } else if let Some((name, value)) = line.split_once('=')
            && here.eq_ignore_ascii_case(section)
            && name.trim().eq_ignore_ascii_case(key)
        {
            found = Some(value.trim().trim_matches('"').replace("\\\\", "\\"));
        }
    }
    found
}

/// The settings of a git config file that pass, each with its section.
fn filter(text: &str) -> String {
    let mut shown = String::new();
    let mut section = String::new();
    let mut is_continued = false;
    for line in text.lines() {
        let line = line.trim();
        // A value that continues on the next line is left out.
        let was_continued = std::mem::replace(&mut is_continued, line.ends_with('\\'));
        if was_continued || is_continued || line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            // Only plain sections and filters pass, never `[url "…"]`, `[includeIf "…"]` and
            // similar ones.
            section = rest.strip_suffix(']').and_then(passing_section).unwrap_or_default();
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let key = key.trim().to_ascii_lowercase();
        let name = format!("{section}.{key}");
        let is_shown = || {
            SHOWN.iter().any(|known| {
                *known == name || known.strip_suffix('*').is_some_and(|all| name.starts_with(all))
            })
        };
        let is_filter_key = section.starts_with("filter ") && FILTER_KEYS.contains(&key.as_str());
        if !section.is_empty()
            && is_name(&key)
            && (is_filter_key || is_shown())
            && let Some(value) = shown_value(&section, &key, value)
        {
            shown.push_str(&format!("[{section}]\n\t{key} = {value}\n"));
        }
    }
    shown
}

/// True for the name of a plain section, a key or a filter.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// The header of a section that may pass, in lower case except the name of a filter.
fn passing_section(header: &str) -> Option<String> {
    match header.split_once(char::is_whitespace) {
        None => is_name(header).then(|| header.to_ascii_lowercase()),
        Some((kind, name)) => {
            let filter = name.trim_start().strip_prefix('"')?.strip_suffix('"')?;
            let is_filter = kind.eq_ignore_ascii_case("filter") && is_name(filter);
            is_filter.then(|| format!("filter \"{filter}\""))
        }
    }
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(input: &str, expect: &str) {
        assert_eq!(super::filter(input), expect);
    }

    #[test]
    fn last_worktree_setting_wins() {
        let worktree = |text: &str| super::worktree(text);
        assert_eq!(
            worktree("[core]\n\tworktree = ../../../a\n[remote \"x\"]\n\tworktree = b\n")
                .as_deref(),
            Some("../../../a")
        );
        assert_eq!(
            worktree("[core]\nworktree=\"a b\"\n[core]\nWorkTree = c").as_deref(),
            Some("c")
        );
        assert_eq!(worktree("[core]\nbare = true\n"), None);
    }

    #[test]
    fn remotes_have_fetch_and_push_urls() {
        let text = "[core]\n\turl = no\n[remote \"origin\"]\n\turl = git@a.org:me/x.git\n\tfetch = +refs/*\n\tpushurl=\"https://b.org/x\"\n\
                    [branch \"url\"]\nurl = no\n[REMOTE \"o 2\"]\nURL = ssh://c.org/x ; a comment\n[remote]\nurl = no\n[remote \"broken\nurl = no";
        let found: Vec<String> = super::remotes(text)
            .into_iter()
            .map(|remote| format!("{} {}", remote.name, remote.url))
            .collect();
        assert_eq!(
            found,
            ["origin git@a.org:me/x.git", "origin https://b.org/x", "o 2 ssh://c.org/x"]
        );
    }

    #[test]
    fn filter_that_may_hold_a_secret_does_not_pass() {
        let lfs = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n";
        let shown = super::filter(lfs);
        for line in [
            "\tclean = git-lfs clean -- %f\n",
            "\tprocess = git-lfs filter-process\n",
            "\trequired = true\n",
        ] {
            assert!(shown.contains(&format!("[filter \"lfs\"]\n{line}")), "{shown}");
        }
        check(
            "[filter \"x\"]\nother = y\n[filter \"x\\\"y\"]\nclean = z\n[filter]\nclean = z\n",
            "",
        );
        check("[lfs]\n\tconcurrenttransfers = 8\n", "[lfs]\n\tconcurrenttransfers = 8\n");
        for value in [
            "x --token=abc",
            "x https://me:pw@host/",
            "x ghp_abcdef",
            "x 0123456789abcdef0123456789abcdef",
            "PASSWORD=y x",
        ] {
            check(&format!("[filter \"x\"]\nclean = {value}\n"), "");
        }
        check("[status]\nhunter2 secret\n", "");
        check(
            "[filter \"x\"]\nrequired = true ; pw hunter6\n",
            "[filter \"x\"]\n\trequired = true\n",
        );
        check(
            "[lfs \"https://host/\"]\naccess = basic\n[credential]\nhelper = x\n[diff \"x\"]\ntextconv = y\n",
            "",
        );
    }

    #[test]
    fn identity_passes_and_credentials_do_not() {
        check(
            "[user]\n\tname = A B\n  email=a@b\n\tsigningkey = X\n",
            "[user]\n\tname = A B\n[user]\n\temail = a@b\n",
        );
        check("[credential]\n\thelper = store\n[http]\n\textraheader = Authorization: x\n", "");
        check("[url \"https://token@host/\"]\n\tinsteadOf = https://host/\n", "");
        check("[alias]\n\tx = !curl evil\n[core]\n\tfsmonitor = evil\n\teditor = evil\n", "");
        check("[include]\n\tpath = ~/other\n", "");
        check("[user]\n\tname = a\\\n\tb\n", "");
        check("[user] # comment\n\tname = lost\n[COLOR]\nUI = auto\n", "[color]\n\tui = auto\n");
    }
}
