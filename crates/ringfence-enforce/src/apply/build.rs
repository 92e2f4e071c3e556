//! Building the root: mounts are made detached, then put where they belong.
//!
//! Everything is made in the warden's mount namespace. The command's own is a copy of it
//! that belongs to a lesser user namespace, so that none of this can be undone inside.

mod caches;
mod fuse_root;
mod mount_points;
mod overlay;
mod prepared_root;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_policy::{AbsPath, Limit};
use ringfence_sys::mount::{self, MountRecursion, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::{LaunchSpec, SetupError, SetupStep, UPPER};
use crate::fuse_nodes::MASKS;
use crate::plan::{FileKind, MountAccess, Overmount, Step};
use fuse_root::FuseRoot;
use overlay::overlay;
pub(super) use prepared_root::PreparedRoot;

/// Builds the root that the plan describes and makes it the root of this process.
///
/// Read-only things come first and are restricted all at once, which seals the root as
/// well; writable things and devices are put on top of that.
pub(super) fn build(
    launch: &LaunchSpec,
    mut ground: PreparedRoot,
    wire: Option<OwnedFd>,
) -> Result<(), SetupError> {
    let steps = &launch.plan.steps;
    if let Some(most) = launch.plan.most(Limit::Memory) {
        ground.limit(most);
    }
    // Without it the same is shut, by masks that tell nothing.
    let wire = wire.filter(|_| steps.contains(&Step::Tripwire));
    let (mut root, done) = ground.root(wire.as_ref(), steps)?;
    ground.uncover(&root, steps)?;
    let steps: Vec<(&Step, MountSource)> = steps
        .iter()
        .map(|step| Ok((step, source(step, &mut ground)?)))
        .collect::<Result<_, SetupError>>()?;
    let terminal = terminal();
    let mut done = done.iter().peekable();
    for (step, source) in &steps {
        if done.next_if_eq(step).is_none() {
            root.prepare(step, source)?;
        }
    }
    restrict(&root.base, MountRecursion::Below, READ_ONLY | NO_SUID | NO_DEV)
        .during(|| "seal the root".into())?;
    if wire.is_some() {
        // Whoever wants to write here is to be told of, by us and not by the kernel.
        mount::clear_attributes(root.base.as_fd(), READ_ONLY)
            .map_err(errno)
            .during(|| "seal the root".into())?;
    }
    let caches = mount_points::caches_in_bound_trees(steps.iter().map(|(step, _)| *step));
    for (step, source) in &steps {
        root.complete(step, source, terminal.as_ref())?;
        if let Step::Bind { path, .. } = step
            && let Some(caches) = caches.get(path)
        {
            root.add_mount_points(caches)?;
        }
    }
    root.leave_covers()?;
    mount::pivot_here().during(|| "pivot_root".into())?;
    mount::detach_here().during(|| "detach the host's root".into())?;
    rustix::process::chdir("/").during(|| "enter the new root".into())
}

/// What a step puts somewhere.
enum MountSource {
    /// Nothing, or the host no longer has it.
    Nothing,
    /// Something of the host, where it still stands when it is needed.
    There,
    /// A mount of its own.
    Mount(OwnedFd),
}

impl From<Option<OwnedFd>> for MountSource {
    fn from(mount: Option<OwnedFd>) -> Self {
        mount.map_or(MountSource::Nothing, MountSource::Mount)
    }
}

fn source(step: &Step, ground: &mut PreparedRoot) -> Result<MountSource, SetupError> {
    match step {
        Step::Bind { access: MountAccess::ReadOnly, .. } => Ok(MountSource::There),
        Step::Bind { path, access: MountAccess::ReadWrite, .. } => {
            let there =
                copy(path.as_path(), NO_SUID | NO_DEV).and_then(|tree| tree.ok_or(Errno::NOENT));
            there.map(MountSource::Mount).during(|| format!("bind {path}"))
        }
        Step::Private { path, store, beneath, beside } => {
            let made = match beneath {
                None => stored(store).map(MountSource::Mount),
                Some(beneath) => overlay(store, beneath, *beside).map(MountSource::Mount),
            };
            match made {
                // The store is another user's, over whom root has no power in here; or it is
                // not as we made it.
                Err(Errno::ACCESS | Errno::LOOP | Errno::NOTDIR) => {
                    ground.more_scratch().map(MountSource::Mount)
                }
                made => made.during(|| format!("mount {store} at {path}")),
            }
        }
        Step::Processes { .. } => Ok(ground.processes.take().into()),
        Step::Devices => Ok(ground.terminals.take().into()),
        Step::Scratch { .. } => match ground.scratch.pop() {
            Some(mount) => Ok(MountSource::Mount(mount)),
            None => ground.more_scratch().map(MountSource::Mount),
        },
        _ => Ok(MountSource::Nothing),
    }
}

/// A detached copy of what is mounted at `path`; `None` if nothing is there any more.
fn copy(path: &Path, flags: u64) -> rustix::io::Result<Option<OwnedFd>> {
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = match open_tree(CWD, path, how) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    if flags != 0 {
        restrict(&tree, MountRecursion::Below, flags)?;
    }
    Ok(Some(tree))
}

pub(super) fn restrict(
    tree: &OwnedFd,
    reach: MountRecursion,
    flags: u64,
) -> rustix::io::Result<()> {
    mount::set_attributes(tree.as_fd(), c"", reach, flags).map_err(errno)
}

fn restrict_at(directory: &OwnedFd, path: &CStr, flags: u64) -> rustix::io::Result<()> {
    mount::set_attributes(directory.as_fd(), path, MountRecursion::One, flags).map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Writes all of it.
fn fill(file: &OwnedFd, content: &str) -> rustix::io::Result<()> {
    let mut rest = content.as_bytes();
    while !rest.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::write(file, rest))?;
        rest = &rest[count..];
    }
    Ok(())
}

