//! Sockets of the host in trees that are not walked.
//!
//! The kernel lists the paths of bound sockets, so that a vendored tree of fifty thousand
//! directories need not be walked. It lists only those of the own network namespace.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringfence_policy::AbsPath;

use super::is_socket;

/// Paths of bound sockets of this network namespace.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct BoundSockets {
    /// Absolute paths.
    pub(crate) absolute: BTreeSet<AbsPath>,
    /// Paths relative to working directories that the kernel does not list.
    pub(crate) relative: BTreeSet<PathBuf>,
}

/// Reads the kernel's list.
pub(crate) fn read_bound_sockets() -> BoundSockets {
    fs::read("/proc/net/unix").map(|table| read(&table)).unwrap_or_default()
}

/// Columns `Num RefCount Protocol Flags Type St Inode Path`, after a header line.
fn read(table: &[u8]) -> BoundSockets {
    let mut found = BoundSockets::default();
    for line in table.split(|byte| *byte == b'\n').skip(1) {
        let Some(name) = name(line) else { continue };
        match AbsPath::new(OsStr::from_bytes(name)) {
            Some(path) => drop(found.absolute.insert(path)),
            // An abstract name begins with a NUL, printed as `@`.
            None if name.starts_with(b"@") => {}
            None => drop(found.relative.insert(PathBuf::from(OsStr::from_bytes(name)))),
        }
    }
    found
}

/// The text behind seven columns and a space.
fn name(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        rest = &rest[end..];
    }
    rest.strip_prefix(b" ").filter(|name| !name.is_empty())
}

/// Candidates for relative paths: below the working directory of each process that can be read. A
/// process that has changed it since is missed.
pub(crate) fn from_working_directories(names: &BTreeSet<PathBuf>) -> Vec<AbsPath> {
    if names.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes
        .filter(|entry| entry.file_name().as_bytes().first().is_some_and(u8::is_ascii_digit));
    let directories: BTreeSet<PathBuf> =
        numbers.filter_map(|entry| fs::read_link(entry.path().join("cwd")).ok()).collect();
    directories
        .iter()
        .flat_map(|directory| names.iter().filter_map(|name| AbsPath::new(directory.join(name))))
        .collect()
}

/// Every socket below `directories`.
pub(crate) fn find_sockets(directories: &[AbsPath]) -> Vec<AbsPath> {
    let mut found = Vec::new();
    let mut waiting = directories.to_vec();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(directory.join(entry.file_name())),
                Ok(kind) if is_socket(kind) => found.push(directory.join(entry.file_name())),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(line: &str, absolute: &[&str], has_relative: bool) {
        let found = super::read(
            format!("Num RefCount Protocol Flags Type St Inode Path\n{line}\n").as_bytes(),
        );
        assert_eq!(
            found.absolute.iter().map(ToString::to_string).collect::<Vec<_>>(),
            absolute,
            "{line}"
        );
        assert_eq!(!found.relative.is_empty(), has_relative, "{line}");
    }

    #[test]
    fn socket_paths_are_parsed() {
        check("0000000047c77444: 00000003 00000000 00000000 0001 03 5384072", &[], false);
        check(
            "0000000047c77444: 00000003 00000000 00000000 0001 03 5384072 /run/x",
            &["/run/x"],
            false,
        );
        check(
            "0000000047c77444: 00000003 00000000 00000000 0001 03  84072 /run/with space",
            &["/run/with space"],
            false,
        );
        check(
            "0000000047c77444: 00000003 00000000 00000000 0001 03 5384072 @/tmp/.X11-unix/X0",
            &[],
            false,
        );
        check("0000000047c77444: 00000003 00000000 00000000 0001 03 5384072 ./s.sock", &[], true);
    }
}
