//! Follows the strings and arguments that a command runs, where they are literal.

use super::input::with_input;
use super::reader::{LineReader, ReadResult, TextOrigin};
use super::shell::is_stream;
use super::unwrap::base_name;
use super::word::{UnknownWord, WordPiece};
use super::{ReachedBy, ShellDialect, ShellWord, SimpleCommand};

/// Builtins that take the name of a variable as an argument and evaluate its subscript.
const NAMING: &[&str] = &[
    "unset",
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "wait",
    "printf",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
];
/// `find` actions that run a program.
const RUNNING: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// Builtins that change the state of the shell.
const CHANGING: &[&str] = &["compgen", "complete", "bind", "enable", "fc", "shopt"];

impl LineReader<'_> {
    /// Follows the commands that `part` runs. The last `documents` pending here-documents belong to
    /// it.
    pub(super) fn follow(&mut self, part: &SimpleCommand, documents: usize) -> ReadResult<()> {
        let words = part.words();
        let Some(program) = words.first().and_then(ShellWord::literal) else { return Ok(()) };
        let at = part.span.start;
        match base_name(&program) {
            "eval" => self.evaluated(&words[1..], part),
            "bash" | "rbash" => self.shell(part, documents, Some(ShellDialect::Bash)),
            "sh" | "dash" | "ash" => self.shell(part, documents, Some(ShellDialect::Posix)),
            "zsh" | "ksh" | "mksh" | "fish" | "csh" | "tcsh" => self.shell(part, documents, None),
            "source" | "." => self.sourced(part),
            "trap" => self.trap(&words[1..], part),
            "su" | "runuser" | "script" | "watch" | "parallel" | "entr" => {
                self.strings(base_name(&program), part)
            }
            "alias" => self.alias(&words[1..], part),
            "find" => self.find(part),
            "sed" | "gsed" => self.sed(part),
            "test" | "[" => {
                self.tested(&words[1..], at);
                Ok(())
            }
            "let" => {
                self.note(at, "arithmetic evaluates the values of variables");
                Ok(())
            }
            "hash" if words[1..].iter().any(|word| may_be_option(word, 'p')) => {
                self.note(at, "it changes the program that a name refers to");
                Ok(())
            }
            "set"
                if words[1..]
                    .iter()
                    .take_while(|word| !word.is("--"))
                    .any(|word| may_be_option(word, 'k') || word.is("keyword")) =>
            {
                self.note(at, "it changes the meaning of later words");
                Ok(())
            }
            name if CHANGING.contains(&name) => {
                self.note(at, "it changes the meaning of later words, or runs its arguments");
                Ok(())
            }
            name if NAMING.contains(&name) => self.named(name, &words[1..], part),
            _ => Ok(()),
        }
    }

    /// Follows a string that is run, if it is known.
    pub(super) fn string(
        &mut self,
        text: Option<String>,
        part: &SimpleCommand,
        dialect: ShellDialect,
        what: &str,
    ) -> ReadResult<()> {
        match text {
            Some(text) => self.parse_nested(
                &text,
                TextOrigin::Within(part.span.clone()),
                dialect,
                ReachedBy::Followed,
            ),
            None => self.add_unknown(part.span.clone(), what),
        }
    }

    fn evaluated(&mut self, words: &[ShellWord], part: &SimpleCommand) -> ReadResult<()> {
        let words =
            if words.first().is_some_and(|word| word.is("--")) { &words[1..] } else { words };
        let text: Option<Vec<String>> = words.iter().map(ShellWord::literal).collect();
        self.string(text.map(|words| words.join(" ")), part, self.dialect, "the argument of eval")
    }

    fn sourced(&mut self, part: &SimpleCommand) -> ReadResult<()> {
        match part.words().get(1).map(|word| word.literal().filter(|file| !is_stream(file))) {
            Some(None) => self.add_unknown(part.span.clone(), "the content of the sourced file"),
            _ => Ok(()),
        }
    }

    fn trap(&mut self, words: &[ShellWord], part: &SimpleCommand) -> ReadResult<()> {
        let words =
            if words.first().is_some_and(|word| word.is("--")) { &words[1..] } else { words };
        match words {
            [action, _, ..] if action.is("-") || action.is("-p") || action.is("-l") => Ok(()),
            [action, _, ..] => {
                self.string(action.literal(), part, self.dialect, "the action of trap")
            }
            _ => Ok(()),
        }
    }

    /// Follows an alias. Its value may be half a command, so an alias is always a doubt.
    fn alias(&mut self, words: &[ShellWord], part: &SimpleCommand) -> ReadResult<()> {
        for word in words.iter().filter(|word| word.literal().is_none_or(|text| text.contains('=')))
        {
            self.note(word.span.start, "an alias changes the meaning of later words");
            let value = word
                .literal()
                .and_then(|text| text.split_once('=').map(|(_, value)| value.to_owned()));
            let (parts, depth) = (self.found.parts.len(), self.depth);
            match self.string(value, part, self.dialect, "the value of the alias") {
                // A value that cannot be parsed alone adds no part; the doubt remains. A bash
                // script ignores aliases, a script of another shell does not.
                Err(_) if self.dialect == ShellDialect::Bash => {
                    self.found.parts.truncate(parts);
                    self.depth = depth;
                }
                read => read?,
            }
        }
        Ok(())
    }

    /// Follows programs whose arguments are, or may contain, a shell command.
    fn strings(&mut self, name: &str, part: &SimpleCommand) -> ReadResult<()> {
        let words = part.words();
        let option = words.iter().position(|word| word.is("-c") || word.is("--command"));
        match (name, option) {
            ("su" | "runuser" | "script", Some(at)) => {
                let text = words.get(at + 1).and_then(ShellWord::literal);
                self.string(text, part, ShellDialect::Posix, "the command for its shell")
            }
            ("watch", _) if words.get(1).is_some_and(|word| !word.prefix().starts_with('-')) => {
                let text: Option<Vec<String>> = words[1..].iter().map(ShellWord::literal).collect();
                self.string(
                    text.map(|words| words.join(" ")),
                    part,
                    ShellDialect::Posix,
                    "the command of watch",
                )
            }
            _ => self.add_unknown(part.span.clone(), "the program that it runs"),
        }
    }

    /// Follows `-exec` and related actions.
    fn find(&mut self, part: &SimpleCommand) -> ReadResult<()> {
        let words = part.words();
        let mut at = 1;
        while at < words.len() {
            let word = &words[at];
            let is_open = matches!(
                word.unknown(),
                Some(UnknownWord::Expansion | UnknownWord::Input | UnknownWord::Brace)
            );
            let may_run = is_open && (word.prefix().is_empty() || word.prefix().starts_with('-'))
                || RUNNING.iter().any(|action| may_find(word, action));
            if may_run {
                self.note(word.span.start, "it may be a find action that runs a program");
            }
            if !RUNNING.iter().any(|action| word.is(action)) {
                at += 1;
                continue;
            }
            let command = &words[at + 1..];
            let ends = |at: usize| {
                let is_list = command[at].is("+") && at > 0 && command[at - 1].is("{}");
                let is_open = matches!(
                    command[at].unknown(),
                    Some(UnknownWord::Expansion | UnknownWord::Input | UnknownWord::Brace)
                );
                command[at].is(";") || is_list || is_open
            };
            let length = (0..command.len()).find(|at| ends(*at)).unwrap_or(command.len());
            let inner: Vec<ShellWord> =
                words[at + 1..at + 1 + length].iter().map(|word| with_input(word, "{}")).collect();
            if let Some(first) = inner.first() {
                let span = first.span.start
                    ..inner.last().map_or(first.span.end, |last| last.span.end.max(first.span.end));
                let outer = std::mem::replace(&mut self.way, ReachedBy::Followed);
                self.finish_command(super::simple::RawCommand {
                    span,
                    words: inner,
                    ..Default::default()
                })?;
                self.way = outer;
            }
            at += length + 1;
        }
        Ok(())
    }

    fn tested(&mut self, words: &[ShellWord], at: usize) {
        let may_be_subscript =
            |word: &ShellWord| word.unknown().is_some() || word.prefix().contains('[');
        let may_be_option = |word: &ShellWord| {
            word.is("-v") || word.is("-R") || word.unknown().is_some() && word.prefix().is_empty()
        };
        if words.windows(2).any(|pair| may_be_option(&pair[0]) && may_be_subscript(&pair[1])) {
            self.note(at, "testing if a variable is set may evaluate a subscript");
        }
    }

    /// Follows builtins that assign to the variables in their arguments.
    fn named(&mut self, name: &str, words: &[ShellWord], part: &SimpleCommand) -> ReadResult<()> {
        let is_declaring = super::variables::DECLARING.contains(&name);
        for (index, word) in words.iter().enumerate() {
            let prefix = word.prefix();
            let is_name = name != "printf"
                || prefix.starts_with("-v")
                || index > 0 && words[index - 1].is("-v");
            let (before, value) = prefix.split_once('=').unwrap_or((&prefix, ""));
            let is_open = !prefix.contains('=') && word.unknown().is_some();
            if is_name && (before.contains('[') || is_open) {
                self.note(
                    part.span.start,
                    "a subscript is arithmetic, which evaluates the values of variables",
                );
            }
            if is_name && super::can_redirect_program(before) && !is_declaring {
                self.note(
                    part.span.start,
                    "it assigns a variable that can make a program run another one",
                );
            }
            if prefix.starts_with('-')
                && (prefix.contains('i') && is_declaring || prefix.contains('n') && name != "read")
            {
                self.note(
                    part.span.start,
                    "the assigned value is evaluated, or assigned to another variable",
                );
            }
            // bash expands a quoted array, too.
            if is_declaring && value.starts_with('(') {
                self.add_unknown(part.span.clone(), "the content of the array")?;
            }
            if matches!(name, "mapfile" | "readarray") && may_be_option(word, 'C') {
                self.add_unknown(part.span.clone(), "the callback for each line")?;
            }
        }
        let is_array = is_declaring
            && words.iter().any(|word| may_be_option(word, 'a') || may_be_option(word, 'A'));
        if is_array
            && words.iter().any(|word| word.prefix().ends_with('=') && word.unknown().is_some())
        {
            self.note(part.span.start, "the assigned value is expanded if it looks like an array");
        }
        Ok(())
    }
}

/// True if a word is, or may expand to, a short option with this letter.
fn may_be_option(word: &ShellWord, letter: char) -> bool {
    let prefix = word.prefix();
    let is_one =
        prefix.starts_with(['-', '+']) && !prefix.starts_with("--") && prefix.contains(letter);
    is_one || word.unknown().is_some() && (prefix.is_empty() || prefix.starts_with('-'))
}

/// True if a glob may match this file name.
fn may_find(word: &ShellWord, name: &str) -> bool {
    let is_known = |piece: &&WordPiece| matches!(piece, WordPiece::Char(_));
    let end: String = word
        .pieces
        .iter()
        .rev()
        .take_while(is_known)
        .filter_map(|piece| if let WordPiece::Char(c) = piece { Some(*c) } else { None })
        .collect();
    let end: String = end.chars().rev().collect();
    word.unknown() == Some(UnknownWord::Glob)
        && name.starts_with(&word.prefix())
        && name.ends_with(&end)
}
