//! May this name be made here?

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringfence_api::{Denial, Operation};
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Effect, Grants, Limit, NameIndex, NameRule,
    NetworkMode, Observe, Rule, Source, TrackedMode, Verdict,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::config_lock::{Handed, is_staged};
use super::disk_space::SpaceCount;
use super::excepted::ExceptedTrees;
use super::hard_links::{HardLinks, Names, is_at};
use super::project_lock::ProjectLock;
use super::refs::is_applied_by_git;
use super::report::denial;
use super::resolve::{PathAnchor, PathSuffix, ResolvedParent};
use super::sockets::Sockets;
use crate::apply::{ApprovalMode, Birth, GitMarker, LaunchSpec, PlanUpdate};
use crate::plan::{OwnPlaces, PinReason, PinnedDir, Step};
use crate::seccomp::FileOwner;
use crate::seccomp::calls::Call;

/// What the usher knows of the policy, and what it has seen made.
pub(super) struct CreationRules {
    pub(super) grants: Grants,
    /// Held from before a call is judged until it is carried out.
    pub(super) lock: ProjectLock,
    index: NameIndex,
    pub(super) guards: HashMap<(u64, u64), (AbsPath, PinReason)>,
    /// Those of them that are git directories or lie in one.
    pub(super) git_guards: HashSet<(u64, u64)>,
    /// Directories that the command made in one of them, for those of worktrees.
    pub(super) new_stores: HashSet<(u64, u64)>,
    /// Git directories of submodules that the command made in one of them: its own, until the sweep
    /// has looked through them.
    pub(super) own_modules: HashMap<(u64, u64), Birth>,
    /// Directories of worktrees that the command made in one of them.
    pub(super) own_worktrees: HashSet<(u64, u64)>,
    /// Those of them that are the top of a repository's working tree.
    pub(super) trees: HashSet<(u64, u64)>,
    /// Whether there are links that must stay.
    keeps_links: bool,
    pub(super) denials: Vec<Denial>,
    /// Directories in which patterns do not hold.
    pub(super) excepted: ExceptedTrees,
    hard_links: HardLinks,
    /// True while the call in hand renames a file that is open because git tracks it.
    pub(super) carries_tracked: bool,
    /// Files with a denied name that the command made or wrote, and that were told of.
    pub(super) own_files: HashSet<(AbsPath, Birth)>,
    /// Whether the next file that is opened to be made or emptied is likely to be new.
    pub(super) expects_new: bool,
    /// Places of the sandbox's own, of which no rule speaks.
    pub(super) own: OwnPlaces,
    /// Whether the tripwire tells of what is looked for in vain.
    is_wired: bool,
    /// Whether some hosts can be reached.
    is_listed: bool,
    owner: FileOwner,
    /// Whether calls that would be refused wait for an answer.
    pub(super) asker: ApprovalMode,
    /// Directories in which the command made git directories, and which the caller of the
    /// sandbox has yet to be told of: open, so that they are found wherever they move.
    pub(super) made: Vec<(Option<OwnedFd>, AbsPath, GitMarker, Option<Birth>)>,
    pub(super) known: HashSet<(u64, u64, GitMarker, Option<Birth>)>,
    /// Rules that follow from what came in since, whatever the policy says.
    found: Vec<Rule>,
    pub(super) sockets: Sockets,
    /// Disk space that was taken, where a limit counts it.
    pub(super) space: Option<SpaceCount>,
    /// A change of a config that the caller of the sandbox carries out.
    pub(super) handed: Option<Handed>,
}

