//! The C library's name service.

use std::ffi::{CStr, c_char, c_int};
use std::io;

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// `__nss_configure_lookup(3)`: which services this process asks for `database`, whatever
/// `/etc/nsswitch.conf` says.
pub fn configure_lookup(database: &CStr, services: &CStr) -> io::Result<()> {
    // SAFETY: both are texts that end with a NUL; the C library copies what it keeps, under its own
    // lock.
    super::check(unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) }).map(drop)
}
