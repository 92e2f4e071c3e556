//! Text that comes from somebody else.

pub use ringfence_policy::is_hidden;

/// Bytes as text of the usual alphabet, for what need not be UTF-8.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expect: &str) {
        assert_eq!(base64(input), expect);
    }

    #[test]
    fn base64_is_the_usual_one() {
        check(b"", "");
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(b"\xff\x00\xfe", "/wD+");
    }

    #[test]
    fn letters_are_seen_and_commands_to_the_terminal_are_not() {
        assert!("aé漢😀 ~/\u{301}".chars().all(|c| !is_hidden(c)));
        assert!("\0\n\r\t\u{1b}\u{7f}\u{85}\u{9b}\u{200e}\u{202e}\u{2066}\u{2028}\u{feff}\u{e0041}".chars().all(is_hidden));
    }
}
