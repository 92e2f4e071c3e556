//! Turns rules and found files into masks, pins and further rules.

use std::cell::OnceCell;
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;

use ringfence_plan::{FileKind, HardLinks, Overmount, PinReason, PinnedDir, Survey};
use ringfence_policy::builtin::{self, Setting};
use ringfence_policy::{
    AbsPath, Access, Effect, Grants, NameIndex, Origin, Rule, Source, TrackedFiles, Verdict,
};

use super::case_folding::probe_case_folding;
use super::links::SymlinkCache;
use super::mounts::HostMounts;
use super::tracked_files::TrackedLookup;
use super::walk::{self, TreeWalk, WalkPurpose};
use super::{Known, git, git_config, gitlinks, is_socket, is_walked, kind_of, sockets};

/// A survey in progress.
pub(crate) struct SurveyBuilder<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) links: SymlinkCache,
    pub(crate) found: Survey,
    /// Hooks paths of the user's own git settings, which apply to every repository.
    hooks: OnceCell<Vec<String>>,
    writable: Vec<&'a AbsPath>,
    pinned: HashSet<AbsPath>,
    /// Traces of earlier commands.
    known: &'a Known<'a>,
}

impl<'a> SurveyBuilder<'a> {
    pub(crate) fn new(
        grants: &'a Grants,
        links: SymlinkCache,
        found: Survey,
        known: &'a Known<'a>,
    ) -> Self {
        let writable = grants
            .rules
            .iter()
            .filter(|rule| rule.effect == Effect::Write)
            .map(|rule| &rule.root)
            .collect();
        Self {
            grants,
            links,
            found,
            hooks: OnceCell::new(),
            writable,
            pinned: HashSet::new(),
            known,
        }
    }

    pub(crate) fn survey(mut self) -> Survey {
        let mut linked = HardLinks::new();
        let mounts = HostMounts::read();
        for rule in &self.grants.rules {
            match rule.effect {
                Effect::Deny => {
                    self.deny(rule, &mut linked);
                    self.deny_mounted(rule, &mounts);
                }
                Effect::Protect => self.protect_by(rule),
                Effect::Read | Effect::Write | Effect::Private { .. } => {}
            }
        }
        self.settings_of_the_home();
        self.deny_tool_secrets(&mut linked);
        self.trees(linked);
        self.found
    }

    /// Surveys one repository and those in it.
    pub(crate) fn repository(mut self, directory: &AbsPath) -> Survey {
        self.pin_ancestors(directory);
        self.pin_tree(directory);
        git::survey(directory, &mut self);
        self.found
    }

    /// Pins the working tree around `dot_git`: agents and editors started there obey the settings
    /// at its top.
    fn pin_tree(&mut self, dot_git: &AbsPath) {
        let is_dot_git = dot_git.name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        let Some(tree) =
            dot_git.parent().filter(|tree| is_dot_git && self.writable_root(tree).is_some())
        else {
            return;
        };
        // A writable root has a rule for each of the names.
        if !self.writable.contains(&&tree) {
            self.pin(&tree, PinReason::Tree);
        }
    }

    /// Masks the denied path under every name it has.
    fn deny(&mut self, rule: &Rule, linked: &mut HardLinks) {
        let Some(found) = self.found.found.get(&rule.root) else { return self.deny_absent(rule) };
        let (real, kind) = (found.real.clone(), found.kind);
        note_linked(&real, linked);
        let verdict = |path: &AbsPath| self.grants.verdict(path, Access::Read);
        if verdict(&real) == Verdict::Denied {
            self.found.masks.insert(real.clone(), Overmount::Deny(kind));
        } else if real != rule.root
            && verdict(&real) == Verdict::Allowed
            && verdict(&rule.root) == Verdict::Denied
            && !self.is_named(&real)
        {
            // A link into a granted tree: the file is denied there as well.
            self.found.masks.insert(real.clone(), Overmount::Deny(kind));
            self.found.rules.push(Rule { root: real.clone(), ..rule.clone() });
        }
        self.pin_ancestors(&real);
    }

