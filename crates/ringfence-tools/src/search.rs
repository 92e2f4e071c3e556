//! `search`: looks for text in files.

mod pattern;
mod regex;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Glob, Tool};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::list::{VisibleTree, VisitControl, compiled, open_directory};
use crate::opened_path::OpenedPath;
use crate::policy_snapshot::PolicySnapshot;
use crate::read::whole;
use crate::text::is_binary;
use crate::{FileTools, ToolCall};
use pattern::SearchPattern;

/// What is looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchParams {
    /// A regular expression, or the text itself where `literal` says so.
    pub pattern: String,
    /// Whether the pattern is the text itself.
    #[serde(default)]
    pub literal: bool,
    /// Whether upper and lower case are the same.
    #[serde(default, alias = "ignore_case")]
    pub ignore_case: bool,
    /// In which directory or file; the working directory if nobody says.
    #[serde(default)]
    pub path: PathBuf,
    /// Only in files that this matches, seen from the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// How many matches at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How long it may take, in milliseconds.
    #[serde(default, alias = "timeout_ms", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl SearchParams {
    /// A text, as it is, anywhere below the working directory.
    pub fn literal(text: impl Into<String>) -> SearchParams {
        SearchParams { pattern: text.into(), literal: true, ..SearchParams::default() }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    /// Where it was looked for, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// Each line once, in the order of names and lines.
    pub matches: Vec<SearchMatch>,
    /// How many files were looked through.
    pub files: usize,
    /// How many files were not, because they are denied.
    pub denied: usize,
    /// How many files were not, because they are no text, too large or cannot be read.
    pub skipped: usize,
    /// Whether there is more: there were too many, or it took too long.
    pub truncated: bool,
}

/// A line in which it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchMatch {
    /// The file, seen from the directory that was asked for; as it is called, if it was a file.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The byte in it at which the match begins, from 1.
    pub column: usize,
    /// The line, or as much of it as anybody reads.
    pub text: String,
}

impl SearchResult {
    /// So many matches are told if nobody says how many.
    pub const USUAL: usize = 200;
    /// So many are told at most.
    pub const MOST: usize = 10_000;
    /// Files larger than this are not looked through.
    pub const LARGE: u64 = 8 << 20;
    /// So long it takes if nobody says how long.
    const PATIENCE: Duration = Duration::from_secs(10);
    /// So much of a line is shown.
    const LINE: usize = 500;
}

impl FileTools {
    /// Looks for text in files: those that may be read and are text.
    pub fn search(&self, wish: &SearchParams) -> Result<SearchResult, ToolError> {
        let pattern = SearchPattern::new(wish)?;
        let glob = wish.glob.as_deref().map(compiled).transpose()?;
        self.errand(Tool::Search)?
            .carry_out(|errand| attempt(errand, wish, &pattern, glob.as_ref()))
    }
}

fn attempt(
    errand: &mut ToolCall<'_>,
    wish: &SearchParams,
    pattern: &SearchPattern,
    glob: Option<&Glob>,
) -> Result<SearchResult, ToolError> {
    let deadline =
        Instant::now() + wish.timeout_ms.map_or(SearchResult::PATIENCE, Duration::from_millis);
    let limit = wish.limit.unwrap_or(SearchResult::USUAL).min(SearchResult::MOST);
    let (ground, place) = errand.found(&wish.path, Operation::Read)?;
    let is_file = place.there.as_ref().is_some_and(|node| node.kind() == FileType::RegularFile);
    let mut round = SearchRun { pattern, limit, deadline, found: nothing(place.path.clone()) };
    if is_file {
        let decision = errand.judge(&ground, &place, Operation::Read)?;
        errand.record(Operation::Read, decision)?;
        let name = place.name.to_string_lossy().into_owned();
        errand.plainly(&ground, || {
            round.file(&place, &name);
            Ok::<_, ToolError>(())
        })?;
        return Ok(round.found);
    }
    let (ground, place) = open_directory(errand, &wish.path)?;
    round.found.path = place.path.clone();
    let doubtful = errand.plainly(&ground, || round.tree(&ground, &place, glob))?;
    // What got another name since the last look at the host is decided about by itself.
    for below in doubtful {
        let path = place.path.as_path().join(&below);
        let Ok((ground, file)) = errand.found(&path, Operation::Read) else { continue };
        match errand.judge(&ground, &file, Operation::Read) {
            Ok(_) => errand.plainly(&ground, || {
                round.file(&file, &below.to_string_lossy());
                Ok::<_, ToolError>(())
            })?,
            Err(_) => round.found.denied += 1,
        }
    }
    Ok(round.found)
}

fn nothing(path: AbsPath) -> SearchResult {
    SearchResult { path, matches: Vec::new(), files: 0, denied: 0, skipped: 0, truncated: false }
}

/// A search on its way.
struct SearchRun<'a> {
    pattern: &'a SearchPattern,
    limit: usize,
    deadline: Instant,
    found: SearchResult,
}

impl SearchRun<'_> {
    /// Looks through a directory; answers files of which it is not sure that they may be read.
    fn tree(
        &mut self,
        ground: &PolicySnapshot,
        place: &OpenedPath,
        glob: Option<&Glob>,
    ) -> Result<Vec<PathBuf>, ToolError> {
        let mut doubtful = Vec::new();
        let tree = VisibleTree { ground, depth: VisibleTree::DEEPEST };
        tree.walk(place, &mut |seen| {
            let Some(node) = seen.node() else {
                self.found.denied += 1;
                return VisitControl::Deeper;
            };
            // Git's store is packed, and what is in it is elsewhere as well.
            if node.kind() == FileType::Directory
                && seen.below.file_name().is_some_and(|name| name == ".git")
            {
                return VisitControl::Past;
            }
            let is_meant = glob.is_none_or(|glob| glob.matches(&AbsPath::root().join(&seen.below)));
            if let Some(place) = seen.place
                && node.kind() == FileType::RegularFile
                && is_meant
            {
                if ground.is_stale_for(node) {
                    doubtful.push(seen.below.clone());
                } else {
                    self.file(place, &seen.below.to_string_lossy());
                }
            }
            self.found.truncated |= Instant::now() > self.deadline;
            if self.found.truncated { VisitControl::Stop } else { VisitControl::Deeper }
        })?;
        Ok(doubtful)
    }

    fn file(&mut self, place: &OpenedPath, name: &str) {
        let Some(Ok(text)) =
            place.there.as_ref().map(|node| whole(node, &place.path, SearchResult::LARGE))
        else {
            self.found.skipped += 1;
            return;
        };
        if is_binary(&text) {
            self.found.skipped += 1;
            return;
        }
        self.found.files += 1;
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let at = self.pattern.find(line, self.deadline);
            if (at.is_none() || index % 1024 == 0) && Instant::now() > self.deadline {
                self.found.truncated = true;
                return;
            }
            let Some(at) = at else { continue };
            if self.found.matches.len() == self.limit {
                self.found.truncated = true;
                return;
            }
            let shown =
                String::from_utf8_lossy(&line[..line.len().min(SearchResult::LINE)]).into_owned();
            self.found.matches.push(SearchMatch {
                path: name.to_owned(),
                line: index + 1,
                column: at + 1,
                text: shown,
            });
        }
    }
}
