//! Strings and arguments that a command runs in its turn, followed where they are literal.

use super::layers::base_name;
use super::reader::{Ground, Read, Reader};
use super::word::{Piece, Unknown};
use super::{Dialect, Part, Way, Word};

/// Builtins that take an argument for the name of a variable, of which a subscript is evaluated.
const NAMING: &[&str] =
    &["unset", "read", "mapfile", "readarray", "getopts", "wait", "printf", "declare", "typeset", "local", "export", "readonly"];
/// What a shell is told to obey from then on.
const CHANGING: &[&str] = &["compgen", "complete", "bind", "enable", "fc", "shopt"];

impl Reader<'_> {
    /// Follows what `part` runs; `documents` here-documents are its own.
    pub(super) fn follow(&mut self, part: &Part, documents: usize) -> Read<()> {
        let words = part.words();
        let Some(program) = words.first().and_then(Word::literal) else { return Ok(()) };
        let at = part.span.start;
        match base_name(&program) {
            "eval" => self.evaluated(&words[1..], part),
            "bash" | "rbash" => self.shell(part, documents, Some(Dialect::Bash)),
            "sh" | "dash" | "ash" => self.shell(part, documents, Some(Dialect::Posix)),
            "zsh" | "ksh" | "mksh" | "fish" | "csh" | "tcsh" => self.shell(part, documents, None),
            "source" | "." => self.sourced(part),
            "trap" => self.trap(&words[1..], part),
            "su" | "runuser" | "script" | "watch" | "parallel" | "entr" => self.strings(base_name(&program), part),
            "alias" => self.alias(&words[1..], part),
            "find" => self.find(part),
            "test" | "[" => {
                self.tested(&words[1..], at);
                Ok(())
            }
            "let" => {
                self.note(at, "arithmetic evaluates what variables hold");
                Ok(())
            }
            "hash" if words.iter().any(|word| word.prefix().starts_with("-p")) => {
                self.note(at, "it says by which program a name is meant");
                Ok(())
            }
            name if CHANGING.contains(&name) => {
                self.note(at, "it changes what later words mean, or runs what it is given");
                Ok(())
            }
            name if NAMING.contains(&name) => self.named(name, &words[1..], part),
            _ => Ok(()),
        }
    }

    /// A doubt about what stands at a byte of the line.
    fn note(&mut self, position: usize, reason: &str) {
        let doubt = super::Problem { position, reason: reason.to_owned() };
        if !self.found.doubts.contains(&doubt) {
            self.found.doubts.push(doubt);
        }
    }

    /// A string that is run, if it is known.
    fn string(&mut self, text: Option<String>, part: &Part, dialect: Dialect, what: &str) -> Read<()> {
        match text {
            Some(text) => self.inner(&text, Ground::Within(part.span.clone()), dialect, Way::Followed),
            None => self.unknown(part.span.clone(), what),
        }
    }

    fn evaluated(&mut self, words: &[Word], part: &Part) -> Read<()> {
        let words = if words.first().is_some_and(|word| word.is("--")) { &words[1..] } else { words };
        let text: Option<Vec<String>> = words.iter().map(Word::literal).collect();
        self.string(text.map(|words| words.join(" ")), part, self.dialect, "what eval runs")
    }

    fn sourced(&mut self, part: &Part) -> Read<()> {
        match part.words().get(1).map(|word| word.literal().filter(|file| !is_stream(file))) {
            Some(None) => self.unknown(part.span.clone(), "what it reads from no plain file"),
            _ => Ok(()),
        }
    }

    fn trap(&mut self, words: &[Word], part: &Part) -> Read<()> {
        let words = if words.first().is_some_and(|word| word.is("--")) { &words[1..] } else { words };
        match words {
            [action, _, ..] if action.is("-") || action.is("-p") || action.is("-l") => Ok(()),
            [action, _, ..] => self.string(action.literal(), part, self.dialect, "what trap runs"),
            _ => Ok(()),
        }
    }

    /// A value may be half a command, so that it is never certain what an alias comes to.
    fn alias(&mut self, words: &[Word], part: &Part) -> Read<()> {
        for word in words.iter().filter(|word| word.literal().is_none_or(|text| text.contains('='))) {
            self.note(word.span.start, "an alias changes what later words mean");
            let value = word.literal().and_then(|text| text.split_once('=').map(|(_, value)| value.to_owned()));
            let (parts, depth) = (self.found.parts.len(), self.depth);
            match self.string(value, part, self.dialect, "what an alias stands for") {
                // What cannot be read alone is no part; the doubt stands all the same. A script of
                // bash's does not obey aliases, one of another shell's does.
                Err(_) if self.dialect == Dialect::Bash => {
                    self.found.parts.truncate(parts);
                    self.depth = depth;
                }
                read => read?,
            }
        }
        Ok(())
    }

    /// Programs whose arguments are, or may hold, a line for a shell.
    fn strings(&mut self, name: &str, part: &Part) -> Read<()> {
        let words = part.words();
        let option = words.iter().position(|word| word.is("-c") || word.is("--command"));
        match (name, option) {
            ("su" | "runuser" | "script", Some(at)) => {
                let text = words.get(at + 1).and_then(Word::literal);
                self.string(text, part, Dialect::Posix, "what its shell runs")
            }
            ("watch", _) if words.get(1).is_some_and(|word| !word.prefix().starts_with('-')) => {
                let text: Option<Vec<String>> = words[1..].iter().map(Word::literal).collect();
                self.string(text.map(|words| words.join(" ")), part, Dialect::Posix, "what watch runs")
            }
            _ => self.unknown(part.span.clone(), "what it runs"),
        }
    }

    /// `-exec` and its like.
    fn find(&mut self, part: &Part) -> Read<()> {
        let words = part.words();
        let mut at = 1;
        while at < words.len() {
            let word = &words[at];
            let is_open = matches!(word.unknown(), Some(Unknown::Expansion | Unknown::Input | Unknown::Brace));
            if is_open && (word.prefix().is_empty() || word.prefix().starts_with('-')) {
                self.note(word.span.start, "find may be told by it to run something");
            }
            let runs = ["-exec", "-execdir", "-ok", "-okdir"].iter().any(|action| word.is(action));
            if !runs {
                at += 1;
                continue;
            }
            let ends = |word: &Word| {
                word.is(";") || word.is("+") || matches!(word.unknown(), Some(Unknown::Expansion | Unknown::Input | Unknown::Brace))
            };
            let length = words[at + 1..].iter().position(ends).unwrap_or(words.len() - at - 1);
            let inner: Vec<Word> = words[at + 1..at + 1 + length].iter().map(with_names).collect();
            if let Some(first) = inner.first() {
                let span = first.span.start..inner.last().map_or(first.span.end, |last| last.span.end.max(first.span.end));
                let outer = std::mem::replace(&mut self.way, Way::Followed);
                self.finish(super::simple::Simple { span, words: inner, ..Default::default() })?;
                self.way = outer;
            }
            at += length + 1;
        }
        Ok(())
    }

    fn tested(&mut self, words: &[Word], at: usize) {
        let may_be_subscript = |word: &Word| word.unknown().is_some() || word.prefix().contains('[');
        let may_be_option = |word: &Word| word.is("-v") || word.is("-R") || word.unknown().is_some() && word.prefix().is_empty();
        if words.windows(2).any(|pair| may_be_option(&pair[0]) && may_be_subscript(&pair[1])) {
            self.note(at, "whether a variable is set may evaluate a subscript");
        }
    }

    /// Builtins that assign to what they name.
    fn named(&mut self, name: &str, words: &[Word], part: &Part) -> Read<()> {
        for (index, word) in words.iter().enumerate() {
            let is_name = name != "printf" || index > 0 && words[index - 1].is("-v");
            let prefix = word.prefix();
            let before = prefix.split('=').next().unwrap_or_default();
            let is_open = !prefix.contains('=') && word.unknown().is_some();
            if is_name && (before.contains('[') || is_open) {
                self.note(part.span.start, "a subscript is arithmetic, which evaluates what variables hold");
            }
            if is_name && super::leads_elsewhere(before) && !super::variables::DECLARING.contains(&name) {
                self.note(part.span.start, "it assigns to a variable that leads programs elsewhere");
            }
            if prefix.starts_with('-')
                && (prefix.contains('i') && super::variables::DECLARING.contains(&name) || prefix.contains('n') && name != "read")
            {
                self.note(part.span.start, "what is assigned is evaluated, or assigned to another variable");
            }
            if prefix.starts_with("-C") && matches!(name, "mapfile" | "readarray") {
                self.unknown(part.span.clone(), "what it calls for each line")?;
            }
        }
        Ok(())
    }
}

