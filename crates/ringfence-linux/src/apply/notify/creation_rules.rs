//! Checks of names that are about to be created, written, moved or removed.

mod moves;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_api::{Denial, Operation};
use ringfence_plan::seccomp::FileOwner;
use ringfence_plan::seccomp::calls::Call;
use ringfence_plan::{OwnPlaces, PinReason, PinnedDir, Step};
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Effect, Grants, Limit, NameIndex, NetworkMode,
    Observe, Rule, Source, TrackedMode, Verdict,
};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use tracing::debug;

use super::caller::NotifyCaller;
use super::config_lock::{DeferredConfigChange, is_staged};
use super::disk_space::SpaceCount;
use super::excepted::ExceptedTrees;
use super::gate::OwnParts;
use super::hard_links::{KnownHardLinks, Names, is_at};
use super::project_lock::ProjectLock;
use super::refs::is_applied_by_git;
use super::report::denial;
use super::resolve::{PathAnchor, PathSuffix, ResolvedParent};
use super::sockets::Sockets;
use crate::apply::{ApprovalMode, FileIdentity, LaunchSpec, NameKind, PlanUpdate};
use crate::inode::inode_id;
use crate::open::{open, open_at};

/// The notify handler's view of the policy, and the names it has seen created.
pub(super) struct CreationRules {
    pub(super) grants: Grants,
    /// Held from before a syscall is checked until it is executed.
    pub(super) lock: ProjectLock,
    index: NameIndex,
    pub(super) guards: HashMap<(u64, u64), (AbsPath, PinReason)>,
    /// Those guards that are git directories or lie in one.
    pub(super) git_guards: HashSet<(u64, u64)>,
    /// Directories for worktrees that the command created in a guarded git directory.
    pub(super) new_stores: HashSet<(u64, u64)>,
    /// Git directories of submodules that the command created in a guarded one: its own, until the
    /// sweep has checked them.
    pub(super) own_modules: HashMap<(u64, u64), FileIdentity>,
    /// Worktree directories that the command created in a guarded git directory.
    pub(super) own_worktrees: HashSet<(u64, u64)>,
    /// Those guards that are the top of a repository's working tree.
    pub(super) trees: HashSet<(u64, u64)>,
    /// True if there are symlinks that must stay.
    keeps_links: bool,
    pub(super) denials: Vec<Denial>,
    /// Directories in which patterns do not apply.
    pub(super) excepted: ExceptedTrees,
    hard_links: KnownHardLinks,
    /// True while the current syscall renames a file that is open because git tracks it.
    pub(super) carries_tracked: bool,
    /// Files with a denied name that the command created or wrote, and that were reported.
    pub(super) own_files: HashSet<(AbsPath, FileIdentity)>,
    /// True if the next file opened with `O_CREAT | O_TRUNC` is probably new.
    pub(super) expects_new: bool,
    /// Paths of the sandbox itself, which no rule names.
    pub(super) own: OwnPlaces,
    /// True if the tripwire reports failed lookups.
    has_tripwire: bool,
    /// True if the sandbox has an egress server.
    has_egress: bool,
    owner: FileOwner,
    /// `Ask` if syscalls that would be denied wait for the user's answer.
    pub(super) asker: ApprovalMode,
    /// Directories in which the command created git markers, and which are not yet reported to the
    /// launcher. Kept open, so that they are found after a move.
    pub(super) made: Vec<(Option<OwnedFd>, AbsPath, NameKind, Option<FileIdentity>)>,
    pub(super) known: HashSet<(u64, u64, NameKind, Option<FileIdentity>)>,
    /// Rules about files that appeared since the start, independent of the policy.
    later_rules: Vec<Rule>,
    pub(super) sockets: Sockets,
    /// Disk space taken, where a limit counts it.
    pub(super) space: Option<SpaceCount>,
    /// A config change that the launcher executes.
    pub(super) deferred_config: Option<DeferredConfigChange>,
    /// Set in a sandbox without mounts.
    pub(super) parts: Option<Arc<OwnParts>>,
}

