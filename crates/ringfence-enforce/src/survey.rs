//! What of the policy is there: which rules have something to stand on, and which files
//! in the opened trees a pattern catches.
//!
//! Reads the host and changes nothing. What appears after the survey is the guards' and
//! the covers' business.

mod git;
mod links;
mod walk;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use ringfence_policy::{AbsPath, Effect, Grants, NameIndex, Rule};

use crate::plan::{Cover, Guard, GuardKind, Kind};
use links::Links;
use walk::Walk;

/// What was found on the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Where each rule's root leads; roots that are missing are not listed.
    pub found: BTreeMap<AbsPath, Found>,
    /// What must be covered in the opened trees.
    pub covers: BTreeMap<AbsPath, Cover>,
    /// Directories that keep their names and in which protects hold by identity.
    pub guards: Vec<Guard>,
    pinned: HashSet<AbsPath>,
    /// How many directories were looked through.
    pub directories: usize,
    /// Whether the project is one that tools build.
    pub builds: Builds,
}

/// Whether a project is one that tools build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Builds {
    /// Nothing says so.
    #[default]
    Nothing,
    /// It has a file that a build tool reads.
    Something,
}

/// Files by which a project is known to be built.
const MANIFESTS: &[&str] =
    &["Cargo.toml", "package.json", "go.mod", "pom.xml", "build.gradle", "build.gradle.kts", "Gemfile", "deno.json", "pyproject.toml"];

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Symbolic links on the way, outermost first.
    pub links: Vec<(AbsPath, PathBuf)>,
    /// The path without symbolic links.
    pub real: AbsPath,
    /// What stands there.
    pub kind: Kind,
}

/// Files with several names, by device and inode: what covers one name must cover all.
type Linked = BTreeMap<(u64, u64), Cover>;

/// Looks at the host through the eyes of `grants`.
pub fn survey(grants: &Grants) -> Survey {
    let mut survey = look(grants);
    if MANIFESTS.iter().any(|name| grants.workspace.as_path().join(name).exists()) {
        survey.builds = Builds::Something;
    }
    let mut linked = Linked::new();
    for rule in &grants.rules {
        survey.rule(rule, grants, &mut linked);
    }
    survey.trees(grants, linked);
    survey
}

/// Finds what the rules stand on, and no more.
pub(crate) fn look(grants: &Grants) -> Survey {
    let mut links = Links::default();
    let mut survey = Survey::default();
    let walked: HashSet<&AbsPath> = grants.rules.iter().filter(|rule| is_walked(rule)).map(|rule| &rule.root).collect();
    // What is protected in a tree that is walked is found there, by its name.
    let is_found_anyway = |rule: &&Rule| rule.effect == Effect::Protect && rule.root.parent().is_some_and(|above| walked.contains(&above));
    let roots = grants.rules.iter().filter(|rule| !is_found_anyway(rule)).map(|rule| &rule.root);
    for root in roots.chain(&grants.network.unix_sockets) {
        if !survey.found.contains_key(root)
            && let Some(found) = links.follow(root)
        {
            survey.found.insert(root.clone(), found);
        }
    }
    survey
}

impl Survey {
    /// Covers and pins that follow from a rule on a path.
    fn rule(&mut self, rule: &Rule, grants: &Grants, linked: &mut Linked) {
        let Some(found) = self.found.get(&rule.root) else { return };
        let (real, kind) = (found.real.clone(), found.kind);
        match rule.effect {
            Effect::Deny => {
                note_linked(&real, kind, linked);
                if grants.verdict(&real, ringfence_policy::Access::Read) == ringfence_policy::Verdict::Denied {
                    self.covers.insert(real.clone(), Cover::Deny(kind));
                }
            }
            Effect::Protect => {
                self.covers.entry(real.clone()).or_insert(Cover::ReadOnly);
            }
            Effect::Read | Effect::Write | Effect::Private { .. } => return,
        }
        self.pin_ancestors(&real, grants);
    }

    /// A directory between a writable root and a rule keeps its name: moved away and back
    /// again, it would bring along what was made in it meanwhile.
    fn pin_ancestors(&mut self, path: &AbsPath, grants: &Grants) {
        let Some(root) = writable_root(path, grants) else { return };
        for above in path.ancestors().skip(1).take_while(|above| *above != root && above.is_within(&root)) {
            if self.is_pinned(&above) {
                break;
            }
            self.pin(&above, GuardKind::Above);
        }
    }

    fn is_pinned(&self, path: &AbsPath) -> bool {
        self.pinned.contains(path)
    }

    /// Makes read-only what is there, where it really is.
    fn protect(&mut self, path: &AbsPath) {
        let Some(real) = fs::canonicalize(path.as_path()).ok().and_then(AbsPath::new) else { return };
        self.covers.entry(real).or_insert(Cover::ReadOnly);
    }

    fn pin(&mut self, path: &AbsPath, kind: GuardKind) {
        if !self.pinned.insert(path.clone()) {
            if kind == GuardKind::Git {
                self.guards.iter_mut().filter(|guard| guard.path == *path).for_each(|guard| guard.kind = kind);
            }
            return;
        }
        if let Ok(metadata) = fs::symlink_metadata(path.as_path()) {
            self.guards.push(Guard { path: path.clone(), device: metadata.dev(), inode: metadata.ino(), kind });
        }
    }

