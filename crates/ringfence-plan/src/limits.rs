//! Hints for exhausted host limits.

use std::io;

use crate::abi;

/// A command to type if `error` comes from an exhausted limit of a Linux host; `None` for any other
/// error.
pub fn limit_hint(error: &io::Error) -> Option<&'static str> {
    let is_linux = std::env::consts::OS == "linux";
    error.raw_os_error().filter(|_| is_linux).and_then(hint_for_errno)
}

fn hint_for_errno(errno: i32) -> Option<&'static str> {
    Some(match errno {
        abi::EMFILE => {
            "too many open files in this process; run `ulimit -n 65536` before you start it"
        }
        abi::ENFILE => "too many open files on this host; run `sudo sysctl fs.file-max=1048576`",
        abi::EAGAIN => {
            "too many processes and threads; `ulimit -u` shows your limit, `sudo sysctl kernel.threads-max` that of this host"
        }
        abi::ENOSPC | abi::EUSERS => {
            "too many user namespaces, other namespaces or mounts on this host; `sysctl user fs.mount-max` shows the limits, and `sudo sysctl NAME=VALUE` raises one"
        }
        abi::ENOMEM => "out of memory",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exhausted_limits_get_a_hint() {
        let hint_for = |errno| hint_for_errno(errno).unwrap_or_default();
        assert!(
            hint_for(abi::EMFILE).contains("ulimit -n")
                && hint_for(abi::EAGAIN).contains("ulimit -u")
        );
        assert!(hint_for(abi::ENOSPC).contains("sysctl user"));
        assert_eq!((hint_for(abi::EPERM), hint_for(2)), ("", ""));
    }
}