impl CreationRules {
    /// `None` if what was handed over cannot be read.
    pub(super) fn new(launch: &LaunchSpec, lock: ProjectLock) -> Option<Self> {
        let grants: Grants = postcard::from_bytes(&launch.grants).ok()?;
        let index = NameIndex::new(&grants);
        let identity = |guard: &PinnedDir| (guard.device, guard.inode);
        let guards = launch
            .plan
            .guards()
            .iter()
            .map(|guard| (identity(guard), (guard.path.clone(), guard.kind)))
            .collect();
        let git_guards = launch
            .plan
            .guards()
            .iter()
            .filter(|guard| guard.kind == PinReason::Git)
            .map(identity)
            .collect();
        let trees = launch
            .plan
            .guards()
            .iter()
            .filter(|guard| guard.kind == PinReason::Tree)
            .map(identity)
            .collect();
        let keeps_links = launch.plan.guards().iter().any(|guard| guard.kind == PinReason::Link);
        let own = launch.plan.own_places(&grants);
        let excepted = ExceptedTrees::new(&grants);
        let is_wired = launch.plan.steps.contains(&Step::Tripwire);
        Some(Self {
            grants,
            lock,
            excepted,
            hard_links: HardLinks::default(),
            carries_tracked: false,
            own_files: HashSet::new(),
            expects_new: true,
            index,
            guards,
            git_guards,
            new_stores: HashSet::new(),
            own_modules: HashMap::new(),
            own_worktrees: HashSet::new(),
            trees,
            keeps_links,
            own,
            is_wired,
            is_listed: launch.plan.steps.contains(&Step::Egress),
            owner: FileOwner::of(launch.plan.identity().map(|identity| identity.uid)),
            asker: launch.asker,
            denials: Vec::new(),
            made: Vec::new(),
            known: HashSet::new(),
            found: Vec::new(),
            sockets: Sockets::default(),
            space: launch.plan.most(Limit::Disk).map(SpaceCount::new),
            handed: None,
        })
    }

    /// Takes over what was added to the plan's file behind `known`; answers where it ends.
    pub(super) fn add_from(&mut self, plan: &OwnedFd, known: u64) -> u64 {
        let Some((added, end)) = PlanUpdate::read(plan, known) else { return known };
        for PlanUpdate { guards, rules, revised } in added {
            if let Some(revised) = revised {
                self.excepted = ExceptedTrees::new(&revised.grants);
                let opened = std::mem::take(&mut self.grants.tracked);
                self.grants = revised.grants;
                if self.grants.tracked.mode == TrackedMode::Open {
                    self.grants.tracked.extend(opened);
                }
                self.grants.rules.extend(self.found.iter().cloned());
            }
            for guard in guards {
                let identity = (guard.device, guard.inode);
                if guard.kind == PinReason::Git {
                    self.git_guards.insert(identity);
                }
                if guard.kind == PinReason::Tree {
                    self.trees.insert(identity);
                }
                self.keeps_links |= guard.kind == PinReason::Link;
                self.guards.insert(identity, (guard.path, guard.kind));
            }
            self.found
                .extend(rules.iter().filter(|rule| rule.origin.source != Source::Session).cloned());
            self.grants.rules.extend(rules);
            self.index = NameIndex::new(&self.grants);
        }
        end
    }

    /// Whose files the command makes.
    pub(super) fn owner(&self) -> FileOwner {
        self.owner
    }

    /// Whether some hosts can be reached.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Whether what goes through is told of.
    pub(super) fn observes(&self) -> bool {
        self.grants.observe == Observe::All
    }

    pub(super) fn network(&self) -> NetworkMode {
        self.grants.network.mode
    }

    pub(super) fn decide(&self, path: &AbsPath, wanted: Access) -> Decision {
        self.grants.decide(path, wanted)
    }

    pub(super) fn allows(&self, path: &AbsPath, wanted: Access) -> bool {
        self.grants.verdict(path, wanted) == Verdict::Allowed
    }

    /// Tells of a call that is let through and will not find what it wants. Where there is a
    /// tripwire, it tells.
    pub(super) fn missed(
        &mut self,
        caller: &NotifyCaller<'_>,
        path: &AbsPath,
        operation: Operation,
        wanted: Access,
    ) {
        let decision = self.grants.decide(path, wanted);
        if !self.is_wired
            && !self.own.contain(path)
            && matches!(decision.verdict, Verdict::Absent | Verdict::Denied)
        {
            self.refuse(caller, operation, &decision);
        }
    }

