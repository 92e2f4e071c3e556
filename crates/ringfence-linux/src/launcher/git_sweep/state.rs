//! State of unfinished operations. `git rebase --continue` and the like, which `git status`
//! proposes, take programs and options from it.
//!
//! The check is an allow list per file. State from before the command stays as it was.
//!
//! | file | git does with it |
//! |---|---|
//! | `git-rebase-todo`, `todo` | runs the lines that say `exec` |
//! | `strategy`, `strategy_opts` | runs `git merge-STRATEGY` with these options (sequencer.c) |
//! | `sequencer/opts` | the same |
//! | `gpg_sign_opt`, `allow_rerere_autoupdate` | passes it on as an argument |
//! | `autostash`, `MERGE_AUTOSTASH` | applies this commit (sequencer.c, `apply_autostash`) |
//! | `author-script` | evaluates it as shell, before 2.20 |
//! | `BISECT_NAMES` | evaluates it as shell, before 2.31 |
//! | `BISECT_LOG` | evaluates it as shell, on `replay` |
//! | `apply-opt` | options of `git apply`, one of which writes any file (builtin/am.c) |
//! | `MERGE_RR` | copies these files, at any path, to and from `rr-cache` (rerere.c) |
//! | `BISECT_START` | checks it out, as an argument |
//! | `packed-refs` | takes a ref from it that has no file, `MERGE_AUTOSTASH` too |
//! | `refs/replace/*` | reads another object in place of this one (replace-object.c) |

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::AbsPath;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::{GitSweep, listed, replacements};
use crate::launcher::git_config::{self, GitConfigEntry};

/// Check for a file of state.
#[derive(Clone, Copy)]
enum Check {
    /// Lines that run programs are removed.
    Lines,
    /// The file is moved unless this function accepts it.
    Whole(fn(&[u8]) -> bool),
    /// The file is moved if it names any path. One from before the command is moved if a link is on
    /// such a path by now.
    Paths,
    /// The file is moved unless it names a commit that git may apply; see
    /// [`autostash`](super::autostash).
    Stash,
    /// Lines that name no ref below `refs/` are removed.
    Refs,
}

/// A file of state.
#[derive(Clone, Copy)]
pub(super) struct StateFile {
    /// Directory in the git directory; empty for the git directory itself.
    pub(super) directory: &'static str,
    pub(super) name: &'static str,
    check: Check,
}

impl std::fmt::Debug for StateFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.directory, self.name)
    }
}

/// Files of state by directory; the empty name is the git directory itself.
const STATE_FILES: &[(&str, &[(&str, Check)])] = &[
    (
        "rebase-merge",
        &[("git-rebase-todo", Check::Lines), STRATEGY, OPTIONS, SIGN, RERERE, AUTHOR, STASH],
    ),
    (
        "rebase-apply",
        &[
            STRATEGY,
            OPTIONS,
            SIGN,
            RERERE,
            AUTHOR,
            STASH,
            ("apply-opt", Check::Whole(is_apply_options)),
        ],
    ),
    ("sequencer", &[("todo", Check::Lines), ("opts", Check::Whole(is_sequencer_options))]),
    (
        "",
        &[
            ("MERGE_RR", Check::Paths),
            ("MERGE_AUTOSTASH", Check::Stash),
            ("packed-refs", Check::Refs),
            ("BISECT_NAMES", Check::Whole(is_quoted_words)),
            ("BISECT_START", Check::Whole(is_revision)),
            ("BISECT_LOG", Check::Whole(is_bisect_log)),
        ],
    ),
];
const STRATEGY: (&str, Check) = ("strategy", Check::Whole(is_strategy));
const OPTIONS: (&str, Check) = ("strategy_opts", Check::Whole(is_strategy_options));
const SIGN: (&str, Check) = ("gpg_sign_opt", Check::Whole(is_signing));
const RERERE: (&str, Check) = ("allow_rerere_autoupdate", Check::Whole(is_rerere));
const AUTHOR: (&str, Check) = ("author-script", Check::Whole(is_author_script));
const STASH: (&str, Check) = ("autostash", Check::Stash);

/// Merge strategies that are git's own.
const STRATEGIES: &[&[u8]] = &[b"ort", b"recursive", b"resolve", b"octopus", b"ours", b"subtree"];

