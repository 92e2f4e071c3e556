//! Builds the root: creates detached mounts, then attaches them.
//!
//! Everything is created in the supervisor's mount namespace. The command's own is a copy of it
//! that belongs to a less privileged user namespace, so that none of this can be undone inside.

mod caches;
mod devices;
mod fuse_root;
mod masks;
mod mount_points;
mod overlay;
mod prepared_root;
mod trees;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_plan::{FileKind, MountAccess, Overmount, Step, UPPER};
use ringfence_policy::{AbsPath, Limit};
use ringfence_sys::mount::{self, MountRecursion, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::{LaunchSpec, SetupError, SetupStep};
use crate::fuse_nodes::SILENT_MASK_DIR;
use crate::open::{open, open_at};
use fuse_root::FuseRoot;
pub(super) use masks::new_masks;
use overlay::overlay;
pub(super) use prepared_root::PreparedRoot;
use tracing::trace_span;

/// Builds the root that the plan describes and makes it the root of this process.
///
/// Read-only mounts come first and are restricted all at once, which seals the root as well;
/// writable mounts and devices are attached on top of that.
pub(super) fn build(
    launch: &LaunchSpec,
    mut prepared: PreparedRoot,
    wire: Option<OwnedFd>,
) -> Result<(), SetupError> {
    let _stage = trace_span!(target: "stage", "build").entered();
    let steps = &launch.plan.steps;
    if let Some(most) = launch.plan.limit(Limit::Memory) {
        prepared.limit(most);
    }
    // Without the tripwire, plain masks deny the same paths, but nothing is reported.
    let wire = wire.filter(|_| steps.contains(&Step::Tripwire));
    let (mut root, done) = prepared.root_for(wire.as_ref(), steps)?;
    prepared.move_off_needed(&root, steps)?;
    let steps: Vec<(&Step, MountSource)> = steps
        .iter()
        .map(|step| Ok((step, source_of(step, &mut prepared)?)))
        .collect::<Result<_, SetupError>>()?;
    let terminal = terminal();
    let mut done = done.iter().peekable();
    for (step, source) in &steps {
        if done.next_if_eq(step).is_none() {
            root.prepare(step, source)?;
        }
    }
    restrict_mount(&root.base, MountRecursion::Below, READ_ONLY | NO_SUID | NO_DEV)
        .during("seal the root")?;
    if wire.is_some() {
        // Ringfence reports attempts to write here, so the kernel must not reject them first.
        mount::clear_attributes(root.base.as_fd(), READ_ONLY)
            .map_err(errno)
            .during("seal the root")?;
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
    root.mount_masks()?;
    mount::pivot_here().during("pivot_root")?;
    mount::detach_here().during("detach the host's root")?;
    rustix::process::chdir("/").during("enter the new root")
}

/// The source of a step's mount.
enum MountSource {
    /// No mount, or the source is gone from the host.
    Nothing,
    /// A path of the host, resolved when it is mounted.
    There,
    /// A detached mount.
    Mount(OwnedFd),
}

impl From<Option<OwnedFd>> for MountSource {
    fn from(mount: Option<OwnedFd>) -> Self {
        mount.map_or(MountSource::Nothing, MountSource::Mount)
    }
}

fn source_of(step: &Step, prepared: &mut PreparedRoot) -> Result<MountSource, SetupError> {
    match step {
        Step::Bind { access: MountAccess::ReadOnly, .. } => Ok(MountSource::There),
        Step::Bind { path, access: MountAccess::ReadWrite, .. } => {
            let there =
                copy(path.as_path(), NO_SUID | NO_DEV).and_then(|tree| tree.ok_or(Errno::NOENT));
            there.map(MountSource::Mount).during(|| format!("bind {path}"))
        }
        Step::Private { path, store, beneath, beside } => {
            let created = match beneath {
                None => open_store(store).map(MountSource::Mount),
                Some(beneath) => overlay(store, beneath, *beside).map(MountSource::Mount),
            };
            match created {
                // The store belongs to another user, over whom root has no power in here; or it was
                // changed.
                Err(Errno::ACCESS | Errno::LOOP | Errno::NOTDIR) => {
                    prepared.more_scratch().map(MountSource::Mount)
                }
                created => created.during(|| format!("mount {store} at {path}")),
            }
        }
        Step::Processes { .. } => Ok(prepared.processes.take().into()),
        Step::Devices => Ok(prepared.terminals.take().into()),
        Step::Scratch { .. } => match prepared.scratch.pop() {
            Some(mount) => Ok(MountSource::Mount(mount)),
            None => prepared.more_scratch().map(MountSource::Mount),
        },
        _ => Ok(MountSource::Nothing),
    }
}

/// A detached copy of the mounts at `path`; `None` if the path is gone.
fn copy(path: &Path, flags: u64) -> rustix::io::Result<Option<OwnedFd>> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = match open_tree(CWD, path, clone) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    if flags != 0 {
        restrict_mount(&tree, MountRecursion::Below, flags)?;
    }
    Ok(Some(tree))
}

pub(super) fn restrict_mount(
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

/// Writes the whole content.
fn write_all_to(file: &OwnedFd, content: &str) -> rustix::io::Result<()> {
    let mut rest = content.as_bytes();
    while !rest.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::write(file, rest))?;
        rest = &rest[count..];
    }
    Ok(())
}