    /// Notes that a host is wanted where the network is shut.
    pub(super) fn refuse_host(&mut self, caller: &NotifyCaller<'_>, target: String) {
        let because = (Denial::NETWORK_SHUT.to_owned(), "the policy".to_owned());
        self.denials.push(denial(caller, Operation::Connect, target, because, false));
    }

    /// Whether a call that changes what is there is decided about, rather than only told of: links
    /// with a denied name must stay, and nothing can cover a link; the names that a file has left
    /// are counted; and what is changed by a path or in memory must be the file that was judged. So
    /// must directories of git's: another one would get the inode of one that is gone.
    pub(super) fn decides(&self, call: Call, arguments: &[u64; 6]) -> bool {
        match call {
            Call::Rmdir => !self.git_guards.is_empty(),
            Call::Unlinkat if arguments[2] as i32 & libc::AT_REMOVEDIR != 0 => {
                self.keeps_links || !self.git_guards.is_empty()
            }
            Call::Unlink | Call::Unlinkat => self.keeps_links || !self.hard_links.is_empty(),
            Call::Truncate | Call::Truncate64 | Call::Ioctl => true,
            _ => false,
        }
    }

    /// Whether the name alone could matter: most do not, and cost nothing more.
    pub(super) fn is_interesting(&self, name: &OsStr) -> bool {
        // A policy that was just made is followed before its directory may have a cover.
        // In a directory that ignores case, any spelling is the file.
        const NAMES: [&str; 4] = [".git", "HEAD", "policy.toml", "packed-refs"];
        self.index.interesting(name)
            || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
            || is_applied_by_git(name)
            || is_staged(name)
    }

    /// Judges making `place`'s name.
    pub(super) fn make(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
        operation: Operation,
    ) -> Result<(), Errno> {
        if !self.is_interesting(&place.name)
            && !self.is_git(place.directory.as_fd())
            && !self.is_opened_by_git(caller, place)
        {
            return Ok(());
        }
        let decision = self.making(caller, place)?;
        let path = decision.path.clone();
        let refused = match decision.verdict {
            Verdict::Denied => !self.may_make_denied(caller, place, &decision),
            Verdict::ReadOnly => self.is_protected(&decision, place)?,
            // With a HEAD, git would take the project itself for a repository, settings and all.
            Verdict::Allowed if is_staged(&place.name) => true,
            Verdict::Allowed
                if place.name == "HEAD"
                    && path.parent().as_ref() == Some(&self.grants.workspace) =>
            {
                true
            }
            // A git directory by any other name.
            Verdict::Allowed => {
                self.is_obeyed(place)?
                    || (operation != Operation::Rename && self.is_packed_refs(place))
            }
            // What is outside fails by itself: the mounts are read-only there.
            Verdict::Absent => false,
        };
        match (refused, decision.verdict) {
            (false, _) => return Ok(()),
            (true, Verdict::Allowed) => {
                self.refuse_since(caller, operation, &path, Denial::GIT_WOULD_OBEY)
            }
            (true, _) => self.refuse(caller, operation, &decision),
        }
        Err(Errno::ACCESS)
    }

