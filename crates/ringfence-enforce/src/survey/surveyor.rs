//! From rules and found files to covers, pins and further rules.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use ringfence_policy::{AbsPath, Access, Effect, Grants, NameIndex, Origin, Rule, Source, Verdict, builtin};

use super::folding::Folding;
use super::links::Links;
use super::walk::{self, Eyes, Walk};
use super::{Linked, Survey, git, gitlinks, is_socket, is_walked, settings, sockets};
use crate::plan::{Cover, Guard, GuardKind, Kind};

/// A survey on its way.
pub(super) struct Surveyor<'a> {
    pub(super) grants: &'a Grants,
    pub(super) links: Links,
    pub(super) found: Survey,
    /// What git is told to run from every repository, by the person's own settings.
    hooks: OnceCell<Vec<String>>,
    writable: Vec<&'a AbsPath>,
    pinned: HashSet<AbsPath>,
}

impl<'a> Surveyor<'a> {
    pub(super) fn new(grants: &'a Grants, links: Links, found: Survey) -> Self {
        let writable = grants.rules.iter().filter(|rule| rule.effect == Effect::Write).map(|rule| &rule.root).collect();
        Self { grants, links, found, hooks: OnceCell::new(), writable, pinned: HashSet::new() }
    }

    pub(super) fn survey(mut self) -> Survey {
        let mut linked = Linked::new();
        for rule in &self.grants.rules {
            match rule.effect {
                Effect::Deny => self.deny(rule, &mut linked),
                Effect::Protect => self.protect_by(rule),
                Effect::Read | Effect::Write | Effect::Private { .. } => {}
            }
        }
        self.settings_of_the_home();
        self.trees(linked);
        self.found
    }

    /// One repository and those in it.
    pub(super) fn repository(mut self, directory: &AbsPath) -> Survey {
        self.pin_ancestors(directory);
        git::survey(directory, &mut self);
        self.found
    }

    /// Covers what a rule denies, by whatever name it is reached.
    fn deny(&mut self, rule: &Rule, linked: &mut Linked) {
        let Some(found) = self.found.found.get(&rule.root) else { return self.deny_absent(rule) };
        let (real, kind) = (found.real.clone(), found.kind);
        note_linked(&real, kind, linked);
        let verdict = |path: &AbsPath| self.grants.verdict(path, Access::Read);
        if verdict(&real) == Verdict::Denied {
            self.found.covers.insert(real.clone(), Cover::Deny(kind));
        } else if real != rule.root && verdict(&real) == Verdict::Allowed && verdict(&rule.root) == Verdict::Denied && !self.is_named(&real)
        {
            // A link that leads into an opened tree: the file is denied there as well.
            self.found.covers.insert(real.clone(), Cover::Deny(kind));
            self.found.rules.push(Rule { root: real.clone(), ..rule.clone() });
        }
        self.pin_ancestors(&real);
    }

    /// What is denied and absent must not be made, where a link on the way leads to either.
    fn deny_absent(&mut self, rule: &Rule) {
        let Some(trail) = self.links.trail(&rule.root).filter(|_| !self.writable.is_empty()) else { return };
        if trail.end != rule.root && self.grants.verdict(&trail.end, Access::Write) == Verdict::Allowed {
            self.found.rules.push(Rule { root: trail.end.clone(), ..rule.clone() });
        }
        self.pin_ancestors(&trail.end);
    }

    /// Settings of the person that are kept in the project: shells and git obey them where
    /// links in the home lead there.
    fn settings_of_the_home(&mut self) {
        let home = &self.grants.home;
        let places: Vec<AbsPath> =
            builtin::ROOT_PROTECTS.iter().map(|entry| entry.text).chain([".config/git/config"]).map(|name| home.join(name)).collect();
        // Settings whose place the environment names.
        let config = std::env::var_os("XDG_CONFIG_HOME").and_then(AbsPath::new).filter(|config| self.writable_root(config).is_some());
        for name in config.iter().flat_map(|config| ["git", "ringfence"].map(|name| config.join(name))).collect::<Vec<_>>() {
            self.protect(&name);
        }
        for place in places {
            if let Some(trail) = self.links.trail(&place)
                && !trail.links.is_empty()
                && self.writable_root(&trail.end).is_some()
            {
                self.protect(&place);
            }
        }
    }