/// Whether a file is whatever somebody gives at that moment.
pub(super) fn is_stream(file: &str) -> bool {
    file.starts_with("/dev/") || file.starts_with("/proc/") || file == "-"
}

/// `{}` stands for the names that `find` finds.
fn with_names(word: &Word) -> Word {
    let Some(text) = word.literal() else { return word.clone() };
    let mut pieces = Vec::new();
    for (at, between) in text.split("{}").enumerate() {
        if at > 0 {
            pieces.push(Piece::Hole(Unknown::Input));
        }
        pieces.extend(between.chars().map(Piece::Char));
    }
    Word { pieces, ..word.clone() }
}

impl Reader<'_> {
    /// A shell: what it is told to run, if that is known. `None` is one whose grammar is its own.
    fn shell(&mut self, part: &Part, documents: usize, dialect: Option<Dialect>) -> Read<()> {
        let words = part.words();
        let mut dialect = dialect;
        let mut at = 1;
        let mut source = Source::Script;
        while let Some(word) = words.get(at) {
            let Some(text) = word.literal() else { return self.unknown(word.span.clone(), "what a shell is told to run") };
            if text == "--" || text == "-" {
                at += 1;
                break;
            }
            if !text.starts_with(['-', '+']) || text.len() < 2 {
                break;
            }
            at += 1;
            if let Some(long) = text.strip_prefix("--") {
                match long {
                    "posix" => dialect = dialect.map(|_| Dialect::Posix),
                    "login" | "norc" | "noprofile" | "restricted" | "verbose" | "noediting" => {}
                    "version" | "help" => return Ok(()),
                    _ => return self.unknown(word.span.clone(), "what a shell is told to run"),
                }
                continue;
            }
            for letter in text[1..].chars() {
                match letter {
                    'c' => source = Source::Words,
                    's' if source == Source::Script => source = Source::Input,
                    'o' => {
                        if words.get(at).is_none_or(|word| word.literal().is_none()) {
                            return self.unknown(part.span.clone(), "what a shell is told to run");
                        }
                        if words[at].is("posix") {
                            dialect = dialect.map(|_| Dialect::Posix);
                        }
                        at += 1;
                    }
                    'O' => return self.unknown(word.span.clone(), "what a shell reads by other rules"),
                    _ if letter.is_ascii_alphabetic() => {}
                    _ => return self.unknown(word.span.clone(), "what a shell is told to run"),
                }
            }
        }
        let first = words.get(at);
        match (source, first, dialect) {
            (Source::Words, None, _) => Ok(()),
            (Source::Words, Some(word), Some(dialect)) => self.string(word.literal(), part, dialect, "what a shell is told to run"),
            (Source::Script, Some(word), _) if word.literal().is_some_and(|file| !is_stream(&file)) => Ok(()),
            (Source::Input, ..) | (Source::Script, None, _) => match dialect {
                Some(dialect) => self.shell_input(part, documents, dialect),
                None => self.unknown(part.span.clone(), "what a shell reads from its input"),
            },
            _ => self.unknown(part.span.clone(), "what a shell is told to run"),
        }
    }

    /// What a shell reads: a here-string or a here-document, or what nobody knows.
    fn shell_input(&mut self, part: &Part, documents: usize, dialect: Dialect) -> Read<()> {
        let inputs: Vec<_> = part.redirects.iter().filter(|redirect| redirect.operator.starts_with('<')).collect();
        match inputs.as_slice() {
            [redirect] if redirect.operator == "<<<" => self.string(redirect.target.literal(), part, dialect, "what a shell reads"),
            [redirect] if redirect.operator.starts_with("<<") && documents == 1 && !self.pending.is_empty() => {
                if let Some(pending) = self.pending.last_mut() {
                    pending.runs = Some(dialect);
                }
                Ok(())
            }
            _ => self.unknown(part.span.clone(), "what a shell reads from its input"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A file that is named, or else the input.
    Script,
    /// `-c`.
    Words,
    /// `-s`.
    Input,
}