/// Lines and files of a git directory's state that the sweep would remove; files as [`key`] writes
/// them.
pub(super) fn programs(git: &HeldDir) -> HashSet<Vec<u8>> {
    let mut found = HashSet::new();
    for_each_state_file(git, |directory, file| {
        let Ok(text) = held_dir::read(directory, file.name) else { return };
        match file.check {
            Check::Refs => {}
            Check::Lines => {
                found.extend(lines(&text).filter(|line| is_program(line)).map(<[u8]>::to_vec))
            }
            check if !is_harmless(check, &text) => drop(found.insert(key(file, &text))),
            _ => {}
        }
    });
    found.extend(replacements::find_replacements(git));
    found
}

/// A file without new lines that run programs: the lines that stay, or `Some(None)` if all of it
/// goes. `None` if the file may stay for now.
pub(super) fn without_programs(
    known: &HashSet<Vec<u8>>,
    file: StateFile,
    text: &[u8],
) -> Option<Option<Vec<u8>>> {
    match file.check {
        Check::Lines => {
            let is_new = |line: &&[u8]| is_program(line) && !known.contains(*line);
            let kept = || lines(text).filter(|line| !is_new(line)).collect::<Vec<_>>().concat();
            lines(text).any(|line| is_new(&line)).then(|| Some(kept()))
        }
        Check::Whole(is_allowed) => {
            (!is_allowed(text) && !known.contains(&key(file, text))).then_some(None)
        }
        // No command can write these in a repository of the user, or git applies them only on
        // request.
        Check::Paths | Check::Stash | Check::Refs => None,
    }
}

impl GitSweep<'_> {
    /// Removes new state that runs programs.
    pub(super) fn sweep_state(&mut self, git: &HeldDir, path: &AbsPath) {
        for_each_state_file(git, |directory, file| {
            let (name, check) = (file.name, file.check);
            let at = path.join(file.directory).join(name);
            if kind(directory, name) != Some(FileType::RegularFile) {
                // No command can put a link there in a repository of the user, but the user may
                // have one: several working trees share their refs that way.
                if matches!(check, Check::Refs) && self.existed_before(git) {
                    return;
                }
                return self.quarantine_entry(directory, name, &at, "is not a plain file");
            }
            if matches!(check, Check::Refs) {
                return self.sweep_packed_refs(git, &at);
            }
            let Ok(text) = held_dir::read(directory, name) else {
                return self.quarantine_entry(directory, name, &at, "cannot be read");
            };
            let is_known = self.baseline.programs.contains(&key(file, &text));
            let reason = match check {
                Check::Lines => return self.sweep_todo(directory, name, &at, &text),
                check if is_harmless(check, &text) => return,
                Check::Paths if is_known && !self.leads_away(git, path, &text) => return,
                Check::Paths => "makes git copy files, also from outside the project".to_owned(),
                Check::Whole(_) | Check::Stash if is_known => return,
                Check::Stash if self.is_plain_autostash(git, path, &text) => return,
                Check::Stash => autostash_reason(&text),
                Check::Whole(_) | Check::Refs => {
                    "makes git run programs or obey options when it continues".to_owned()
                }
            };
            self.quarantine_entry(directory, name, &at, &reason);
        });
        self.sweep_replacements(git, path);
    }

    /// Removes lines of packed refs that act as a file of state. Git writes none.
    fn sweep_packed_refs(&mut self, git: &HeldDir, at: &AbsPath) {
        const MAX_SIZE: u64 = 256 << 20;
        let Ok(file) = held_dir::open_file(git, "packed-refs") else { return };
        if !self.baseline.begun.may_precede_change_of(&file) {
            return;
        }
        let Ok(text) = held_dir::read_all(file, MAX_SIZE) else {
            // In a repository of the user, no command can put a longer one there.
            if !self.existed_before(git) {
                self.quarantine_entry(git, "packed-refs", at, "cannot be read");
            }
            return;
        };
        let (mut kept, dropped) = refs(&text);
        let mut reasons = Vec::new();
        if !dropped.is_empty() {
            reasons.push(format!("acts as files that git obeys: {}", listed(&dropped)));
        }
        if self.existed_before(git) {
            let replaced = replacements::take_new(&mut kept, &self.baseline.programs);
            reasons.extend(
                (!replaced.is_empty())
                    .then(|| format!("{}: {}", replacements::REASON, listed(&replaced))),
            );
        }
        if !reasons.is_empty() {
            self.replace(git, "packed-refs", at, &kept.concat(), &reasons.join("; "));
        }
    }

    /// True if a path of a `MERGE_RR` leads through a link, or out of the working tree, or if the
    /// working tree is not found.
    fn leads_away(&self, git: &HeldDir, path: &AbsPath, text: &[u8]) -> bool {
        let is_dot_git = path.name().is_some_and(|name| name == ".git");
        let tree = if is_dot_git {
            held_dir::open_parent(git)
                .and_then(|tree| held_dir::open_held(tree, DirAccess::Look))
                .ok()
        } else {
            self.tree_at(git, path)
        };
        tree.is_none_or(|tree| has_link(&tree, text))
    }

    /// The working tree of a linked worktree or a submodule.
    fn tree_at(&self, git: &HeldDir, path: &AbsPath) -> Option<HeldDir> {
        if let Some((_, tree)) = self.tree_of(git, path) {
            return self.roots.open(&tree);
        }
        let pointer = super::pointer::resolve_pointer(path, &held_dir::read(git, "gitdir").ok()?)?;
        held_dir::open_at(pointer.parent()?.as_path()).ok()
    }

    /// Removes new lines that run programs.
    fn sweep_todo(&mut self, directory: &HeldDir, name: &str, at: &AbsPath, text: &[u8]) {
        let is_new = |line: &&[u8]| is_program(line) && !self.baseline.programs.contains(*line);
        let dropped: Vec<String> = lines(text)
            .filter(is_new)
            .map(|line| String::from_utf8_lossy(line).trim().to_owned())
            .collect();
        if !dropped.is_empty() {
            let kept = lines(text).filter(|line| !is_new(line)).collect::<Vec<_>>().concat();
            self.replace(
                directory,
                name,
                at,
                &kept,
                &format!("makes git rebase run programs: {}", listed(&dropped)),
            );
        }
    }

    /// Moves away entries in place of a state directory that are no directory: git would follow
    /// them.
    pub(super) fn sweep_state_dirs(&mut self, git: &HeldDir, path: &AbsPath) {
        for (dir_name, _) in STATE_FILES.iter().filter(|(dir_name, _)| !dir_name.is_empty()) {
            if kind(git, dir_name).is_some_and(|kind| kind != FileType::Directory) {
                self.quarantine_entry(
                    git,
                    dir_name,
                    &path.join(dir_name),
                    "redirects git to another directory",
                );
            }
        }
    }
}