    /// Whether a person opened this very path.
    fn is_named(&self, path: &AbsPath) -> bool {
        self.grants.opener(path).is_some_and(|rule| rule.root == *path && rule.origin.source.is_person())
    }

    /// Covers what a rule protects; what is directly below a tree that is walked is found
    /// there by its name.
    fn protect_by(&mut self, rule: &Rule) {
        if self.writable_root(&rule.root).is_some_and(|root| rule.root.parent().as_ref() != Some(root))
            || self.found.found.contains_key(&rule.root)
        {
            self.protect(&rule.root);
        }
    }

    /// Makes read-only what `path` leads to, and keeps each link on the way, and what is not
    /// there yet, from being made: another in its place would lead elsewhere.
    pub(super) fn protect(&mut self, path: &AbsPath) {
        let Some(trail) = self.links.trail(path) else { return };
        if trail.kind.is_some() {
            self.found.covers.entry(trail.end.clone()).or_insert(Cover::ReadOnly);
        }
        for place in trail.links.iter().map(|(at, _)| at).chain([&trail.end]) {
            self.keep(place);
        }
    }

    /// Nothing may be made here.
    pub(super) fn keep(&mut self, path: &AbsPath) {
        if self.grants.verdict(path, Access::Write) == Verdict::Allowed {
            let origin = Origin::new(Source::BuiltIn, path.to_string());
            self.found.rules.push(Rule { root: path.clone(), effect: Effect::Protect, origin, locked: false });
        }
        self.pin_ancestors(path);
    }

    /// A directory between a writable root and a rule keeps its name: moved away and back
    /// again, it would bring along what was made in it meanwhile.
    fn pin_ancestors(&mut self, path: &AbsPath) {
        let Some(root) = self.writable_root(path).cloned() else { return };
        for above in path.ancestors().skip(1).take_while(|above| *above != root && above.is_within(&root)) {
            if self.is_pinned(&above) {
                break;
            }
            self.pin(&above, GuardKind::Above);
        }
    }

    pub(super) fn hooks_everywhere(&self) -> &[String] {
        self.hooks.get_or_init(|| settings::hooks_everywhere(&self.grants.home))
    }

    /// The deepest writable root that `path` stands in.
    fn writable_root(&self, path: &AbsPath) -> Option<&'a AbsPath> {
        self.writable.iter().copied().filter(|root| path.is_within(root)).max_by_key(|root| root.depth())
    }

    pub(super) fn is_pinned(&self, path: &AbsPath) -> bool {
        self.pinned.contains(path)
    }

    pub(super) fn pin(&mut self, path: &AbsPath, kind: GuardKind) {
        if !self.pinned.insert(path.clone()) {
            if kind == GuardKind::Git {
                self.found.guards.iter_mut().filter(|guard| guard.path == *path).for_each(|guard| guard.kind = kind);
            }
            return;
        }
        if let Ok(metadata) = fs::symlink_metadata(path.as_path()) {
            self.found.guards.push(Guard { path: path.clone(), device: metadata.dev(), inode: metadata.ino(), kind });
        }
    }

    /// Walks the trees in which patterns hold.
    fn trees(&mut self, mut linked: Linked) {
        let grants = self.grants;
        let roots: Vec<AbsPath> = grants
            .rules
            .iter()
            .filter(|rule| is_walked(rule))
            .filter_map(|rule| self.found.found.get(&rule.root))
            .map(|found| found.real.clone())
            .collect();
        let roots = outermost(roots);
        let index = NameIndex::new(grants);
        self.found.folding = roots.iter().map(Folding::of).max().unwrap_or_default();
        let walk = Walk::new(grants, &index, self.found.folding, Eyes::Person).run(&roots);
        self.found.directories = walk.directories;
        self.found.walked = roots.clone();
        for entry in walk.caught {
            if entry.links > 1 {
                linked.insert((entry.inode, entry.device), entry.cover);
            }
            // Moved into a tree that is not looked through, it would be open the next time.
            self.pin_ancestors(&entry.path);
            self.found.covers.insert(entry.path, entry.cover);
        }
        for link in &walk.protected_links {
            self.protect(link);
        }
        for link in &walk.denied_links {
            self.pin(link, GuardKind::Link);
            self.pin_ancestors(link);
        }
        self.sockets(&roots, &walk.unseen, &mut linked);
        self.found.fold(&walk.full, &roots);
        let mut repositories = walk.repositories;
        let mut done = HashSet::new();
        while let Some(directory) = repositories.pop() {
            if !done.insert(directory.clone()) {
                continue;
            }
            self.pin_ancestors(&directory);
            git::survey(&directory, self);
            self.sockets_in(&directory, &mut linked);
            repositories.extend(gitlinks::of(&directory).iter().map(|tree| tree.join(".git")));
        }
        self.found.note_linked_protects(&mut linked);
        if !linked.is_empty() {
            for (path, cover) in walk::aliases(&roots, &linked, &self.found.covers) {
                self.found.covers.insert(path, cover);
            }
        }
        self.found.linked = linked;
    }
}