    /// Protected files with other names: what is written by one name is written by all.
    fn note_linked_protects(&self, linked: &mut Linked) {
        let mut note = |path: &std::path::Path| {
            if let Ok(metadata) = fs::symlink_metadata(path)
                && metadata.is_file()
                && metadata.nlink() > 1
            {
                linked.entry((metadata.dev(), metadata.ino())).or_insert(Cover::ReadOnly);
            }
        };
        for (path, _) in self.covers.iter().filter(|(_, cover)| **cover == Cover::ReadOnly) {
            note(path.as_path());
            for entry in fs::read_dir(path.as_path()).into_iter().flatten().flatten().take(ENOUGH) {
                note(&entry.path());
            }
        }
    }

    /// Walks the trees in which patterns hold.
    fn trees(&mut self, grants: &Grants, mut linked: Linked) {
        let roots: Vec<AbsPath> = grants
            .rules
            .iter()
            .filter(|rule| is_walked(rule))
            .filter_map(|rule| self.found.get(&rule.root))
            .map(|found| found.real.clone())
            .collect();
        let roots = outermost(roots);
        let index = NameIndex::new(grants);
        let walk = Walk::new(grants, &index).run(&roots);
        self.directories = walk.directories;
        for entry in walk.caught {
            if entry.links > 1 {
                linked.insert((entry.device, entry.inode), entry.cover);
            }
            // Moved into a tree that is not looked through, it would be open the next time.
            self.pin_ancestors(&entry.path, grants);
            self.covers.insert(entry.path, entry.cover);
        }
        self.fold(&walk.full, &roots);
        for directory in &walk.repositories {
            self.pin_ancestors(directory, grants);
            git::survey(directory, self);
        }
        for root in &roots {
            if root.as_path().join("HEAD").is_file() && root.as_path().join("objects").is_dir() {
                git::survey(root, self);
            }
        }
        self.note_linked_protects(&mut linked);
        if !linked.is_empty() {
            for (path, cover) in walk::aliases(&roots, &linked, &self.covers) {
                self.covers.insert(path, cover);
            }
        }
    }
}

impl Survey {
    /// The kernel allows 100,000 mounts: where there would be more than half of that, a
    /// directory in which everything is denied is denied as a whole.
    fn fold(&mut self, full: &[AbsPath], roots: &[AbsPath]) {
        const MANY: usize = 50_000;
        if self.covers.len() <= MANY {
            return;
        }
        let full: HashSet<&AbsPath> = full.iter().filter(|directory| !roots.contains(directory)).collect();
        self.covers.retain(|path, _| path.parent().is_none_or(|above| !full.contains(&above)));
        self.covers.extend(full.into_iter().map(|directory| (directory.clone(), Cover::Deny(Kind::Directory))));
    }
}

/// Whether patterns hold in what the rule opens, so that it is walked.
fn is_walked(rule: &Rule) -> bool {
    rule.opens() && rule.patterns_hold() && !matches!(rule.effect, Effect::Private { .. })
}

/// The roots that are not within another one.
fn outermost(mut roots: Vec<AbsPath>) -> Vec<AbsPath> {
    roots.sort();
    let mut kept: Vec<AbsPath> = Vec::new();
    for root in roots {
        if !kept.iter().any(|above| root.is_within(above)) {
            kept.push(root);
        }
    }
    kept
}

/// The deepest writable root that `path` stands in.
fn writable_root(path: &AbsPath, grants: &Grants) -> Option<AbsPath> {
    grants
        .rules
        .iter()
        .filter(|rule| rule.effect == Effect::Write && path.is_within(&rule.root))
        .map(|rule| rule.root.clone())
        .max_by_key(AbsPath::depth)
}

/// How much of a directory is looked at for files with several names.
const ENOUGH: usize = 512;

/// A small file's text; `None` if it is not a plain file, not small or not text.
fn read_small(path: &AbsPath) -> Option<String> {
    const SMALL: u64 = 1 << 20;
    let metadata = fs::symlink_metadata(path.as_path()).ok()?;
    (metadata.is_file() && metadata.len() < SMALL).then(|| fs::read_to_string(path.as_path()).ok()).flatten()
}

/// Remembers denied files that have other names: a hard link in the workspace would open them.
fn note_linked(path: &AbsPath, kind: Kind, linked: &mut Linked) {
    let mut note = |metadata: fs::Metadata| {
        if metadata.is_file() && metadata.nlink() > 1 {
            linked.insert((metadata.dev(), metadata.ino()), Cover::Deny(Kind::File));
        }
    };
    match kind {
        Kind::File => {
            if let Ok(metadata) = fs::symlink_metadata(path.as_path()) {
                note(metadata);
            }
        }
        Kind::Directory => {
            for entry in fs::read_dir(path.as_path()).into_iter().flatten().flatten().take(ENOUGH) {
                if let Ok(metadata) = entry.metadata() {
                    note(metadata);
                }
            }
        }
    }
}

/// What kind of thing this is, for the purpose of covering it.
fn kind_of(file_type: fs::FileType) -> Kind {
    if file_type.is_dir() { Kind::Directory } else { Kind::File }
}

/// A socket in an opened tree belongs to a process of the host.
fn is_socket(file_type: fs::FileType) -> bool {
    file_type.is_socket()
}