/// Calls `look` for every existing file of state.
pub(super) fn for_each_state_file(git: &HeldDir, mut look: impl FnMut(&HeldDir, StateFile)) {
    for (dir_name, files) in STATE_FILES {
        let entered;
        let directory = if dir_name.is_empty() {
            git
        } else {
            let Ok(directory) = held_dir::enter(git, dir_name, DirAccess::Look, CrossMounts::Cross)
            else {
                continue;
            };
            entered = directory;
            &entered
        };
        for (name, check) in *files {
            if kind(directory, name).is_some() {
                look(directory, StateFile { directory: dir_name, name, check: *check });
            }
        }
    }
}

fn is_harmless(check: Check, text: &[u8]) -> bool {
    match check {
        Check::Lines => lines(text).all(|line| !is_program(line)),
        Check::Whole(is_allowed) => is_allowed(text),
        Check::Paths => text.iter().all(|byte| *byte == 0),
        Check::Stash => text.trim_ascii().is_empty(),
        Check::Refs => refs(text).1.is_empty(),
    }
}

/// Reason shown for an autostash in quarantine: the commit is still in the repository.
fn autostash_reason(text: &[u8]) -> String {
    let id = text.trim_ascii();
    let is_id = matches!(id.len(), 40 | 64) && id.iter().all(u8::is_ascii_hexdigit);
    let look = if is_id {
        format!("; to see it, run: git show --stat {}", String::from_utf8_lossy(id))
    } else {
        String::new()
    };
    format!("git would apply its changes by itself, to protected files or in an unknown way{look}")
}

/// Key of a file with its content, without NUL, which ends a field in a run marker.
fn key(file: StateFile, text: &[u8]) -> Vec<u8> {
    let hex: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{file:?} {hex}").into_bytes()
}

