//! `list`: lists a directory, with a chosen depth.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Access, Decision, Glob, GlobCase, Tool, Verdict};
use rustix::fs::{Dir, FileType, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{ToolError, ToolStep};
use crate::opened_path::{OpenedPath, PathHandle, is_at_path};
use crate::policy_snapshot::PolicySnapshot;
use crate::read::file_type_text;
use crate::{FileTools, ToolCall, is_private};

/// Parameters of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListParams {
    /// The directory; by default the working directory.
    #[serde(default)]
    pub path: PathBuf,
    /// The number of levels. The default is 1, the direct entries, or unlimited with a glob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// A glob relative to the directory: `*.rs` matches at any depth, `src/*` only there.
    #[serde(default, alias = "pattern", skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// The limit of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl ListParams {
    /// Lists the direct entries of a directory.
    pub fn new(path: impl Into<PathBuf>) -> ListParams {
        ListParams { path: path.into(), ..ListParams::default() }
    }
}

/// The content of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListResult {
    /// The path of the directory, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// The entries, by name; the entries of a directory follow it.
    pub entries: Vec<ListEntry>,
    /// True if there are more entries.
    pub truncated: bool,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListEntry {
    /// The path relative to the listed directory.
    pub path: String,
    /// The type of the entry.
    pub kind: ListEntryKind,
    /// The size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The target of a link, as stored in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// True if the policy denies it: only its name is shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListEntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; it is not followed.
    Link,
    /// A pipe, a socket, a device, or a denied path of unknown type.
    Other,
}

impl ListResult {
    /// The default limit of entries.
    pub const DEFAULT_LIMIT: usize = 1_000;
    /// The maximum limit of entries.
    pub const MAX_LIMIT: usize = 100_000;
}

impl FileTools {
    /// Lists a directory. Paths that no rule allows are not shown.
    pub fn list(&self, params: &ListParams) -> Result<ListResult, ToolError> {
        let glob = params.glob.as_deref().map(compile_glob).transpose()?;
        self.begin_call(Tool::List)?.run_attempts(|call| attempt(call, params, glob.as_ref()))
    }
}

/// A glob relative to a directory, which takes the place of the root.
pub(crate) fn compile_glob(text: &str) -> Result<Glob, ToolError> {
    let wrong = |source| ToolError::Glob { text: text.to_owned(), source };
    Glob::new(text, Some(&AbsPath::root()), GlobCase::Sensitive).map_err(wrong)
}

fn attempt(
    call: &mut ToolCall<'_>,
    params: &ListParams,
    glob: Option<&Glob>,
) -> Result<ListResult, ToolError> {
    let (snapshot, place) = open_directory(call, &params.path)?;
    let depth = params.depth.unwrap_or(if glob.is_some() { VisibleTree::MAX_DEPTH } else { 1 });
    let limit = params.limit.unwrap_or(ListResult::DEFAULT_LIMIT).min(ListResult::MAX_LIMIT);
    let mut entries = Vec::new();
    let mut truncated = false;
    call.without_capabilities(&snapshot, || {
        VisibleTree { snapshot: &snapshot, depth }.walk(&place, &mut |visited| {
            if glob.is_some_and(|glob| !glob.matches(&AbsPath::root().join(&visited.below))) {
                return VisitControl::Deeper;
            }
            if entries.len() == limit {
                truncated = true;
                return VisitControl::Stop;
            }
            entries.push(visited.entry());
            VisitControl::Deeper
        })
    })?;
    Ok(ListResult { path: place.path, entries, truncated })
}

/// Opens a directory for listing, and records it.
pub(crate) fn open_directory(
    call: &mut ToolCall<'_>,
    path: &std::path::Path,
) -> Result<(std::sync::Arc<PolicySnapshot>, OpenedPath), ToolError> {
    let (snapshot, place) = call.find_existing(path, Operation::Read)?;
    let mut decision = snapshot.decide(&place.path, Access::Read);
    // A parent of an allowed path shows only the way to it.
    let is_bounded = call.tools.within.is_some();
    if decision.verdict == Verdict::Absent && snapshot.is_visible(&place.path) && !is_bounded {
        decision.verdict = Verdict::Allowed;
    } else {
        decision = call.judge(&snapshot, &place, Operation::Read)?;
    }
    let node =
        place.target.as_ref().ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
    if node.kind() != FileType::Directory {
        return Err(ToolError::OfAnotherKind {
            path: place.path.clone(),
            kind: file_type_text(node.kind()),
            wanted: "a directory",
        });
    }
    call.record(Operation::Read, decision)?;
    Ok((snapshot, place))
}

/// A walk over the visible paths below a directory.
pub(crate) struct VisibleTree<'a> {
    pub(crate) snapshot: &'a PolicySnapshot,
    pub(crate) depth: usize,
}

