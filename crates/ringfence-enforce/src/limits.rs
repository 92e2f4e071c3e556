//! What a host allows only so many of, and how to be allowed more.

use std::io;

/// What to type where something failed because there are too many of it already; `None` if
/// it failed for another reason.
pub fn hint(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EMFILE => {
            "this process may not have more files open; `ulimit -n 65536` before it starts allows more"
        }
        libc::ENFILE => {
            "this host may not have more files open; `sudo sysctl fs.file-max=1048576` allows more"
        }
        libc::EAGAIN => {
            "you may not have more processes and threads; `ulimit -u` shows how many, `sudo sysctl kernel.threads-max` those of this host"
        }
        libc::ENOSPC | libc::EUSERS => {
            "this host allows no more user namespaces, other namespaces or mounts; `sysctl user fs.mount-max` shows how many of each, and `sudo sysctl NAME=VALUE` allows more"
        }
        libc::ENOMEM => "there is no memory left for it",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_and_nothing_else_is_taken_for_one() {
        let of = |number| hint(&io::Error::from_raw_os_error(number)).unwrap_or_default();
        assert!(of(libc::EMFILE).contains("ulimit -n") && of(libc::EAGAIN).contains("ulimit -u"));
        assert!(of(libc::ENOSPC).contains("sysctl user"));
        assert_eq!((of(libc::EPERM), of(libc::ENOENT)), ("", ""));
    }
}