pub(super) fn make(
    kind: &str,
    options: &[(&str, &str)],
    set: &[&str],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    for name in set {
        fsconfig_set_flag(context.as_fd(), *name)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// A directory that stands where its name says, and not behind a link.
fn plain(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        at,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// What the project wrote at earlier times.
fn stored(store: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let upper = plain(plain(CWD, store.as_path())?, UPPER)?;
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&upper, "", how)?;
    restrict(&tree, MountRecursion::Below, NO_SUID | NO_DEV)?;
    Ok(tree)
}

/// The person's terminal, so that programs find a name for it: its own name lies in a
/// `devpts` that is not in here.
fn terminal() -> Option<OwnedFd> {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().find_map(
        |stream| {
            let name = rustix::termios::ttyname(stream, Vec::new()).ok()?;
            copy(Path::new(OsStr::from_bytes(name.to_bytes())), READ_ONLY | NO_SUID | NO_EXEC)
                .ok()?
        },
    )
}

struct RootBuilder {
    base: OwnedFd,
    /// Directories that are there and are ours.
    made: BTreeSet<AbsPath>,
    /// Trees of the host: nothing is ever made in them.
    bound: BTreeSet<AbsPath>,
    /// Those of them that are in no other, of which a path can be in one.
    outermost: BTreeSet<AbsPath>,
    /// Places that are writable, and may be made in after the root is sealed.
    writable: BTreeSet<AbsPath>,
    /// Caches: what the host has need not be there.
    private: BTreeSet<AbsPath>,
    mask: Option<OwnedFd>,
    /// What stands in for directories and files of ours, where the tripwire is the root.
    wired: Option<FuseRoot>,
}

impl RootBuilder {
    /// Everything that is read-only, and something to stand on for what is not.
    fn prepare(&mut self, step: &Step, source: &MountSource) -> Result<(), SetupError> {
        match step {
            Step::Symlink { path, .. }
            | Step::File { path, .. }
            | Step::Directory { path }
            | Step::Denied { path, .. }
            | Step::Passage { path } => {
                if self.is_late(path) {
                    Ok(())
                } else {
                    self.own(step)
                }
            }
            Step::Processes { .. } => self.directory(&here("/proc")),
            Step::Devices if self.wired.is_some() => self.stage_devices(),
            Step::Devices => self.device_nodes(),
            Step::Scratch { path } => {
                self.writable.insert(path.clone());
                self.directory(path)
            }
            Step::Bind { path, access: MountAccess::ReadOnly, kind } if !self.is_late(path) => {
                self.bind(path, *kind, source)
            }
            Step::Bind { path, kind, .. } => {
                self.bind_here(path);
                if self.is_late(path) { Ok(()) } else { self.stand_for(path, *kind) }
            }
            Step::Private { path, .. } => {
                self.private.insert(path.clone());
                if self.is_late(path) { Ok(()) } else { self.directory(path) }
            }
            Step::Cover { .. } | Step::Lookout { .. } => self.directory(&here(MASKS)),
            _ => Ok(()),
        }
    }

    /// Something that is ours alone.
    fn own(&mut self, step: &Step) -> Result<(), SetupError> {
        match step {
            Step::Symlink { path, target } => self.symlink(target, path),
            Step::File { path, content } => self.file(path, content),
            Step::Directory { path } => self.directory(path),
            Step::Denied { path, kind: FileKind::Directory } => {
                self.directory(path).and_then(|()| self.mode(path, 0))
            }
            Step::Denied { path, kind: FileKind::File } => {
                self.node(path).and_then(|()| self.mode(path, 0))
            }
            Step::Passage { path } => self.directory(path).and_then(|()| self.mode(path, 0o111)),
            _ => Ok(()),
        }
    }

    /// Whether a path lies in something that is mounted after the root is sealed.
    fn is_late(&self, path: &AbsPath) -> bool {
        self.writable.iter().any(|above| path.is_within(above))
            || self.is_below_bound(path)
            || self.is_in_cache(path)
    }

    /// Tells whether a private cache is the innermost tree around a path.
    fn is_in_cache(&self, path: &AbsPath) -> bool {
        let deepest = |roots: &BTreeSet<AbsPath>| {
            roots
                .iter()
                .filter(|root| path != *root && path.is_within(root))
                .map(AbsPath::depth)
                .max()
        };
        let cache = deepest(&self.private);
        cache.is_some() && cache > deepest(&self.bound)
    }

    /// What is writable, and covers.
    fn complete(
        &mut self,
        step: &Step,
        source: &MountSource,
        terminal: Option<&OwnedFd>,
    ) -> Result<(), SetupError> {
        match (step, source) {
            (
                Step::Symlink { path, .. }
                | Step::File { path, .. }
                | Step::Directory { path }
                | Step::Denied { path, .. }
                | Step::Passage { path },
                _,
            ) => {
                if self.is_late(path) {
                    self.own(step)
                } else {
                    Ok(())
                }
            }
            (Step::Devices, MountSource::Mount(terminals)) => self.devices(terminals, terminal),
            (Step::Processes { .. }, MountSource::Mount(mount)) => {
                self.attach(mount, &here("/proc"))
            }
            (
                Step::Scratch { path }
                | Step::Private { path, .. }
                | Step::Bind { path, access: MountAccess::ReadWrite, .. },
                MountSource::Mount(mount),
            ) => self.attach(mount, path),
            (Step::Bind { path, access: MountAccess::ReadOnly, .. }, _) if self.is_late(path) => {
                self.bind_late(path, source)
            }
            (Step::Instead { path, with }, _) => self.instead(path, with),
            (Step::Cover { path, cover: Overmount::Deny(kind) }, _) => self.deny(path, *kind),
            (Step::Cover { path, cover: Overmount::ReadOnly }, _) => {
                self.protect(path, MountRecursion::Below)
            }
            (Step::Cover { path, cover: Overmount::Shallow }, _) => {
                self.protect(path, MountRecursion::One)
            }
            _ => Ok(()),
        }
    }

    /// A read-only tree in our own root; the seal restricts it.
    fn bind(
        &mut self,
        path: &AbsPath,
        kind: FileKind,
        source: &MountSource,
    ) -> Result<(), SetupError> {
        match source {
            MountSource::Nothing => return Ok(()),
            MountSource::Mount(mount) => {
                self.stand_for(path, kind)?;
                self.attach(mount, path)?;
            }
            MountSource::There => {
                self.stand_for(path, kind)?;
                self.prime_above(path)?;
                match rustix::mount::mount_bind_recursive(path.as_path(), relative(path).as_c_str())
                {
                    // Gone meanwhile: what stands for it is empty.
                    Err(Errno::NOENT) => return Ok(()),
                    other => other.during(|| format!("bind {path}"))?,
                }
            }
        }
        self.bind_here(path);
        Ok(())
    }

    /// A read-only tree within a writable one.
    fn bind_late(&mut self, path: &AbsPath, source: &MountSource) -> Result<(), SetupError> {
        let copied;
        let mount = match source {
            MountSource::Nothing => return Ok(()),
            MountSource::Mount(mount) => mount,
            MountSource::There => {
                match copy(path.as_path(), 0).during(|| format!("bind {path}"))? {
                    Some(mount) => {
                        copied = mount;
                        &copied
                    }
                    None => return Ok(()),
                }
            }
        };
        restrict(mount, MountRecursion::Below, READ_ONLY | NO_SUID | NO_DEV)
            .during(|| format!("bind {path}"))?;
        self.attach(mount, path)
    }

    /// A directory or an empty file at `path`.
    fn stand_for(&mut self, path: &AbsPath, kind: FileKind) -> Result<(), SetupError> {
        match kind {
            FileKind::Directory => self.directory(path),
            FileKind::File => self.node(path),
        }
    }

    fn bind_here(&mut self, path: &AbsPath) {
        self.bound.insert(path.clone());
        if !self.is_bound(path) {
            self.outermost.retain(|below| !below.is_within(path));
            self.outermost.insert(path.clone());
        }
    }

    /// The outermost tree of the host that `path` is in, or is.
    fn host_tree(&self, path: &AbsPath) -> Option<&AbsPath> {
        // What stands below a directory follows it at once.
        self.outermost.range(..=path).next_back().filter(|above| path.is_within(above))
    }

    fn is_bound(&self, path: &AbsPath) -> bool {
        self.host_tree(path).is_some()
    }

    /// Whether `path` lies in something of the sandbox's own rather than of the host.
    fn is_own(&self, path: &AbsPath) -> bool {
        let deepest = |roots: &BTreeSet<AbsPath>| {
            roots.iter().filter(|root| path.is_within(root)).map(AbsPath::depth).max()
        };
        deepest(&self.private).max(deepest(&self.writable)) > deepest(&self.bound)
    }

    fn is_below_bound(&self, path: &AbsPath) -> bool {
        self.host_tree(path).is_some_and(|above| above != path)
    }

    /// Makes a directory and those above it, in our own root only.
    fn directory(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        if self.made.contains(path) || self.is_below_bound(path) || self.is_shown(path) {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.directory(&above)?;
        }
        match rustix::fs::mkdirat(&self.base, relative(path), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).during(|| format!("make {path}")),
        }
        self.made.insert(path.clone());
        Ok(())
    }

    fn above(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        path.parent().map_or(Ok(()), |above| self.directory(&above))
    }

    fn symlink(&mut self, target: &Path, path: &AbsPath) -> Result<(), SetupError> {
        if self.is_shown(path) {
            return Ok(());
        }
        self.above(path)?;
        match rustix::fs::symlinkat(target, &self.base, relative(path)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).during(|| format!("link {path}")),
        }
    }

    fn file(&mut self, path: &AbsPath, content: &str) -> Result<(), SetupError> {
        self.above(path)?;
        if self.is_bound(path) {
            return Ok(());
        }
        if self.is_shown(path) {
            return self.lay_over(path, content);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.base, relative(path), flags, Mode::from_raw_mode(0o644))
                .during(|| format!("write {path}"))?;
        fill(&file, content).during(|| format!("write {path}"))
    }

    /// A file of ours over one of the host's, if that is still there.
    fn instead(&mut self, path: &AbsPath, with: &AbsPath) -> Result<(), SetupError> {
        if self.find(path).during(|| format!("look at {path}"))?.is_none() {
            return Ok(());
        }
        let ours = self
            .find(with)
            .and_then(|ours| ours.ok_or(Errno::NOENT))
            .during(|| format!("look at {with}"))?;
        let how = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let copy = open_tree(&ours, "", how).during(|| format!("copy {with}"))?;
        restrict(&copy, MountRecursion::One, READ_ONLY | NO_SUID | NO_DEV)
            .during(|| format!("copy {with}"))?;
        self.attach(&copy, path)
    }

    /// An empty file.
    fn node(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        if self.is_shown(path) {
            return Ok(());
        }
        self.above(path)?;
        match rustix::fs::mknodat(
            &self.base,
            relative(path),
            rustix::fs::FileType::RegularFile,
            Mode::from_raw_mode(0o644),
            0,
        ) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).during(|| format!("make {path}")),
        }
    }

    fn mode(&self, path: &AbsPath, mode: u32) -> Result<(), SetupError> {
        if self.is_shown(path) {
            return Ok(());
        }
        rustix::fs::chmodat(&self.base, relative(path), Mode::from_raw_mode(mode), AtFlags::empty())
            .during(|| format!("deny {path}"))
    }

    /// What stands at `path` now, never through a link; `None` if nothing does.
    fn find(&self, path: &AbsPath) -> rustix::io::Result<Option<OwnedFd>> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(
            &self.base,
            relative(path),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            how,
        ) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn attach(&mut self, source: &OwnedFd, path: &AbsPath) -> Result<(), SetupError> {
        if self.writable.iter().any(|above| path != above && path.is_within(above))
            && !self.is_below_bound(path)
        {
            let status = rustix::fs::fstat(source).during(|| format!("look at {path}"))?;
            if rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir() {
                self.directory(path)?
            } else {
                self.node(path)?
            }
        }
        if self.is_in_cache(path) {
            return self.attach_in_cache(source, path);
        }
        self.prime_above(path)?;
        // Where the tree around it belongs to the host, what is not there stays away.
        match self.find(path).during(|| format!("find {path}"))? {
            Some(target) => put(source, &target).during(|| format!("mount {path}")),
            None => Ok(()),
        }
    }

    /// A file or directory of ours that nobody can open, over the one that is denied.
    fn deny(&mut self, path: &AbsPath, kind: FileKind) -> Result<(), SetupError> {
        let telling = self.next_cover(path)?;
        // It was there a moment ago: somebody moves things about, and may move them back.
        let Some(target) = self.find(path).during(|| format!("deny {path}"))? else {
            let need_not_be = path.is_within(&here("/proc")) || self.is_own(path);
            return if need_not_be {
                Ok(())
            } else {
                Err(SetupError {
                    what: format!("deny {path}, which moved meanwhile,"),
                    errno: libc::ESTALE,
                })
            };
        };
        let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        if let Some(node) = telling {
            match open_tree(&self.base, relative(&node), how).and_then(|node| put(&node, &target)) {
                Err(Errno::INVAL | Errno::NOTDIR) => {}
                covered => return covered.during(|| format!("deny {path}")),
            }
        }
        if self.mask.is_none() {
            let made = masks().during(|| "make the mask".into())?;
            self.attach(&made, &here(MASKS))?;
            self.mask = Some(made);
        }
        let mask = self.mask.as_ref().expect("made just above");
        let cover = |node: &str| open_tree(mask, node, how).and_then(|node| put(&node, &target));
        let (same, other) =
            if kind == FileKind::Directory { ("directory", "file") } else { ("file", "directory") };
        match cover(same) {
            // In a cache, something else may have taken the name before it was denied.
            Err(Errno::INVAL | Errno::NOTDIR) => cover(other),
            covered => covered,
        }
        .during(|| format!("deny {path}"))
    }

    /// The same thing over itself, read-only.
    fn protect(&mut self, path: &AbsPath, reach: MountRecursion) -> Result<(), SetupError> {
        let Some(target) = self.find(path).during(|| format!("protect {path}"))? else {
            return Ok(());
        };
        let how = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        open_tree(&target, "", how)
            .and_then(|tree| {
                restrict(&tree, reach, READ_ONLY | NO_SUID | NO_DEV)?;
                put(&tree, &target)
            })
            .during(|| format!("protect {path}"))
    }

    fn device_nodes(&mut self) -> Result<(), SetupError> {
        self.directory(&here("/dev/pts"))?;
        for name in DEVICES.iter().chain(&["console"]) {
            self.node(&here("/dev").join(name))?;
        }
        for (name, target) in DEVICE_LINKS {
            self.symlink(Path::new(target), &here("/dev").join(name))?;
        }
        Ok(())
    }

    fn devices(
        &mut self,
        terminals: &OwnedFd,
        terminal: Option<&OwnedFd>,
    ) -> Result<(), SetupError> {
        for name in DEVICES {
            let at = here("/dev").join(name);
            match rustix::mount::mount_bind(at.as_path(), relative(&at).as_c_str()) {
                // Read-only: the device can be written all the same, its mode cannot be changed.
                Ok(()) => restrict_at(&self.base, &relative(&at), READ_ONLY | NO_SUID | NO_EXEC)
                    .during(|| format!("bind {at}"))?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error).during(|| format!("bind {at}")),
            }
        }
        if let Some(terminal) = terminal {
            self.attach(terminal, &here("/dev/console"))?;
        }
        self.attach(terminals, &here("/dev/pts"))
    }
}