    /// Masks the denied path where the host has mounted it a second time in a granted tree.
    fn deny_mounted(&mut self, rule: &Rule, mounts: &HostMounts) {
        let Some(real) = self.found.found.get(&rule.root).map(|found| found.real.clone()) else {
            return;
        };
        for alias in mounts.find_aliases(&real) {
            // The user means the directory in which the command starts.
            let is_open = self.grants.verdict(&alias, Access::Read) == Verdict::Allowed
                && !self.grants.workspace.is_within(&alias);
            let Ok(metadata) = fs::symlink_metadata(alias.as_path()) else { continue };
            if !is_open || self.is_named(&alias) {
                continue;
            }
            self.found.masks.insert(alias.clone(), Overmount::Deny(kind_of(metadata.file_type())));
            self.found.rules.push(Rule { root: alias.clone(), ..rule.clone() });
            self.pin_ancestors(&alias);
        }
    }

    /// Prevents the creation of a denied, absent path, also through links on the way.
    fn deny_absent(&mut self, rule: &Rule) {
        let Some(trail) =
            self.links.resolve_trail(&rule.root).filter(|_| !self.writable.is_empty())
        else {
            return;
        };
        if trail.end != rule.root
            && self.grants.verdict(&trail.end, Access::Write) == Verdict::Allowed
        {
            self.found.rules.push(Rule { root: trail.end.clone(), ..rule.clone() });
        }
        self.pin_ancestors(&trail.end);
    }

    /// Protects the user's settings that are kept in the project: shells and git obey them if links
    /// in the home lead there.
    fn settings_of_the_home(&mut self) {
        let home = &self.grants.home;
        let places: Vec<AbsPath> = builtin::SETTINGS
            .iter()
            .map(|setting| setting.text)
            .chain([".config/git/config"])
            .map(|name| home.join(name))
            .collect();
        // Settings whose path an environment variable sets.
        let named = std::env::var_os("XDG_CONFIG_HOME").and_then(AbsPath::new);
        let leads_here = |config: &AbsPath| {
            let end = self.links.resolve_trail(config).map(|trail| trail.end);
            [Some(config.clone()), end]
                .iter()
                .flatten()
                .any(|config| self.writable_root(config).is_some())
        };
        let config = named.filter(leads_here);
        for name in config
            .iter()
            .flat_map(|config| ["git", "ringfence"].map(|name| config.join(name)))
            .collect::<Vec<_>>()
        {
            self.protect(&name);
        }
        for place in places {
            if let Some(trail) = self.links.resolve_trail(&place)
                && !trail.links.is_empty()
                && self.writable_root(&trail.end).is_some()
            {
                self.protect(&place);
            }
        }
    }

    /// True if the user granted this very path.
    fn is_named(&self, path: &AbsPath) -> bool {
        self.grants
            .opening_rule(path)
            .is_some_and(|rule| rule.root == *path && rule.origin.source.is_user_choice())
    }

    /// Masks the path a rule protects; names directly below a walked tree are found by the walk.
    fn protect_by(&mut self, rule: &Rule) {
        if self
            .writable_root(&rule.root)
            .is_some_and(|root| rule.root.parent().as_ref() != Some(root))
            || self.found.found.contains_key(&rule.root)
        {
            self.protect(&rule.root);
        }
    }

    /// Makes the target of `path` read-only, and keeps each link on the way, and missing parts,
    /// from being created: a replacement would lead elsewhere.
    pub(crate) fn protect(&mut self, path: &AbsPath) {
        let Some(trail) = self.links.resolve_trail(path) else { return };
        if trail.kind.is_some() {
            self.found.masks.entry(trail.end.clone()).or_insert(Overmount::ReadOnly);
        }
        for place in trail.links.iter().map(|(at, _)| at).chain([&trail.end]) {
            self.forbid_creation(place);
        }
    }

