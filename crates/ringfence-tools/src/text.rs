//! Detection of binary content and line endings.

/// The number of bytes checked for NUL.
pub(crate) const SAMPLE: usize = 8 << 10;

/// True if the start of a file contains NUL, so it is not text.
pub(crate) fn is_binary(start: &[u8]) -> bool {
    start[..start.len().min(SAMPLE)].contains(&0)
}

/// True if all line endings are CRLF, and there is at least one.
pub(crate) fn is_crlf(text: &[u8]) -> bool {
    let mut before = 0;
    let mut any = false;
    for byte in text {
        if *byte == b'\n' {
            if before != b'\r' {
                return false;
            }
            any = true;
        }
        before = *byte;
    }
    any
}

/// Converts all line endings to CRLF.
pub(crate) fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// The longest prefix of complete characters of truncated text.
pub(crate) fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_byte_means_binary() {
        assert!(is_binary(b"\x7fELF\0\0"));
        assert!(!is_binary("é\n".as_bytes()));
        let mut late = vec![b'a'; SAMPLE];
        late.push(0);
        assert!(!is_binary(&late));
    }

    #[test]
    fn crlf_only_if_every_line_has_it() {
        assert!(is_crlf(b"a\r\nb\r\n"));
        assert!(is_crlf(b"a\r\nb"));
        assert!(!is_crlf(b"a\r\nb\n"));
        assert!(!is_crlf(b"ab"));
        assert_eq!(to_crlf("a\nb\r\nc"), "a\r\nb\r\nc");
    }

    #[test]
    fn truncated_character_is_removed() {
        let text = "aé€".as_bytes();
        let lengths: Vec<usize> =
            (0..=text.len()).map(|end| whole_characters(&text[..end]).len()).collect();
        assert_eq!(lengths, [0, 1, 1, 3, 3, 3, 6]);
        assert_eq!(whole_characters(b"a\xffb\xc3"), b"a\xffb\xc3");
    }
}
