//! The language of comments, messages and documents.

use super::Finding;
use super::tree::{File, Tree};

/// Words without an actor, and metaphors for processes: with the word to write in their place.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "name the actor"),
    ("whomever", "name the actor"),
    ("somebody", "name the actor"),
    ("someone", "name the actor"),
    ("nobody", "name the actor"),
    ("anybody", "name the actor"),
    ("anyone", "name the actor"),
    ("warden", "supervisor"),
    ("usher", "notify handler"),
    ("lookout", "watcher"),
    ("porter", "mount agent"),
    ("janitor", "cgroup reaper"),
    ("steward", "limit monitor"),
    ("nursery", "zygote"),
];

/// Files that have to spell a banned word: (path or its beginning, word, reason).
const QUOTED: &[(&str, &str, &str)] = &[
    ("xtask/src/tidy/prose.rs", "*", "the table and its tests"),
    ("crates/ringfence-plan/src/linux.rs", "nobody", "the Unix user in /etc/passwd"),
];

/// First words that make a doc comment a riddle: it begins with a noun phrase or a verb.
const OPENERS: &[&str] = &["What", "Whether", "Who", "Whom", "Whose", "How", "Whatever"];

/// Columns of a line of prose.
const COLUMNS: usize = 100;

/// Documents that a program writes.
const GENERATED: &[&str] = &["docs/cli.md", "PROMISES.md"];

/// Lengths of documents: (path, lines at most, words at most).
const LENGTHS: &[(&str, usize, usize)] = &[
    ("README.md", 200, usize::MAX),
    ("ARCHITECTURE.md", 350, 2500),
    ("SECURITY.md", usize::MAX, 2500),
];

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.path.ends_with(".rs") || file.path.ends_with(".md") {
            findings.extend(banned_words(file));
        }
        if file.path.ends_with(".rs") {
            findings.extend(doc_openers(file));
        }
        if file.path.ends_with(".md") && !GENERATED.contains(&file.path.as_str()) {
            findings.extend(long_lines(file));
        }
        findings.extend(too_long(file));
    }
    findings
}

fn banned_words(file: &File) -> Vec<Finding> {
    let is_quoted = |word: &str| {
        QUOTED.iter().any(|(path, quoted, _)| {
            file.path.starts_with(path) && (*quoted == word || *quoted == "*")
        })
    };
    let in_line = |(index, line): (usize, &str)| -> Vec<Finding> {
        words(line)
            .filter_map(|word| {
                let word = word.to_ascii_lowercase();
                let (banned, instead) = BANNED.iter().find(|(banned, _)| *banned == word)?;
                let what = format!("`{banned}`: {instead}");
                (!is_quoted(banned)).then(|| Finding::new(&file.path, index + 1, what))
            })
            .collect()
    };
    file.text.lines().enumerate().flat_map(in_line).collect()
}

/// The words of `line`; a name such as `as_nobody` is one word.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The first line of each doc comment must not begin with a question word.
fn doc_openers(file: &File) -> Vec<Finding> {
    let doc = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(text.trim().to_owned())
    };
    let mut findings = Vec::new();
    let mut is_inside = false;
    for (index, line) in file.text.lines().enumerate() {
        let comment = doc(line);
        if let Some(text) = comment.as_deref().filter(|_| !is_inside) {
            let first = words(text).next().unwrap_or_default();
            if OPENERS.contains(&first) && text.starts_with(first) {
                let what = format!("doc comment begins with `{first}`: use a noun or a verb");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
        is_inside = comment.is_some();
    }
    findings
}

/// Lines of prose over the limit. Tables, code blocks and lines of one word (links) may be longer.
fn long_lines(file: &File) -> Vec<Finding> {
    let mut is_code = false;
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let columns = line.chars().count();
        let can_break = line.trim_start_matches(['-', '*', '>', ' ', '[', '!']).contains(' ');
        if !is_code && !line.starts_with('|') && can_break && columns > COLUMNS {
            let what = format!("{columns} columns, more than {COLUMNS}");
            findings.push(Finding::new(&file.path, index + 1, what));
        }
    }
    findings
}

fn too_long(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, lines, words) in LENGTHS.iter().filter(|(path, ..)| *path == file.path) {
        let has = (file.text.lines().count(), file.text.split_whitespace().count());
        if has.0 > *lines {
            findings.push(Finding::new(
                &file.path,
                *lines + 1,
                format!("{} lines, more than {lines}", has.0),
            ));
        }
        if has.1 > *words {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("{} words, more than {words}", has.1),
            ));
        }
    }
    findings
}

/// Doc comments in the tree, and how many of them begin with a question word.
pub(super) fn count_openers(tree: &Tree) -> (usize, usize) {
    let rust = || tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    let is_doc =
        |line: &str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
    let blocks = rust().map(|file| {
        let lines: Vec<bool> = file.text.lines().map(is_doc).collect();
        lines.iter().enumerate().filter(|(i, doc)| **doc && (*i == 0 || !lines[i - 1])).count()
    });
    (blocks.sum(), rust().map(|file| doc_openers(file).len()).sum())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::findings;

    #[test]
    fn banned_words_are_found_in_code_and_documents() {
        check(
            findings,
            &tree(&[
                ("a.rs", "// Whoever reads\nlet m = \"nobody asked\";\nfn as_nobody() {}\n"),
                ("a.md", "the usher waits\n"),
                ("a.txt", "nobody\n"),
            ]),
            &["a.rs:1: `whoever`", "a.rs:2: `nobody`", "a.md:1: `usher`: notify handler"],
        );
    }

    #[test]
    fn doc_comment_that_begins_with_a_question_word_is_found() {
        check(
            findings,
            &tree(&[(
                "a.rs",
                "//! What it is.\n\n/// Whether it is.\nfn f() {}\n/// Reads\n/// What comes.\n",
            )]),
            &[
                "a.rs:1: doc comment begins with `What`",
                "a.rs:3: doc comment begins with `Whether`",
            ],
        );
    }

    #[test]
    fn long_line_of_prose_is_found() {
        let long = "word ".repeat(21);
        check(
            findings,
            &tree(&[
                ("a.md", &format!("{long}\n")),
                ("b.md", &format!("| {long} |\n```\n{long}\n```\n{}\n", "x".repeat(120))),
                ("docs/cli.md", &format!("{long}\n")),
            ]),
            &["a.md:1: 105 columns, more than 100"],
        );
    }

    #[test]
    fn document_over_its_length_is_found() {
        check(
            findings,
            &tree(&[
                ("README.md", &"a\n".repeat(201)),
                ("SECURITY.md", &"a b\n".repeat(1251)),
                ("ARCHITECTURE.md", &"a b\n".repeat(350)),
            ]),
            &["README.md:201: 201 lines, more than 200", "SECURITY.md:1: 2502 words"],
        );
    }
}