/// The lines of packed refs that name refs, and the names on the other lines.
fn refs(text: &[u8]) -> (Vec<&[u8]>, Vec<String>) {
    let (mut kept, mut dropped, mut is_kept) = (Vec::new(), Vec::new(), true);
    for line in lines(text) {
        let name =
            line.iter().position(|byte| *byte == b' ').map_or(line, |space| &line[space + 1..]);
        // The peeled object of a tag goes with the ref on the line before.
        if line[0] != b'^' {
            is_kept = line[0] == b'#'
                || line == b"\n"
                || (name.len() < line.len() && name.starts_with(b"refs/"));
            if !is_kept {
                dropped.push(String::from_utf8_lossy(name).trim().to_owned());
            }
        }
        if is_kept {
            kept.push(line);
        }
    }
    (kept, dropped)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn is_program(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().split(u8::is_ascii_whitespace).next(), Some(b"exec" | b"x"))
}

fn is_strategy(text: &[u8]) -> bool {
    STRATEGIES.contains(&text.trim_ascii())
}

/// True for options of a merge strategy, with or without quotes.
fn is_strategy_options(text: &[u8]) -> bool {
    let bare = |word: &[u8]| -> Vec<u8> {
        let quoted = [b'"', b'\'']
            .iter()
            .find_map(|quote| word.strip_prefix(&[*quote])?.strip_suffix(&[*quote]));
        quoted.unwrap_or(word).to_vec()
    };
    // Newer versions of git omit the dashes.
    let is_option = |word: &[u8]| {
        let word = bare(word);
        is_strategy_option(word.strip_prefix(b"--").unwrap_or(&word))
    };
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).all(is_option)
}

/// True for an option of git's own strategies: merge-recursive.c, `parse_merge_opt`.
fn is_strategy_option(option: &[u8]) -> bool {
    const PLAIN: &[&[u8]] = &[
        b"ours",
        b"theirs",
        b"subtree",
        b"patience",
        b"histogram",
        b"ignore-space-change",
        b"ignore-all-space",
        b"ignore-space-at-eol",
        b"ignore-cr-at-eol",
        b"renormalize",
        b"no-renormalize",
        b"no-renames",
        b"find-renames",
    ];
    const VALUED: &[&[u8]] =
        &[b"subtree=", b"diff-algorithm=", b"find-renames=", b"rename-threshold="];
    let is_value = |value: &[u8]| {
        value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._/%-".contains(byte))
            && !has_dots(value)
    };
    PLAIN.contains(&option)
        || VALUED.iter().any(|name| option.strip_prefix(*name).is_some_and(is_value))
}

fn has_dots(value: &[u8]) -> bool {
    value.split(|byte| *byte == b'/').any(|part| part == b"..")
}

fn is_sequencer_options(text: &[u8]) -> bool {
    const FLAGS: &[&str] = &[
        "no-commit",
        "edit",
        "allow-empty",
        "allow-empty-message",
        "drop-redundant-commits",
        "keep-redundant-commits",
        "signoff",
        "record-origin",
        "allow-ff",
        "mainline",
        "allow-rerere-auto",
        "default-msg-cleanup",
        "commit-use-reference",
    ];
    let is_word =
        |value: &str| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_harmless = |entry: &GitConfigEntry| {
        let value = entry.value.as_deref().unwrap_or("true");
        match entry.name().strip_prefix("options.") {
            Some("strategy") => is_strategy(value.as_bytes()),
            Some("strategy-option") => is_strategy_option(value.as_bytes()),
            Some("gpg-sign") => is_key(value.as_bytes()),
            Some(flag) => FLAGS.contains(&flag) && is_word(value),
            None => false,
        }
    };
    // Git writes none of these characters here.
    !text.iter().any(|byte| b"\"\\#;".contains(byte))
        && git_config::parse(text).is_some_and(|entries| entries.iter().all(is_harmless))
}

fn is_signing(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let key = [b"-S".as_slice(), b"--gpg-sign=", b"--gpg-sign"]
        .iter()
        .find_map(|option| text.strip_prefix(*option));
    matches!(text, b"" | b"--no-gpg-sign") || key.is_some_and(is_key)
}

fn is_key(key: &[u8]) -> bool {
    !key.starts_with(b"-")
        && key.iter().all(|byte| byte.is_ascii_alphanumeric() || b" @.<>_+=:/-".contains(byte))
}