pub(super) fn new_mount(
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

/// Opens a directory without following a symlink at the last component.
fn open_dir_nofollow(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    open_at(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

/// Opens the cache contents from earlier runs of the project.
fn open_store(store: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let upper = open_dir_nofollow(open_dir_nofollow(CWD, store.as_path())?, UPPER)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&upper, "", flags)?;
    restrict_mount(&tree, MountRecursion::Below, NO_SUID | NO_DEV)?;
    Ok(tree)
}

/// The user's terminal, so that programs find a name for it: its own name lies in a `devpts` that
/// is not in the sandbox.
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
    /// Directories of ours that exist.
    created: BTreeSet<AbsPath>,
    /// Trees of the host: nothing is ever created in them.
    bound: BTreeSet<AbsPath>,
    /// Those bound trees that lie in no other: a path can be in at most one.
    outermost: BTreeSet<AbsPath>,
    /// Writable directories, in which files may be created after the root is sealed.
    writable: BTreeSet<AbsPath>,
    /// Private caches: the host may lack the directory.
    private: BTreeSet<AbsPath>,
    mask: Option<OwnedFd>,
    /// Replacements for our own directories and files, if the tripwire is the root.
    wired: Option<FuseRoot>,
}

impl RootBuilder {
    /// Attaches everything read-only, and creates mount points for the rest.
    fn prepare(&mut self, step: &Step, source: &MountSource) -> Result<(), SetupError> {
        match step {
            Step::Symlink { path, .. }
            | Step::File { path, .. }
            | Step::Directory { path }
            | Step::Denied { path, .. }
            | Step::Passage { path } => {
                if self.is_mounted_late(path) {
                    Ok(())
                } else {
                    self.create_own(step)
                }
            }
            Step::Processes { .. } => self.directory(&abs("/proc")),
            Step::Devices if self.wired.is_some() => self.stage_devices(),
            Step::Devices => self.device_nodes(),
            Step::Scratch { path } => {
                self.writable.insert(path.clone());
                self.directory(path)
            }
            Step::Bind { path, access: MountAccess::ReadOnly, kind }
                if !self.is_mounted_late(path) =>
            {
                self.bind(path, *kind, source)
            }
            Step::Bind { path, kind, .. } => {
                self.note_bound(path);
                if self.is_mounted_late(path) {
                    Ok(())
                } else {
                    self.create_mount_point(path, *kind)
                }
            }
            Step::Private { path, .. } => {
                self.private.insert(path.clone());
                if self.is_mounted_late(path) { Ok(()) } else { self.directory(path) }
            }
            Step::Mask { .. } | Step::Watcher { .. } => self.directory(&abs(SILENT_MASK_DIR)),
            _ => Ok(()),
        }
    }

    /// Creates a file or directory of the sandbox's own.
    fn create_own(&mut self, step: &Step) -> Result<(), SetupError> {
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

    /// Attaches everything writable, and the masks.
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
                if self.is_mounted_late(path) {
                    self.create_own(step)
                } else {
                    Ok(())
                }
            }
            (Step::Devices, MountSource::Mount(terminals)) => self.devices(terminals, terminal),
            (Step::Processes { .. }, MountSource::Mount(mount)) => {
                self.attach(mount, &abs("/proc"))
            }
            (
                Step::Scratch { path }
                | Step::Private { path, .. }
                | Step::Bind { path, access: MountAccess::ReadWrite, .. },
                MountSource::Mount(mount),
            ) => self.attach(mount, path),
            (Step::Bind { path, access: MountAccess::ReadOnly, .. }, _)
                if self.is_mounted_late(path) =>
            {
                self.bind_late(path, source)
            }
            (Step::Instead { path, with }, _) => self.mount_over(path, with),
            (Step::Mask { path, mask: Overmount::Deny(kind) }, _) => self.deny(path, *kind),
            (Step::Mask { path, mask: Overmount::ReadOnly }, _) => {
                self.protect(path, MountRecursion::Below)
            }
            (Step::Mask { path, mask: Overmount::Shallow }, _) => {
                self.protect(path, MountRecursion::One)
            }
            _ => Ok(()),
        }
    }

    /// Binds a read-only tree in our own root; the seal restricts it.
    fn bind(
        &mut self,
        path: &AbsPath,
        kind: FileKind,
        source: &MountSource,
    ) -> Result<(), SetupError> {
        match source {
            MountSource::Nothing => return Ok(()),
            MountSource::Mount(mount) => {
                self.create_mount_point(path, kind)?;
                self.attach(mount, path)?;
            }
            MountSource::There => {
                self.create_mount_point(path, kind)?;
                self.read_names_above(path)?;
                match rustix::mount::mount_bind_recursive(path.as_path(), relative(path).as_c_str())
                {
                    // Gone meanwhile: the mount point stays empty.
                    Err(Errno::NOENT) => return Ok(()),
                    other => other.during(|| format!("bind {path}"))?,
                }
            }
        }
        self.note_bound(path);
        Ok(())
    }

    /// Binds a read-only tree within a writable one.
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
        restrict_mount(mount, MountRecursion::Below, READ_ONLY | NO_SUID | NO_DEV)
            .during(|| format!("bind {path}"))?;
        self.attach(mount, path)
    }

    /// Creates a mount point at `path`.
    fn create_mount_point(&mut self, path: &AbsPath, kind: FileKind) -> Result<(), SetupError> {
        match kind {
            FileKind::Directory => self.directory(path),
            FileKind::File => self.node(path),
        }
    }

    /// Creates a directory and its parents, in our own root only.
    fn directory(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        if self.created.contains(path) || self.is_below_bound(path) || self.is_shown(path) {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.directory(&above)?;
        }
        match rustix::fs::mkdirat(&self.base, relative(path), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).during(|| format!("make {path}")),
        }
        self.created.insert(path.clone());
        Ok(())
    }

    fn create_parent(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        path.parent().map_or(Ok(()), |above| self.directory(&above))
    }

    fn symlink(&mut self, target: &Path, path: &AbsPath) -> Result<(), SetupError> {
        if self.is_shown(path) {
            return Ok(());
        }
        self.create_parent(path)?;
        match rustix::fs::symlinkat(target, &self.base, relative(path)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).during(|| format!("link {path}")),
        }
    }

    fn file(&mut self, path: &AbsPath, content: &str) -> Result<(), SetupError> {
        self.create_parent(path)?;
        if self.is_bound(path) {
            return Ok(());
        }
        if self.is_shown(path) {
            return self.mount_file(path, content);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.base, relative(path), flags, Mode::from_raw_mode(0o644))
                .during(|| format!("write {path}"))?;
        write_all_to(&file, content).during(|| format!("write {path}"))
    }

    /// Mounts a file of ours over a file of the host, if that still exists.
    fn mount_over(&mut self, path: &AbsPath, with: &AbsPath) -> Result<(), SetupError> {
        if self.find(path).during(|| format!("look at {path}"))?.is_none() {
            return Ok(());
        }
        let ours = self
            .find(with)
            .and_then(|ours| ours.ok_or(Errno::NOENT))
            .during(|| format!("look at {with}"))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let copy = open_tree(&ours, "", flags).during(|| format!("copy {with}"))?;
        restrict_mount(&copy, MountRecursion::One, READ_ONLY | NO_SUID | NO_DEV)
            .during(|| format!("copy {with}"))?;
        self.attach(&copy, path)
    }

    /// Creates an empty file.
    fn node(&mut self, path: &AbsPath) -> Result<(), SetupError> {
        if self.is_shown(path) {
            return Ok(());
        }
        self.create_parent(path)?;
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

    /// Opens the file at `path` without following symlinks; `None` if it is absent.
    fn find(&self, path: &AbsPath) -> rustix::io::Result<Option<OwnedFd>> {
        let flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(
            &self.base,
            relative(path),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            flags,
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
        self.read_names_above(path)?;
        // In a tree of the host, an absent mount point is skipped.
        match self.find(path).during(|| format!("find {path}"))? {
            Some(target) => attach_mount(source, &target).during(|| format!("mount {path}")),
            None => Ok(()),
        }
    }
}

pub(super) fn attach_mount(source: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    move_mount(
        source,
        "",
        target,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

fn abs(text: &str) -> AbsPath {
    AbsPath::new(text).expect("written here as an absolute path")
}

/// The path relative to the new root.
fn relative(path: &AbsPath) -> CString {
    let below = path.as_path().strip_prefix("/").unwrap_or(path.as_path());
    let text = if below.as_os_str().is_empty() {
        b".".to_vec()
    } else {
        below.as_os_str().as_bytes().to_vec()
    };
    CString::new(text).expect("an absolute path holds no NUL")
}

/// Makes `/proc` read-only, if the plan says so. Init does it last, since it writes its own id maps
/// there.
pub(super) fn make_proc_read_only(steps: &[Step]) -> Result<(), SetupError> {
    if !steps.contains(&Step::Processes { access: MountAccess::ReadOnly }) {
        return Ok(());
    }
    let root = open("/", OFlags::PATH).during("open the root")?;
    restrict_at(&root, c"proc", READ_ONLY).during("make /proc read-only")
}
