//! Watching the opened trees, and looking at what appears in them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringfence_policy::{AbsPath, Access, Grants, NameIndex, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::WatcherMessage;
use super::inotify::{WatchEvent, WatchSet};
use super::masks::LiveMasker;
use super::repos::{IncomingRepo, RepoTracker};
use super::tracked::TrackedWatch;
use crate::apply::Birth;
use crate::plan::{FileKind, Overmount};
use crate::survey::walk::{CaughtEntry, TreeWalk, WalkFindings, WalkPurpose, aliases_in};
use crate::survey::{self, CaseFolding, HardLinks};

type InodeId = (u64, u64);

/// After looking at what happened, so long is waited for more: a build makes thousands of
/// files a second, and each alone would wake us. Longer, where nothing of it was covered.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// So long after something happened that did not matter, we look again after each pause rather
/// than be woken: whoever makes a file would have to wake us, which takes as long as making it.
const DOZE: Duration = Duration::from_millis(16);

/// Where too much is to be watched, everything is looked through again after this time, or
/// after several times as long as it takes.
const AGAIN: Duration = Duration::from_millis(20);

/// So many directories are looked through before what happened meanwhile is looked at.
const STRETCH: usize = 64;

/// What there is to look at.
pub(super) struct WatchedTrees {
    pub(super) trees: Vec<AbsPath>,
    /// What is covered by now.
    pub(super) covered: Vec<(AbsPath, Overmount)>,
    /// Files that are denied, by whatever name.
    pub(super) denied: HashSet<InodeId>,
}

/// Where the lookout stands.
pub(super) struct TreeWatcher<'a> {
    watches: Rc<WatchSet>,
    /// The watched directories, by the kernel's number for each.
    places: HashMap<i32, WatchedDir>,
    /// What appeared in directories that were not where they should be.
    lost: Vec<NameBatch>,
    /// Since when there are such.
    lost_since: Option<Instant>,
    walk: TreeWalk<'a>,
    trees: Vec<AbsPath>,
    /// What was covered from the start.
    kept: BTreeMap<AbsPath, Overmount>,
    /// Directories that have such.
    kept_in: HashSet<AbsPath>,
    /// Files that are denied, by whatever name.
    denied: HashSet<InodeId>,
    covers: LiveMasker<'a>,
    repositories: RepoTracker<'a>,
    tracked: TrackedWatch<'a>,
    /// Directories that are yet to be looked through.
    waiting: Vec<AbsPath>,
    /// What they came with: trees that appeared as a whole.
    arrived: Vec<AbsPath>,
    round: FullRescan,
    /// How many directories were told to be unwatched.
    owned_up: usize,
    hunt: HardLinkSearch,
}

/// Names that have appeared one after the other in one directory, by the kernel's number for it.
struct NameBatch {
    number: i32,
    names: Vec<AppearedName>,
}

/// A name that has appeared, and why it is looked at.
struct AppearedName {
    name: OsString,
    matter: AppearedReason,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AppearedReason {
    /// For what it is called, or for being a directory.
    Called,
    /// Only for what it may be another name of.
    Linked,
}

/// A directory that is watched.
struct WatchedDir {
    path: AbsPath,
    identity: InodeId,
}

/// Looking through everything.
struct FullRescan {
    begun: Instant,
    /// How long it took, when it is over.
    took: Option<Duration>,
    /// How many directories could not be watched.
    unwatched: usize,
    /// Whether nobody goes on meanwhile.
    is_halted: bool,
}

/// A search for other names of denied files.
#[derive(Default)]
struct HardLinkSearch {
    linked: HardLinks,
    waiting: Vec<AbsPath>,
}

/// What a batch of events tells.
#[derive(Default)]
struct EventBatch {
    appeared: Vec<NameBatch>,
    is_overrun: bool,
    /// Whether it tells of anything, if only of names that matter to nobody.
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
        WatchedTrees { trees, covered, denied }: WatchedTrees,
        covers: LiveMasker<'a>,
        repositories: RepoTracker<'a>,
        watches: WatchSet,
    ) -> Self {
        // What is denied by its name is found by it; other names of it are not, and what git
        // keeps to itself is not looked through.
        let is_found = |path: &AbsPath| grants.verdict(path, Access::Read) == Verdict::Denied;
        let kept: Vec<_> = covered
            .into_iter()
            .filter(|(path, _)| trees.iter().any(|tree| path.is_within(tree)) && !is_found(path))
            .collect();
        let mut post = Self {
            watches: Rc::new(watches),
            places: HashMap::new(),
            lost: Vec::new(),
            lost_since: None,
            walk: TreeWalk::new(grants, index, CaseFolding::default(), WalkPurpose::Lookout),
            kept: BTreeMap::new(),
            kept_in: HashSet::new(),
            tracked: TrackedWatch::new(grants),
            trees,
            denied,
            covers,
            repositories,
            waiting: Vec::new(),
            arrived: Vec::new(),
            round: FullRescan { begun: Instant::now(), took: None, unwatched: 0, is_halted: false },
            owned_up: 0,
            hunt: HardLinkSearch::default(),
        };
        for (path, cover) in kept {
            post.keep(path, cover);
        }
        post
    }

