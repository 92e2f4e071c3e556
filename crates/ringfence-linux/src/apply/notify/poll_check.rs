//! Detects callers that wait with `epoll` for events of a socket that is not connected yet.
//!
//! `epoll` registers the open file, not the fd number: if the notify handler replaced the socket,
//! the caller would wait forever.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use crate::open::open_at;

use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;

use super::caller::{NotifyCaller, with_ptrace};

/// Limit of fds to search.
const MAX_FDS: usize = 1024;

/// True if one of the caller's epoll fds watches fd `number`, or if that cannot be determined.
pub(super) fn is_watched(caller: &NotifyCaller<'_>, number: i32) -> bool {
    let look = || any_watches(caller, number);
    look().or_else(|_| with_ptrace(look)).unwrap_or(true)
}

fn any_watches(caller: &NotifyCaller<'_>, number: i32) -> io::Result<bool> {
    let open = |kind: &str| {
        open_at(
            caller.host_proc,
            format!("{}/{kind}", caller.pid()),
            OFlags::RDONLY | OFlags::DIRECTORY,
        )
    };
    let (descriptors, fdinfo) = (open("fd")?, open("fdinfo")?);
    for (count, entry) in Dir::read_from(&descriptors)?.enumerate() {
        let entry = entry?;
        if count > MAX_FDS {
            return Ok(true);
        }
        let leads = rustix::fs::readlinkat(&descriptors, entry.file_name(), Vec::new());
        if leads.is_ok_and(|place| place.as_bytes() == b"anon_inode:[eventpoll]") {
            let file = match open_at(&fdinfo, entry.file_name(), OFlags::RDONLY) {
                // Another thread has closed it.
                Err(Errno::NOENT) => continue,
                opened => File::from(opened?),
            };
            if lists_fd(BufReader::new(file), number)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Parses `fdinfo`: one line `tfd:        5 events:       1d data: …` per watched fd.
fn lists_fd(fdinfo: impl BufRead, number: i32) -> io::Result<bool> {
    for line in fdinfo.lines() {
        let line = line?;
        let watched = line.strip_prefix("tfd:").and_then(|rest| rest.split_whitespace().next());
        if watched.is_some_and(|watched| watched.parse() == Ok(number)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_fd_is_found_in_fdinfo() {
        let fdinfo = "pos:\t0\nflags:\t02000002\ntfd:        5 events:       1d data:                5\ntfd:       12 events:        1 data: 7\n";
        for (number, expected) in
            [(5, true), (12, true), (1, false), (2, false), (7, false), (0, false)]
        {
            assert_eq!(lists_fd(fdinfo.as_bytes(), number).unwrap(), expected, "{number}");
        }
    }
}
