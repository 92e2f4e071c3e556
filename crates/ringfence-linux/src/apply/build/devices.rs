//! The devices in `/dev`.

use std::os::fd::OwnedFd;
use std::path::Path;

use ringfence_sys::mount::{NO_EXEC, NO_SUID, READ_ONLY};
use rustix::io::Errno;

use super::{RootBuilder, abs, relative, restrict_at};
use crate::apply::{SetupError, SetupStep};

impl RootBuilder {
    pub(super) fn device_nodes(&mut self) -> Result<(), SetupError> {
        self.directory(&abs("/dev/pts"))?;
        for name in DEVICES.iter().chain(&["console"]) {
            self.node(&abs("/dev").join(name))?;
        }
        for (name, target) in DEVICE_LINKS {
            self.symlink(Path::new(target), &abs("/dev").join(name))?;
        }
        Ok(())
    }

    pub(super) fn devices(
        &mut self,
        terminals: &OwnedFd,
        terminal: Option<&OwnedFd>,
    ) -> Result<(), SetupError> {
        for name in DEVICES {
            let at = abs("/dev").join(name);
            match rustix::mount::mount_bind(at.as_path(), relative(&at).as_c_str()) {
                // Read-only: the device is still writable, but its mode cannot be changed.
                Ok(()) => restrict_at(&self.base, &relative(&at), READ_ONLY | NO_SUID | NO_EXEC)
                    .during(|| format!("bind {at}"))?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error).during(|| format!("bind {at}")),
            }
        }
        if let Some(terminal) = terminal {
            self.attach(terminal, &abs("/dev/console"))?;
        }
        self.attach(terminals, &abs("/dev/pts"))
    }
}

/// Devices that programs expect.
pub(super) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Symlinks in `/dev`.
pub(super) const DEVICE_LINKS: &[(&str, &str)] = &[
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
