//! `cargo xtask gen`: documents that the program itself knows best.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Done, workspace};

/// What to do with what was generated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    Check,
}

/// Each document, and the words that make the program print it.
const DOCUMENTS: &[(&str, &[&str])] = &[
    ("docs/policy.schema.json", &["policy", "schema"]),
    ("docs/cli.md", &["reference"]),
    ("docs/openapi.json", &["serve", "--openapi"]),
];

/// Builds the program; then writes the documents, or fails naming those that differ.
pub(crate) fn run(purpose: Purpose) -> Done {
    run_with(&workspace::build("ringfence-cli", &[])?, purpose)
}

/// The same by a program that was built already.
pub(crate) fn run_with(program: &Path, purpose: Purpose) -> Done {
    let mut stale = Vec::new();
    for (document, words) in DOCUMENTS {
        let text = printed(program, words)?;
        let path = workspace::root().join(document);
        if fs::read(&path).is_ok_and(|present| present == text) {
            continue;
        }
        match purpose {
            Purpose::Check => stale.push(*document),
            Purpose::Write => {
                fs::create_dir_all(path.parent().expect("documents lie in docs"))?;
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
