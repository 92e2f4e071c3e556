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
pub(super) fn directory() -> Result<PathBuf, CliError> {
    let own = rustix::process::geteuid().as_raw();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|given| is_own(given, own));
    let directory = given.map_or_else(|| PathBuf::from(format!("/tmp/ringfence-{own}")), |given| given.join("ringfence"));
    let fail = |source| CliError::File { what: "make", path: directory.display().to_string(), source };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    if !is_own(&directory, own) {
        return Err(CliError::Words {
            what: format!("{} belongs to somebody else, or others can enter it", directory.display()),
            hint: format!("`rm -r {0}` or `chmod 700 {0}`, or set XDG_RUNTIME_DIR", directory.display()),
        });
    }
    Ok(directory)
}

/// Whether something is a directory that belongs to `own` and nobody else can enter.
fn is_own(path: &Path, own: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0)
}

/// The socket of a session.
pub(super) fn socket(id: &str) -> Result<PathBuf, CliError> {
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
    let (Some(directory), Some(name), true) = (socket.parent(), socket.file_name(), socket.as_os_str().len() > LONGEST) else {
        return go(socket);
    };
    let opened = fs::File::open(directory)?;
    go(&Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(name))
}

/// All sockets there are, with the ids of their sessions, oldest first.
pub(super) fn sockets() -> Result<Vec<(String, PathBuf)>, CliError> {
    let entries = fs::read_dir(directory()?).into_iter().flatten().flatten().map(|entry| entry.path());
    let sockets = entries.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
    let mut found: Vec<_> = sockets.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path))).collect();
    // Ids begin with the time.
    found.sort_unstable();
    Ok(found)
}
