//! Ringfence in a sandbox of ringfence.

use std::{env, fs};

use crate::error::CliError;

/// Names the reason why no sandbox could be made, if that is a sandbox around this process. The
/// error that came first speaks of what was missing first: a policy file, the audit log.
pub(super) fn explain(error: CliError) -> CliError {
    let is_of_words = matches!(error, CliError::Words { .. });
    let status = || fs::read_to_string("/proc/self/status").unwrap_or_default();
    if is_of_words || env::var_os("RINGFENCE").is_none() || !is_confined(&status()) {
        return error;
    }
    CliError::Words {
        what: format!(
            "this runs in a ringfence sandbox already, and no sandbox can be made in another ({error})"
        ),
        hint: "run the command itself, without `ringfence`: the sandbox around it confines it"
            .into(),
    }
}

/// Answers whether a process can gain no privilege and has a seccomp filter, as all have that
/// ringfence confines. The variable alone may have been exported by the user.
fn is_confined(status: &str) -> bool {
    ["NoNewPrivs:\t1", "Seccomp:\t2"].iter().all(|fact| status.lines().any(|line| line == *fact))
}

#[cfg(test)]
mod tests {
    use super::is_confined;

    #[test]
    fn variable_alone_makes_no_sandbox() {
        assert!(is_confined("Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(
            !is_confined("NoNewPrivs:\t0\nSeccomp:\t2\n")
                && !is_confined("NoNewPrivs:\t1\nSeccomp:\t0\n")
                && !is_confined("")
        );
    }
}