    /// Protects an existing setting without a rule. Directories above it may be renamed: the mask
    /// moves with the file, and the rule prevents a replacement.
    fn setting(&mut self, path: AbsPath, setting: &Setting) {
        // Commands may change and remove files that they created together with a repository: the
        // sweep checks it after each command. Git itself writes `.gitmodules`, and runs nothing
        // from it alone.
        let is_gitmodules = path.name().is_some_and(|name| name == ".gitmodules");
        if (is_gitmodules || self.is_made_by_command(&path)) && self.is_in_made_repository(&path) {
            return;
        }
        if fs::symlink_metadata(path.as_path()).is_ok_and(|metadata| metadata.is_symlink()) {
            return self.protect_link(&path);
        }
        let origin = Origin::new(Source::BuiltIn, setting.text);
        self.found.masks.entry(path.clone()).or_insert(Overmount::ReadOnly);
        self.found.rules.push(Rule { root: path, effect: Effect::Protect, origin, locked: false });
    }

    /// Keeps a link with the name of a setting, and protects its target, unless a command created
    /// the link or it leads to a directory around the workspace.
    fn protect_link(&mut self, link: &AbsPath) {
        self.pin(link, PinReason::Link);
        let Some(trail) = self.links.resolve_trail(link) else { return };
        let is_around = link.is_within(&trail.end) || self.grants.workspace.is_within(&trail.end);
        if is_around || self.is_made_by_command(link) {
            trail.links.iter().for_each(|(at, _)| self.forbid_creation(at));
        } else {
            self.protect(link);
        }
    }

    /// True if commands created the innermost repository around `path`: they may change and remove
    /// all of it.
    fn is_in_made_repository(&self, path: &AbsPath) -> bool {
        let mut around = path
            .ancestors()
            .skip(1)
            .map(|above| above.join(".git"))
            .take_while(|git| self.writable_root(git).is_some());
        around
            .find(|git| fs::symlink_metadata(git.as_path()).is_ok())
            .is_some_and(|git| self.is_made_by_command(&git))
    }

    /// Prevents the creation of `path`.
    pub(crate) fn forbid_creation(&mut self, path: &AbsPath) {
        if self.grants.verdict(path, Access::Write) == Verdict::Allowed {
            let origin = Origin::new(Source::BuiltIn, path.to_string());
            self.found.rules.push(Rule {
                root: path.clone(),
                effect: Effect::Protect,
                origin,
                locked: false,
            });
        }
        self.pin_ancestors(path);
    }

    /// Pins the directories between a writable root and `path`: moved away and back, one would
    /// bring along files created in it meanwhile.
    fn pin_ancestors(&mut self, path: &AbsPath) {
        let Some(root) = self.writable_root(path).cloned() else { return };
        for above in
            path.ancestors().skip(1).take_while(|above| *above != root && above.is_within(&root))
        {
            if self.is_pinned(&above) {
                break;
            }
            self.pin(&above, PinReason::Above);
        }
    }

    pub(crate) fn global_hooks(&self) -> &[String] {
        self.hooks.get_or_init(|| git_config::global_hooks(&self.grants.home))
    }