impl CreationRules {
    /// `None` if the launch spec cannot be decoded.
    pub(super) fn new(
        launch: &LaunchSpec,
        lock: ProjectLock,
        parts: Option<Arc<OwnParts>>,
    ) -> Option<Self> {
        let grants: Grants = postcard::from_bytes(&launch.grants).ok()?;
        let index = NameIndex::new(&grants);
        let identity = |guard: &PinnedDir| (guard.device, guard.inode);
        let guards = launch
            .plan
            .pinned_dirs()
            .iter()
            .map(|guard| (identity(guard), (guard.path.clone(), guard.kind)))
            .collect();
        let git_guards = launch
            .plan
            .pinned_dirs()
            .iter()
            .filter(|guard| guard.kind == PinReason::Git)
            .map(identity)
            .collect();
        let trees = launch
            .plan
            .pinned_dirs()
            .iter()
            .filter(|guard| guard.kind == PinReason::Tree)
            .map(identity)
            .collect();
        let keeps_links =
            launch.plan.pinned_dirs().iter().any(|guard| guard.kind == PinReason::Link);
        let own = launch.plan.own_places(&grants);
        let excepted = ExceptedTrees::new(&grants);
        let has_tripwire = launch.plan.steps.contains(&Step::Tripwire);
        Some(Self {
            grants,
            lock,
            excepted,
            hard_links: KnownHardLinks::default(),
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
            has_tripwire,
            has_egress: launch.plan.steps.contains(&Step::Egress),
            owner: FileOwner::from_uid(launch.plan.identity().map(|identity| identity.uid)),
            asker: launch.asker,
            denials: Vec::new(),
            made: Vec::new(),
            known: HashSet::new(),
            later_rules: Vec::new(),
            sockets: Sockets::default(),
            space: launch.plan.limit(Limit::Disk).map(SpaceCount::new),
            deferred_config: None,
            parts,
        })
    }

