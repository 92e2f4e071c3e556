//! Watching the opened trees, and looking at what appears in them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ringfence_policy::{AbsPath, Access, Grants, NameIndex, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::Sighting;
use super::covers::Covers;
use super::git::{Coming, Repositories};
use crate::plan::{Cover, Kind, Plan, Step};
use crate::survey::walk::{Eyes, Found, Walk, aliases_in};
use crate::survey::{Folding, Linked};

type Identity = (u64, u64);

/// After looking at what happened, so long is waited for more: a build makes thousands of
/// files a second, and each alone would wake us.
const PAUSE: Duration = Duration::from_millis(1);

/// Where too much is to be watched, everything is looked through again after this time, or
/// after several times as long as it takes.
const AGAIN: Duration = Duration::from_millis(20);

/// So many directories are looked through before what happened meanwhile is looked at.
const STRETCH: usize = 64;

/// Where the lookout stands.
pub(super) struct Post<'a> {
    inotify: OwnedFd,
    /// The watched directories, by the kernel's number for each.
    places: HashMap<i32, AbsPath>,
    walk: Walk<'a>,
    trees: Vec<AbsPath>,
    /// What was covered from the start.
    kept: BTreeMap<AbsPath, Cover>,
    /// Files that are denied, by whatever name.
    denied: HashSet<Identity>,
    covers: Covers<'a>,
    repositories: Repositories<'a>,
    /// Directories that are yet to be looked through.
    waiting: Vec<AbsPath>,
    /// What they came with: trees that appeared as a whole.
    arrived: Vec<AbsPath>,
    round: Round,
    hunt: Hunt,
}

/// Looking through everything.
struct Round {
    begun: Instant,
    /// How long it took, when it is over.
    took: Option<Duration>,
    /// How many directories could not be watched.
    unwatched: usize,
}

/// A search for other names of denied files.
#[derive(Default)]
struct Hunt {
    linked: Linked,
    waiting: Vec<AbsPath>,
}

/// What a batch of events tells.
#[derive(Default)]
struct Seen {
    appeared: Vec<(AbsPath, OsString)>,
    is_overrun: bool,
}

impl<'a> Post<'a> {
    pub(super) fn new(
        grants: &'a Grants,
        index: &'a NameIndex,
        trees: Vec<AbsPath>,
        plan: &Plan,
        denied: HashSet<Identity>,
        covers: Covers<'a>,
        repositories: Repositories<'a>,
    ) -> io::Result<Self> {
        // What is denied by its name is found by it; other names of it are not, and what git
        // keeps to itself is not looked through.
        let is_found = |path: &AbsPath| grants.verdict(path, Access::Read) == Verdict::Denied;
        let kept = plan.steps.iter().filter_map(|step| match step {
            Step::Cover { path, cover } if trees.iter().any(|tree| path.is_within(tree)) && !is_found(path) => Some((path.clone(), *cover)),
            _ => None,
        });
        Ok(Self {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            places: HashMap::new(),
            walk: Walk::new(grants, index, Folding::default(), Eyes::Lookout),
            kept: kept.collect(),
            trees,
            denied,
            covers,
            repositories,
            waiting: Vec::new(),
            arrived: Vec::new(),
            round: Round { begun: Instant::now(), took: None, unwatched: 0 },
            hunt: Hunt::default(),
        })
    }

