//! Whether bytes are text, and where lines end in it.

/// So much of a file is looked at to tell whether it is text.
pub(crate) const SAMPLE: usize = 8 << 10;

/// Whether this is the beginning of something that is no text: text has no NUL.
pub(crate) fn is_binary(start: &[u8]) -> bool {
    start[..start.len().min(SAMPLE)].contains(&0)
}

/// Whether each line of it ends as Windows has it, and there is one.
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

/// The same lines, each ended by a carriage return and a line feed.
pub(crate) fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// As many of the first bytes as are whole characters, where the rest was cut off.
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
    fn text_is_told_from_what_is_none() {
        assert!(is_binary(b"\x7fELF\0\0"));
        assert!(!is_binary("é\n".as_bytes()));
        let mut late = vec![b'a'; SAMPLE];
        late.push(0);
        assert!(!is_binary(&late));
    }

    #[test]
    fn line_ends_are_windows_only_if_all_are() {
        assert!(is_crlf(b"a\r\nb\r\n"));
        assert!(is_crlf(b"a\r\nb"));
        assert!(!is_crlf(b"a\r\nb\n"));
        assert!(!is_crlf(b"ab"));
        assert_eq!(to_crlf("a\nb\r\nc"), "a\r\nb\r\nc");
    }

    #[test]
    fn no_character_is_cut_in_two() {
        let text = "aé€".as_bytes();
        let lengths: Vec<usize> =
            (0..=text.len()).map(|end| whole_characters(&text[..end]).len()).collect();
        assert_eq!(lengths, [0, 1, 1, 3, 3, 3, 6]);
        assert_eq!(whole_characters(b"a\xffb\xc3"), b"a\xffb\xc3");
    }
}
