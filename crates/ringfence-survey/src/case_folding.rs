//! File systems that do not distinguish `.git` from `.GIT`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

use ringfence_plan::CaseFolding;
use ringfence_policy::AbsPath;

/// File systems whose case folding the kernel itself does: ext4, f2fs, tmpfs, vfat, exfat, xfs
/// (`statfs(2)`).
const KNOWN: [i64; 6] = [0xef53, 0xf2f5_2010, 0x0102_1994, 0x4d44, 0x2011_bab0, 0x5846_5342];

/// Looks up an existing name in other case; leaves no trace.
pub(crate) fn probe_case_folding(root: &AbsPath) -> CaseFolding {
    let identity = |name: &OsString| {
        let metadata = fs::symlink_metadata(root.join(name).as_path()).ok()?;
        // Two hard links would look the same.
        (metadata.is_dir() || metadata.nlink() == 1).then(|| (metadata.dev(), metadata.ino()))
    };
    let names =
        fs::read_dir(root.as_path()).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let lookup = |name: OsString| {
        swap_case(&name).and_then(|other| Some((identity(&name)?, identity(&other))))
    };
    if names.filter_map(lookup).next().is_none_or(|(one, other)| other != Some(one)) {
        return CaseFolding::None;
    }
    match rustix::fs::statfs(root.as_path()) {
        Ok(status) if KNOWN.contains(&status.f_type) => CaseFolding::Known,
        _ => CaseFolding::Hidden,
    }
}

/// The name in other case; `None` if it has no letters.
fn swap_case(name: &std::ffi::OsStr) -> Option<OsString> {
    let swap = |byte: &u8| {
        if byte.is_ascii_lowercase() {
            byte.to_ascii_uppercase()
        } else {
            byte.to_ascii_lowercase()
        }
    };
    let other: Vec<u8> = name.as_bytes().iter().map(swap).collect();
    (other != name.as_bytes()).then(|| OsString::from_vec(other))
}

#[cfg(test)]
mod tests {
    use ringfence_policy::AbsPath;

    #[test]
    fn case_is_swapped_and_case_sensitivity_detected() {
        assert_eq!(super::swap_case(".Git-1".as_ref()), Some(".gIT-1".into()));
        assert_eq!(super::swap_case("123".as_ref()), None);
        // A directory with both names, possible only on a case-sensitive file system.
        let twins = std::env::temp_dir().join(format!("ringfence-twins-{}", std::process::id()));
        std::fs::create_dir_all(&twins).unwrap();
        std::fs::write(twins.join("a"), "").unwrap();
        std::fs::hard_link(twins.join("a"), twins.join("A")).unwrap();
        let found = super::probe_case_folding(&AbsPath::new(&twins).unwrap());
        std::fs::remove_dir_all(&twins).unwrap();
        assert_eq!(found, super::CaseFolding::None);
    }
}
