//! Where the sockets of sessions are: in a directory that only their owner can enter.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::error::CliError;

const ENDING: &str = "sock";

/// The directory, made if it is not there.
fn directory() -> Result<PathBuf, CliError> {
    let own = rustix::process::geteuid().as_raw();
    let candidates = candidates(own);
    candidates.iter().find(|directory| is_made(directory, own)).cloned().ok_or_else(|| {
        let names: Vec<String> =
            candidates.iter().map(|directory| directory.display().to_string()).collect();
        CliError::Words {
            what: format!(
                "no directory for the sockets of sessions is yours alone: {}",
                names.join(", ")
            ),
            hint: "`export XDG_RUNTIME_DIR=$(mktemp -d)`".into(),
        }
    })
}

/// Whether a directory is there now, and ours: another user can make the one in `/tmp` first, and
/// keep it.
fn is_made(directory: &Path, own: u32) -> bool {
    let _ = fs::DirBuilder::new().mode(0o700).recursive(true).create(directory);
    is_own(directory, own)
}

/// Where the directory may be, best first.
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

/// Whether something is a directory that belongs to `own` and nobody else can enter.
fn is_own(path: &Path, own: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0)
}

/// The socket of a session that begins. Those of sessions that were killed are removed.
pub(super) fn socket(id: &str) -> Result<PathBuf, CliError> {
    let directory = directory()?;
    for (_, socket) in sockets()? {
        if reach(&socket).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(socket);
        }
    }
    Ok(directory.join(id).with_extension(ENDING))
}

/// The socket of a session that has this id, whether or not it stands.
pub(super) fn named(id: &str) -> Result<PathBuf, CliError> {
    Ok(directory()?.join(id).with_extension(ENDING))
}

/// Listens at a socket.
pub(super) fn listen(socket: &Path) -> io::Result<UnixListener> {
    by_a_short_way(socket, |way| UnixListener::bind(way))
}

/// Reaches whoever listens at it.
pub(super) fn reach(socket: &Path) -> io::Result<UnixStream> {
    by_a_short_way(socket, |way| UnixStream::connect(way))
}

/// An address has room for no more than 107 bytes, and some homes lie deep.
fn by_a_short_way<T>(socket: &Path, go: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    const LONGEST: usize = 107;
    let (Some(directory), Some(name), true) =
        (socket.parent(), socket.file_name(), socket.as_os_str().len() > LONGEST)
    else {
        return go(socket);
    };
    let opened = fs::File::open(directory)?;
    go(&Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(name))
}

/// All sockets there are, with the ids of their sessions, oldest first.
pub(super) fn sockets() -> Result<Vec<(String, PathBuf)>, CliError> {
    let own = rustix::process::geteuid().as_raw();
    let directories = candidates(own).into_iter().filter(|directory| is_own(directory, own));
    let entries = directories.flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let sockets = entries.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
    let mut found: Vec<_> =
        sockets.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path))).collect();
    // Ids begin with the time.
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_that_others_can_enter_is_passed_over() {
        let base = std::env::temp_dir().join(format!("ringfence-place-{}", std::process::id()));
        let (squatted, free) = (base.join("squatted"), base.join("deep/free"));
        fs::create_dir_all(&squatted).expect("it can be made");
        fs::set_permissions(&squatted, fs::Permissions::from_mode(0o755))
            .expect("its mode can be set");
        let own = rustix::process::geteuid().as_raw();
        assert!(!is_made(&squatted, own) && is_made(&free, own) && !is_made(&free, own + 1));
        assert_eq!(candidates(own).len(), 2);
        fs::remove_dir_all(base).expect("it can be removed");
    }
}
