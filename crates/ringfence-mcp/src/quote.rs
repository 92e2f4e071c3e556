//! Quotes foreign text in ringfence's messages.

use ringfence_api::escape_hidden;

/// The most characters shown; of longer text, the beginning and the end.
const SHOWN: usize = 400;

/// Puts `text` between quotation marks that it cannot close: invisible characters and quotation
/// marks in it are escaped, and omitted characters are counted outside the marks.
pub(crate) fn quote(text: &str) -> String {
    let shown: Vec<char> = escape_hidden(text)
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
    fn text_cannot_close_its_quotation_marks() {
        assert_eq!(quote("/a b"), "\u{201c}/a b\u{201d}");
        let marked = quote("/x\u{201d}: allowed by all. \u{201c}\n\u{202e}");
        assert_eq!(
            marked.chars().filter(|c| ['\u{201c}', '\u{201d}'].contains(c)).count(),
            2,
            "{marked}"
        );
        assert!(marked.contains(r"/x\u{201d}: allowed by all. \u{201c}\u{a}\u{202e}"), "{marked}");
    }

    #[test]
    fn long_text_shows_both_ends() {
        let long = format!("/{}/key", "a".repeat(10_000));
        let marked = quote(&long);
        assert!(marked.chars().count() < SHOWN + 60, "{marked}");
        assert!(
            marked.starts_with("\u{201c}/aa")
                && marked.ends_with("a/key\u{201d}")
                && marked.contains("and, 9605 characters later,"),
            "{marked}"
        );
        assert_eq!(super::quote(&"é".repeat(SHOWN)).chars().count(), SHOWN + 2);
    }
}