    /// Keeps something covered; answers whether that is new.
    fn keep(&mut self, path: AbsPath, cover: Overmount) -> bool {
        self.kept_in.extend(path.parent());
        self.kept.insert(path, cover).is_none()
    }

    /// Looks out until the caller is gone.
    pub(super) fn stand(mut self) -> io::Result<()> {
        self.begin_round()?;
        let mut pause = PAUSE;
        let (mut nap, mut trifle) = (None, None::<Instant>);
        while self.wait(nap)? {
            let lost = std::mem::take(&mut self.lost);
            let seen = self.read()?;
            let has_happened = seen.has_happened;
            if seen.is_overrun {
                self.halt()?;
            }
            let before = self.covers.count();
            for arrival in seen.appeared.into_iter().chain(lost) {
                self.appeared(arrival)?;
            }
            self.covers.report();
            self.go_on()?;
            self.find_lost()?;
            let mattered = seen.is_overrun || self.covers.count() > before;
            pause = if mattered { PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
            // What mattered may be followed by more of it, for which we are awake again at once.
            trifle = if has_happened {
                (!mattered).then(Instant::now)
            } else {
                trifle.filter(|since| since.elapsed() < DOZE)
            };
            nap = (has_happened || trifle.is_some()).then_some(pause);
            if !self.is_busy() {
                // Also what was covered just now: it may take long until something happens.
                self.covers.report();
            }
        }
        Ok(())
    }

    /// Everything is to be looked through.
    fn begin_round(&mut self) -> io::Result<()> {
        self.round =
            FullRescan { begun: Instant::now(), took: None, unwatched: 0, is_halted: false };
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

    /// Masks a tracked file that the host has replaced by another content.
    fn check_tracked(&mut self, path: &AbsPath) -> io::Result<()> {
        if self
            .tracked
            .is_replaced(path, &self.trees, |birth| self.repositories.is_own(birth, &self.covers))
        {
            self.covers.put(path, Overmount::Deny(FileKind::File))?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
            || !self.hunt.waiting.is_empty()
            || !self.lost.is_empty()
            || self.watches.has_heard()
    }

    /// More has happened than can be followed: nobody may go on until all was looked through.
    fn halt(&mut self) -> io::Result<()> {
        self.covers.halt();
        self.begin_round()?;
        self.round.is_halted = true;
        Ok(())
    }

    /// Somebody may move directories about faster than they can be followed.
    fn find_lost(&mut self) -> io::Result<()> {
        const LONG: Duration = Duration::from_millis(5);
        self.lost.retain(|arrival| self.places.contains_key(&arrival.number));
        if self.lost.is_empty() {
            self.lost_since = None;
            return Ok(());
        }
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        if self.round.is_halted && self.round.took.is_none() || since.elapsed() < LONG {
            Ok(())
        } else {
            self.halt()
        }
    }

    /// While nobody goes on and all was looked through, what was lost is where it is said to
    /// be, or no longer in our trees.
    fn look_at_lost(&mut self) -> io::Result<()> {
        for arrival in std::mem::take(&mut self.lost) {
            self.appeared(arrival)?;
        }
        for NameBatch { number, .. } in std::mem::take(&mut self.lost) {
            self.watches.remove(number);
            self.places.remove(&number);
        }
        Ok(())
    }

    /// A stretch of what there is to look through.
    fn go_on(&mut self) -> io::Result<()> {
        for _ in 0..STRETCH {
            if let Some(directory) = self.waiting.pop() {
                self.look_into(&directory)?;
            } else if let Some(directory) = self.hunt.waiting.pop() {
                for (path, cover) in
                    aliases_in(&directory, &self.hunt.linked, &mut self.hunt.waiting)
                {
                    self.covers.put(&path, cover)?;
                }
            } else {
                self.arrived.clear();
                self.hunt.linked.clear();
                break;
            }
        }
        if self.waiting.is_empty() && self.round.took.is_none() && self.round.is_halted {
            self.look_at_lost()?;
        }
        if self.waiting.is_empty() && self.round.took.is_none() {
            self.round.took = Some(self.round.begun.elapsed());
            if self.round.unwatched > self.owned_up {
                self.owned_up = self.round.unwatched;
                self.covers.tell(&WatcherMessage::Unwatched(
                    self.round.unwatched,
                    self.watches.shortage(),
                ));
            }
            if self.round.is_halted {
                self.covers.caught_up();
            }
        }
        if self.rest() == Some(Duration::ZERO) {
            self.begin_round()?;
        }
        Ok(())
    }

    /// How long until all is to be looked through again; `None` if it is watched.
    fn rest(&self) -> Option<Duration> {
        let took = self.round.took.filter(|_| self.round.unwatched > 0)?;
        Some((AGAIN.max(took * 4) + took).saturating_sub(self.round.begun.elapsed()))
    }

    /// Until something happens, or, without being woken by it, until a `nap` is over; `false` if
    /// the caller is gone.
    fn wait(&self, nap: Option<Duration>) -> io::Result<bool> {
        let nap = nap.filter(|_| !self.is_busy());
        let rest = if self.is_busy() { Some(Duration::ZERO) } else { self.rest() };
        let limit = nap.into_iter().chain(rest).min();
        let limit = limit.map(|left| rustix::time::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut ends = vec![PollFd::new(self.covers.control(), PollFlags::empty())];
        ends.extend(
            self.watches
                .descriptor()
                .filter(|_| nap.is_none())
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)),
        );
        match poll(&mut ends, limit.as_ref()) {
            Ok(_) => Ok(!ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Everything that has happened so far.
    fn read(&mut self) -> io::Result<EventBatch> {
        let mut seen = EventBatch::default();
        let watches = self.watches.clone();
        watches.read(|happened| {
            seen.has_happened = true;
            match happened {
                WatchEvent::Overrun => seen.is_overrun = true,
                WatchEvent::Unwatched(number) => drop(self.places.remove(&number)),
                WatchEvent::Appeared { number, name, is_directory } => {
                    let matter = if is_directory
                        || self.walk.could_matter(name)
                        || self.places_kept(number, name)
                    {
                        AppearedReason::Called
                    } else if !self.denied.is_empty() {
                        AppearedReason::Linked
                    } else {
                        // Of most files nothing need be known but the name.
                        return;
                    };
                    seen.note(number, AppearedName { name: name.to_owned(), matter });
                }
            }
        })?;
        Ok(seen)
    }

    /// Whether something that is kept covered has this name.
    fn places_kept(&self, number: i32, name: &OsStr) -> bool {
        let Some(WatchedDir { path, .. }) = self.places.get(&number) else { return false };
        self.kept_in.contains(path) && self.kept.contains_key(&path.join(name))
            || self.repositories.of(path, name).is_some()
            || self.walk.is_opened_by_git(path)
    }

    /// Looks at names that have appeared in a directory.
    fn appeared(&mut self, arrival: NameBatch) -> io::Result<()> {
        let Some(WatchedDir { path, identity }) = self.places.get(&arrival.number) else {
            return Ok(());
        };
        let place = match opened(path) {
            Ok(place) if identity_of(&place) == Ok(*identity) => place,
            _ => {
                self.lost.push(arrival);
                return Ok(());
            }
        };
        let directory = path.clone();
        for AppearedName { name, matter } in arrival.names {
            let Ok(status) = rustix::fs::statat(&place, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_file
                && status.st_nlink > 1
                && self.denied.contains(&(status.st_dev, status.st_ino))
            {
                self.covers.put(&directory.join(&name), Overmount::Deny(FileKind::File))?;
            }
            if matter == AppearedReason::Called {
                self.called(&directory, &name)?;
            }
        }
        Ok(())
    }

    /// Looks at what has appeared under a name that could matter.
    fn called(&mut self, directory: &AbsPath, name: &OsStr) -> io::Result<()> {
        let path = directory.join(name);
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return Ok(()) };
        self.keep_below(&path)?;
        self.check_tracked(&path)?;
        if let Some(repository) = self.repositories.of(directory, name) {
            let coming = self.repositories.entered(&repository, &path, &self.covers)?;
            let (anew, is_own) = (coming.anew.clone(), coming.is_own);
            self.come(coming)?;
            for entry in
                anew.iter().flat_map(|store| fs::read_dir(store.as_path())).flatten().flatten()
            {
                self.called(&path, &entry.file_name())?;
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
        self.walk.entry(directory, name, metadata.file_type(), &mut found, &mut self.waiting);
        if self.waiting.len() > before {
            self.arrived.push(path);
        }
        self.cover(found)
    }

    /// Looks through one directory. It is watched before it is listed, so that nothing falls
    /// in between.
    fn look_into(&mut self, directory: &AbsPath) -> io::Result<()> {
        self.watch(directory);
        let mut found = WalkFindings::default();
        self.walk.directory(directory, &mut found, &mut self.waiting);
        // The walk leaves their names open, and one may have been replaced before it was watched.
        for path in self.tracked.files_in(directory) {
            self.check_tracked(&path)?;
        }
        self.cover(found)
    }

    /// Covers what git obeys in a repository that came in.
    fn come(&mut self, IncomingRepo { covers, watched, .. }: IncomingRepo) -> io::Result<()> {
        for place in watched {
            self.watch(&place);
        }
        for (path, cover) in covers {
            self.covers.put(&path, cover)?;
            self.keep(path, cover);
        }
        Ok(())
    }

    fn cover(&mut self, found: WalkFindings) -> io::Result<()> {
        for link in found.denied_links {
            self.follow(&link)?;
        }
        for repository in found.repositories {
            let coming = self.repositories.found(&repository, &self.covers)?;
            self.come(coming)?;
        }
        for caught in found.caught {
            if self.is_own(&caught) {
                if caught.cover == Overmount::Deny(FileKind::Directory) {
                    // The host may put files of its own into a directory that the command made.
                    self.walk.open_own_directory(caught.path.clone());
                    self.waiting.push(caught.path);
                }
                continue;
            }
            self.covers.put(&caught.path, caught.cover)?;
            let identity = (caught.device, caught.inode);
            if caught.links > 1
                && caught.cover == Overmount::Deny(FileKind::File)
                && self.denied.insert(identity)
            {
                self.hunt_for((caught.inode, caught.device));
            }
        }
        Ok(())
    }

    /// Tells whether the command made, or wrote, what a built-in pattern denies: git may.
    fn is_own(&self, caught: &CaughtEntry) -> bool {
        let is_spared = caught.through.is_none() && self.tracked.spares(&caught.path);
        let birth = is_spared.then(|| Birth::of(CWD, caught.path.as_path())).flatten();
        birth.is_some_and(|birth| self.repositories.is_own(birth, &self.covers))
    }

    /// Looks for other names of a denied file in what came along with it. What stood here
    /// before it, under a name that nothing denies, was never shut.
    fn hunt_for(&mut self, identity: InodeId) {
        let grounds = if self.round.took.is_none() { &self.trees } else { &self.arrived };
        if !grounds.is_empty() {
            self.hunt.linked.insert(identity, Overmount::Deny(FileKind::File));
            self.hunt.waiting.clone_from(grounds);
        }
    }

    /// What a link with a denied name leads to is denied, also when it is another or comes
    /// later.
    fn follow(&mut self, link: &AbsPath) -> io::Result<()> {
        let Some(end) = survey::end_of(link).filter(|end| self.walk.is_work(end)) else {
            return Ok(());
        };
        if self.keep(end.clone(), Overmount::Deny(FileKind::File)) {
            self.keep_below(&end)?;
        }
        Ok(())
    }

    /// Covers again what was covered from the start, at `path` and below: what the host
    /// puts in its place is another file.
    fn keep_below(&mut self, path: &AbsPath) -> io::Result<()> {
        let kept = self.kept.range(path.clone()..).take_while(|(kept, _)| kept.is_within(path));
        for (kept, cover) in kept.map(|(path, cover)| (path.clone(), *cover)).collect::<Vec<_>>() {
            if let Some(above) = kept.parent() {
                self.watch(&above);
            }
            self.covers.put(&kept, cover)?;
        }
        Ok(())
    }

    fn watch(&mut self, directory: &AbsPath) {
        let watched = opened(directory)
            .and_then(|opened| Ok((self.watches.add(&opened)?, identity_of(&opened)?)));
        match watched {
            Ok((number, identity)) => {
                self.places.insert(number, WatchedDir { path: directory.clone(), identity });
            }
            // Gone, or not for anybody here to look into.
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG,
            ) => {}
            Err(_) => self.round.unwatched += 1,
        }
    }
}

/// A directory, never by way of a link.
fn opened(directory: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, directory.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn identity_of(opened: &OwnedFd) -> rustix::io::Result<InodeId> {
    rustix::fs::fstat(opened).map(|status| (status.st_dev, status.st_ino))
}

/// Which files are denied by name, so that they are known by any other.
pub(super) fn denied(covered: &[(AbsPath, Overmount)]) -> HashSet<InodeId> {
    let paths = covered
        .iter()
        .filter(|(_, cover)| *cover == Overmount::Deny(FileKind::File))
        .map(|(path, _)| path);
    let found = paths.filter_map(|path| fs::symlink_metadata(path.as_path()).ok());
    found.filter(fs::Metadata::is_file).map(|metadata| (metadata.dev(), metadata.ino())).collect()
}
