//! A command line that runs another one in the sandbox.

use std::path::Path;

use ringfence_policy::AbsPath;

/// What the rewritten line names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rewrite<'a> {
    /// This very program.
    pub(super) program: &'a Path,
    pub(super) project: &'a AbsPath,
    pub(super) agent: &'a str,
    /// The name of the run, by which its refusals are found afterwards.
    pub(super) call: Option<&'a str>,
}

impl Rewrite<'_> {
    /// The line in whose place `line` is run; `None` if one of the paths is no text.
    ///
    /// It is plain words: whatever stands in `line` is one of them, for bash and zsh alike.
    pub(super) fn of(&self, line: &str) -> Option<String> {
        let mut words = vec![quoted(self.program.to_str()?), "run".into(), "--project".into(), quoted(self.project.as_path().to_str()?)];
        words.extend(["--agent".into(), quoted(self.agent)]);
        if let Some(call) = self.call {
            words.extend(["--session".into(), quoted(call)]);
        }
        words.extend(["--shell".into(), "bash".into(), "-c".into(), quoted(line)]);
        Some(words.join(" "))
    }

    /// Whether a line is what this makes of some other line: then it is confined in this very
    /// way, whoever wrote it.
    pub(super) fn made(&self, line: &str) -> bool {
        let inner = line.split_once(" -c ").and_then(|(_, inner)| unquoted(inner));
        inner.is_some_and(|inner| self.of(&inner).as_deref() == Some(line))
    }
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The text of a word that was quoted in that way and no other.
fn unquoted(word: &str) -> Option<String> {
    let text = word.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
    (quoted(&text) == word).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[&str] = &["", "ls", "it's", "'", "''", "a -c 'b'", "x\ny\\", "$(id) `id` \"$HOME\" !! *", "é\u{2028}\u{7f}"];

    #[test]
    fn what_was_quoted_comes_back() {
        for text in LINES {
            assert_eq!(unquoted(&quoted(text)).as_deref(), Some(*text));
        }
        for word in ["", "'", "x", "'a'b'", "'a' 'b'", "'a';id;'b'", "'a'\\'"] {
            assert_eq!(unquoted(word), None, "{word}");
        }
    }

    #[test]
    fn only_its_own_work_is_known_again() {
        let project = AbsPath::new("/p -c 'q").unwrap();
        let rewrite = Rewrite { program: Path::new("/opt/ring fence"), project: &project, agent: "claude-code", call: Some("toolu_1") };
        for line in LINES {
            let made = rewrite.of(line).unwrap();
            let twice = rewrite.of(&made).unwrap();
            assert!(!rewrite.made(line), "{line}");
            // A project with such a name is only not recognized.
            let plain = AbsPath::new("/p").unwrap();
            let plain = Rewrite { project: &plain, ..rewrite };
            assert!(plain.made(&plain.of(line).unwrap()), "{line}");
            assert!(!plain.made(&made) && !plain.made(&twice));
            assert!(!plain.made(&format!("{} && id", plain.of(line).unwrap())));
            assert!(!plain.made(&plain.of(line).unwrap().replace("toolu_1", "toolu_2")));
            assert!(!plain.made(&plain.of(line).unwrap().replace("--shell", "--net full --shell")));
        }
    }
}