    /// The deepest writable root around `path`.
    fn writable_root(&self, path: &AbsPath) -> Option<&'a AbsPath> {
        self.writable
            .iter()
            .copied()
            .filter(|root| path.is_within(root))
            .max_by_key(|root| root.depth())
    }

    /// True if commands created `path`.
    pub(crate) fn is_made_by_command(&self, path: &AbsPath) -> bool {
        (self.known.is_made)(path)
    }

    pub(crate) fn is_pinned(&self, path: &AbsPath) -> bool {
        self.pinned.contains(path)
    }

    pub(crate) fn pin(&mut self, path: &AbsPath, kind: PinReason) {
        if !self.pinned.insert(path.clone()) {
            if matches!(kind, PinReason::Git | PinReason::Tree) {
                self.found
                    .guards
                    .iter_mut()
                    .filter(|guard| guard.path == *path)
                    .for_each(|guard| guard.kind = kind);
            }
            return;
        }
        if let Ok(metadata) = fs::symlink_metadata(path.as_path()) {
            self.found.guards.push(PinnedDir {
                path: path.clone(),
                device: metadata.dev(),
                inode: metadata.ino(),
                kind,
            });
        }
    }

    /// Walks the trees in which patterns apply.
    fn trees(&mut self, mut linked: HardLinks) {
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
        self.found.folding = roots.iter().map(probe_case_folding).max().unwrap_or_default();
        self.found.walked = self.with_workspace(&roots);
        let mut walk = TreeWalk::new(grants, &index, self.found.folding, WalkPurpose::Survey)
            .run(&self.found.walked);
        self.open_tracked(&mut walk, &index);
        self.found.directories = walk.directories;
        for entry in walk.to_mask {
            if entry.links > 1 {
                linked.insert((entry.inode, entry.device), entry.mask);
            }
            // Moved into a tree that is not walked, it would be granted in the next run.
            self.pin_ancestors(&entry.path);
            self.found.masks.insert(entry.path, entry.mask);
        }
        for (path, setting) in walk.settings {
            self.setting(path, setting);
        }
        for link in &walk.protected_links {
            self.protect_link(link);
        }
        for link in &walk.denied_links {
            self.pin(link, PinReason::Link);
            self.pin_ancestors(link);
        }
        self.sockets(&walk.unseen, &mut linked);
        self.found.fold_masks(&walk.full, &roots);
        let mut repositories = walk.repositories;
        let mut done = HashSet::new();
        while let Some(directory) = repositories.pop() {
            if !done.insert(directory.clone()) {
                continue;
            }
            if !self.is_made_by_command(&directory) {
                self.pin_ancestors(&directory);
                // A submodule that is not checked out has no working tree yet.
                if fs::symlink_metadata(directory.as_path()).is_ok() {
                    self.pin_tree(&directory);
                }
            }
            git::survey(&directory, self);
            self.sockets_in(&directory, &mut linked);
            repositories.extend(
                gitlinks::entered_worktrees(&directory).iter().map(|tree| tree.join(".git")),
            );
        }
        self.mounted_again();
        note_linked_masks(&self.found, &mut linked);
        if !linked.is_empty() {
            for (path, mask) in walk::find_hard_links(&roots, &linked, &self.found.masks) {
                self.found.masks.insert(path, mask);
            }
        }
        self.found.linked = linked;
    }
}

