//! Watches the opened trees, and checks names that appear in them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{fs, io};

use ringfence_plan::{CaseFolding, FileKind, HardLinks, Overmount};
use ringfence_policy::{AbsPath, Access, Grants, NameIndex, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::WatcherMessage;
use super::inotify::{WatchEvent, WatchSet};
use super::masks::LiveMasker;
use super::repos::{IncomingRepo, RepoTracker};
use super::tracked::TrackedWatch;
use crate::apply::FileIdentity;
use crate::clock::timespec;
use crate::inode::{InodeId, inode_id, inode_of};
use ringfence_survey as survey;
use ringfence_survey::walk::{
    EntryToMask, TreeWalk, WalkFindings, WalkPurpose, find_hard_links_in,
};

/// Pause after handling events: a build creates thousands of files per second, and each one would
/// wake the watcher. The pause grows while nothing is masked.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// For this time after an event that did not matter, the watcher polls after each pause: waking it
/// would take a process that creates a file as long as creating the file.
const POLL_AFTER_TRIFLE: Duration = Duration::from_millis(16);

/// If too many directories need watches, every tree is scanned again after this time, or after four
/// times the duration of a scan.
const RESCAN_INTERVAL: Duration = Duration::from_millis(20);

/// Number of directories scanned before new events are read.
const SCAN_BATCH: usize = 64;

/// The trees and their initial state.
pub(super) struct WatchedTrees {
    pub(super) trees: Vec<AbsPath>,
    /// Paths masked so far.
    pub(super) masked: Vec<(AbsPath, Overmount)>,
    /// Denied files, under any name.
    pub(super) denied: HashSet<InodeId>,
}

/// State of the watcher process.
pub(super) struct TreeWatcher<'a> {
    watches: Rc<WatchSet>,
    /// The watched directories, by watch descriptor.
    places: HashMap<i32, WatchedDir>,
    /// Names that appeared in directories which were no longer at their known path.
    lost: Vec<NameBatch>,
    /// Set while there are such names.
    lost_since: Option<Instant>,
    walk: TreeWalk<'a>,
    trees: Vec<AbsPath>,
    /// Masks that a name search would not find again. They are kept.
    kept: BTreeMap<AbsPath, Overmount>,
    /// Parent directories of these masks.
    kept_dirs: HashSet<AbsPath>,
    /// Denied files, under any name.
    denied: HashSet<InodeId>,
    masker: LiveMasker<'a>,
    repositories: RepoTracker<'a>,
    tracked: TrackedWatch<'a>,
    /// Directories yet to be scanned.
    waiting: Vec<AbsPath>,
    /// Roots of trees that appeared as a whole.
    arrived: Vec<AbsPath>,
    scan: FullRescan,
    /// Number of unwatched directories already reported.
    reported_unwatched: usize,
    link_search: HardLinkSearch,
}

/// Names that appeared in sequence in one directory, by its watch descriptor.
struct NameBatch {
    number: i32,
    names: Vec<AppearedName>,
}

