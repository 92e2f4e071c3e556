//! Numbers of the Linux ABI that a plan contains.
//!
//! The `libc` crate has them on Linux only, and a plan is made on any host. A test of
//! `ringfence-linux` compares each with `libc`.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// Permission denied.
pub const EACCES: i32 = 13;
/// Cross-device link.
pub const EXDEV: i32 = 18;
/// Inappropriate `ioctl`.
pub const ENOTTY: i32 = 25;
/// Syscall not implemented.
pub const ENOSYS: i32 = 38;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// Address family not supported.
pub const EAFNOSUPPORT: i32 = 97;

/// Open for writing only.
pub const O_WRONLY: i32 = 1;
/// Open for reading and writing.
pub const O_RDWR: i32 = 2;
/// Create the file.
pub const O_CREAT: i32 = 0o100;
/// Truncate the file.
pub const O_TRUNC: i32 = 0o1000;
/// Open directories only.
#[cfg(not(target_arch = "aarch64"))]
pub const O_DIRECTORY: i32 = 0o200_000;
/// Open directories only.
#[cfg(target_arch = "aarch64")]
pub const O_DIRECTORY: i32 = 0o40_000;
/// Create a file without a name.
pub const O_TMPFILE: i32 = 0o20_000_000 | O_DIRECTORY;

/// End of a record.
pub const MSG_EOR: i32 = 0x80;
/// No `SIGPIPE`.
pub const MSG_NOSIGNAL: i32 = 0x4000;
/// Connect and send.
pub const MSG_FASTOPEN: i32 = 0x2000_0000;

/// Set-uid bit of a mode.
pub const S_ISUID: u32 = 0o4000;
/// Set-gid bit of a mode.
pub const S_ISGID: u32 = 0o2000;
