//! Skipped tests: each prints the reason, and fails in CI.

use std::path::Path;

/// Prints the reason of a skip; in CI, fails.
#[track_caller]
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci.is_empty() || ci == "false"),
        "CI must not skip: {why}"
    );
}

/// True if all these programs are on `PATH`; else skips the test.
#[track_caller]
pub fn needs(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        !program.starts_with('/')
            && !std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
            || program.starts_with('/') && !Path::new(program).exists()
    });
    if let Some(missing) = missing {
        skip(&format!("{missing} is not installed"));
    }
    missing.is_none()
}

/// Makes `/dev/fuse` accessible to ordinary users, as on most distributions. Returns false and
/// skips the test if that is not possible.
#[track_caller]
pub fn fuse_for_all() -> bool {
    use std::os::unix::fs::PermissionsExt;
    const DEVICE: &str = "/dev/fuse";
    let is_open = match std::fs::metadata(DEVICE) {
        Err(_) => false,
        Ok(metadata) if metadata.permissions().mode() & 0o666 == 0o666 => true,
        Ok(_) => std::fs::set_permissions(DEVICE, std::fs::Permissions::from_mode(0o666)).is_ok(),
    };
    if !is_open {
        skip("/dev/fuse cannot be made accessible to all users");
    }
    is_open
}
