//! `search`: searches for text in files.

mod pattern;
mod regex;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Glob, Tool};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::list::{VisibleTree, VisitControl, compile_glob, open_directory};
use crate::opened_path::OpenedPath;
use crate::policy_snapshot::PolicySnapshot;
use crate::read::read_whole_file;
use crate::text::is_binary;
use crate::{FileTools, ToolCall};
use pattern::SearchPattern;

/// Parameters of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchParams {
    /// A regular expression, or plain text with `literal`.
    pub pattern: String,
    /// True if the pattern is plain text.
    #[serde(default)]
    pub literal: bool,
    /// True to ignore case.
    #[serde(default, alias = "ignore_case")]
    pub ignore_case: bool,
    /// The directory or file; by default the working directory.
    #[serde(default)]
    pub path: PathBuf,
    /// A glob for the files, relative to the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// The limit of matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The time limit in milliseconds.
    #[serde(default, alias = "timeout_ms", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl SearchParams {
    /// Searches for plain text below the working directory.
    pub fn literal(text: impl Into<String>) -> SearchParams {
        SearchParams { pattern: text.into(), literal: true, ..SearchParams::default() }
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    /// The searched path, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// One match per line, sorted by file name and line.
    pub matches: Vec<SearchMatch>,
    /// The number of searched files.
    pub files: usize,
    /// The number of denied files, which were not searched.
    pub denied: usize,
    /// The number of files not searched because they are binary, too large or unreadable.
    pub skipped: usize,
    /// True if the limit or the time limit was reached.
    pub truncated: bool,
}

/// A matching line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchMatch {
    /// The file, relative to the searched directory; its name, if a file was searched.
    pub path: String,
    /// The line number, from 1.
    pub line: usize,
    /// The byte column of the match, from 1.
    pub column: usize,
    /// The line, truncated if it is long.
    pub text: String,
}

impl SearchResult {
    /// The default limit of matches.
    pub const DEFAULT_LIMIT: usize = 200;
    /// The maximum limit of matches.
    pub const MAX_LIMIT: usize = 10_000;
    /// The size limit of searched files.
    pub const MAX_FILE_BYTES: u64 = 8 << 20;
    /// The default time limit.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
    /// The maximum length of a returned line.
    const MAX_LINE: usize = 500;
}

impl FileTools {
    /// Searches for text in readable text files.
    pub fn search(&self, params: &SearchParams) -> Result<SearchResult, ToolError> {
        let pattern = SearchPattern::new(params)?;
        let glob = params.glob.as_deref().map(compile_glob).transpose()?;
        self.begin_call(Tool::Search)?
            .run_attempts(|call| attempt(call, params, &pattern, glob.as_ref()))
    }
}

fn attempt(
    call: &mut ToolCall<'_>,
    params: &SearchParams,
    pattern: &SearchPattern,
    glob: Option<&Glob>,
) -> Result<SearchResult, ToolError> {
    let deadline = Instant::now()
        + params.timeout_ms.map_or(SearchResult::DEFAULT_TIMEOUT, Duration::from_millis);
    let limit = params.limit.unwrap_or(SearchResult::DEFAULT_LIMIT).min(SearchResult::MAX_LIMIT);
    let (snapshot, place) = call.find_existing(&params.path, Operation::Read)?;
    let is_file = place.target.as_ref().is_some_and(|node| node.kind() == FileType::RegularFile);
    let mut run = SearchRun { pattern, limit, deadline, found: empty_result(place.path.clone()) };
    if is_file {
        let decision = call.judge(&snapshot, &place, Operation::Read)?;
        call.record(Operation::Read, decision)?;
        let name = place.name.to_string_lossy().into_owned();
        call.without_capabilities(&snapshot, || {
            run.file(&place, &name);
            Ok::<_, ToolError>(())
        })?;
        return Ok(run.found);
    }
    let (snapshot, place) = open_directory(call, &params.path)?;
    run.found.path = place.path.clone();
    let undecided = call.without_capabilities(&snapshot, || run.tree(&snapshot, &place, glob))?;
    // Files with a new hard link since the survey are decided one by one.
    for below in undecided {
        let path = place.path.as_path().join(&below);
        let Ok((snapshot, file)) = call.find_existing(&path, Operation::Read) else { continue };
        match call.judge(&snapshot, &file, Operation::Read) {
            Ok(_) => call.without_capabilities(&snapshot, || {
                run.file(&file, &below.to_string_lossy());
                Ok::<_, ToolError>(())
            })?,
            Err(_) => run.found.denied += 1,
        }
    }
    Ok(run.found)
}

fn empty_result(path: AbsPath) -> SearchResult {
    SearchResult { path, matches: Vec::new(), files: 0, denied: 0, skipped: 0, truncated: false }
}

/// A running search.
struct SearchRun<'a> {
    pattern: &'a SearchPattern,
    limit: usize,
    deadline: Instant,
    found: SearchResult,
}

impl SearchRun<'_> {
    /// Searches a directory. Returns files that need a fresh decision.
    fn tree(
        &mut self,
        snapshot: &PolicySnapshot,
        place: &OpenedPath,
        glob: Option<&Glob>,
    ) -> Result<Vec<PathBuf>, ToolError> {
        let mut undecided = Vec::new();
        let tree = VisibleTree { snapshot, depth: VisibleTree::MAX_DEPTH };
        tree.walk(place, &mut |visited| {
            let Some(node) = visited.node() else {
                self.found.denied += 1;
                return VisitControl::Deeper;
            };
            // git's object store is packed, and its content is in the working tree too.
            if node.kind() == FileType::Directory
                && visited.below.file_name().is_some_and(|name| name == ".git")
            {
                return VisitControl::Past;
            }
            let is_selected =
                glob.is_none_or(|glob| glob.matches(&AbsPath::root().join(&visited.below)));
            if let Some(place) = visited.place
                && node.kind() == FileType::RegularFile
                && is_selected
            {
                if snapshot.is_stale_for(node) {
                    undecided.push(visited.below.clone());
                } else {
                    self.file(place, &visited.below.to_string_lossy());
                }
            }
            self.found.truncated |= Instant::now() > self.deadline;
            if self.found.truncated { VisitControl::Stop } else { VisitControl::Deeper }
        })?;
        Ok(undecided)
    }

    fn file(&mut self, place: &OpenedPath, name: &str) {
        let Some(Ok(text)) = place
            .target
            .as_ref()
            .map(|node| read_whole_file(node, &place.path, SearchResult::MAX_FILE_BYTES))
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
            let shown = String::from_utf8_lossy(&line[..line.len().min(SearchResult::MAX_LINE)])
                .into_owned();
            self.found.matches.push(SearchMatch {
                path: name.to_owned(),
                line: index + 1,
                column: at + 1,
                text: shown,
            });
        }
    }
}