    /// Looks out until the caller is gone.
    pub(super) fn stand(mut self) -> io::Result<()> {
        self.begin_round()?;
        while self.wait()? {
            let seen = self.read()?;
            if seen.is_overrun {
                self.covers.tell(&Sighting::Overrun);
                self.begin_round()?;
            }
            for (directory, name) in seen.appeared {
                self.appeared(&directory, &name)?;
            }
            self.covers.report();
            self.go_on()?;
            if !self.is_busy() {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Everything is to be looked through.
    fn begin_round(&mut self) -> io::Result<()> {
        self.round = Round { begun: Instant::now(), took: None, unwatched: 0 };
        self.waiting = self.trees.clone();
        for tree in self.trees.clone() {
            self.keep_below(&tree)?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.hunt.waiting.is_empty()
    }

    /// A stretch of what there is to look through.
    fn go_on(&mut self) -> io::Result<()> {
        for _ in 0..STRETCH {
            if let Some(directory) = self.waiting.pop() {
                self.look_into(&directory)?;
            } else if let Some(directory) = self.hunt.waiting.pop() {
                for (path, cover) in aliases_in(&directory, &self.hunt.linked, &mut self.hunt.waiting) {
                    self.covers.put(&path, cover)?;
                }
            } else {
                self.arrived.clear();
                self.hunt.linked.clear();
                break;
            }
        }
        if self.waiting.is_empty() && self.round.took.is_none() {
            self.round.took = Some(self.round.begun.elapsed());
            if self.round.unwatched > 0 {
                self.covers.tell(&Sighting::Unwatched(self.round.unwatched));
            }
            self.covers.tell(&Sighting::Caught);
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

    /// Until something happens; `false` if the caller is gone.
    fn wait(&self) -> io::Result<bool> {
        let limit = if self.is_busy() { Some(Duration::ZERO) } else { self.rest() };
        let limit = limit.map(|left| rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut ends = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(self.covers.control(), PollFlags::empty())];
        match poll(&mut ends, limit.as_ref()) {
            Ok(_) => Ok(!ends[1].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Everything that has happened so far.
    fn read(&mut self) -> io::Result<Seen> {
        let mut space = vec![MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(&self.inotify, &mut space);
        let mut seen = Seen::default();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(seen),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                seen.is_overrun = true;
            } else if event.events().contains(ReadFlags::IGNORED) {
                self.places.remove(&event.wd());
            } else if let (Some(directory), Some(name)) = (self.places.get(&event.wd()), event.file_name()) {
                seen.appeared.push((directory.clone(), OsStr::from_bytes(name.to_bytes()).to_owned()));
            }
        }
    }

    /// Looks at a name that has appeared in a directory.
    fn appeared(&mut self, directory: &AbsPath, name: &OsStr) -> io::Result<()> {
        let path = directory.join(name);
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return Ok(()) };
        self.keep_below(&path)?;
        if metadata.nlink() > 1 && metadata.is_file() && self.denied.contains(&(metadata.dev(), metadata.ino())) {
            self.covers.put(&path, Cover::Deny(Kind::File))?;
        }
        if let Some(repository) = self.repositories.of(directory, name) {
            let coming = self.repositories.protect(&repository)?;
            self.come(coming)?;
        }
        let mut found = Found::default();
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
        let mut found = Found::default();
        self.walk.directory(directory, &mut found, &mut self.waiting);
        self.cover(found)
    }

    /// Covers what git obeys in a repository that came in.
    fn come(&mut self, Coming { covers, watched }: Coming) -> io::Result<()> {
        for place in watched {
            self.watch(&place);
        }
        for (path, cover) in covers {
            self.covers.put(&path, cover)?;
            self.kept.insert(path, cover);
        }
        Ok(())
    }

    fn cover(&mut self, found: Found) -> io::Result<()> {
        for repository in found.repositories {
            let coming = self.repositories.found(&repository, &self.covers)?;
            self.come(coming)?;
        }
        for caught in found.caught {
            self.covers.put(&caught.path, caught.cover)?;
            let identity = (caught.device, caught.inode);
            if caught.links > 1 && caught.cover == Cover::Deny(Kind::File) && self.denied.insert(identity) {
                self.hunt_for((caught.inode, caught.device));
            }
        }
        Ok(())
    }

    /// Looks for other names of a denied file in what came along with it. What stood here
    /// before it, under a name that nothing denies, was never shut.
    fn hunt_for(&mut self, identity: Identity) {
        let grounds = if self.round.took.is_none() { &self.trees } else { &self.arrived };
        if !grounds.is_empty() {
            self.hunt.linked.insert(identity, Cover::Deny(Kind::File));
            self.hunt.waiting.clone_from(grounds);
        }
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
        let wanted = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.inotify, directory.as_path(), wanted) {
            Ok(number) => {
                self.places.insert(number, directory.clone());
            }
            // Gone, or not for anybody here to look into.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
            Err(_) => self.round.unwatched += 1,
        }
    }
}

/// Which files the plan denies by name, so that they are known by any other.
pub(super) fn denied(plan: &Plan) -> HashSet<Identity> {
    let paths = plan.steps.iter().filter_map(|step| match step {
        Step::Cover { path, cover: Cover::Deny(Kind::File) } => Some(path),
        _ => None,
    });
    let found = paths.filter_map(|path| fs::symlink_metadata(path.as_path()).ok());
    found.filter(fs::Metadata::is_file).map(|metadata| (metadata.dev(), metadata.ino())).collect()
}
