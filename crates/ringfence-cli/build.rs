//! Packs the relocations of the program, if the C library can unpack them.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if has_packed_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// True for glibc 2.36 or later, which is linked statically: an older one would not apply packed
/// relocations, and the program would crash. A C library for another target is not asked.
fn has_packed_relocations() -> bool {
    let variable = |name| env::var(name).unwrap_or_default();
    let is_own =
        variable("TARGET") == variable("HOST") && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    is_own && glibc_version().is_some_and(|version| version >= (2, 36))
}

/// The version of this system's glibc, as `getconf` prints it: `glibc 2.36`.
fn glibc_version() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