    /// Applies the updates that were appended to the plan file after `known`. Returns their end.
    pub(super) fn apply_updates(&mut self, plan: &OwnedFd, known: u64) -> u64 {
        let Some((added, end)) = PlanUpdate::read(plan, known) else { return known };
        for PlanUpdate { guards, rules, revised } in added {
            if let Some(revised) = revised {
                self.excepted = ExceptedTrees::new(&revised.grants);
                let opened = std::mem::take(&mut self.grants.tracked);
                self.grants = revised.grants;
                if self.grants.tracked.mode == TrackedMode::Open {
                    self.grants.tracked.extend(opened);
                }
                self.grants.rules.extend(self.later_rules.iter().cloned());
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
            self.later_rules
                .extend(rules.iter().filter(|rule| rule.origin.source != Source::Session).cloned());
            self.grants.rules.extend(rules);
            self.index = NameIndex::new(&self.grants);
        }
        end
    }

    /// The owner of files that the command creates.
    pub(super) fn owner(&self) -> FileOwner {
        self.owner
    }

    /// True if the sandbox has an egress server.
    pub(super) fn has_egress(&self) -> bool {
        self.has_egress
    }

    /// True if allowed accesses are reported.
    pub(super) fn reports_allowed(&self) -> bool {
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

    /// Reports a continued syscall that will not find its target. With a tripwire, the tripwire
    /// reports it.
    pub(super) fn report_missed(
        &mut self,
        caller: &NotifyCaller<'_>,
        path: &AbsPath,
        operation: Operation,
        wanted: Access,
    ) {
        let decision = self.grants.decide(path, wanted);
        if !self.has_tripwire
            && !self.own.contains(path)
            && matches!(decision.verdict, Verdict::Absent | Verdict::Denied)
        {
            self.refuse(caller, operation, &decision);
        }
    }

    /// Notes that a host is contacted where the network is off.
    pub(super) fn refuse_host(&mut self, caller: &NotifyCaller<'_>, target: String) {
        let because = (Denial::NETWORK_NONE.to_owned(), "the policy".to_owned());
        self.denials.push(denial(caller, Operation::Connect, target, because, false));
    }

    /// True if a syscall that changes existing files is decided here, rather than only reported:
    /// symlinks with a denied name must stay, and no mask can cover a symlink; the remaining names
    /// of a file are counted; and a change by path or through memory must hit the checked file. Git
    /// directories must stay too: otherwise a new directory could get the inode of a removed one.
    pub(super) fn is_decided_here(&self, call: Call, arguments: &[u64; 6]) -> bool {
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

    /// True if the name alone could matter. Most names do not, and cost no further check.
    pub(super) fn name_could_matter(&self, name: &OsStr) -> bool {
        // A new policy file is protected before its directory may have a mask. In a
        // case-insensitive directory, any spelling is the file.
        const NAMES: [&str; 4] = [".git", "HEAD", "policy.toml", "packed-refs"];
        self.index.may_match(name)
            || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
            || is_applied_by_git(name)
            || is_staged(name)
    }

    /// Checks creating the name at `place`.
    pub(super) fn check_create(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
        operation: Operation,
    ) -> Result<(), Errno> {
        if !self.name_could_matter(&place.name)
            && !self.is_git(place.directory.as_fd())
            && !self.is_opened_by_git(caller, place)
        {
            return Ok(());
        }
        let decision = self.creation_decision(caller, place)?;
        let path = decision.path.clone();
        debug!(target: "notify", %path, verdict = ?decision.verdict, "decided about a new name");
        let refused = match decision.verdict {
            Verdict::Denied => !self.may_make_denied(caller, place, &decision),
            Verdict::ReadOnly => self.is_protected(&decision, place)?,
            // With a HEAD, git would take the project itself for a repository, including its
            // settings.
            Verdict::Allowed if is_staged(&place.name) => true,
            Verdict::Allowed
                if place.name == "HEAD"
                    && path.parent().as_ref() == Some(&self.grants.workspace) =>
            {
                true
            }
            // A git directory under any other name.
            Verdict::Allowed => {
                self.is_git_setting(place)?
                    || (operation != Operation::Rename && self.is_packed_refs(place))
            }
            // Outside the opened trees the mounts are read-only and deny by themselves.
            Verdict::Absent => false,
        };
        match (refused, decision.verdict) {
            (false, _) => return Ok(()),
            (true, Verdict::Allowed) => {
                self.refuse_since(caller, operation, &path, Denial::GIT_RESERVED_NAME)
            }
            (true, _) => self.refuse(caller, operation, &decision),
        }
        Err(Errno::ACCESS)
    }

    /// The decision about creating the name at `place`, by the rules alone.
    pub(super) fn creation_decision(
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

    /// True if git would obey the name in a directory that was a git directory before.
    fn is_git_setting(&self, place: &ResolvedParent) -> Result<bool, Errno> {
        let status = rustix::fs::fstat(&place.directory)?;
        let is_git = self.git_guards.contains(&inode_id(&status));
        let is_setting = matches!(
            place.name.as_bytes(),
            b"hooks" | b"config" | b"config.worktree" | b"commondir" | b"attributes"
        );
        Ok(is_git && (is_setting || is_applied_by_git(&place.name)))
    }

    /// True if the directory is a guarded git directory. A process may have opened it before it was
    /// masked.
    pub(super) fn is_git(&self, directory: BorrowedFd<'_>) -> bool {
        !self.git_guards.is_empty()
            && rustix::fs::fstat(directory)
                .is_ok_and(|status| self.git_guards.contains(&inode_id(&status)))
    }

    /// True if a path begins in a guarded git directory. The sandbox's root never is one.
    pub(super) fn begins_in_git(&self, start: &PathAnchor<'_>) -> bool {
        matches!(start, PathAnchor::Opened(directory) if self.is_git(directory.as_fd()))
    }

    /// Checks writing to the file at `place`. Masks cover protected files, but a mask falls off
    /// when the host replaces the file, and the watcher needs a moment to mount another.
    pub(super) fn check_write(
        &mut self,
        caller: &NotifyCaller<'_>,
        place: &ResolvedParent,
    ) -> Result<(), Errno> {
        if !self.name_could_matter(&place.name)
            && !self.is_git(place.directory.as_fd())
            && !self.is_opened_by_git(caller, place)
        {
            return Ok(());
        }
        let decision = self.grants.decide(&path_of(caller, place)?, Access::Write);
        if decision.verdict == Verdict::Allowed {
            self.note_written_tracked(place, &decision.path);
        }
        if is_staged(&place.name)
            || self.is_packed_refs(place)
            || (is_applied_by_git(&place.name) && self.is_git(place.directory.as_fd()))
        {
            self.refuse_since(caller, Operation::Write, &decision.path, Denial::GIT_RESERVED_NAME);
            return Err(Errno::ACCESS);
        }
        let error = match decision.verdict {
            // Other files in such a directory have a mask.
            Verdict::Denied if self.is_next_to_tracked(caller, place) => return Ok(()),
            Verdict::Denied => Errno::ACCESS,
            Verdict::ReadOnly if self.is_protected(&decision, place)? => Errno::ROFS,
            _ => return Ok(()),
        };
        if self.denials.is_empty() {
            self.refuse(caller, Operation::Write, &decision);
        }
        Err(error)
    }

    /// Checks writing to a file that a process has open.
    pub(super) fn check_write_open(
        &mut self,
        caller: &NotifyCaller<'_>,
        opened: &OwnedFd,
    ) -> Result<(), Errno> {
        // A file without a path is in no tree.
        let Ok(path) = path_of_directory(caller.host_proc, opened.as_fd()) else { return Ok(()) };
        let (Some(directory), Some(name)) = (path.parent(), path.name()) else { return Ok(()) };
        match open(directory.as_path(), OFlags::PATH | OFlags::DIRECTORY) {
            Ok(directory) => self.check_write(
                caller,
                &ResolvedParent { directory, name: name.to_owned(), end: PathSuffix::Plain },
            ),
            Err(_) => Ok(()),
        }
    }

    /// Checks writing to a file that was opened by name, where the user may have granted single
    /// files by mounts: after the host has replaced one, the mounted file has no name left, and
    /// writes to it would be lost. The component that grants the request opens the new file.
    pub(super) fn check_still_linked(
        &mut self,
        caller: &NotifyCaller<'_>,
        opened: &OwnedFd,
        status: &Stat,
    ) -> Result<(), Errno> {
        if self.asker == ApprovalMode::Deny || status.st_nlink > 0 {
            return Ok(());
        }
        // The kernel appends this marker to the name.
        let path = path_of_directory(caller.host_proc, opened.as_fd())?;
        let name = path.as_bytes().strip_suffix(b" (deleted)").unwrap_or(path.as_bytes());
        let path = AbsPath::new(OsStr::from_bytes(name)).ok_or(Errno::NOENT)?;
        let decision = self.grants.decide(&path, Access::Write);
        // In a writable directory the file was removed; writing it without a name is normal.
        let is_in_directory = self.grants.opening_rule(&path).is_some_and(|rule| rule.root != path);
        if decision.verdict == Verdict::Allowed && is_in_directory {
            return Ok(());
        }
        self.refuse(caller, Operation::Write, &decision);
        Err(Errno::ACCESS)
    }

    /// Locates the names of a file: inside or outside the writable trees. `status` is of `opened`.
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
        // If the name by which it was opened is gone, all remaining names may lie outside.
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
        // A file that a rule opens by its own path is writable under every name.
        let is_granted_by_path = writable().any(|root| *root == path);
        if is_granted_by_path || self.own.contains(&path) {
            return Ok(Names::Inside);
        }
        let roots: Vec<AbsPath> = writable().cloned().collect();
        self.hard_links.names_of(opened, &roots)
    }

    /// True if all names of a file are known to lie in writable trees.
    pub(super) fn is_inside(&self, file: &OwnedFd) -> bool {
        self.hard_links.is_inside(file)
    }

    /// Notes that a file with all names in writable trees got another one.
    pub(super) fn note_linked_inside(&mut self, file: &OwnedFd) {
        self.hard_links.note_inside(file);
    }

    /// Notes that the name at `place` is about to be removed.
    pub(super) fn note_unlink(&mut self, place: &ResolvedParent) {
        self.hard_links.forget(place);
    }

    /// Notes that a file is not written, since it has other names outside.
    pub(super) fn refuse_shared(&mut self, caller: &NotifyCaller<'_>, opened: &OwnedFd) -> Errno {
        if let Ok(path) = path_of_directory(caller.host_proc, opened.as_fd()) {
            self.refuse_since(caller, Operation::Write, &path, Denial::HARD_LINK_OUTSIDE);
        }
        Errno::ACCESS
    }

    /// True if a read-only verdict comes from a protect rule that applies here.
    ///
    /// The built-in protect rules for git apply in repositories that existed before; the command's
    /// own repositories are its own, until the sweep checks them at the end.
    pub(super) fn is_protected(
        &self,
        decision: &Decision,
        place: &ResolvedParent,
    ) -> Result<bool, Errno> {
        match &decision.rule {
            // A file opened for reading by a session rule has no mount of its own once the host
            // replaced it.
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

    /// True for a guarded directory and everything below it, except git directories of submodules
    /// that the command created. Compares inodes, upwards, so that renaming a parent does not
    /// change the answer.
    fn is_in_guarded_git(&self, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
        const MAX_DEPTH: usize = 4096;
        let mut here = rustix::io::fcntl_dupfd_cloexec(directory, 3)?;
        let mut before = None;
        for _ in 0..MAX_DEPTH {
            let status = rustix::fs::fstat(&here)?;
            let identity = inode_id(&status);
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
            here = open_at(&here, "..", OFlags::PATH)?;
        }
        Ok(false)
    }
}

pub(super) fn path_of(caller: &NotifyCaller<'_>, place: &ResolvedParent) -> Result<AbsPath, Errno> {
    Ok(path_of_directory(caller.host_proc, place.directory.as_fd())?.join(&place.name))
}

/// The current path of a directory, as seen from the sandbox's root.
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
