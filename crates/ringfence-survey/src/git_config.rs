//! Settings in git's config files that make git run programs from a project.

use std::env;

use ringfence_policy::AbsPath;

/// Relevant settings of some config files.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GitConfigFacts {
    /// Every `core.hooksPath`, regardless of precedence.
    pub(crate) hooks: Vec<String>,
    /// Every `core.worktree`.
    pub(crate) worktrees: Vec<String>,
    includes: Vec<String>,
    /// Included files.
    pub(crate) included: Vec<AbsPath>,
    /// Words that may name programs or files.
    pub(crate) words: Vec<String>,
}

/// Hooks paths that the user's and the system's settings set for every repository.
pub(crate) fn global_hooks(home: &AbsPath) -> Vec<String> {
    let variable = |name: &str| env::var_os(name).and_then(AbsPath::new);
    let config = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let own = variable("GIT_CONFIG_GLOBAL").map_or_else(
        || vec![config.join("git/config"), home.join(".gitconfig")],
        |file| vec![file],
    );
    let system = AbsPath::root().join("etc/gitconfig");
    read_files(&[own, vec![system]].concat(), home).hooks
}

/// Reads `files` and the files they include, regardless of conditions.
pub(crate) fn read_files(files: &[AbsPath], home: &AbsPath) -> GitConfigFacts {
    const ENOUGH: usize = 64;
    let mut facts = GitConfigFacts::default();
    let mut seen: Vec<AbsPath> = Vec::new();
    let mut waiting = files.to_vec();
    while let Some(file) = waiting.pop().filter(|_| seen.len() < ENOUGH) {
        if seen.contains(&file) {
            continue;
        }
        if let Some(text) = super::read_small(&file) {
            let found = read(&text);
            let directory = file.parent().unwrap_or_else(AbsPath::root);
            let included =
                found.includes.iter().map(|include| resolve_path(include, &directory, home));
            facts.included.extend(included.clone());
            waiting.extend(included);
            facts.words.extend(found.words);
            facts.hooks.extend(found.hooks);
            facts.worktrees.extend(found.worktrees);
        }
        seen.push(file);
    }
    facts
}

/// Resolves a path from a config file.
pub(crate) fn resolve_path(text: &str, relative_to: &AbsPath, home: &AbsPath) -> AbsPath {
    match text.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => relative_to.join(text),
    }
}

fn read(text: &str) -> GitConfigFacts {
    let mut facts = GitConfigFacts::default();
    let mut section = String::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return facts };
        match first {
            '#' | ';' => rest = line_end(rest),
            '[' => {
                let end = rest.find([']', '\n']).unwrap_or(rest.len());
                section = rest[1..end]
                    .split([' ', '\t', '"', '.'])
                    .next()
                    .unwrap_or_default()
                    .to_ascii_lowercase();
                // A quoted subsection may contain anything, even a bracket.
                let is_quoted = rest[..end].matches('"').count() % 2 == 1;
                rest = if is_quoted {
                    rest[end..].find('"').map_or("", |quote| &rest[end + quote..])
                } else {
                    &rest[end..]
                };
                rest = rest.trim_start_matches(['"', ']']);
            }
            _ => {
                let end = rest.find(['=', '\n', '#', ';']).unwrap_or(rest.len());
                let key = rest[..end].trim().to_ascii_lowercase();
                let (value, behind) = match rest[end..].strip_prefix('=') {
                    Some(behind) => value(behind),
                    None => (String::new(), line_end(rest)),
                };
                rest = behind;
                match (section.as_str(), key.as_str()) {
                    ("core", "hookspath") => facts.hooks.push(value),
                    ("core", "worktree") => facts.worktrees.push(value),
                    ("include" | "includeif", "path") => facts.includes.push(value),
                    // Addresses and branch names run nothing.
                    ("remote" | "branch" | "submodule" | "url", _) => {}
                    _ => facts.words.extend(
                        value
                            .split_whitespace()
                            .map(|word| word.trim_matches(['!', '"', '\'', ';']).to_owned()),
                    ),
                }
            }
        }
    }
}

/// The text after the line's end.
fn line_end(text: &str) -> &str {
    text.find('\n').map_or("", |end| &text[end + 1..])
}

/// A value and the rest: quotes, escapes and continued lines.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut is_quoted = false;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\n' => return (value.trim().to_owned(), &text[at + 1..]),
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => return (value.trim().to_owned(), line_end(&text[at..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, '\n')) | None => {}
                Some((_, other)) => value.push(other),
            },
            other => value.push(other),
        }
    }
    (value.trim().to_owned(), "")
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(text: &str, hooks: &[&str]) {
        assert_eq!(super::read(text).hooks, hooks, "{text}");
    }

    #[test]
    fn hooks_path_is_found_in_any_spelling() {
        check("[core]\n\thooksPath = .husky/_\n", &[".husky/_"]);
        check("[CORE]\nHOOKSPATH=a # not b\n\thookspath = b ; c\n", &["a", "b"]);
        check("[core] hooksPath = \"with space # and hash\"\n", &["with space # and hash"]);
        check("[core]\n\thooksPath = on \\\nand on\n", &["on and on"]);
        check("[core]\n\tbare\n\thooksPath = \"a\\\"b\"", &["a\"b"]);
        check("[x \"]\"] hooksPath = no\n[x \"\n[core]\n", &[]);
        check("# [core]\n; hooksPath = x\n[other]\nhooksPath = y\n[core]", &[]);
        check("[core]\n=\n\u{feff}hooksPath\n[", &[]);
    }

    #[test]
    fn includes_and_working_trees_are_found() {
        let facts = super::read(
            "[include]\npath = a\n[includeIf \"gitdir:~/x/\"]\npath = ~/b\n[core]\nworktree = ../../x\n",
        );
        assert_eq!(
            (facts.includes, facts.worktrees),
            (vec!["a".into(), "~/b".into()], vec!["../../x".into()])
        );
    }
}