fn is_rerere(text: &[u8]) -> bool {
    matches!(text.trim_ascii(), b"" | b"--rerere-autoupdate" | b"--no-rerere-autoupdate")
}

fn is_revision(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    !text.starts_with(b"-")
        && text.iter().all(|byte| {
            byte.is_ascii_alphanumeric() || *byte > 127 || b"._/@{}^~+=,#%:-".contains(byte)
        })
}

/// True for lines that each set an author variable to one quoted word.
fn is_author_script(text: &[u8]) -> bool {
    const NAMES: [&[u8]; 3] = [b"GIT_AUTHOR_NAME=", b"GIT_AUTHOR_EMAIL=", b"GIT_AUTHOR_DATE="];
    let mut rest = text;
    while !rest.trim_ascii().is_empty() {
        let Some(value) = NAMES.iter().find_map(|name| rest.strip_prefix(*name)) else {
            return false;
        };
        match quoted(value) {
            Some((_, [])) => return true,
            Some((_, [b'\n', after @ ..])) => rest = after,
            _ => return false,
        }
    }
    true
}

fn is_apply_options(text: &[u8]) -> bool {
    const PLAIN: &[&[u8]] =
        &[b"--ignore-whitespace", b"--ignore-space-change", b"--reject", b"--3way"];
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_word = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
    let is_below = |path: &[u8]| {
        let is_plain = |part: &[u8]| part != b".." && !part.eq_ignore_ascii_case(b".git");
        !path.is_empty() && path[0] != b'/' && path.split(|byte| *byte == b'/').all(is_plain)
    };
    let is_option = |word: &Vec<u8>| {
        let has_path = |option: &[u8]| word.strip_prefix(option).is_some_and(is_below);
        PLAIN.contains(&word.as_slice())
            || [b"--directory=".as_slice(), b"--include=", b"--exclude="].into_iter().any(has_path)
            || [b"-C", b"-p"]
                .iter()
                .any(|option| word.strip_prefix(option.as_slice()).is_some_and(is_number))
            || word.strip_prefix(b"--whitespace=").is_some_and(is_word)
    };
    quoted_words(text).is_some_and(|words| words.iter().all(is_option))
}

fn is_quoted_words(text: &[u8]) -> bool {
    quoted_words(text).is_some()
}

/// True for comments, and for `git bisect` commands in which a shell finds only words.
fn is_bisect_log(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| {
        byte.is_ascii_alphanumeric() || *byte > 127 || b" ._/@{}^~+=,%:-".contains(byte)
    };
    lines(text).all(|line| {
        let line = line.trim_ascii();
        let mut rest = line;
        let is_command = line.starts_with(b"git bisect ") || line.starts_with(b"git-bisect ");
        while let Some((first, after)) = rest.split_first().filter(|_| is_command) {
            match (first, quoted(rest)) {
                (b'\'', Some((_, after))) => rest = after,
                (byte, _) if is_plain(byte) => rest = after,
                _ => return false,
            }
        }
        is_command || line.is_empty() || line.starts_with(b"#")
    })
}

/// All words of a text, each quoted as git quotes for a shell.
fn quoted_words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), text.trim_ascii());
    while !rest.is_empty() {
        let (word, after) = quoted(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
        if !after.is_empty() && rest.len() == after.len() {
            return None;
        }
    }
    Some(words)
}

/// The first word of a text, as quote.c writes it: `'it'\''s'`, and the rest.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut rest) = (Vec::new(), text.strip_prefix(b"'")?);
    loop {
        let end = rest.iter().position(|byte| *byte == b'\'')?;
        word.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest {
            [b'\\', byte @ (b'\'' | b'!'), b'\'', after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            _ => return Some((word, rest)),
        }
    }
}