/// A name that appeared, and the reason to check it.
struct AppearedName {
    name: OsString,
    reason: AppearedReason,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AppearedReason {
    /// Its name, or because it is a directory.
    ByName,
    /// Only because it may be another name of a denied file.
    ByLink,
}

struct WatchedDir {
    path: AbsPath,
    identity: InodeId,
}

/// A scan of every tree.
struct FullRescan {
    started: Instant,
    /// Duration of the scan, once it is complete.
    took: Option<Duration>,
    /// Number of directories that could not be watched.
    unwatched: usize,
    /// True if the sandbox is paused meanwhile.
    is_paused: bool,
}

/// A search for other names of denied files.
#[derive(Default)]
struct HardLinkSearch {
    linked: HardLinks,
    waiting: Vec<AbsPath>,
}

/// The content of a batch of events.
#[derive(Default)]
struct EventBatch {
    appeared: Vec<NameBatch>,
    is_overrun: bool,
    /// True if there was any event, even for names that do not matter.
    has_happened: bool,
}

impl EventBatch {
    fn note(&mut self, number: i32, name: AppearedName) {
        match self.appeared.last_mut() {
            Some(last) if last.number == number => last.names.push(name),
            _ => self.appeared.push(NameBatch { number, names: vec![name] }),
        }
    }
}

impl<'a> TreeWatcher<'a> {
    pub(super) fn new(
        grants: &'a Grants,
        index: &'a NameIndex,
        WatchedTrees { trees, masked, denied }: WatchedTrees,
        masker: LiveMasker<'a>,
        repositories: RepoTracker<'a>,
        watches: WatchSet,
    ) -> Self {
        // A file denied by its name is found by that name. Other names of it are not, and git's
        // internal directories are not scanned.
        let is_found = |path: &AbsPath| grants.verdict(path, Access::Read) == Verdict::Denied;
        let kept: Vec<_> = masked
            .into_iter()
            .filter(|(path, _)| trees.iter().any(|tree| path.is_within(tree)) && !is_found(path))
            .collect();
        let mut watcher = Self {
            watches: Rc::new(watches),
            places: HashMap::new(),
            lost: Vec::new(),
            lost_since: None,
            walk: TreeWalk::new(grants, index, CaseFolding::default(), WalkPurpose::Watcher),
            kept: BTreeMap::new(),
            kept_dirs: HashSet::new(),
            tracked: TrackedWatch::new(grants),
            trees,
            denied,
            masker,
            repositories,
            waiting: Vec::new(),
            arrived: Vec::new(),
            scan: FullRescan {
                started: Instant::now(),
                took: None,
                unwatched: 0,
                is_paused: false,
            },
            reported_unwatched: 0,
            link_search: HardLinkSearch::default(),
        };
        for (path, mask) in kept {
            watcher.keep(path, mask);
        }
        watcher
    }

    /// Keeps a path masked. True if it is new.
    fn keep(&mut self, path: AbsPath, mask: Overmount) -> bool {
        self.kept_dirs.extend(path.parent());
        self.kept.insert(path, mask).is_none()
    }

    /// Watches until the launcher is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        self.begin_scan()?;
        let mut pause = PAUSE;
        let (mut sleep, mut last_trifle) = (None, None::<Instant>);
        while self.wait(sleep)? {
            let lost = std::mem::take(&mut self.lost);
            let seen = self.read()?;
            let has_happened = seen.has_happened;
            if seen.is_overrun {
                self.pause_and_scan()?;
            }
            let before = self.masker.count();
            for batch in seen.appeared.into_iter().chain(lost) {
                self.check_batch(batch)?;
            }
            self.masker.report();
            self.continue_scan()?;
            self.pause_if_lost()?;
            let mattered = seen.is_overrun || self.masker.count() > before;
            pause = if mattered { PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
            // An event that mattered may be followed by more, so the watcher waits for events again
            // at once.
            last_trifle = if has_happened {
                (!mattered).then(Instant::now)
            } else {
                last_trifle.filter(|since| since.elapsed() < POLL_AFTER_TRIFLE)
            };
            sleep = (has_happened || last_trifle.is_some()).then_some(pause);
            if !self.is_busy() {
                // Also report the latest masks: the next event may be far away.
                self.masker.report();
            }
        }
        Ok(())
    }

    /// Starts a scan of every tree.
    fn begin_scan(&mut self) -> io::Result<()> {
        self.scan =
            FullRescan { started: Instant::now(), took: None, unwatched: 0, is_paused: false };
        self.waiting = self.trees.clone();
        for tree in self.trees.clone() {
            self.keep_below(&tree)?;
        }
        for place in self.repositories.watched() {
            self.watch(&place);
        }
        for path in self.tracked.files() {
            self.check_tracked(&path)?;
        }
        Ok(())
    }

