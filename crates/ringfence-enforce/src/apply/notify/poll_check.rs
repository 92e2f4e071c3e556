//! Whether a caller waits for events of a socket that is not connected yet.
//!
//! `epoll` knows a file, not a number: were another socket put in its place, the caller would
//! wait for ever.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::caller::{NotifyCaller, raised};

/// Among more than so many, nobody looks.
const MANY: usize = 1024;

/// Whether one of the caller's `epoll` descriptors knows `number`. Where that cannot be told, it
/// is taken to.
pub(super) fn is_watched(caller: &NotifyCaller<'_>, number: i32) -> bool {
    let look = || any_watches(caller, number);
    look().or_else(|_| raised(look)).unwrap_or(true)
}

fn any_watches(caller: &NotifyCaller<'_>, number: i32) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |kind: &str| {
        rustix::fs::openat(
            caller.host_proc,
            format!("{}/{kind}", caller.pid()),
            flags,
            Mode::empty(),
        )
    };
    let (descriptors, about) = (open("fd")?, open("fdinfo")?);
    for (count, entry) in Dir::read_from(&descriptors)?.enumerate() {
        let entry = entry?;
        if count > MANY {
            return Ok(true);
        }
        let leads = rustix::fs::readlinkat(&descriptors, entry.file_name(), Vec::new());
        if leads.is_ok_and(|place| place.as_bytes() == b"anon_inode:[eventpoll]") {
            let file = match rustix::fs::openat(
                &about,
                entry.file_name(),
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            ) {
                // Another thread has closed it.
                Err(Errno::NOENT) => continue,
                opened => File::from(opened?),
            };
            if knows(BufReader::new(file), number)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// `tfd:        5 events:       1d data: …` for each that it waits for.
fn knows(about: impl BufRead, number: i32) -> io::Result<bool> {
    for line in about.lines() {
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
    fn a_number_is_found_among_those_that_are_waited_for() {
        let about = "pos:\t0\nflags:\t02000002\ntfd:        5 events:       1d data:                5\ntfd:       12 events:        1 data: 7\n";
        for (number, expected) in
            [(5, true), (12, true), (1, false), (2, false), (7, false), (0, false)]
        {
            assert_eq!(knows(about.as_bytes(), number).unwrap(), expected, "{number}");
        }
    }
}