/// Devices that programs expect.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Names among them that lead elsewhere.
const DEVICE_LINKS: &[(&str, &str)] = &[
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// A file and a directory that nobody can open.
pub(super) fn masks() -> rustix::io::Result<OwnedFd> {
    let none = Mode::empty();
    let masks = make("tmpfs", &[("mode", "0"), ("size", "4k")], &[], MountAttrFlags::empty())?;
    rustix::fs::mkdirat(&masks, "directory", none)?;
    rustix::fs::openat(&masks, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, none)?;
    restrict(&masks, MountRecursion::One, READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)?;
    Ok(masks)
}

pub(super) fn put(source: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    move_mount(
        source,
        "",
        target,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

fn here(text: &str) -> AbsPath {
    AbsPath::new(text).expect("written here as an absolute path")
}

/// The path as seen from the new root.
fn relative(path: &AbsPath) -> CString {
    let below = path.as_path().strip_prefix("/").unwrap_or(path.as_path());
    let text = if below.as_os_str().is_empty() {
        b".".to_vec()
    } else {
        below.as_os_str().as_bytes().to_vec()
    };
    CString::new(text).expect("an absolute path holds no NUL")
}

/// Makes `/proc` read-only, where the plan says so: by the first process and at the last
/// moment, since its own ids are written there.
pub(super) fn quiet_processes(steps: &[Step]) -> Result<(), SetupError> {
    if !steps.contains(&Step::Processes { access: MountAccess::ReadOnly }) {
        return Ok(());
    }
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .during(|| "open the root".into())?;
    restrict_at(&root, c"proc", READ_ONLY).during(|| "make /proc read-only".into())
}
