//! `list`: shows what is in a directory, as deep as one likes.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Access, Decision, Glob, GlobCase, Tool, Verdict};
use rustix::fs::{Dir, FileType, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{ToolError, ToolStep};
use crate::opened_path::{OpenedPath, PathHandle, is_at};
use crate::policy_snapshot::PolicySnapshot;
use crate::read::word;
use crate::{FileTools, ToolCall, is_private};

/// What is to be listed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListParams {
    /// Which directory; the working directory if nobody says.
    #[serde(default)]
    pub path: PathBuf,
    /// How many levels deep; 1, what is directly in it, if nobody says, and as many as there are
    /// where a glob is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Only what this matches, seen from the directory: `*.rs` at any depth, `src/*` there.
    #[serde(default, alias = "pattern", skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// How many entries at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl ListParams {
    /// What is directly in a directory.
    pub fn new(path: impl Into<PathBuf>) -> ListParams {
        ListParams { path: path.into(), ..ListParams::default() }
    }
}

/// What is in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListResult {
    /// Where the directory is, without links.
    #[schemars(with = "String")]
    pub path: AbsPath,
    /// What is in it, by name; what lies in a directory follows it.
    pub entries: Vec<ListEntry>,
    /// Whether there is more.
    pub truncated: bool,
}

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListEntry {
    /// Seen from the directory that was asked for.
    pub path: String,
    /// What it is.
    pub kind: ListEntryKind,
    /// How large a file is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where a link leads, as it is written in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the policy denies it: its name is there and nothing else.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListEntryKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; it is not followed.
    Link,
    /// A pipe, a socket, a device, or something denied that is not looked at.
    Other,
}

impl ListResult {
    /// So many entries are listed if nobody says how many.
    pub const USUAL: usize = 1_000;
    /// So many are listed at most.
    pub const MOST: usize = 100_000;
}

impl FileTools {
    /// Shows what is in a directory. What no rule opens is not in it.
    pub fn list(&self, wish: &ListParams) -> Result<ListResult, ToolError> {
        let glob = wish.glob.as_deref().map(compiled).transpose()?;
        self.errand(Tool::List)?.carry_out(|errand| attempt(errand, wish, glob.as_ref()))
    }
}

/// A glob over what is seen from a directory, which stands for the root.
pub(crate) fn compiled(text: &str) -> Result<Glob, ToolError> {
    let wrong = |source| ToolError::Glob { text: text.to_owned(), source };
    Glob::new(text, Some(&AbsPath::root()), GlobCase::Sensitive).map_err(wrong)
}

fn attempt(
    errand: &mut ToolCall<'_>,
    wish: &ListParams,
    glob: Option<&Glob>,
) -> Result<ListResult, ToolError> {
    let (ground, place) = open_directory(errand, &wish.path)?;
    let depth = wish.depth.unwrap_or(if glob.is_some() { VisibleTree::DEEPEST } else { 1 });
    let limit = wish.limit.unwrap_or(ListResult::USUAL).min(ListResult::MOST);
    let mut entries = Vec::new();
    let mut truncated = false;
    errand.plainly(&ground, || {
        VisibleTree { ground: &ground, depth }.walk(&place, &mut |seen| {
            if glob.is_some_and(|glob| !glob.matches(&AbsPath::root().join(&seen.below))) {
                return VisitControl::Deeper;
            }
            if entries.len() == limit {
                truncated = true;
                return VisitControl::Stop;
            }
            entries.push(seen.entry());
            VisitControl::Deeper
        })
    })?;
    Ok(ListResult { path: place.path, entries, truncated })
}