impl SurveyBuilder<'_> {
    /// Removes tracked files from the walk's findings. Directories that are granted for a tracked
    /// file are walked, since everything else in them stays denied.
    fn open_tracked(&mut self, walk: &mut walk::WalkFindings, index: &NameIndex) {
        let mut tracked = TrackedFiles::default();
        let mut lookup = TrackedLookup::new(self.grants, &self.found.walked, self.known.remembered);
        let caught = walk
            .to_mask
            .iter()
            .filter(|entry| entry.through.is_none() && matches!(entry.mask, Overmount::Deny(_)));
        caught.for_each(|entry| lookup.find_tracked(&entry.path, &mut tracked));
        // A denied link to an otherwise granted file stays: without it, nothing denies the file.
        let (grants, open) = (self.grants, tracked.clone());
        let is_kept = |link: &AbsPath| {
            let end = fs::canonicalize(link.as_path()).ok().and_then(AbsPath::new);
            end.is_some_and(|end| {
                grants.verdict(&end, Access::Read) == Verdict::Allowed && !open.opens(&end)
            })
        };
        walk.denied_links
            .iter()
            .filter(|link| !is_kept(link))
            .for_each(|link| lookup.find_tracked(link, &mut tracked));
        if tracked.is_empty() {
            return;
        }
        let mut judged = grants.clone();
        judged.tracked.extend(tracked.clone());
        let tops = judged
            .tracked
            .directories
            .iter()
            .filter(|path| walk.to_mask.iter().any(|entry| entry.path == **path));
        let tops: Vec<AbsPath> = tops.cloned().collect();
        let is_denied = |path: &AbsPath| judged.verdict(path, Access::Read) == Verdict::Denied;
        walk.to_mask.retain(|entry| match &entry.through {
            Some(link) => is_denied(link) && !judged.tracked.opens(&entry.path),
            None => !judged.tracked.opens(&entry.path) || is_denied(&entry.path),
        });
        walk.denied_links.retain(is_denied);
        walk.merge(
            TreeWalk::new(&judged, index, self.found.folding, WalkPurpose::Survey).run(&tops),
        );
        self.found.tracked = tracked;
    }

    /// The trees to walk: a project below `~/vendor` is walked even though the walk of `~` skips
    /// it.
    fn with_workspace(&self, roots: &[AbsPath]) -> Vec<AbsPath> {
        let skipped = walk::skipped_directory_names(self.grants);
        let workspace = self.found.found.get(&self.grants.workspace).map(|found| &found.real);
        let is_left_out = |workspace: &&AbsPath| {
            let mut ways = roots.iter().filter_map(|root| workspace.relative_to(root));
            ways.any(|way| way.iter().any(|name| skipped.contains(name)))
        };
        roots.iter().chain(workspace.filter(is_left_out)).cloned().collect()
    }

    /// Masks the aliases of masked paths that the host has mounted a second time in a granted tree.
    fn mounted_again(&mut self) {
        let opened = |point: &AbsPath| {
            self.found.walked.iter().any(|root| point.is_within(root) || root.is_within(point))
        };
        let mounts = HostMounts::read().with_several_mounts(opened);
        if mounts.is_empty() {
            return;
        }
        // Denied directories elsewhere were handled with their rules.
        let masks = self.found.masks.iter().filter(|(path, _)| self.found.is_walked(path));
        for (path, mask) in masks.map(|(path, mask)| (path.clone(), *mask)).collect::<Vec<_>>() {
            for alias in mounts.find_aliases(&path) {
                self.mask_alias(alias, mask);
            }
        }
    }

    /// Masks another name of a masked path, unless the user granted that name.
    fn mask_alias(&mut self, alias: AbsPath, mask: Overmount) {
        let (effect, access) = match mask {
            Overmount::Deny(_) => (Effect::Deny, Access::Read),
            Overmount::ReadOnly | Overmount::Shallow => (Effect::Protect, Access::Write),
        };
        let is_open = self.grants.verdict(&alias, access) == Verdict::Allowed
            && !self.grants.workspace.is_within(&alias);
        if !is_open || self.is_named(&alias) || self.found.masks.contains_key(&alias) {
            return;
        }
        let Ok(metadata) = fs::symlink_metadata(alias.as_path()) else { return };
        let mask = if let Overmount::Deny(_) = mask {
            Overmount::Deny(kind_of(metadata.file_type()))
        } else {
            mask
        };
        let origin = Origin::new(Source::BuiltIn, alias.to_string());
        self.found.masks.insert(alias.clone(), mask);
        self.found.rules.push(Rule { root: alias.clone(), effect, origin, locked: false });
        self.pin_ancestors(&alias);
    }

    /// Masks sockets of the host in granted trees that are not walked: vendored ones, the system's,
    /// and those of tools.
    fn sockets(&mut self, unseen: &[AbsPath], linked: &mut HardLinks) {
        let bound = sockets::read_bound_sockets();
        let mut places: Vec<AbsPath> =
            if bound.relative.is_empty() { Vec::new() } else { sockets::find_sockets(unseen) };
        places.extend(sockets::from_working_directories(&bound.relative));
        let opened = self
            .grants
            .rules
            .iter()
            .filter(|rule| rule.opens())
            .filter_map(|rule| self.found.found.get(&rule.root));
        let opened = outermost(opened.map(|found| found.real.clone()).collect());
        places.extend(bound.absolute);
        let ends: Vec<AbsPath> = places
            .iter()
            .filter_map(|path| self.links.resolve_trail(path))
            .map(|trail| trail.end)
            .collect();
        for place in ends.iter().filter(|place| opened.iter().any(|root| place.is_within(root))) {
            self.socket(place, linked);
        }
    }

    /// Masks the sockets of git's own helpers, directly in its directory.
    fn sockets_in(&mut self, git: &AbsPath, linked: &mut HardLinks) {
        for entry in fs::read_dir(git.as_path()).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(is_socket) {
                self.socket(&git.join(entry.file_name()), linked);
            }
        }
    }

    /// Masks `path` if it is a socket that no rule grants.
    fn socket(&mut self, path: &AbsPath, linked: &mut HardLinks) {
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return };
        if !is_socket(metadata.file_type()) || self.grants.network.unix_sockets.contains(path) {
            return;
        }
        if metadata.nlink() > 1 {
            linked.insert((metadata.ino(), metadata.dev()), Overmount::Deny(FileKind::File));
        }
        self.pin_ancestors(path);
        self.found.masks.insert(path.clone(), Overmount::Deny(FileKind::File));
    }
}