    /// Masks a tracked file that the host has replaced with other content.
    fn check_tracked(&mut self, path: &AbsPath) -> io::Result<()> {
        if self.tracked.is_replaced(path, &self.trees, |identity| {
            self.repositories.is_own(identity, &self.masker)
        }) {
            self.masker.mask(path, Overmount::Deny(FileKind::File))?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
            || !self.link_search.waiting.is_empty()
            || !self.lost.is_empty()
            || self.watches.has_queued()
    }

    /// Pauses the sandbox and scans every tree, after an overflow.
    fn pause_and_scan(&mut self) -> io::Result<()> {
        warn!(target: "watcher", "lost events: pauses the sandbox and scans every tree");
        self.masker.pause();
        self.begin_scan()?;
        self.scan.is_paused = true;
        Ok(())
    }

    /// Pauses the sandbox if directories move faster than the watcher can follow.
    fn pause_if_lost(&mut self) -> io::Result<()> {
        const LONG: Duration = Duration::from_millis(5);
        self.lost.retain(|batch| self.places.contains_key(&batch.number));
        if self.lost.is_empty() {
            self.lost_since = None;
            return Ok(());
        }
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        if self.scan.is_paused && self.scan.took.is_none() || since.elapsed() < LONG {
            Ok(())
        } else {
            self.pause_and_scan()
        }
    }

    /// After a scan with the sandbox paused, a lost directory is at its known path, or no longer in
    /// our trees.
    fn recheck_lost(&mut self) -> io::Result<()> {
        for batch in std::mem::take(&mut self.lost) {
            self.check_batch(batch)?;
        }
        for NameBatch { number, .. } in std::mem::take(&mut self.lost) {
            self.watches.remove(number);
            self.places.remove(&number);
        }
        Ok(())
    }

    /// Scans some of the waiting directories.
    fn continue_scan(&mut self) -> io::Result<()> {
        for _ in 0..SCAN_BATCH {
            if let Some(directory) = self.waiting.pop() {
                self.scan_directory(&directory)?;
            } else if let Some(directory) = self.link_search.waiting.pop() {
                for (path, mask) in find_hard_links_in(
                    &directory,
                    &self.link_search.linked,
                    &mut self.link_search.waiting,
                ) {
                    self.masker.mask(&path, mask)?;
                }
            } else {
                self.arrived.clear();
                self.link_search.linked.clear();
                break;
            }
        }
        if self.waiting.is_empty() && self.scan.took.is_none() && self.scan.is_paused {
            self.recheck_lost()?;
        }
        if self.waiting.is_empty() && self.scan.took.is_none() {
            let took = self.scan.started.elapsed();
            self.scan.took = Some(took);
            let (watched, unwatched) = (self.places.len(), self.scan.unwatched);
            debug!(target: "watcher", watched, unwatched, ?took, "scanned every tree");
            if self.scan.unwatched > self.reported_unwatched {
                self.reported_unwatched = self.scan.unwatched;
                self.masker.send_message(&WatcherMessage::Unwatched(
                    self.scan.unwatched,
                    self.watches.shortage(),
                ));
            }
            if self.scan.is_paused {
                self.masker.report_scan_complete();
            }
        }
        if self.time_to_rescan() == Some(Duration::ZERO) {
            self.begin_scan()?;
        }
        Ok(())
    }

    /// Time until the next full scan; `None` if everything is watched.
    fn time_to_rescan(&self) -> Option<Duration> {
        let took = self.scan.took.filter(|_| self.scan.unwatched > 0)?;
        Some((RESCAN_INTERVAL.max(took * 4) + took).saturating_sub(self.scan.started.elapsed()))
    }

    /// Waits for an event, or until `sleep` is over without being woken by events; `false` if the
    /// launcher is gone.
    fn wait(&self, sleep: Option<Duration>) -> io::Result<bool> {
        let is_busy = self.is_busy();
        let sleep = sleep.filter(|_| !is_busy);
        let rescan = if is_busy { Some(Duration::ZERO) } else { self.time_to_rescan() };
        let limit = sleep.into_iter().chain(rescan).min().map(timespec);
        let mut ends = vec![PollFd::new(self.masker.control(), PollFlags::empty())];
        ends.extend(
            self.watches
                .descriptor()
                .filter(|_| sleep.is_none())
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)),
        );
        match poll(&mut ends, limit.as_ref()) {
            Ok(_) => Ok(!ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads every pending event.
    fn read(&mut self) -> io::Result<EventBatch> {
        let mut seen = EventBatch::default();
        let watches = self.watches.clone();
        watches.read(|event| {
            seen.has_happened = true;
            match event {
                WatchEvent::Overrun => seen.is_overrun = true,
                WatchEvent::Unwatched(number) => drop(self.places.remove(&number)),
                WatchEvent::Appeared { number, name, is_directory } => {
                    let reason = if is_directory
                        || self.walk.is_relevant_name(name)
                        || self.is_kept(number, name)
                    {
                        AppearedReason::ByName
                    } else if !self.denied.is_empty() {
                        AppearedReason::ByLink
                    } else {
                        // For most files the name is enough to ignore them.
                        return;
                    };
                    seen.note(number, AppearedName { name: name.to_owned(), reason });
                }
            }
        })?;
        Ok(seen)
    }

    /// True if a kept mask has this name.
    fn is_kept(&self, number: i32, name: &OsStr) -> bool {
        let Some(WatchedDir { path, .. }) = self.places.get(&number) else { return false };
        self.kept_dirs.contains(path) && self.kept.contains_key(&path.join(name))
            || self.repositories.repository_obeying(path, name).is_some()
            || self.walk.is_opened_by_git(path)
    }

    /// Checks names that appeared in a directory.
    fn check_batch(&mut self, batch: NameBatch) -> io::Result<()> {
        let Some(WatchedDir { path, identity }) = self.places.get(&batch.number) else {
            return Ok(());
        };
        let place = match open_directory(path) {
            Ok(place) if inode_of(&place) == Ok(*identity) => place,
            _ => {
                self.lost.push(batch);
                return Ok(());
            }
        };
        let directory = path.clone();
        for AppearedName { name, reason } in batch.names {
            let Ok(status) = rustix::fs::statat(&place, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_file && status.st_nlink > 1 && self.denied.contains(&inode_id(&status)) {
                self.masker.mask(&directory.join(&name), Overmount::Deny(FileKind::File))?;
            }
            if reason == AppearedReason::ByName {
                self.check_named(&directory, &name)?;
            }
        }
        Ok(())
    }

    /// Checks a file that appeared under a name that could matter.
    fn check_named(&mut self, directory: &AbsPath, name: &OsStr) -> io::Result<()> {
        let path = directory.join(name);
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return Ok(()) };
        self.keep_below(&path)?;
        self.check_tracked(&path)?;
        if let Some(repository) = self.repositories.repository_obeying(directory, name) {
            let incoming = self.repositories.check_entry(&repository, &path, &self.masker)?;
            let (rescan, is_own) = (incoming.rescan.clone(), incoming.is_own);
            self.mask_incoming(incoming)?;
            for entry in
                rescan.iter().flat_map(|store| fs::read_dir(store.as_path())).flatten().flatten()
            {
                self.check_named(&path, &entry.file_name())?;
            }
            if is_own {
                return Ok(());
            }
        }
        let mut found = WalkFindings::default();
        if name == "HEAD" && metadata.is_file() {
            found.repositories.push(directory.clone());
        }
        let before = self.waiting.len();
        self.walk.examine_entry(
            directory,
            name,
            metadata.file_type(),
            &mut found,
            &mut self.waiting,
        );
        if self.waiting.len() > before {
            self.arrived.push(path);
        }
        self.mask_findings(found)
    }

    /// Scans one directory. It is watched before it is listed, so that no entry is missed.
    fn scan_directory(&mut self, directory: &AbsPath) -> io::Result<()> {
        self.watch(directory);
        let mut found = WalkFindings::default();
        self.walk.walk_directory(directory, &mut found, &mut self.waiting);
        // The walk skips the names of tracked files, and one may have been replaced before the
        // watch.
        for path in self.tracked.files_in(directory) {
            self.check_tracked(&path)?;
        }
        self.mask_findings(found)
    }

    /// Masks the paths that git obeys in a new repository.
    fn mask_incoming(
        &mut self,
        IncomingRepo { masks, watched, .. }: IncomingRepo,
    ) -> io::Result<()> {
        for place in watched {
            self.watch(&place);
        }
        for (path, mask) in masks {
            self.masker.mask(&path, mask)?;
            self.keep(path, mask);
        }
        Ok(())
    }

    fn mask_findings(&mut self, found: WalkFindings) -> io::Result<()> {
        for link in found.denied_links {
            self.follow(&link)?;
        }
        for repository in found.repositories {
            let incoming = self.repositories.check_repository(&repository, &self.masker)?;
            self.mask_incoming(incoming)?;
        }
        for entry in found.to_mask {
            if self.is_own(&entry) {
                if entry.mask == Overmount::Deny(FileKind::Directory) {
                    // The host may put files of its own into a directory that the command made.
                    self.walk.open_own_directory(entry.path.clone());
                    self.waiting.push(entry.path);
                }
                continue;
            }
            self.masker.mask(&entry.path, entry.mask)?;
            if entry.links > 1
                && entry.mask == Overmount::Deny(FileKind::File)
                && self.denied.insert((entry.device, entry.inode))
            {
                self.search_links(&entry);
            }
        }
        Ok(())
    }

    /// True if the command made or wrote an entry that a built-in pattern denies: git may do that.
    fn is_own(&self, entry: &EntryToMask) -> bool {
        let is_spared = entry.through.is_none() && self.tracked.permits_tracked(&entry.path);
        let identity =
            is_spared.then(|| FileIdentity::from_entry(CWD, entry.path.as_path())).flatten();
        identity.is_some_and(|identity| self.repositories.is_own(identity, &self.masker))
    }

    /// Searches the trees that arrived with a denied file for other names of it. A file that was
    /// here before, under a name that no rule denies, was never denied.
    fn search_links(&mut self, denied: &EntryToMask) {
        let roots = if self.scan.took.is_none() { &self.trees } else { &self.arrived };
        if !roots.is_empty() {
            let key = (denied.inode, denied.device);
            self.link_search.linked.insert(key, Overmount::Deny(FileKind::File));
            self.link_search.waiting.clone_from(roots);
        }
    }

    /// Masks the target of a symlink with a denied name, also if the target changes or appears
    /// later.
    fn follow(&mut self, link: &AbsPath) -> io::Result<()> {
        let Some(end) =
            survey::resolve_links(link).filter(|end| self.walk.may_be_denied_by_link(end))
        else {
            return Ok(());
        };
        if self.keep(end.clone(), Overmount::Deny(FileKind::File)) {
            self.keep_below(&end)?;
        }
        Ok(())
    }

    /// Masks again the kept paths at `path` and below: the host may have put a new file there.
    fn keep_below(&mut self, path: &AbsPath) -> io::Result<()> {
        let kept = self.kept.range(path.clone()..).take_while(|(kept, _)| kept.is_within(path));
        for (kept, mask) in kept.map(|(path, mask)| (path.clone(), *mask)).collect::<Vec<_>>() {
            if let Some(above) = kept.parent() {
                self.watch(&above);
            }
            self.masker.mask(&kept, mask)?;
        }
        Ok(())
    }

    fn watch(&mut self, directory: &AbsPath) {
        let watched = open_directory(directory)
            .and_then(|opened| Ok((self.watches.add(&opened)?, inode_of(&opened)?)));
        match watched {
            Ok((number, identity)) => {
                self.places.insert(number, WatchedDir { path: directory.clone(), identity });
            }
            // Gone, or not readable here.
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG,
            ) => {}
            Err(_) => self.scan.unwatched += 1,
        }
    }
}

/// Opens a directory without following symlinks.
fn open_directory(directory: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, directory.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}
