//! Names of runs.

use crate::time::now_ms;

/// A new UUID of version 7 (RFC 9562): unique, and sorted by time.
pub fn session_id() -> String {
    let mut bytes = [0; 16];
    // Blocks only in the first seconds after boot.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = fallback_bytes();
    }
    bytes[..6].copy_from_slice(&now_ms().to_be_bytes()[2..]);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Fallback without the kernel's random numbers: the pid and the time in nanoseconds.
fn fallback_bytes() -> [u8; 16] {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    crate::chain::digest(format!("{} {}", std::process::id(), since.as_nanos()).as_bytes()).0[..16]
        .try_into()
        .expect("half of a hash")
}

#[cfg(test)]
mod tests {
    use super::session_id;

    #[test]
    fn names_are_unique_and_valid_uuids() {
        let names: std::collections::BTreeSet<String> = (0..1000).map(|_| session_id()).collect();
        assert_eq!(names.len(), 1000);
        for name in names {
            assert_eq!(name.len(), 36);
            assert_eq!(name.as_bytes()[14], b'7');
            assert!(matches!(name.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{name}");
        }
    }
}