/// A directory that may be listed, on record.
pub(crate) fn open_directory(
    errand: &mut ToolCall<'_>,
    path: &std::path::Path,
) -> Result<(std::sync::Arc<PolicySnapshot>, OpenedPath), ToolError> {
    let (ground, place) = errand.found(path, Operation::Read)?;
    let mut decision = ground.decide(&place.path, Access::Read);
    // What is on the way to something opened shows that, and nothing else.
    let is_bounded = errand.tools.within.is_some();
    if decision.verdict == Verdict::Absent && ground.shows(&place.path) && !is_bounded {
        decision.verdict = Verdict::Allowed;
    } else {
        decision = errand.judge(&ground, &place, Operation::Read)?;
    }
    let node =
        place.there.as_ref().ok_or_else(|| ToolError::NotFound { path: place.path.clone() })?;
    if node.kind() != FileType::Directory {
        return Err(ToolError::OfAnotherKind {
            path: place.path.clone(),
            kind: word(node.kind()),
            wanted: "a directory",
        });
    }
    errand.record(Operation::Read, decision)?;
    Ok((ground, place))
}

/// A walk through what may be seen below a directory.
pub(crate) struct VisibleTree<'a> {
    pub(crate) ground: &'a PolicySnapshot,
    pub(crate) depth: usize,
}

/// Something on the walk.
pub(crate) struct VisibleEntry<'a> {
    /// Seen from where the walk began.
    pub(crate) below: PathBuf,
    /// Held; `None` if it is denied.
    pub(crate) place: Option<&'a OpenedPath>,
}

/// What becomes of the walk.
#[derive(PartialEq, Eq)]
pub(crate) enum VisitControl {
    Deeper,
    Past,
    Stop,
}

impl VisibleEntry<'_> {
    pub(crate) fn node(&self) -> Option<&PathHandle> {
        self.place.and_then(|place| place.there.as_ref())
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
            .then(|| rustix::fs::readlinkat(&node.held, "", Vec::new()).ok())
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
    /// As deep as any walk goes: each level holds a descriptor.
    pub(crate) const DEEPEST: usize = 128;

    /// Shows `visit` everything below `place`, in the order of names. What goes away meanwhile,
    /// or cannot be looked into, is left out.
    pub(crate) fn walk(
        &self,
        place: &OpenedPath,
        visit: &mut dyn FnMut(&VisibleEntry<'_>) -> VisitControl,
    ) -> Result<(), ToolError> {
        let Some(node) = &place.there else { return Ok(()) };
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
            let decision = self.ground.decide(&path, Access::Read);
            let place = match decision.verdict {
                Verdict::Absent if !self.is_on_the_way(&path) => continue,
                Verdict::Denied if !self.is_on_the_way(&path) => None,
                _ => match OpenedPath::within(directory.as_fd(), at, &name)? {
                    Some(place) => Some(place).filter(|place| !self.is_denied(place, &decision)),
                    None => continue,
                },
            };
            let node = place
                .as_ref()
                .and_then(|place| place.there.as_ref())
                .filter(|node| node.kind() == FileType::Directory);
            match (visit(&VisibleEntry { below: below.clone(), place: place.as_ref() }), node) {
                (VisitControl::Stop, _) => return Ok(VisitControl::Stop),
                (VisitControl::Deeper, Some(node))
                    if !is_private(&decision) && depth < self.depth.min(Self::DEEPEST) =>
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

    /// Whether what stands at an open name is denied by another of its names.
    fn is_denied(&self, place: &OpenedPath, decision: &Decision) -> bool {
        decision.verdict == Verdict::Allowed
            && self.ground.decide_at(place, Access::Read).verdict == Verdict::Denied
    }

    /// Whether something opened lies below what is not opened itself.
    fn is_on_the_way(&self, path: &AbsPath) -> bool {
        self.ground
            .grants()
            .rules
            .iter()
            .any(|rule| rule.opens() && rule.root.is_within(path) && rule.root != *path)
    }
}

/// What is in a directory, sorted; nothing if it is not where it was when it was decided about.
fn names(directory: &OwnedFd, at: &AbsPath) -> Result<Vec<OsString>, ToolError> {
    /// More than these are not kept in memory.
    const MANY: usize = 1_000_000;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).during("list", at)?.take(MANY) {
        let entry = entry.during("list", at)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(if is_at(directory.as_fd(), at)? { names } else { Vec::new() })
}
