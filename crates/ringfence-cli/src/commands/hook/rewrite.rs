//! Rewrites a command line to run in the sandbox.

use std::path::{Path, PathBuf};

use ringfence_api::shell_quote;
use ringfence_policy::AbsPath;

/// The parts of the rewritten line.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandRewrite<'a> {
    /// The path of ringfence.
    pub(super) program: &'a Path,
    pub(super) project: &'a AbsPath,
    /// The directory the agent was started in.
    pub(super) start: &'a AbsPath,
    /// Flags that follow from the agent's own settings.
    pub(super) rules: &'a [String],
    pub(super) agent: &'a str,
    /// The conversation whose sandbox the line runs in; without one, it gets a new sandbox.
    pub(super) conversation: Option<Conversation<'a>>,
    /// The session name of the run, by which its denials are found afterwards.
    pub(super) call: Option<&'a str>,
    /// The mode, if it differs from the policy's.
    pub(super) mode: Option<&'a str>,
    /// The state directory.
    pub(super) state: &'a AbsPath,
}

/// The sandbox of a conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversation<'a> {
    pub(super) id: &'a str,
    pub(super) place: ConversationShell,
}

/// The shell of the conversation's sandbox that a line runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversationShell {
    /// The shared shell, or a separate one while another line runs there.
    Shared,
    /// A separate shell.
    Separate,
}

/// The working directory of the agent's shell after the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellCwdAfter {
    /// Unchanged.
    Stay,
    /// The directory the line ended in.
    Follow,
}

/// Returns the path of the link to the directory a run ended in.
pub(crate) fn cwd_link_path(state: &AbsPath, call: &str) -> PathBuf {
    state.as_path().join("ended").join(call)
}

impl CommandRewrite<'_> {
    /// Returns the line that runs `line` in the sandbox; `None` if a path is not UTF-8.
    ///
    /// All its words are quoted: `line` is one of them, for bash and zsh alike, and the outer shell
    /// interprets none of its output.
    pub(super) fn rewrite(&self, line: &str, afterwards: ShellCwdAfter) -> Option<String> {
        // The terminal belongs to the agent: accesses are denied without a question.
        let mut words = vec![shell_quote(self.program.to_str()?), "run".into()];
        if let Some(Conversation { id, place }) = self.conversation {
            words.extend(["--conversation".into(), shell_quote(id)]);
            words.extend((place == ConversationShell::Separate).then(|| "--beside".to_owned()));
        }
        words.push("--ask=never".into());
        words.extend(["--project".into(), shell_quote(self.project.as_path().to_str()?)]);
        if self.start != self.project {
            words.extend(["--started-in".into(), shell_quote(self.start.as_path().to_str()?)]);
        }
        words.extend(self.rules.iter().map(|rule| shell_quote(rule)));
        words.extend(["--agent".into(), shell_quote(self.agent)]);
        if let Some(mode) = self.mode {
            words.extend(["--mode".into(), shell_quote(mode)]);
        }
        if let Some(call) = self.call {
            words.extend(["--session".into(), shell_quote(call)]);
        }
        let end = self.end(afterwards)?;
        if !end.is_empty() {
            words.push("--keep-directory".into());
        }
        words.extend(["--shell".into(), "bash".into(), "-c".into(), shell_quote(line)]);
        Some(words.join(" ") + &end)
    }

    /// Returns the suffix of the line: `cd` to a link that ringfence creates. Its path is known
    /// before the line runs, and does not contain the directory that the line reports.
    fn end(&self, afterwards: ShellCwdAfter) -> Option<String> {
        match (afterwards, self.call) {
            (ShellCwdAfter::Follow, Some(call)) => Some(format!(
                " && builtin cd -P -- {}",
                shell_quote(cwd_link_path(self.state, call).to_str()?)
            )),
            _ => Some(String::new()),
        }
    }

    /// True if `line` is the rewritten form of some other line: then it already runs confined in
    /// the same way, whatever its author.
    pub(super) fn is_rewritten(&self, line: &str, afterwards: ShellCwdAfter) -> bool {
        let inner = || {
            let words = line.strip_suffix(&self.end(afterwards)?)?;
            let inner = unquoted(words.split_once(" -c ")?.1)?;
            Some(self.rewrite(&inner, afterwards)? == line)
        };
        inner() == Some(true)
    }
}

/// Removes the quotes of a word, if it was quoted by [`quoted`].
fn unquoted(word: &str) -> Option<String> {
    let text = word.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
    (shell_quote(&text) == word).then_some(text)
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
    fn quoted_word_round_trips() {
        for text in LINES {
            assert_eq!(unquoted(&shell_quote(text)).as_deref(), Some(*text));
        }
        for word in ["", "'", "x", "'a'b'", "'a' 'b'", "'a';id;'b'", "'a'\\'"] {
            assert_eq!(unquoted(word), None, "{word}");
        }
    }

    /// Promise: hooked-commands
    #[test]
    fn only_own_rewrites_are_recognized() {
        let (project, state) = (AbsPath::new("/p").unwrap(), AbsPath::new("/s").unwrap());
        let program = Path::new("/opt/ring fence");
        let below = AbsPath::new("/p/packages/it's").unwrap();
        let shared = Some(Conversation { id: "c1", place: ConversationShell::Shared });
        let both_starts = |conversation| [(&project, conversation), (&below, conversation)];
        let cases = both_starts(None).into_iter().chain(both_starts(shared));
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
                let made = rewrite.rewrite(line, afterwards).unwrap();
                assert!(
                    rewrite.is_rewritten(&made, afterwards)
                        && !rewrite.is_rewritten(line, afterwards),
                    "{line}"
                );
                assert!(!rewrite.is_rewritten(
                    &rewrite.rewrite(&made, afterwards).unwrap().replace("'\\''", "'"),
                    afterwards
                ));
                for other in [
                    format!("{made} && id"),
                    made.replace("toolu_1", "toolu_2"),
                    made.replace("--shell", "--net full --shell"),
                    made.replace("/opt/ring fence", "/tmp/ringfence"),
                ] {
                    assert!(!rewrite.is_rewritten(&other, afterwards), "{other}");
                }
            }
        }
    }
}