impl Surveyor<'_> {
    /// Covers sockets of the host where nobody has looked.
    fn sockets(&mut self, roots: &[AbsPath], unseen: &[AbsPath], linked: &mut Linked) {
        let bound = sockets::bound();
        let mut places: Vec<AbsPath> = if bound.has_relative { sockets::search(unseen) } else { Vec::new() };
        places.extend(bound.absolute.iter().filter_map(|path| self.links.trail(path)).map(|trail| trail.end));
        for place in places.iter().filter(|place| roots.iter().any(|root| place.is_within(root))) {
            self.socket(place, linked);
        }
    }

    /// Covers the sockets of git's own helpers, which live directly in its directory.
    fn sockets_in(&mut self, git: &AbsPath, linked: &mut Linked) {
        for entry in fs::read_dir(git.as_path()).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(is_socket) {
                self.socket(&git.join(entry.file_name()), linked);
            }
        }
    }

    /// Covers what stands at `path` if it is a socket that no rule opens.
    fn socket(&mut self, path: &AbsPath, linked: &mut Linked) {
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return };
        if !is_socket(metadata.file_type()) || self.grants.network.unix_sockets.contains(path) {
            return;
        }
        if metadata.nlink() > 1 {
            linked.insert((metadata.ino(), metadata.dev()), Cover::Deny(Kind::File));
        }
        self.pin_ancestors(path);
        self.found.covers.insert(path.clone(), Cover::Deny(Kind::File));
    }
}

impl Survey {
    /// Protected files with other names: what is written by one name is written by all.
    fn note_linked_protects(&self, linked: &mut Linked) {
        let mut note = |path: &std::path::Path| {
            if let Ok(metadata) = fs::symlink_metadata(path)
                && metadata.is_file()
                && metadata.nlink() > 1
            {
                linked.entry((metadata.ino(), metadata.dev())).or_insert(Cover::ReadOnly);
            }
        };
        for (path, _) in self.covers.iter().filter(|(_, cover)| **cover == Cover::ReadOnly) {
            note(path.as_path());
            for entry in fs::read_dir(path.as_path()).into_iter().flatten().flatten().take(ENOUGH) {
                note(&entry.path());
            }
        }
    }

    /// The kernel allows 100,000 mounts: where there would be more than half of that, a
    /// directory in which everything is denied is denied as a whole.
    fn fold(&mut self, full: &[AbsPath], roots: &[AbsPath]) {
        const MANY: usize = 50_000;
        const CROWD: usize = 10_000;
        if self.covers.len() <= MANY {
            return;
        }
        // Sockets are left behind by the thousand: where they are, nothing else is missed.
        let mut crowds: HashMap<AbsPath, usize> = HashMap::new();
        for path in self.covers.keys() {
            *crowds.entry(path.parent().unwrap_or_else(AbsPath::root)).or_default() += 1;
        }
        let crowded: Vec<AbsPath> = crowds.into_iter().filter(|(_, count)| *count > CROWD).map(|(directory, _)| directory).collect();
        let full: HashSet<&AbsPath> = full.iter().chain(&crowded).filter(|directory| !roots.contains(directory)).collect();
        self.covers.retain(|path, _| path.parent().is_none_or(|above| !full.contains(&above)));
        self.covers.extend(full.into_iter().map(|directory| (directory.clone(), Cover::Deny(Kind::Directory))));
    }
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

/// How much of a directory is looked at for files with several names.
const ENOUGH: usize = 512;

/// Remembers denied files that have other names: a hard link in the workspace would open them.
fn note_linked(path: &AbsPath, kind: Kind, linked: &mut Linked) {
    let mut note = |metadata: fs::Metadata| {
        if metadata.is_file() && metadata.nlink() > 1 {
            linked.insert((metadata.ino(), metadata.dev()), Cover::Deny(Kind::File));
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
