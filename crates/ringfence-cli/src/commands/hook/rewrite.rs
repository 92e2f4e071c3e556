//! A command line that runs another one in the sandbox.

use std::path::{Path, PathBuf};

use ringfence_api::quoted;
use ringfence_policy::AbsPath;

/// What the rewritten line names.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandRewrite<'a> {
    /// This very program.
    pub(super) program: &'a Path,
    pub(super) project: &'a AbsPath,
    /// Where the agent was started.
    pub(super) start: &'a AbsPath,
    /// Flags that follow from the agent's own settings.
    pub(super) rules: &'a [String],
    pub(super) agent: &'a str,
    /// The conversation whose sandbox the line runs in, if it has no sandbox of its own.
    pub(super) conversation: Option<Conversation<'a>>,
    /// The name of the run, by which its refusals are found afterwards.
    pub(super) call: Option<&'a str>,
    /// The mode, if it is not the policy's.
    pub(super) mode: Option<&'a str>,
    /// Where ringfence keeps what it knows.
    pub(super) state: &'a AbsPath,
}

/// A sandbox that stands for a conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversation<'a> {
    pub(super) id: &'a str,
    pub(super) place: Place,
}

/// Where a line runs in the sandbox of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In its shell, or beside it while another line runs there.
    Shell,
    /// Beside its shell.
    Beside,
}

/// Where the shell that runs the line stands when it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellCwdAfter {
    /// Where it stood before.
    Stay,
    /// Where the line ended.
    Follow,
}

/// The link that leads to where a run ended.
pub(crate) fn link(state: &AbsPath, call: &str) -> PathBuf {
    state.as_path().join("ended").join(call)
}

impl CommandRewrite<'_> {
    /// The line in whose place `line` is run; `None` if one of the paths is no text.
    ///
    /// It is plain words: whatever stands in `line` is one of them, for bash and zsh alike, and
    /// nothing of what it prints is read by the shell outside.
    pub(super) fn of(&self, line: &str, afterwards: ShellCwdAfter) -> Option<String> {
        // The terminal is the agent's own; what would be asked there is refused and told.
        let mut words = vec![quoted(self.program.to_str()?), "run".into()];
        if let Some(Conversation { id, place }) = self.conversation {
            words.extend(["--conversation".into(), quoted(id)]);
            words.extend((place == Place::Beside).then(|| "--beside".to_owned()));
        }
        words.push("--ask=never".into());
        words.extend(["--project".into(), quoted(self.project.as_path().to_str()?)]);
        if self.start != self.project {
            words.extend(["--started-in".into(), quoted(self.start.as_path().to_str()?)]);
        }
        words.extend(self.rules.iter().map(|rule| quoted(rule)));
        words.extend(["--agent".into(), quoted(self.agent)]);
        if let Some(mode) = self.mode {
            words.extend(["--mode".into(), quoted(mode)]);
        }
        if let Some(call) = self.call {
            words.extend(["--session".into(), quoted(call)]);
        }
        let end = self.end(afterwards)?;
        if !end.is_empty() {
            words.push("--keep-directory".into());
        }
        words.extend(["--shell".into(), "bash".into(), "-c".into(), quoted(line)]);
        Some(words.join(" ") + &end)
    }

    /// What stands behind the words. A link is followed that ringfence made: its path is known
    /// before the line runs, and whatever the line says of where it ended is not in it.
    fn end(&self, afterwards: ShellCwdAfter) -> Option<String> {
        match (afterwards, self.call) {
            (ShellCwdAfter::Follow, Some(call)) => {
                Some(format!(" && builtin cd -P -- {}", quoted(link(self.state, call).to_str()?)))
            }
            _ => Some(String::new()),
        }
    }

    /// Whether a line is what this makes of some other line: then it is confined in this very
    /// way, whoever wrote it.
    pub(super) fn made(&self, line: &str, afterwards: ShellCwdAfter) -> bool {
        let inner = || {
            let words = line.strip_suffix(&self.end(afterwards)?)?;
            let inner = unquoted(words.split_once(" -c ")?.1)?;
            Some(self.of(&inner, afterwards)? == line)
        };
        inner() == Some(true)
    }
}

/// The text of a word that was quoted in that way and no other.
fn unquoted(word: &str) -> Option<String> {
    let text = word.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
    (quoted(&text) == word).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[&str] = &[
        "",
        "ls",
        "it's",
        "'",
        "''",
        "a -c 'b'",
        "x\ny\\",
        "$(id) `id` \"$HOME\" !! *",
        "é\u{2028}\u{7f}",
    ];

    #[test]
    fn what_was_quoted_comes_back() {
        for text in LINES {
            assert_eq!(unquoted(&quoted(text)).as_deref(), Some(*text));
        }
        for word in ["", "'", "x", "'a'b'", "'a' 'b'", "'a';id;'b'", "'a'\\'"] {
            assert_eq!(unquoted(word), None, "{word}");
        }
    }

    /// Promise: P83
    #[test]
    fn only_its_own_work_is_known_again() {
        let (project, state) = (AbsPath::new("/p").unwrap(), AbsPath::new("/s").unwrap());
        let program = Path::new("/opt/ring fence");
        let below = AbsPath::new("/p/packages/it's").unwrap();
        let shared = Some(Conversation { id: "c1", place: Place::Shell });
        let below_of = |conversation| [(&project, conversation), (&below, conversation)];
        let cases = below_of(None).into_iter().chain(below_of(shared));
        for (line, (start, conversation)) in
            LINES.iter().flat_map(|line| cases.clone().map(move |case| (line, case)))
        {
            let rules = &["--deny=it's".to_owned()];
            let (agent, call) = ("claude-code", Some("toolu_1"));
            let rewrite = CommandRewrite {
                program,
                project: &project,
                start,
                rules,
                agent,
                conversation,
                call,
                mode: None,
                state: &state,
            };
            for afterwards in [ShellCwdAfter::Stay, ShellCwdAfter::Follow] {
                let made = rewrite.of(line, afterwards).unwrap();
                assert!(
                    rewrite.made(&made, afterwards) && !rewrite.made(line, afterwards),
                    "{line}"
                );
                assert!(!rewrite.made(
                    &rewrite.of(&made, afterwards).unwrap().replace("'\\''", "'"),
                    afterwards
                ));
                for other in [
                    format!("{made} && id"),
                    made.replace("toolu_1", "toolu_2"),
                    made.replace("--shell", "--net full --shell"),
                    made.replace("/opt/ring fence", "/tmp/ringfence"),
                ] {
                    assert!(!rewrite.made(&other, afterwards), "{other}");
                }
            }
        }
    }
}
