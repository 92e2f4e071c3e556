//! What somebody else wrote, in a sentence of ours.

use ringfence_api::visible;

/// As much of it is shown, of what is longer the beginning and the end.
const SHOWN: usize = 400;

/// A text between quotation marks that it does not leave: every character shows, a mark in it is
/// spelt out, and what is left out is counted outside of them.
pub(crate) fn marked(text: &str) -> String {
    let shown: Vec<char> = visible(text)
        .replace('\u{201c}', r"\u{201c}")
        .replace('\u{201d}', r"\u{201d}")
        .chars()
        .collect();
    let part = |chars: &[char]| format!("\u{201c}{}\u{201d}", chars.iter().collect::<String>());
    if shown.len() <= SHOWN {
        return part(&shown);
    }
    let (begins, ends) = (SHOWN * 3 / 4, shown.len() - SHOWN / 4);
    format!(
        "{} and, {} characters later, {}",
        part(&shown[..begins]),
        ends - begins,
        part(&shown[ends..])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_does_not_leave_its_quotation_marks() {
        assert_eq!(marked("/a b"), "\u{201c}/a b\u{201d}");
        let marked = marked("/x\u{201d}: allowed by everybody. \u{201c}\n\u{202e}");
        assert_eq!(
            marked.chars().filter(|c| ['\u{201c}', '\u{201d}'].contains(c)).count(),
            2,
            "{marked}"
        );
        assert!(
            marked.contains(r"/x\u{201d}: allowed by everybody. \u{201c}\u{a}\u{202e}"),
            "{marked}"
        );
    }

    #[test]
    fn of_what_is_long_both_ends_are_seen() {
        let long = format!("/{}/key", "a".repeat(10_000));
        let marked = marked(&long);
        assert!(marked.chars().count() < SHOWN + 60, "{marked}");
        assert!(
            marked.starts_with("\u{201c}/aa")
                && marked.ends_with("a/key\u{201d}")
                && marked.contains("and, 9605 characters later,"),
            "{marked}"
        );
        assert_eq!(super::marked(&"é".repeat(SHOWN)).chars().count(), SHOWN + 2);
    }
}
