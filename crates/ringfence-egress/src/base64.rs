//! Decodes base64 as used for credentials in headers (RFC 4648, section 4).

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decoded bytes, or `None` if `text` is invalid. Padding is optional.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let filled = text.iter().rev().take_while(|letter| **letter == b'=').count();
    let letters = &text[..text.len() - filled];
    if filled > 2 || letters.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::new();
    for four in letters.chunks(4) {
        let mut number = 0;
        for letter in four {
            number = number << 6 | LETTERS.iter().position(|known| known == letter)? as u32;
        }
        number <<= 6 * (4 - four.len());
        bytes.extend_from_slice(&number.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::base64;

    #[test]
    fn base64_round_trips_and_rejects_garbage() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("a:b\u{fc}?>", "YTpiw7w/Pg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()), Some(bytes.as_bytes().to_vec()));
            assert_eq!(
                decode(text.trim_end_matches('=').as_bytes()),
                Some(bytes.as_bytes().to_vec())
            );
        }
        for text in ["Z", "Zg===", "Zm9v!", "Zm 9", "Zg=a"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