/// Records masked files with several hard links: a mask must cover all names.
fn note_linked_masks(survey: &Survey, linked: &mut HardLinks) {
    for (path, mask) in &survey.masks {
        match mask {
            // The walk has recorded single files; files elsewhere were recorded with their
            // rules.
            Overmount::Deny(FileKind::File) => {}
            Overmount::Deny(FileKind::Directory) if !survey.is_walked(path) => {}
            Overmount::Deny(FileKind::Directory) => {
                each_linked(path, MAX_IN_TREE, &mut |identity| {
                    linked.insert(identity, Overmount::Deny(FileKind::File));
                })
            }
            Overmount::ReadOnly | Overmount::Shallow => {
                each_linked(path, MAX_IN_TREE, &mut |identity| {
                    linked.entry(identity).or_insert(Overmount::ReadOnly);
                })
            }
        }
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

/// Maximum of entries to examine for hard links in a directory outside.
const MAX_OUTSIDE: usize = 512;

/// The same maximum for a directory in a granted tree.
const MAX_IN_TREE: usize = 4096;

/// Records denied files with several hard links: one in the workspace would grant them.
pub(crate) fn note_linked(path: &AbsPath, linked: &mut HardLinks) {
    each_linked(path, MAX_OUTSIDE, &mut |identity| {
        linked.insert(identity, Overmount::Deny(FileKind::File));
    });
}

/// Calls `note` with inode and device of each file with several hard links at or below `path`,
/// among the first `most` entries, breadth first.
fn each_linked(path: &AbsPath, mut most: usize, note: &mut dyn FnMut((u64, u64))) {
    let mut visit = |metadata: &fs::Metadata| {
        if metadata.is_file() && metadata.nlink() > 1 {
            note((metadata.ino(), metadata.dev()));
        }
    };
    let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return };
    visit(&metadata);
    let mut waiting = VecDeque::from(if metadata.is_dir() {
        vec![path.as_path().to_owned()]
    } else {
        Vec::new()
    });
    while let Some(directory) = waiting.pop_front() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Some(rest) = most.checked_sub(1) else { return };
            most = rest;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push_back(entry.path()),
                Ok(kind) if kind.is_file() => {
                    drop(entry.metadata().map(|metadata| visit(&metadata)))
                }
                _ => {}
            }
        }
    }
}
