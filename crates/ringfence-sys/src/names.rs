//! The C library's name service.

use std::ffi::{CStr, c_char, c_int};
use std::io;

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// `__nss_configure_lookup(3)`: sets the services that this process uses for `database`, instead of
/// those in `/etc/nsswitch.conf`.
pub fn configure_lookup(database: &CStr, services: &CStr) -> io::Result<()> {
    // SAFETY: both strings are NUL-terminated; the C library copies them under its own lock.
    super::check(unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) }).map(drop)
}
