//! Other paths at which the host has mounted the same files.
//!
//! A mask covers one path. A denied directory that is bind-mounted into a granted tree has a second
//! path there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_policy::AbsPath;

/// The mounts of the host.
#[derive(Default)]
pub(crate) struct HostMounts {
    mounts: Vec<Mount>,
}

struct Mount {
    /// Device of the file system, as `major:minor`.
    device: Vec<u8>,
    /// The mounted directory of the file system.
    root: PathBuf,
    point: AbsPath,
}

impl HostMounts {
    pub(crate) fn read() -> Self {
        fs::read("/proc/self/mountinfo").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &[u8]) -> Self {
        let mounts = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = fields.next()?.to_vec();
            let root = PathBuf::from(OsStr::from_bytes(&unescape(fields.next()?)));
            let point = AbsPath::new(OsStr::from_bytes(&unescape(fields.next()?)))?;
            Some(Mount { device, root, point })
        });
        Self { mounts: mounts.collect() }
    }

    /// Mounts of file systems with more than one mount that `matters`.
    pub(crate) fn with_several_mounts(self, matters: impl Fn(&AbsPath) -> bool) -> Self {
        let mounts: Vec<Mount> =
            self.mounts.into_iter().filter(|mount| matters(&mount.point)).collect();
        let count = |device: &[u8]| mounts.iter().filter(|mount| mount.device == device).count();
        let is_doubled: Vec<bool> = mounts.iter().map(|mount| count(&mount.device) > 1).collect();
        Self {
            mounts: mounts
                .into_iter()
                .zip(is_doubled)
                .filter(|(_, is_doubled)| *is_doubled)
                .map(|(mount, _)| mount)
                .collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.mounts.is_empty()
    }

    /// Other paths at which `path`, or a part of it, is mounted.
    pub(crate) fn find_aliases(&self, path: &AbsPath) -> Vec<AbsPath> {
        let around =
            self.mounts.iter().enumerate().filter(|(_, mount)| path.is_within(&mount.point));
        // The later of two mounts on one path hides the other.
        let Some((own, mount)) = around.max_by_key(|(i, mount)| (mount.point.depth(), *i)) else {
            return Vec::new();
        };
        let Some(below) = path.relative_to(&mount.point) else { return Vec::new() };
        let origin = mount.root.join(below);
        let others = self
            .mounts
            .iter()
            .enumerate()
            .filter(|(i, other)| *i != own && other.device == mount.device);
        others
            .filter_map(|(_, other)| alias(&origin, other))
            .filter(|alias| alias != path)
            .collect()
    }
}

/// Path of `origin`, a path of the file system, or of a part of it through a mount.
fn alias(origin: &Path, mount: &Mount) -> Option<AbsPath> {
    if mount.root.starts_with(origin) {
        return Some(mount.point.clone());
    }
    origin.strip_prefix(&mount.root).ok().map(|below| mount.point.join(below))
}

/// Decodes blanks and backslashes, which the kernel writes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::HostMounts;
    use ringfence_policy::AbsPath;

    const MOUNTS: &[u8] = b"21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 8:2 / /home rw - ext4 /dev/sda2 rw
23 22 8:2 /me/.ssh /home/me/code/app/keys rw - ext4 /dev/sda2 rw
24 22 8:2 /me /srv/my\\040home rw - ext4 /dev/sda2 rw
25 21 8:2 /me/.aws/cache /srv/cache rw - ext4 /dev/sda2 rw
26 21 0:30 /me/.ssh /run/other rw - tmpfs tmpfs rw
";

    #[track_caller]
    fn check(path: &str, expect: &[&str]) {
        let found = HostMounts::parse(MOUNTS).find_aliases(&AbsPath::new(path).unwrap());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expect, "{path}");
    }

    #[test]
    fn every_mount_of_the_same_files_is_an_alias() {
        check("/home/me/.ssh", &["/home/me/code/app/keys", "/srv/my home/.ssh"]);
        check(
            "/home/me/.ssh/id_rsa",
            &["/home/me/code/app/keys/id_rsa", "/srv/my home/.ssh/id_rsa"],
        );
        check("/home/me/.aws", &["/srv/my home/.aws", "/srv/cache"]);
        check("/home/you/.ssh", &[]);
        check("/etc/shadow", &[]);
    }
}
