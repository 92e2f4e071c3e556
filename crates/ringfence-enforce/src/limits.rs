//! Hints for exhausted host limits.

use std::io;

/// A command to type if `error` comes from an exhausted limit; `None` for any other error.
pub fn limit_hint(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EMFILE => {
            "too many open files in this process; run `ulimit -n 65536` before you start it"
        }
        libc::ENFILE => "too many open files on this host; run `sudo sysctl fs.file-max=1048576`",
        libc::EAGAIN => {
            "too many processes and threads; `ulimit -u` shows your limit, `sudo sysctl kernel.threads-max` that of this host"
        }
        libc::ENOSPC | libc::EUSERS => {
            "too many user namespaces, other namespaces or mounts on this host; `sysctl user fs.mount-max` shows the limits, and `sudo sysctl NAME=VALUE` raises one"
        }
        libc::ENOMEM => "out of memory",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exhausted_limits_get_a_hint() {
        let hint_for =
            |number| limit_hint(&io::Error::from_raw_os_error(number)).unwrap_or_default();
        assert!(
            hint_for(libc::EMFILE).contains("ulimit -n")
                && hint_for(libc::EAGAIN).contains("ulimit -u")
        );
        assert!(hint_for(libc::ENOSPC).contains("sysctl user"));
        assert_eq!((hint_for(libc::EPERM), hint_for(libc::ENOENT)), ("", ""));
    }
}
