//! Masks over denied and protected paths.

use std::os::fd::OwnedFd;

use ringfence_plan::FileKind;
use ringfence_policy::AbsPath;
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::{RootBuilder, abs, attach_mount, new_mount, relative, restrict_mount};
use crate::apply::{SetupError, SetupStep};
use crate::fuse_nodes::SILENT_MASK_DIR;

impl RootBuilder {
    /// Mounts a mask over a denied path.
    pub(super) fn deny(&mut self, path: &AbsPath, kind: FileKind) -> Result<(), SetupError> {
        let report_node = self.next_mask(path)?;
        // It existed a moment ago: a process on the host moves files, and may move them back.
        let Some(target) = self.find(path).during(|| format!("deny {path}"))? else {
            let may_be_absent = path.is_within(&abs("/proc")) || self.is_own(path);
            return if may_be_absent {
                Ok(())
            } else {
                Err(SetupError {
                    what: format!("deny {path} (it was moved meanwhile)"),
                    errno: libc::ESTALE,
                })
            };
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        if let Some(node) = report_node {
            match open_tree(&self.base, relative(&node), flags)
                .and_then(|node| attach_mount(&node, &target))
            {
                Err(Errno::INVAL | Errno::NOTDIR) => {}
                mounted => return mounted.during(|| format!("deny {path}")),
            }
        }
        if self.mask.is_none() {
            let created = new_masks().during("make the mask")?;
            self.attach(&created, &abs(SILENT_MASK_DIR))?;
            self.mask = Some(created);
        }
        let mask = self.mask.as_ref().expect("made just above");
        let mount =
            |node: &str| open_tree(mask, node, flags).and_then(|node| attach_mount(&node, &target));
        let (same, other) =
            if kind == FileKind::Directory { ("directory", "file") } else { ("file", "directory") };
        match mount(same) {
            // In a cache, an entry of another type may have taken the name before it was denied.
            Err(Errno::INVAL | Errno::NOTDIR) => mount(other),
            mounted => mounted,
        }
        .during(|| format!("deny {path}"))
    }

    /// Bind-mounts a path over itself, read-only.
    pub(super) fn protect(
        &mut self,
        path: &AbsPath,
        reach: MountRecursion,
    ) -> Result<(), SetupError> {
        let Some(target) = self.find(path).during(|| format!("protect {path}"))? else {
            return Ok(());
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        open_tree(&target, "", flags)
            .and_then(|tree| {
                restrict_mount(&tree, reach, READ_ONLY | NO_SUID | NO_DEV)?;
                attach_mount(&tree, &target)
            })
            .during(|| format!("protect {path}"))
    }
}

/// A tmpfs with a file and a directory that no process can open.
pub(in crate::apply) fn new_masks() -> rustix::io::Result<OwnedFd> {
    let none = Mode::empty();
    let masks = new_mount("tmpfs", &[("mode", "0"), ("size", "4k")], &[], MountAttrFlags::empty())?;
    rustix::fs::mkdirat(&masks, "directory", none)?;
    rustix::fs::openat(&masks, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, none)?;
    restrict_mount(&masks, MountRecursion::One, READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)?;
    Ok(masks)
}
