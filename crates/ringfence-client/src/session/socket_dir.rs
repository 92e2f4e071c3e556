//! The directory of session sockets, which only its owner can enter.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::{ClientResult, SessionClientError};

const EXTENSION: &str = "sock";

/// Returns the directory, created if missing.
fn directory() -> ClientResult<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let candidates = candidates(own);
    candidates.iter().find(|directory| create_own(directory, own)).cloned().ok_or_else(|| {
        let names: Vec<String> =
            candidates.iter().map(|directory| directory.display().to_string()).collect();
        SessionClientError::Usage {
            what: format!(
                "no directory for session sockets is private to you: {}",
                names.join(", ")
            ),
            hint: "`export XDG_RUNTIME_DIR=$(mktemp -d)`".into(),
        }
    })
}

/// Creates the directory; returns true if it is ours. Another user can create the one in `/tmp`
/// first, and keep it.
fn create_own(directory: &Path, own: u32) -> bool {
    let _ = fs::DirBuilder::new().mode(0o700).recursive(true).create(directory);
    is_own(directory, own)
}

/// Returns the possible directories, best first.
fn candidates(own: u32) -> Vec<PathBuf> {
    let path =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let given = path("XDG_RUNTIME_DIR").filter(|given| is_own(given, own));
    let first = given.map_or_else(
        || PathBuf::from(format!("/tmp/ringfence-{own}")),
        |given| given.join("ringfence"),
    );
    let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")));
    std::iter::once(first).chain(state.map(|state| state.join("ringfence/sessions"))).collect()
}

/// True for a directory that belongs to `own` and that no other user can enter.
fn is_own(path: &Path, own: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0)
}

/// Returns the socket path of a new session. Removes the sockets of killed sessions.
pub fn new_socket_path(id: &str) -> ClientResult<PathBuf> {
    let directory = directory()?;
    for (_, socket) in sockets() {
        if connect(&socket).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(socket);
        }
    }
    Ok(directory.join(id).with_extension(EXTENSION))
}

/// Returns the socket path of the session with this id, running or not.
pub fn socket_path(id: &str) -> ClientResult<PathBuf> {
    Ok(directory()?.join(id).with_extension(EXTENSION))
}

/// Listens at a socket of mode 0600.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    let listener = with_short_path(socket, |path| UnixListener::bind(path))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to a socket.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    with_short_path(socket, |path| UnixStream::connect(path))
}

/// Calls `go` with a path of at most 107 bytes, the limit of a socket address.
fn with_short_path<T>(socket: &Path, go: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    const LONGEST: usize = 107;
    let (Some(directory), Some(name), true) =
        (socket.parent(), socket.file_name(), socket.as_os_str().len() > LONGEST)
    else {
        return go(socket);
    };
    let opened = fs::File::open(directory)?;
    go(&Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(name))
}

/// Returns all sockets, with the ids of their sessions, oldest first.
pub fn sockets() -> Vec<(String, PathBuf)> {
    let own = rustix::process::geteuid().as_raw();
    let directories = candidates(own).into_iter().filter(|directory| is_own(directory, own));
    let entries = directories.flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let sockets =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    let mut found: Vec<_> =
        sockets.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path))).collect();
    // Ids begin with the time.
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_others_can_enter_is_skipped() {
        let base = std::env::temp_dir().join(format!("ringfence-place-{}", std::process::id()));
        let (squatted, free) = (base.join("squatted"), base.join("deep/free"));
        fs::create_dir_all(&squatted).expect("created");
        fs::set_permissions(&squatted, fs::Permissions::from_mode(0o755)).expect("mode set");
        let own = rustix::process::geteuid().as_raw();
        assert!(
            !create_own(&squatted, own) && create_own(&free, own) && !create_own(&free, own + 1)
        );
        assert_eq!(candidates(own).len(), 2);
        fs::remove_dir_all(base).expect("removed");
    }
}