/// True if a path of a `MERGE_RR` leads through a link below `tree`, or out of it.
fn has_link(tree: &HeldDir, text: &[u8]) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    text.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).any(|entry| {
        let Some(at) = entry.iter().position(|byte| *byte == b'\t') else { return true };
        match rustix::fs::openat2(
            tree,
            OsStr::from_bytes(&entry[at + 1..]),
            flags,
            Mode::empty(),
            resolve,
        ) {
            Ok(file) => rustix::fs::fstat(&file)
                .is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink()),
            Err(error) => error != Errno::NOENT,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is: fn(&[u8]) -> bool, harmless: &[&str], others: &[&str]) {
        for text in harmless {
            assert!(is(text.as_bytes()), "{text:?}");
        }
        for text in others {
            assert!(!is(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn exec_lines_are_told_apart_from_commits() {
        let program = ["exec make", "x make\n", " \texec\tmake", "x"];
        check(is_program, &program, &["pick 1234 exec", "# exec make", "xyz", "", "\n", "drop x"]);
    }

    #[test]
    fn packed_refs_keep_only_refs() {
        let text = b"# pack-refs with: peeled\n12 MERGE_AUTOSTASH\n^34\n56 refs/heads/x\n^78\n";
        let (kept, dropped) = refs(text);
        assert_eq!(kept.concat(), b"# pack-refs with: peeled\n56 refs/heads/x\n^78\n");
        assert_eq!(dropped, ["MERGE_AUTOSTASH"]);
    }

    #[test]
    fn only_strategies_of_git_are_allowed() {
        check(
            is_strategy,
            &["ort\n", "recursive", "ours\n"],
            &["../../x", "-x", "", "ort x", "x/ort", "ort\nx"],
        );
        let options = [
            "",
            "--theirs",
            "\"theirs\"\n",
            "ours",
            "\"--ours\" \"--find-renames=50%\"\n",
            " '--patience'",
            "--subtree=a/b",
        ];
        check(
            is_strategy_options,
            &options,
            &["--theirs; x", "\"--x\"", "--subtree=../x", "--theirs $(x)", "\"--ours\"\"x\"", "x"],
        );
    }

    #[test]
    fn only_known_sequencer_options_are_accepted() {
        let written = "[options]\n\tedit = true\n\tstrategy = recursive\n\tstrategy-option = theirs\n\tmainline = 1\n\tgpg-sign = \n";
        check(
            is_sequencer_options,
            &[written, "", "[options]\n"],
            &[
                "[options]\n\tstrategy = ../../x\n",
                "[options]\n\tstrategy-option = x\n",
                "[options]\n\tstrategy = \"ort\"\n",
                "[options]\n\tnew-option = x\n",
                "[core]\n\tedit = true\n",
                "[options] strategy = x\n",
                "strategy = ort\n",
            ],
        );
    }

    #[test]
    fn shell_text_holds_only_words() {
        let author = "GIT_AUTHOR_NAME='A '\\''B'\\'' C'\nGIT_AUTHOR_EMAIL='a@b'\nGIT_AUTHOR_DATE='@1 +0000'\n";
        check(
            is_author_script,
            &[author, ""],
            &[
                "GIT_AUTHOR_NAME='a';x\n",
                "PATH='x'\n",
                "GIT_AUTHOR_NAME=$(x)\n",
                "GIT_AUTHOR_NAME='a\n",
                "GIT_AUTHOR_NAME='a'\\\nx",
            ],
        );
        check(
            is_quoted_words,
            &["", "\n", " '--' 'a b' 'it'\\''s'\n"],
            &["a", "'a'; x", "'a'x", "'a' `x`", "'a"],
        );
        let log = "git bisect start '--' 'a;b'\n# bad: [12] x; y\ngit bisect bad 1234\n\ngit bisect good v1.0~2\n";
        check(
            is_bisect_log,
            &[log, ""],
            &["git bisect start; x\n", "x\n", "git bisect good $(x)\n", "git bisect good 'x\n"],
        );
    }

    #[test]
    fn only_harmless_arguments_are_accepted() {
        check(
            is_apply_options,
            &["", " '--whitespace=fix' '-C3'\n", "'--directory=sub/x'"],
            &[
                "'--build-fake-ancestor=x'",
                "--reject",
                "'-Cx'",
                "'--directory=../x'",
                "'--directory=/x'",
                "'--include=a/.git/x'",
            ],
        );
        check(
            is_signing,
            &["-S", "-SA B <a@b>\n", "--no-gpg-sign", ""],
            &["-S--x", "-S$(x)", "x", "--exec=x"],
        );
        check(is_rerere, &["--rerere-autoupdate\n"], &["--exec"]);
        check(is_revision, &["main\n", "feature/x"], &["-f", "a b", "$(x)"]);
    }
}
