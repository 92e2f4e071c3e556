//! Renames of `config.lock` onto a protected config.
//!
//! Git changes a config by writing a lock file and renaming it. The config has a mask, so the
//! notify handler cannot rename onto it: it sends the lock file to the launcher, which compares
//! both files and replaces the config on the host.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use ringfence_api::{Denial, Operation};
use ringfence_policy::{Access, Decision, Source, Verdict};
use rustix::fs::{FileType, OFlags, RenameFlags};
use rustix::io::Errno;

use super::NotifyReply;
use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of, path_of_directory};
use super::execute::SyscallProxy;
use super::report::denial;
use super::resolve::{PathSuffix, ResolvedParent};
use crate::apply::config_change::{ConfigChangeInfo, STAGED_CONFIG};
use crate::apply::fd_passing::send_message_with_fds;
use crate::apply::{SandboxMessage, parked};
use crate::inode::inode_of;
use crate::open::{open, open_at};

/// Files that git replaces in this way.
const REPLACED: [&str; 3] = ["config", "config.worktree", ".gitmodules"];

/// A config change to be reported to the launcher.
pub(super) struct DeferredConfigChange {
    info: ConfigChangeInfo,
    directory: OwnedFd,
    lock: OwnedFd,
}

impl DeferredConfigChange {
    /// Sends the change to the launcher. Returns the reply to the calling program.
    pub(super) fn report(self, control: &OwnedFd) -> NotifyReply {
        let (errno, descriptors) =
            (self.info.call.errno, [self.directory.as_fd(), self.lock.as_fd()]);
        let is_sent = send_message_with_fds(
            control,
            &SandboxMessage::ConfigChange(Box::new(self.info)),
            &descriptors,
        );
        if is_sent { NotifyReply::Later } else { NotifyReply::Error(errno) }
    }
}

/// True if the name is reserved for a config that is about to replace another.
pub(super) fn is_staged(name: &OsStr) -> bool {
    let start = STAGED_CONFIG.as_bytes();
    name.as_bytes().get(..start.len()).is_some_and(|first| first.eq_ignore_ascii_case(start))
}

impl CreationRules {
    /// The decision against replacing the config at `target` with its lock file `source`, if a
    /// built-in protect rule is the only obstacle.
    fn config_decision(
        &self,
        caller: &NotifyCaller<'_>,
        source: &ResolvedParent,
        target: &ResolvedParent,
    ) -> Result<Option<Decision>, Errno> {
        let lock =
            |name: &&str| source.name.as_bytes().strip_suffix(b".lock") == Some(name.as_bytes());
        let is_lock = REPLACED.iter().any(|name| target.name == *name && lock(name));
        let is_plain = source.end == PathSuffix::Plain && target.end == PathSuffix::Plain;
        if !is_lock || !is_plain || inode_of(&source.directory)? != inode_of(&target.directory)? {
            return Ok(None);
        }
        let decision = self.creation_decision(caller, target)?;
        let is_built_in =
            decision.rule.as_ref().is_some_and(|rule| rule.origin().source == Source::BuiltIn)
                && self.grants.is_protected_only_by_built_ins(&decision.path);
        let is_protected =
            decision.verdict == Verdict::ReadOnly && self.is_protected(&decision, target)?;
        Ok((is_built_in && is_protected).then_some(decision))
    }

    /// The decision that protects a file by its name, so that no command may link it to another
    /// name.
    pub(super) fn protecting_decision(
        &self,
        host_proc: BorrowedFd<'_>,
        file: &OwnedFd,
    ) -> Option<Decision> {
        let path = path_of_directory(host_proc, file.as_fd()).ok()?;
        let (directory, name) = (path.parent()?, path.name()?);
        let decision = self.decide(&path, Access::Write);
        if is_staged(name) {
            return Some(decision);
        }
        if !self.name_could_matter(name) || decision.verdict != Verdict::ReadOnly {
            return None;
        }
        let directory = open(directory.as_path(), OFlags::PATH | OFlags::DIRECTORY).ok()?;
        let place = ResolvedParent { directory, name: name.to_owned(), end: PathSuffix::Plain };
        self.is_protected(&decision, &place).unwrap_or(false).then_some(decision)
    }
}

impl SyscallProxy<'_, '_> {
    /// Sends the lock file of a protected config to the launcher; `None` if the rename is about
    /// another file.
    pub(super) fn replace_config(
        &mut self,
        source: &ResolvedParent,
        target: &ResolvedParent,
        flags: RenameFlags,
    ) -> Result<Option<NotifyReply>, Errno> {
        if !flags.is_empty() {
            return Ok(None);
        }
        let Some(decision) = self.rules.config_decision(self.caller, source, target)? else {
            return Ok(None);
        };
        let lock = match open_at(
            &source.directory,
            source.name.as_os_str(),
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        ) {
            Err(Errno::NOENT) => return Err(Errno::NOENT),
            lock => lock.ok().filter(is_lone_file),
        };
        let Some(lock) = lock else {
            self.rules.refuse(self.caller, Operation::Rename, &decision);
            return Err(Errno::ACCESS);
        };
        let (rule, origin, explicit) = Denial::rule_from_decision(&decision);
        let path = path_of(self.caller, target)?;
        let because = (rule, origin);
        let denial = denial(
            self.caller,
            Operation::Rename,
            path.to_string_lossy().into_owned(),
            because,
            explicit,
        );
        let notification = self.caller.notification;
        let call = parked::NotificationInfo {
            id: notification.id,
            pid: notification.pid,
            errno: libc::EACCES,
        };
        let directory = rustix::io::fcntl_dupfd_cloexec(&target.directory, 3)?;
        self.rules.deferred_config = Some(DeferredConfigChange {
            info: ConfigChangeInfo { call, path, denial },
            directory,
            lock,
        });
        Ok(Some(NotifyReply::Later))
    }
}

/// True if it is a regular file with one name, as git creates it.
fn is_lone_file(file: &OwnedFd) -> bool {
    let status = rustix::fs::fstat(file);
    status.is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_nlink == 1
    })
}