    /// The decision about making `place`'s name, by the rules alone.
    pub(super) fn making(
        &self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<Decision, Errno> {
        let mut decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
        if let Some(rule) = self.setting_of_tree(&decision, place)? {
            (decision.verdict, decision.rule) = (Verdict::ReadOnly, Some(DecidingRule::Rule(rule)));
        }
        Ok(decision)
    }

    /// Whether git would obey the name in a directory that was one of its own before.
    fn is_obeyed(&self, place: &ResolvedParent) -> Result<bool, Errno> {
        let status = rustix::fs::fstat(&place.directory)?;
        let is_git = self.git_guards.contains(&(status.st_dev, status.st_ino));
        let is_setting = matches!(
            place.name.as_bytes(),
            b"hooks" | b"config" | b"config.worktree" | b"commondir" | b"attributes"
        );
        Ok(is_git && (is_setting || is_applied_by_git(&place.name)))
    }

    /// Whether a directory is one of git's. Somebody may have opened it before it was covered.
    pub(super) fn is_git(&self, directory: BorrowedFd<'_>) -> bool {
        !self.git_guards.is_empty()
            && rustix::fs::fstat(directory)
                .is_ok_and(|status| self.git_guards.contains(&(status.st_dev, status.st_ino)))
    }

    /// Whether a path begins in a directory of git's. The sandbox's root is ours.
    pub(super) fn begins_in_git(&self, start: &PathAnchor<'_>) -> bool {
        matches!(start, PathAnchor::Opened(directory) if self.is_git(directory.as_fd()))
    }

    /// Judges writing to what stands at `place`. Covers hold what is protected, but one falls
    /// off when the host replaces the file, and it takes a moment to put another there.
    pub(super) fn write(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        if !self.is_interesting(&place.name)
            && !self.is_git(place.directory.as_fd())
            && !self.is_opened_by_git(caller, place)
        {
            return Ok(());
        }
        let decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
        if decision.verdict == Verdict::Allowed {
            self.wrote_tracked(place, &decision.path);
        }
        if is_staged(&place.name)
            || self.is_packed_refs(place)
            || (is_applied_by_git(&place.name) && self.is_git(place.directory.as_fd()))
        {
            self.refuse_since(caller, Operation::Write, &decision.path, Denial::GIT_WOULD_OBEY);
            return Err(Errno::ACCESS);
        }
        let error = match decision.verdict {
            // Other files in such a directory have a mask.
            Verdict::Denied if self.is_beside_tracked(caller, place) => return Ok(()),
            Verdict::Denied => Errno::ACCESS,
            Verdict::ReadOnly if self.is_protected(&decision, place)? => Errno::ROFS,
            _ => return Ok(()),
        };
        if self.denials.is_empty() {
            self.refuse(caller, Operation::Write, &decision);
        }
        Err(error)
    }

    /// Judges writing to what somebody has open.
    pub(super) fn write_open(
        &mut self,
        caller: &NotifyCaller<'_>,
        opened: &OwnedFd,
    ) -> Result<(), Errno> {
        // What has no path is in no tree.
        let Ok(path) = path_of_directory(caller.host_proc, opened.as_fd()) else { return Ok(()) };
        let (Some(directory), Some(name)) = (path.parent(), path.name()) else { return Ok(()) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(directory.as_path(), flags, Mode::empty()) {
            Ok(directory) => self.write(
                caller,
                &ResolvedParent { directory, name: name.to_owned(), end: PathSuffix::Plain },
            ),
            Err(_) => Ok(()),
        }
    }

    /// Judges writing to what was opened by its name, where people may have let single files be
    /// mounted: one that the host has replaced since has no name left, and what is written to
    /// it would vanish. Whoever answers opens the one that took its place.
    pub(super) fn write_lasting(
        &mut self,
        caller: &NotifyCaller<'_>,
        opened: &OwnedFd,
        status: &Stat,
    ) -> Result<(), Errno> {
        if self.asker == ApprovalMode::Nobody || status.st_nlink > 0 {
            return Ok(());
        }
        // The kernel's own word for it stands behind the name.
        let path = path_of_directory(caller.host_proc, opened.as_fd())?;
        let name = path.as_bytes().strip_suffix(b" (deleted)").unwrap_or(path.as_bytes());
        let path = AbsPath::new(OsStr::from_bytes(name)).ok_or(Errno::NOENT)?;
        let decision = self.grants.decide(&path, Access::Write);
        // In a writable directory it was removed, and is written without a name as by any program.
        let is_in_directory = self.grants.opener(&path).is_some_and(|rule| rule.root != path);
        if decision.verdict == Verdict::Allowed && is_in_directory {
            return Ok(());
        }
        self.refuse(caller, Operation::Write, &decision);
        Err(Errno::ACCESS)
    }

    /// Tells whether all names of a file lie where the command may write. `status` is of `opened`.
    pub(super) fn names_of(
        &mut self,
        caller: &NotifyCaller<'_>,
        opened: &OwnedFd,
        status: &Stat,
    ) -> Result<Names, Errno> {
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || status.st_nlink == 0
        {
            return Ok(Names::Inside);
        }
        let path = path_of_directory(caller.host_proc, opened.as_fd())?;
        // Without the name by which it was opened, the ones it has left may all lie outside.
        if status.st_nlink == 1 && is_at(&path, status) {
            return Ok(Names::Inside);
        }
        let writable = || {
            self.grants
                .rules
                .iter()
                .filter(|rule| rule.effect == Effect::Write)
                .map(|rule| &rule.root)
        };
        // A file that the user opened by itself is meant by whatever name.
        let is_meant = writable().any(|root| *root == path);
        if is_meant || self.own.contain(&path) {
            return Ok(Names::Inside);
        }
        let roots: Vec<AbsPath> = writable().cloned().collect();
        self.hard_links.names_of(opened, &roots)
    }

    /// Tells whether it is known that all names of a file lie where the command may write.
    pub(super) fn is_inside(&self, file: &OwnedFd) -> bool {
        self.hard_links.is_inside(file)
    }

    /// Notes that a file all of whose names are in writable trees got another one.
    pub(super) fn linked_inside(&mut self, file: &OwnedFd) {
        self.hard_links.note_inside(file);
    }

    /// Notes that the name at `place` is about to be removed.
    pub(super) fn unlinks(&mut self, place: &ResolvedParent) {
        self.hard_links.forget(place);
    }

    /// Notes that a file is not written, since other names of it lie outside.
    pub(super) fn refuse_shared(&mut self, caller: &NotifyCaller<'_>, opened: &OwnedFd) -> Errno {
        if let Ok(path) = path_of_directory(caller.host_proc, opened.as_fd()) {
            self.refuse_since(caller, Operation::Write, &path, Denial::NAMES_OUTSIDE);
        }
        Errno::ACCESS
    }

    /// Judges taking away the name of what stands at `place`.
    pub(super) fn leave(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let Ok(status) =
            rustix::fs::statat(&place.directory, place.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
        else {
            return Ok(());
        };
        if let Some((path, kind)) = self.guards.get(&(status.st_dev, status.st_ino)) {
            let why = match kind {
                PinReason::Git => Denial::KEEPS_ITS_NAME,
                PinReason::Above | PinReason::Tree => Denial::HOLDS_DENIED,
                PinReason::Link => Denial::LINK_STAYS,
            };
            self.refuse_since(caller, Operation::Rename, &path.clone(), why);
            return Err(Errno::ACCESS);
        }
        if !self.is_interesting(&place.name) && !self.is_opened_by_git(caller, place) {
            return Ok(());
        }
        let decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
        let refused = match decision.verdict {
            Verdict::Denied => true,
            Verdict::ReadOnly => self.is_protected(&decision, place)?,
            Verdict::Allowed => {
                is_staged(&place.name) || self.is_replaced_by_host(place, &decision.path)
            }
            Verdict::Absent => is_staged(&place.name),
        };
        if refused {
            self.refuse(caller, Operation::Rename, &decision);
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// Judges taking away a name for good.
    pub(super) fn remove(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let Ok(status) =
            rustix::fs::statat(&place.directory, place.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
        else {
            return Ok(());
        };
        let identity = (status.st_dev, status.st_ino);
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind.is_dir() && self.git_guards.contains(&identity) {
            // The kernel refuses it by itself. `git worktree remove` tries it each time.
            if place.has_entries() {
                return Err(Errno::NOTEMPTY);
            }
            if place.name == "worktrees" {
                return Err(Errno::ACCESS);
            }
            let path = path_of(caller, place)?;
            self.refuse_since(caller, Operation::Write, &path, Denial::KEEPS_ITS_NAME);
            return Err(Errno::ACCESS);
        }
        if kind.is_symlink() && self.guards.contains_key(&identity) {
            let decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
            self.refuse(caller, Operation::Write, &decision);
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// Judges moving `what` to `place`.
    pub(super) fn moved(
        &mut self,
        caller: &NotifyCaller<'_>,
        what: &ResolvedParent,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        match what.kind() {
            Some(FileType::Directory) => self.bring(caller, what, place),
            Some(FileType::Symlink) => self.link_into(caller, place),
            _ => self.point(caller, place),
        }
    }

    /// Judges putting a symbolic link at `place`: git makes none among its own files, and
    /// one would lead it to settings that have another name.
    pub(super) fn link_into(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        let path = path_of(caller, place)?;
        if self.is_above_rule(&path)
            || self.is_above_setting(place, &path)?
            || self.is_in_guarded_git(place.directory.as_fd())?
        {
            return self.keep_out(caller, path);
        }
        Ok(())
    }

    /// Judges bringing a whole directory to `place`: with it comes what was made in it under
    /// other names, so nothing protected or denied may lie below, there or yet to be made.
    fn bring(
        &mut self,
        caller: &NotifyCaller<'_>,
        what: &ResolvedParent,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        self.make_directory(caller, place)?;
        let (path, from) = (path_of(caller, place)?, path_of(caller, what)?);
        self.keep_foreign(caller, what, &from)?;
        let is_above = self.is_above_rule(&path) || self.is_above_setting(place, &path)?;
        if is_above
            || self.is_in_guarded_git(place.directory.as_fd())?
            || self.holds_caught(what, &from, &path)?
        {
            return self.keep_out(caller, path);
        }
        self.moved_out(what, &from, &path);
        self.moved_tracked(&from, &path);
        Ok(())
    }

    /// Whether something denied or protected lies, or would lie, below `path`.
    pub(super) fn is_above_rule(&self, path: &AbsPath) -> bool {
        let mut rules = self
            .grants
            .rules
            .iter()
            .filter(|rule| matches!(rule.effect, Effect::Protect | Effect::Deny));
        rules.any(|rule| rule.root != *path && rule.root.is_within(path))
    }

    /// Whether a pattern catches by its whole path what would come to lie below `path` with
    /// the directory `what`, or would no longer catch what it catches now. Those that catch by
    /// the name alone do so in both places, unless an exception holds in one of them.
    fn holds_caught(
        &self,
        what: &ResolvedParent,
        from: &AbsPath,
        path: &AbsPath,
    ) -> Result<bool, Errno> {
        const MANY: usize = 1_000_000;
        let by_path = |pattern: &&NameRule| {
            let text = pattern.glob.text();
            text.strip_prefix("**/").unwrap_or(text).contains('/')
                && pattern.origin.source != Source::BuiltIn
        };
        if self.grants.patterns.iter().find(by_path).is_none()
            && !self.excepted.differs(&self.grants, from, path)
        {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(&what.directory, what.name.as_os_str(), flags, Mode::empty())?;
        let mut waiting = vec![PathBuf::new()];
        let mut seen = 0;
        while let Some(below) = waiting.pop() {
            let directory = if below.as_os_str().is_empty() {
                rustix::io::fcntl_dupfd_cloexec(&opened, 3)
            } else {
                rustix::fs::openat2(
                    &opened,
                    &below,
                    flags,
                    Mode::empty(),
                    ResolveFlags::NO_SYMLINKS,
                )
            };
            let directory = match directory {
                Ok(directory) => directory,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                // What cannot be looked through is not let in.
                Err(_) => return Ok(true),
            };
            for entry in rustix::fs::Dir::read_from(&directory)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                seen += 1;
                let there = below.join(name);
                if seen > MANY
                    || (self.index.interesting(name)
                        && self.is_caught(&from.join(&there), &path.join(&there)))
                {
                    return Ok(true);
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    waiting.push(there);
                }
            }
        }
        Ok(false)
    }

    /// Whether what moves from `was` to `path` is denied or protected at either. The built-in
    /// protects of git hold in repositories that were there before, which keep their names.
    fn is_caught(&self, was: &AbsPath, path: &AbsPath) -> bool {
        let decision = self.grants.decide(path, Access::Write);
        let is_of_git = || {
            matches!(&decision.rule, Some(DecidingRule::Pattern(pattern))
                if pattern.origin.source == Source::BuiltIn && pattern.glob.text().contains(".git/"))
        };
        match decision.verdict {
            Verdict::Denied if self.is_moved_tracked(was, path) => false,
            Verdict::Denied => true,
            Verdict::ReadOnly if !is_of_git() => true,
            _ => self.grants.verdict(was, Access::Read) == Verdict::Denied,
        }
    }

    pub(super) fn keep_out(
        &mut self,
        caller: &NotifyCaller<'_>,
        path: AbsPath,
    ) -> Result<(), Errno> {
        self.refuse_since(caller, Operation::Rename, &path, Denial::IN_THE_WAY);
        Err(Errno::ACCESS)
    }

    /// Whether a read-only verdict is a protect's, and one that holds here.
    ///
    /// The built-in protects of git hold in repositories that were there before; the
    /// command's own are its own, until they are looked through at the end.
    pub(super) fn is_protected(
        &self,
        decision: &Decision,
        place: &ResolvedParent,
    ) -> Result<bool, Errno> {
        match &decision.rule {
            // What somebody opened for reading has no mount of its own once the host replaced it.
            Some(DecidingRule::Rule(rule)) if rule.origin.source == Source::Session => Ok(true),
            Some(DecidingRule::Rule(rule)) => Ok(rule.effect == Effect::Protect),
            Some(DecidingRule::Pattern(pattern))
                if pattern.origin.source == Source::BuiltIn
                    && pattern.glob.text().contains(".git/") =>
            {
                self.is_in_guarded_git(place.directory.as_fd())
            }
            Some(DecidingRule::Pattern(_)) => Ok(true),
            None => Ok(false),
        }
    }

    /// True for a guarded directory and all below it, but for git directories of submodules that
    /// the command made: by identity, upwards, so that no renaming above it changes the answer.
    fn is_in_guarded_git(&self, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
        const DEEP: usize = 4096;
        let mut here = rustix::io::fcntl_dupfd_cloexec(directory, 3)?;
        let mut before = None;
        for _ in 0..DEEP {
            let status = rustix::fs::fstat(&here)?;
            let identity = (status.st_dev, status.st_ino);
            if self.is_own_module(identity, here.as_fd()) {
                return Ok(false);
            }
            if self.git_guards.contains(&identity) {
                return Ok(true);
            }
            if before == Some(identity) {
                break;
            }
            before = Some(identity);
            here = rustix::fs::openat(&here, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        }
        Ok(false)
    }
}

pub(super) fn path_of(caller: &NotifyCaller<'_>, place: &ResolvedParent) -> Result<AbsPath, Errno> {
    Ok(path_of_directory(caller.host_proc, place.directory.as_fd())?.join(&place.name))
}

/// Where a directory is now, as seen from the sandbox's root.
pub(super) fn path_of_directory(
    host_proc: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
) -> Result<AbsPath, Errno> {
    let text = rustix::fs::readlinkat(
        host_proc,
        format!("self/fd/{}", directory.as_raw_fd()),
        Vec::new(),
    )?;
    AbsPath::new(PathBuf::from(OsStr::from_bytes(text.to_bytes()))).ok_or(Errno::NOENT)
}
