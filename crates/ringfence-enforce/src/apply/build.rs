//! Building the root: mounts are made detached, then put where they belong.
//!
//! Everything is made in the warden's mount namespace. The command's own is a copy of it
//! that belongs to a lesser user namespace, so that none of this can be undone inside.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_policy::AbsPath;
use ringfence_sys::mount::{self, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, Reach};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::{During, Fault};
use crate::plan::{Access, Cover, Kind, Plan, Step};

/// Builds the root that `plan` describes and makes it the root of this process.
pub(super) fn build(plan: &Plan) -> Result<(), Fault> {
    let sources = plan.steps.iter().map(source).collect::<Result<Vec<_>, _>>()?;
    let terminal = terminal();
    let base = base()?;
    let mut root = Root { base, made: BTreeSet::from([AbsPath::root()]), bound: BTreeSet::new(), mask: None };
    for (step, source) in plan.steps.iter().zip(sources) {
        root.step(step, source, terminal.as_ref())?;
    }
    rustix::process::fchdir(&root.base).during(|| "enter the new root".into())?;
    mount::pivot_here().during(|| "pivot_root".into())?;
    mount::detach_here().during(|| "detach the host's root".into())?;
    rustix::process::chdir("/").during(|| "enter the new root".into())
}

/// The mount a step will put somewhere; `None` where it needs none or the host no longer has it.
fn source(step: &Step) -> Result<Option<OwnedFd>, Fault> {
    match step {
        Step::Bind { path, access } => {
            let flags = if *access == Access::ReadOnly { READ_ONLY } else { 0 };
            copy(path.as_path(), Reach::Below, flags | NO_SUID | NO_DEV).during(|| format!("bind {path}"))
        }
        Step::Private { path, store, beneath: None } => {
            copy(store.as_path(), Reach::Below, NO_SUID | NO_DEV).during(|| format!("bind {store} for {path}"))
        }
        Step::Private { path, store, beneath: Some(beneath) } => {
            overlay(store, beneath).map(Some).during(|| format!("mount an overlay at {path}"))
        }
        Step::Processes => {
            make("proc", &[], &[], MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                .map(Some)
                .during(|| "mount /proc".into())
        }
        Step::Scratch { path } => {
            make("tmpfs", &[("mode", "1777")], &[], MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
                .map(Some)
                .during(|| format!("mount {path}"))
        }
        Step::Devices => {
            make("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], &["newinstance"], MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                .map(Some)
                .during(|| "mount /dev/pts".into())
        }
        _ => Ok(None),
    }
}

/// A detached copy of what is mounted at `path`; `None` if nothing is there any more.
fn copy(path: &Path, reach: Reach, flags: u64) -> rustix::io::Result<Option<OwnedFd>> {
    let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = match open_tree(CWD, path, how) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    restrict(&tree, reach, flags)?;
    Ok(Some(tree))
}

fn restrict(tree: &OwnedFd, reach: Reach, flags: u64) -> rustix::io::Result<()> {
    mount::set_attributes(tree.as_fd(), c"", reach, flags)
        .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}

fn make(kind: &str, options: &[(&str, &str)], set: &[&str], flags: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
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

/// The host's directory underneath, the project's own writes above.
fn overlay(store: &AbsPath, beneath: &AbsPath) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // `lowerdir` takes a list: a colon in the path must not become two.
    let lower = beneath.as_path().as_os_str().as_bytes().iter().fold(Vec::new(), |mut text, byte| {
        if matches!(byte, b':' | b'\\' | b',') {
            text.push(b'\\');
        }
        text.push(*byte);
        text
    });
    fsconfig_set_string(context.as_fd(), "lowerdir", OsStr::from_bytes(&lower))?;
    fsconfig_set_string(context.as_fd(), "upperdir", store.join("upper").as_path())?;
    fsconfig_set_string(context.as_fd(), "workdir", store.join("work").as_path())?;
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// The person's terminal, so that programs find a name for it: its own name lies in a
/// `devpts` that is not in here.
fn terminal() -> Option<OwnedFd> {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().find_map(|stream| {
        let name = rustix::termios::ttyname(stream, Vec::new()).ok()?;
        copy(Path::new(OsStr::from_bytes(name.to_bytes())), Reach::One, NO_SUID | NO_EXEC).ok()?
    })
}

/// An empty root, put over a directory that every host has.
fn base() -> Result<OwnedFd, Fault> {
    let root = make("tmpfs", &[("mode", "0755"), ("size", "64m")], &[], MountAttrFlags::empty()).during(|| "mount the new root".into())?;
    let place = ["/tmp", "/var", "/run", "/mnt", "/usr"]
        .into_iter()
        .find(|place| Path::new(place).is_dir())
        .ok_or_else(|| Fault { what: "find a place for the new root".into(), errno: libc::ENOENT })?;
    move_mount(&root, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).during(|| format!("mount the new root at {place}"))?;
    Ok(root)
}

struct Root {
    base: OwnedFd,
    /// Directories that are there and are ours.
    made: BTreeSet<AbsPath>,
    /// Trees of the host: nothing is ever made in them.
    bound: BTreeSet<AbsPath>,
    mask: Option<OwnedFd>,
}

impl Root {
    fn step(&mut self, step: &Step, source: Option<OwnedFd>, terminal: Option<&OwnedFd>) -> Result<(), Fault> {
        match step {
            Step::Symlink { path, target } => self.symlink(target, path),
            Step::File { path, content } => self.file(path, content),
            Step::Directory { path } => self.directory(path),
            Step::Bind { path, .. } => match source {
                Some(source) => {
                    self.attach(&source, path)?;
                    self.bound.insert(path.clone());
                    Ok(())
                }
                None => Ok(()),
            },
            Step::Private { path, .. } | Step::Scratch { path } => match source {
                Some(source) => self.attach(&source, path),
                None => Ok(()),
            },
            Step::Processes => match source {
                Some(source) => self.attach(&source, &here("/proc")),
                None => Ok(()),
            },
            Step::Devices => self.devices(source, terminal),
            Step::Cover { path, cover: Cover::Deny(kind) } => self.deny(path, *kind),
            Step::Cover { path, cover: Cover::ReadOnly } => self.protect(path),
            Step::Denied { path, kind: Kind::Directory } => self.directory(path).and_then(|()| self.mode(path, 0)),
            Step::Denied { path, kind: Kind::File } => self.file(path, "").and_then(|()| self.mode(path, 0)),
            Step::Passage { path } => self.directory(path).and_then(|()| self.mode(path, 0o111)),
            Step::Seal => restrict(&self.base, Reach::One, READ_ONLY | NO_SUID | NO_DEV).during(|| "seal the root".into()),
            Step::Namespaces { .. } | Step::Identity(_) | Step::Lock | Step::Landlock { .. } | Step::Guards(_) | Step::Seccomp => Ok(()),
        }
    }

    fn is_bound(&self, path: &AbsPath) -> bool {
        path.ancestors().any(|above| self.bound.contains(&above))
    }

    /// Makes a directory and those above it, in our own root only.
    fn directory(&mut self, path: &AbsPath) -> Result<(), Fault> {
        if self.made.contains(path) || self.is_bound(path) {
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

    fn above(&mut self, path: &AbsPath) -> Result<(), Fault> {
        path.parent().map_or(Ok(()), |above| self.directory(&above))
    }

    fn symlink(&mut self, target: &Path, path: &AbsPath) -> Result<(), Fault> {
        self.above(path)?;
        match rustix::fs::symlinkat(target, &self.base, relative(path)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).during(|| format!("link {path}")),
        }
    }

    fn file(&mut self, path: &AbsPath, content: &str) -> Result<(), Fault> {
        self.above(path)?;
        if self.is_bound(path) {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.base, relative(path), flags, Mode::from_raw_mode(0o644)).during(|| format!("write {path}"))?;
        rustix::io::write(&file, content.as_bytes()).during(|| format!("write {path}")).map(drop)
    }

    fn mode(&self, path: &AbsPath, mode: u32) -> Result<(), Fault> {
        rustix::fs::chmodat(&self.base, relative(path), Mode::from_raw_mode(mode), AtFlags::empty()).during(|| format!("deny {path}"))
    }

    /// What stands at `path` now, never through a link; `None` if nothing does.
    fn find(&self, path: &AbsPath) -> rustix::io::Result<Option<OwnedFd>> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&self.base, relative(path), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), how) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn attach(&mut self, source: &OwnedFd, path: &AbsPath) -> Result<(), Fault> {
        let status = rustix::fs::fstat(source).during(|| format!("look at {path}"))?;
        let is_directory = rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir();
        if !self.is_bound(path) {
            if is_directory { self.directory(path)? } else { self.file(path, "")? }
        }
        // Where the tree around it belongs to the host, what is not there stays away.
        if let Some(target) = self.find(path).during(|| format!("find {path}"))? {
            put(source, &target).during(|| format!("mount {path}"))?;
        }
        Ok(())
    }

    /// A file or directory of ours that nobody can open, over the one that is denied.
    fn deny(&mut self, path: &AbsPath, kind: Kind) -> Result<(), Fault> {
        if self.mask.is_none() {
            self.mask = Some(self.masks()?);
        }
        let Some(target) = self.find(path).during(|| format!("deny {path}"))? else { return Ok(()) };
        let mask = self.mask.as_ref().expect("made just above");
        let node = if kind == Kind::Directory { "directory" } else { "file" };
        let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(mask, node, how).and_then(|node| put(&node, &target)).during(|| format!("deny {path}"))
    }

    fn masks(&mut self) -> Result<OwnedFd, Fault> {
        let at = here("/run/ringfence");
        let made = || -> rustix::io::Result<OwnedFd> {
            let none = Mode::empty();
            let mask = make("tmpfs", &[("mode", "0"), ("size", "4k")], &[], MountAttrFlags::empty())?;
            rustix::fs::mkdirat(&mask, "directory", none)?;
            rustix::fs::openat(&mask, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, none)?;
            restrict(&mask, Reach::One, READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)?;
            Ok(mask)
        };
        let mask = made().during(|| "make the mask".into())?;
        self.attach(&mask, &at)?;
        Ok(mask)
    }

    /// The same thing over itself, read-only.
    fn protect(&mut self, path: &AbsPath) -> Result<(), Fault> {
        let Some(target) = self.find(path).during(|| format!("protect {path}"))? else { return Ok(()) };
        let how = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        open_tree(&target, "", how)
            .and_then(|tree| {
                restrict(&tree, Reach::Below, READ_ONLY | NO_SUID | NO_DEV)?;
                put(&tree, &target)
            })
            .during(|| format!("protect {path}"))
    }

    fn devices(&mut self, terminals: Option<OwnedFd>, terminal: Option<&OwnedFd>) -> Result<(), Fault> {
        self.directory(&here("/dev"))?;
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let at = here("/dev").join(name);
            if let Some(device) = copy(at.as_path(), Reach::One, NO_SUID | NO_EXEC).during(|| format!("bind {at}"))? {
                self.attach(&device, &at)?;
            }
        }
        if let Some(terminal) = terminal {
            self.attach(terminal, &here("/dev/console"))?;
        }
        if let Some(terminals) = terminals {
            self.attach(&terminals, &here("/dev/pts"))?;
        }
        for (name, target) in [("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")] {
            self.symlink(Path::new(target), &here("/dev").join(name))?;
        }
        Ok(())
    }
}

fn put(source: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    move_mount(source, "", target, "", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
}

fn here(text: &str) -> AbsPath {
    AbsPath::new(text).expect("written here as an absolute path")
}

/// The path as seen from the new root.
fn relative(path: &AbsPath) -> CString {
    let below = path.as_path().strip_prefix("/").unwrap_or(path.as_path());
    let text = if below.as_os_str().is_empty() { b".".to_vec() } else { below.as_os_str().as_bytes().to_vec() };
    CString::new(text).expect("an absolute path holds no NUL")
}