/// A path on the walk.
pub(crate) struct VisibleEntry<'a> {
    /// The path relative to the start of the walk.
    pub(crate) below: PathBuf,
    /// The opened path; `None` if it is denied.
    pub(crate) place: Option<&'a OpenedPath>,
}

/// The next step of a walk.
#[derive(PartialEq, Eq)]
pub(crate) enum VisitControl {
    Deeper,
    Past,
    Stop,
}

impl VisibleEntry<'_> {
    pub(crate) fn node(&self) -> Option<&PathHandle> {
        self.place.and_then(|place| place.target.as_ref())
    }

    fn entry(&self) -> ListEntry {
        let path = self.below.to_string_lossy().into_owned();
        let Some(node) = self.node() else {
            return ListEntry {
                path,
                kind: ListEntryKind::Other,
                size: None,
                target: None,
                denied: true,
            };
        };
        let kind = match node.kind() {
            FileType::RegularFile => ListEntryKind::File,
            FileType::Directory => ListEntryKind::Directory,
            FileType::Symlink => ListEntryKind::Link,
            _ => ListEntryKind::Other,
        };
        let size =
            (kind == ListEntryKind::File).then(|| u64::try_from(node.status.st_size).unwrap_or(0));
        let target = (kind == ListEntryKind::Link)
            .then(|| rustix::fs::readlinkat(&node.fd, "", Vec::new()).ok())
            .flatten();
        ListEntry {
            path,
            kind,
            size,
            target: target.map(|target| target.to_string_lossy().into_owned()),
            denied: false,
        }
    }
}

impl VisibleTree<'_> {
    /// The depth limit of a walk: each level holds an fd open.
    pub(crate) const MAX_DEPTH: usize = 128;

    /// Calls `visit` for each path below `place`, sorted by name. Paths that disappear meanwhile or
    /// cannot be read are left out.
    pub(crate) fn walk(
        &self,
        place: &OpenedPath,
        visit: &mut dyn FnMut(&VisibleEntry<'_>) -> VisitControl,
    ) -> Result<(), ToolError> {
        let Some(node) = &place.target else { return Ok(()) };
        let directory = node.open(OFlags::RDONLY | OFlags::DIRECTORY, &place.path)?;
        self.level(&directory, &place.path, &PathBuf::new(), 1, visit).map(drop)
    }

    fn level(
        &self,
        directory: &OwnedFd,
        at: &AbsPath,
        below: &std::path::Path,
        depth: usize,
        visit: &mut dyn FnMut(&VisibleEntry<'_>) -> VisitControl,
    ) -> Result<VisitControl, ToolError> {
        for name in names(directory, at)? {
            let path = at.join(&name);
            let below = below.join(&name);
            let decision = self.snapshot.decide(&path, Access::Read);
            let place = match decision.verdict {
                Verdict::Absent if !self.has_allowed_below(&path) => continue,
                Verdict::Denied if !self.has_allowed_below(&path) => None,
                _ => match OpenedPath::within(directory.as_fd(), at, &name)? {
                    Some(place) => Some(place).filter(|place| !self.is_denied(place, &decision)),
                    None => continue,
                },
            };
            let node = place
                .as_ref()
                .and_then(|place| place.target.as_ref())
                .filter(|node| node.kind() == FileType::Directory);
            match (visit(&VisibleEntry { below: below.clone(), place: place.as_ref() }), node) {
                (VisitControl::Stop, _) => return Ok(VisitControl::Stop),
                (VisitControl::Deeper, Some(node))
                    if !is_private(&decision) && depth < self.depth.min(Self::MAX_DEPTH) =>
                {
                    let Ok(opened) = node.open(OFlags::RDONLY | OFlags::DIRECTORY, &path) else {
                        continue;
                    };
                    if self.level(&opened, &path, &below, depth + 1, visit)? == VisitControl::Stop {
                        return Ok(VisitControl::Stop);
                    }
                }
                _ => {}
            }
        }
        Ok(VisitControl::Deeper)
    }

    /// True if the file at an allowed path is denied under another name (hard link).
    fn is_denied(&self, place: &OpenedPath, decision: &Decision) -> bool {
        decision.verdict == Verdict::Allowed
            && self.snapshot.decide_at(place, Access::Read).verdict == Verdict::Denied
    }

    /// True if an allowed path lies below a path that is not allowed itself.
    fn has_allowed_below(&self, path: &AbsPath) -> bool {
        self.snapshot
            .grants()
            .rules
            .iter()
            .any(|rule| rule.opens() && rule.root.is_within(path) && rule.root != *path)
    }
}

/// The sorted entries of a directory; empty if it was moved since the decision.
fn names(directory: &OwnedFd, at: &AbsPath) -> Result<Vec<OsString>, ToolError> {
    /// The limit of entries in memory.
    const MAX_ENTRIES: usize = 1_000_000;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).during("list", at)?.take(MAX_ENTRIES) {
        let entry = entry.during("list", at)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(if is_at_path(directory.as_fd(), at)? { names } else { Vec::new() })
}
