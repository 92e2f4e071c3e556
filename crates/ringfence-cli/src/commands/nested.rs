//! Ringfence started inside a ringfence sandbox.

use std::{env, fs};

use crate::error::CliError;

/// Replaces the error of a sandbox that could not be created inside another one. The original error
/// names only the first missing thing: a policy file, the audit log.
pub(super) fn explain_nested(error: CliError) -> CliError {
    let is_usage_error = matches!(error, CliError::Usage { .. });
    let status = || fs::read_to_string("/proc/self/status").unwrap_or_default();
    if is_usage_error || env::var_os("RINGFENCE").is_none() || !is_confined(&status()) {
        return error;
    }
    CliError::Usage {
        what: format!(
            "this process already runs in a ringfence sandbox, and sandboxes cannot be nested ({error})"
        ),
        hint: "run the command without `ringfence`: the outer sandbox already confines it".into(),
    }
}

/// True if the process has `no_new_privs` and a seccomp filter, as every process that ringfence
/// confines. The environment variable alone may have been exported by the user.
fn is_confined(status: &str) -> bool {
    ["NoNewPrivs:\t1", "Seccomp:\t2"].iter().all(|fact| status.lines().any(|line| line == *fact))
}

#[cfg(test)]
mod tests {
    use super::is_confined;

    #[test]
    fn environment_variable_alone_does_not_prove_a_sandbox() {
        assert!(is_confined("Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(
            !is_confined("NoNewPrivs:\t0\nSeccomp:\t2\n")
                && !is_confined("NoNewPrivs:\t1\nSeccomp:\t0\n")
                && !is_confined("")
        );
    }
}
