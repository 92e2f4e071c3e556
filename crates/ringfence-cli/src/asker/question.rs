//! The text of a question on the terminal.

use std::time::Duration;

use ringfence_api::{Ask, AskAnswer, Denial, escape_hidden};

/// Resets terminal state left by the command: an open escape sequence (CAN, ST), an alternate
/// character set (SI, G0), colours, a scroll region, a hidden cursor, and the current line.
const FRESH: &str = "\x18\x1b\\\x0f\x1b(B\x1b[0m\x1b7\x1b[r\x1b8\x1b[?25h\r\n";

/// Returns the key that selects an answer.
pub(super) fn answer_key(answer: AskAnswer) -> &'static str {
    match answer {
        AskAnswer::AllowOnce => "o",
        AskAnswer::AllowSession => "s",
        AskAnswer::AllowPermanent => "p",
        AskAnswer::Deny => "d",
    }
}

/// Returns the confirmation printed after an answer.
pub(super) fn confirmation(answer: AskAnswer) -> &'static str {
    match answer {
        AskAnswer::AllowOnce => "allowed once",
        AskAnswer::AllowSession => "allowed for this session",
        AskAnswer::AllowPermanent => "allowed permanently",
        AskAnswer::Deny => "denied",
    }
}

/// Returns the whole question, in a frame as wide as the terminal.
pub(super) fn question(ask: &Ask, answer_timeout: Duration, width: usize) -> String {
    let Denial { operation, target, rule, origin, pid, program, .. } = &ask.denial;
    let width = width.clamp(40, 200);
    let who = match (program.as_str(), *pid) {
        ("", 0) => "a program".to_owned(),
        ("", pid) => format!("process {pid}"),
        (program, 0) => quoted(program),
        (program, pid) => format!("{}, process {pid}", quoted(program)),
    };
    let rows = [
        ("who", who),
        ("wants", format!("to {}", operation.verb_phrase())),
        ("what", quoted(target)),
        ("rule", format!("{}, {}", quoted(rule), escape_hidden(origin))),
    ];
    let mut text = format!("{FRESH}{}\r\n", edge(" ringfence asks ", width));
    for (label, value) in rows {
        text.push_str(&row(label, &value, width));
    }
    text.push_str(&format!("│ {}\r\n", options_line(&ask.options)));
    text.push_str(&format!(
        "{}\r\n",
        edge(
            &format!(" letter and Enter; Enter alone denies; {} s ", answer_timeout.as_secs()),
            width
        )
    ));
    text
}

/// `o allow once   d deny`.
pub(super) fn options_line(options: &[AskAnswer]) -> String {
    let word = |answer: &AskAnswer| match answer {
        AskAnswer::AllowOnce => "o allow once",
        AskAnswer::AllowSession => "s for this session",
        AskAnswer::AllowPermanent => "p permanently",
        AskAnswer::Deny => "d deny",
    };
    options.iter().map(word).collect::<Vec<_>>().join("   ")
}

/// Quotes `text`, so that leading and trailing blanks are visible.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escape_hidden(text).replace('"', "\\\""))
}

fn edge(text: &str, width: usize) -> String {
    let left = width.saturating_sub(text.chars().count() + 4);
    format!("────{text}{}", "─".repeat(left))
}

/// Formats a label and a value. Wraps a long value itself: if the terminal wrapped it, the end of a
/// crafted name could look like the next row.
fn row(label: &str, value: &str, width: usize) -> String {
    const LABEL: usize = 5;
    let columns_left = width - LABEL - 4;
    let mut rows = vec![String::new()];
    let mut taken = 0;
    for c in value.chars() {
        // A non-ASCII character may take two columns.
        let columns = if c.is_ascii() { 1 } else { 2 };
        if taken + columns > columns_left {
            rows.push(String::new());
            taken = 0;
        }
        taken += columns;
        rows.last_mut().expect("never empty").push(c);
    }
    let first = std::iter::once(label).chain(std::iter::repeat("")).zip(&rows);
    first.map(|(label, part)| format!("│ {label:LABEL$} {part}\r\n")).collect()
}

#[cfg(test)]
mod tests {
    use ringfence_api::{DenialEvidence, Operation};

    use super::*;

    fn ask(target: &str, program: &str) -> Ask {
        let denial = Denial {
            operation: Operation::Read,
            target: target.into(),
            rule: "~/.ssh".into(),
            origin: "built in".into(),
            explicit: true,
            pid: 42,
            program: program.into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        };
        Ask { denial, options: AskAnswer::ALL.to_vec() }
    }

    fn text(ask: &Ask) -> String {
        let text = question(ask, Duration::from_secs(60), 60);
        text.strip_prefix(FRESH).expect("begins with the reset sequence").to_owned()
    }

    #[test]
    fn question_names_program_operation_target_and_rule() {
        let expect = "──── ringfence asks ────────────────────────────────────────\r
│ who   \"/usr/bin/cat\", process 42\r
│ wants to read\r
│ what  \"/home/me/.ssh/id_rsa\"\r
│ rule  \"~/.ssh\", built in\r
│ o allow once   s for this session   p permanently   d deny\r
──── letter and Enter; Enter alone denies; 60 s ────────────\r\n";
        assert_eq!(text(&ask("/home/me/.ssh/id_rsa", "/usr/bin/cat")), expect);
    }

    #[test]
    fn question_shows_only_offered_answers() {
        let ask = Ask { options: vec![AskAnswer::AllowOnce, AskAnswer::Deny], ..ask("/x", "") };
        assert!(text(&ask).contains("│ o allow once   d deny\r\n"));
        assert!(text(&ask).contains("│ who   process 42\r\n"));
    }

    /// Promise: question-text
    #[test]
    fn crafted_name_cannot_control_terminal_or_leave_its_row() {
        let long = format!("/x{}\"│ what  \"/harmless", " ".repeat(45));
        for name in [
            "/a\x1b[2J\x1b]0;t\x07\r\n│ what  \"/b\"",
            "/a\u{202e}b\u{9b}31m\u{200b}",
            "/\u{7f}\0",
            long.as_str(),
            &"漢".repeat(300),
        ] {
            let text = text(&ask(name, name));
            let rows: Vec<&str> = text.trim_end_matches("\r\n").split("\r\n").collect();
            let shown = |row: &&str| !row.chars().any(ringfence_api::is_hidden);
            assert!(rows.iter().all(shown), "{name:?} in {text:?}");
            let framed = |row: &&&str| row.starts_with("│ ") || row.starts_with("────");
            assert_eq!(rows.iter().filter(framed).count(), rows.len(), "{name:?} in {text}");
            assert_eq!(
                rows.iter().filter(|row| row.starts_with("│ what ")).count(),
                1,
                "{name:?} in {text}"
            );
            assert!(
                rows.iter().all(|row| row
                    .chars()
                    .map(|c| if c.is_ascii() || "│─".contains(c) { 1 } else { 2 })
                    .sum::<usize>()
                    <= 60),
                "{text}"
            );
        }
    }
}
