//! The workspace as the rules see it: text files and packages.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::source;
use crate::workspace;

/// The files and packages that the rules check.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    /// The path of every file, text or not, from the top of the workspace.
    pub(super) paths: Vec<PathBuf>,
    pub(super) packages: Vec<Package>,
}

/// A text file.
pub(super) struct File {
    /// From the top of the workspace, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// For Rust: the text with comments and literals blanked, line by line the same.
    pub(super) code: Option<String>,
}

/// A package of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest: String,
    /// The files of its library and its programs that cargo starts from.
    pub(super) roots: Vec<String>,
    pub(super) needs: Vec<Need>,
}

/// A dependency as written in a manifest.
pub(super) struct Need {
    pub(super) name: String,
    pub(super) when: When,
    pub(super) from: From,
}

/// When a dependency is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Build,
    Test,
}

/// The origin of a dependency.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Workspace,
    Outside,
}

impl Tree {
    /// Reads the workspace.
    pub(super) fn read() -> Result<Tree, Box<dyn Error>> {
        let root = workspace::root();
        let (mut files, mut paths) = (Vec::new(), Vec::new());
        collect(root, &mut paths)?;
        for path in &paths {
            let bytes = fs::read(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File::new(relative(root, path), text));
            }
        }
        let paths =
            paths.iter().map(|path| path.strip_prefix(root).unwrap_or(path).to_owned()).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let metadata = workspace::metadata()?;
        let packages =
            list(&metadata["packages"]).iter().map(|package| Package::of(package, root)).collect();
        Ok(Tree { files, paths, packages })
    }

    /// The file at exactly this path.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Every Rust file, as (path, code).
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.code.as_deref()?)))
    }
}

impl File {
    pub(super) fn new(path: String, text: String) -> File {
        let code = path.ends_with(".rs").then(|| source::code(&text));
        File { path, text, code }
    }
}

impl Package {
    fn of(value: &Value, root: &Path) -> Package {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ships = |target: &&Value| {
            list(&target["kind"]).iter().any(|kind| kind == "lib" || kind == "bin")
        };
        Package {
            name: text(&value["name"]),
            manifest: relative(root, Path::new(&text(&value["manifest_path"]))),
            roots: list(&value["targets"])
                .iter()
                .filter(ships)
                .filter_map(|target| Path::new(target["src_path"].as_str()?).canonicalize().ok())
                .map(|path| relative(root, &path))
                .collect(),
            needs: list(&value["dependencies"])
                .iter()
                .map(|need| Need {
                    name: text(&need["name"]),
                    when: match need["kind"].as_str() {
                        Some("dev") => When::Test,
                        Some("build") => When::Build,
                        _ => When::Always,
                    },
                    from: if need["path"].is_string() { From::Workspace } else { From::Outside },
                })
                .collect(),
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Collects the path of every file but those that git, cargo and npm keep for themselves.
fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let fail = |error| format!("cannot read {}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let kind = entry.file_type().map_err(fail)?;
        let kept_by_tools =
            matches!(entry.file_name().to_str(), Some(".git" | "target" | "node_modules"));
        if kind.is_dir() && !kept_by_tools {
            collect(&entry.path(), paths)?;
        } else if kind.is_file() && entry.file_name() != ".git" {
            // In a linked worktree `.git` is a file.
            paths.push(entry.path());
        }
    }
    Ok(())
}
