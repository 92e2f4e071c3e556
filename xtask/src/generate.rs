//! `cargo xtask gen`: documents that the program itself knows best.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::promises::{self, CATALOGUE};
use crate::{TaskResult, walk, workspace};

/// Writes the documents, or checks them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GenerateMode {
    Write,
    Check,
}

/// Each document, and the words that make the program print it.
const DOCUMENTS: &[(&str, &[&str])] = &[
    ("docs/policy.schema.json", &["policy", "schema"]),
    ("docs/cli.md", &["reference"]),
    ("docs/openapi.json", &["serve", "--openapi"]),
    ("docs/protocol.schema.json", &["session", "schema"]),
];

/// Builds the program; then writes the documents, or fails naming those that differ.
pub(crate) fn run(purpose: GenerateMode) -> TaskResult {
    run_with(&workspace::build("ringfence-cli", &[])?, purpose)
}

/// The same by a program that was built already.
pub(crate) fn run_with(program: &Path, purpose: GenerateMode) -> TaskResult {
    let mut stale = Vec::new();
    let mut documents = vec![
        ("PROMISES.md", render_promises()?.into_bytes()),
        (walk::DOCUMENT, walk::render(program)?.into_bytes()),
    ];
    for (document, words) in DOCUMENTS {
        documents.push((document, printed(program, words)?));
    }
    for (document, text) in documents {
        let path = workspace::root().join(document);
        if fs::read(&path).is_ok_and(|present| present == text) {
            continue;
        }
        match purpose {
            GenerateMode::Check => stale.push(document),
            GenerateMode::Write => {
                fs::create_dir_all(path.parent().expect("documents lie in the workspace"))?;
                fs::write(&path, text)
                    .map_err(|error| format!("cannot write {document}: {error}"))?;
                println!("wrote {document}");
            }
        }
    }
    match stale.as_slice() {
        [] => Ok(()),
        stale => Err(format!(
            "not what the program says now: {}; `cargo xtask gen` writes it anew",
            stale.join(", ")
        )
        .into()),
    }
}

/// PROMISES.md, from the catalogue and the tags above tests.
fn render_promises() -> Result<String, Box<dyn Error>> {
    let root = workspace::root();
    let catalogue = fs::read_to_string(root.join(CATALOGUE))?;
    let mut files = Vec::new();
    collect_rust(root, &root.join("crates"), &mut files)?;
    files.sort();
    let tests: Vec<_> =
        files.iter().flat_map(|(path, text)| promises::read_tags(path, text)).collect();
    Ok(promises::render(&promises::read_catalogue(&catalogue), &tests))
}

/// Reads every Rust file below `directory`, as (path from `root`, text).
fn collect_rust(
    root: &Path,
    directory: &Path,
    files: &mut Vec<(String, String)>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_rust(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

fn printed(program: &Path, words: &[&str]) -> Result<Vec<u8>, Box<dyn Error>> {
    // No terminal in reach and no width in the environment: the text must not depend on a window.
    let output = Command::new(program)
        .args(words)
        .current_dir(workspace::root())
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() && !output.stdout.is_empty() {
        return Ok(output.stdout);
    }
    Err(format!(
        "`ringfence {}` printed no document: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    )
    .into())
}
