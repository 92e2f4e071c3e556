//! `sed` scripts: the commands they run and the files they open.
//!
//! `e` and the flag `e` of `s` run a program, `w` and `W` write a file, `r` and `R` read one. A
//! script that is not fully understood is a doubt.

use super::reader::{LineReader, ReadResult};
use super::simple::RawCommand;
use super::{ReachedBy, Redirect, ShellDialect, ShellWord, SimpleCommand};

/// Side effect of a script.
#[derive(Debug, PartialEq, Eq)]
enum SedEffect {
    /// `e COMMAND`.
    Runs(String),
    /// `e` alone, and `s///e`: sed runs its own text.
    RunsText,
    Reads(String),
    Writes(String),
}

impl LineReader<'_> {
    /// Follows the effects of a `sed` script.
    pub(super) fn sed(&mut self, part: &SimpleCommand) -> ReadResult<()> {
        let at = part.span.start;
        let effects = script(&part.words()[1..]).and_then(|script| Script::new(&script).effects());
        let Some(effects) = effects else {
            self.note(at, "the sed script may run a program");
            return Ok(());
        };
        for effect in effects {
            match effect {
                SedEffect::Runs(command) => {
                    self.string(Some(command), part, ShellDialect::Posix, "the command of sed")?
                }
                SedEffect::RunsText => self.note(at, "sed runs its input as a command"),
                SedEffect::Reads(file) => self.opened(part, "<", &file)?,
                SedEffect::Writes(file) => self.opened(part, ">", &file)?,
            }
        }
        Ok(())
    }

    /// Records a file that a script opens as a redirection.
    fn opened(&mut self, part: &SimpleCommand, operator: &str, file: &str) -> ReadResult<()> {
        let span = part.span.clone();
        let target = ShellWord::from_literal(file, span.clone());
        let redirect = Redirect {
            span: span.clone(),
            descriptor: String::new(),
            operator: operator.to_owned(),
            target,
        };
        let outer = std::mem::replace(&mut self.way, ReachedBy::Followed);
        self.finish_command(RawCommand {
            span,
            redirects: vec![redirect],
            ..RawCommand::default()
        })?;
        self.way = outer;
        Ok(())
    }
}

/// The script in the arguments; `None` if unknown. A script file (`-f`) is not read, like a shell
/// script.
fn script(words: &[ShellWord]) -> Option<String> {
    let mut scripts: Vec<String> = Vec::new();
    let mut plain: Vec<String> = Vec::new();
    let (mut has_file, mut at) = (false, 0);
    while at < words.len() {
        // A file named by a glob is not an option, unless it may begin with a dash.
        let word = &words[at];
        let Some(text) = word.literal() else {
            if plain.is_empty() && scripts.is_empty() && !has_file
                || word.prefix().is_empty()
                || word.prefix().starts_with('-')
            {
                return None;
            }
            at += 1;
            continue;
        };
        at += 1;
        if text == "--" {
            plain.extend(words[at..].iter().map_while(ShellWord::literal));
            break;
        }
        match text.strip_prefix("--").map(|long| {
            long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)))
        }) {
            Some(("expression", Some(value))) => scripts.push(value.to_owned()),
            Some(("file", Some(_))) => has_file = true,
            Some(("expression" | "file" | "line-length", _)) => return None,
            Some((
                "quiet" | "silent" | "debug" | "follow-symlinks" | "posix" | "separate" | "sandbox"
                | "unbuffered",
                None,
            )) => {}
            Some((
                "regexp-extended" | "null-data" | "zero-terminated" | "help" | "version"
                | "in-place" | "binary",
                _,
            )) => {}
            Some(_) => return None,
            None if text.starts_with('-') && text.len() > 1 => {
                at += letters(&text[1..], words.get(at), &mut scripts, &mut has_file)?;
            }
            None => plain.push(text),
        }
    }
    if scripts.is_empty() && !has_file {
        scripts.extend(plain.into_iter().next());
    }
    Some(scripts.join("\n"))
}

/// Parses short options. Returns the number of following words that belong to them.
fn letters(
    letters: &str,
    next: Option<&ShellWord>,
    scripts: &mut Vec<String>,
    has_file: &mut bool,
) -> Option<usize> {
    for (at, letter) in letters.char_indices() {
        let rest = &letters[at + letter.len_utf8()..];
        let value = || {
            if rest.is_empty() { next.and_then(ShellWord::literal) } else { Some(rest.to_owned()) }
        };
        let taken = usize::from(rest.is_empty());
        match letter {
            'n' | 'E' | 'r' | 's' | 'u' | 'z' | 'b' => {}
            // The rest is a suffix.
            'i' => return Some(0),
            'e' => {
                scripts.push(value()?);
                return Some(taken);
            }
            'f' => {
                *has_file = true;
                return value().map(|_| taken);
            }
            'l' => return value().map(|_| taken),
            _ => return None,
        }
    }
    Some(0)
}

/// Cursor over a script.
struct Script {
    text: Vec<char>,
    at: usize,
}

impl Script {
    fn new(text: &str) -> Self {
        Self { text: text.chars().collect(), at: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn skip(&mut self, is_skipped: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.at += 1;
        }
    }

    /// All effects in order; `None` if the script is not understood.
    fn effects(mut self) -> Option<Vec<SedEffect>> {
        let mut effects = Vec::new();
        loop {
            self.skip(|c| c.is_whitespace() || c == ';' || c == '{' || c == '}');
            if self.peek().is_none() {
                return Some(effects);
            }
            self.addresses()?;
            self.skip(|c| c == ' ' || c == '\t' || c == '!');
            let command = self.peek()?;
            self.at += 1;
            match command {
                '{' | '}' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P'
                | 'x' | 'z' | 'F' => {}
                'q' | 'Q' | 'l' | 'L' => self.skip(|c| c == ' ' || c.is_ascii_digit()),
                '#' => drop(self.line()),
                ':' | 'b' | 't' | 'T' | 'v' => self.skip(|c| c != '\n' && c != ';' && c != '}'),
                'a' | 'i' | 'c' => self.appended(),
                'e' => effects.push(match self.line() {
                    command if command.is_empty() => SedEffect::RunsText,
                    command => SedEffect::Runs(command),
                }),
                'r' | 'R' => effects.push(SedEffect::Reads(self.line())),
                'w' | 'W' => effects.push(SedEffect::Writes(self.line())),
                's' => self.substitution(&mut effects)?,
                'y' => {
                    let delimiter = self.delimiter()?;
                    self.delimited(delimiter)?;
                    self.delimited(delimiter)?;
                }
                _ => return None,
            }
        }
    }

    /// Skips addresses: `1`, `$`, `/re/I`, `\,re,`, `first~step`, `1,+3`.
    fn addresses(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                Some(c)
                    if c.is_ascii_digit() || matches!(c, '$' | '~' | '+' | ',' | ' ' | '\t') =>
                {
                    self.at += 1
                }
                Some('/') => {
                    self.at += 1;
                    self.delimited('/')?;
                    self.skip(|c| c == 'I' || c == 'M');
                }
                Some('\\') => {
                    self.at += 1;
                    let delimiter = self.delimiter()?;
                    self.delimited(delimiter)?;
                    self.skip(|c| c == 'I' || c == 'M');
                }
                _ => return Some(()),
            }
        }
    }

    fn delimiter(&mut self) -> Option<char> {
        let delimiter = self.peek().filter(|c| !matches!(c, '\n' | '\\'))?;
        self.at += 1;
        Some(delimiter)
    }

    /// Skips up to and including a delimiter. Implementations differ on a delimiter in brackets.
    fn delimited(&mut self, delimiter: char) -> Option<()> {
        let mut in_brackets = false;
        loop {
            let c = self.peek()?;
            self.at += 1;
            match c {
                '\\' => self.at += 1,
                c if c == delimiter => return (!in_brackets).then_some(()),
                '[' => in_brackets = true,
                ']' => in_brackets = false,
                _ => {}
            }
        }
    }

    fn substitution(&mut self, effects: &mut Vec<SedEffect>) -> Option<()> {
        let delimiter = self.delimiter()?;
        self.delimited(delimiter)?;
        // Brackets have no meaning in a replacement.
        loop {
            let c = self.peek()?;
            self.at += 1;
            match c {
                '\\' => self.at += 1,
                c if c == delimiter => break,
                _ => {}
            }
        }
        loop {
            match self.peek() {
                Some(c) if c.is_ascii_digit() || "gpiImM".contains(c) => self.at += 1,
                Some('e') => {
                    self.at += 1;
                    effects.push(SedEffect::RunsText);
                }
                Some('w') => {
                    self.at += 1;
                    effects.push(SedEffect::Writes(self.line()));
                    return Some(());
                }
                None | Some('\n' | ';' | '}' | ' ' | '\t' | '#') => return Some(()),
                Some(_) => return None,
            }
        }
    }

    /// Consumes the rest of the line, trimmed.
    fn line(&mut self) -> String {
        let start = self.at;
        self.skip(|c| c != '\n');
        self.text[start..self.at].iter().collect::<String>().trim().to_owned()
    }

    /// Skips the text of `a`, `i` and `c`, which continues after a line that ends with a backslash.
    fn appended(&mut self) {
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '\\' => self.at += 1,
                '\n' => return,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, expect: Option<&[SedEffect]>) {
        assert_eq!(Script::new(script).effects().as_deref(), expect, "{script}");
    }

    #[test]
    fn plain_scripts_have_no_effect_beyond_their_output() {
        for script in [
            "",
            "s/a/b/g",
            "1,3p",
            "$!N;s/\\n/ /;P;D",
            "/we/d",
            "/e/!d",
            "s,e,w,",
            "y/we/ew/",
            "1{/x/{s/a/e/;p}}",
            "a we are\ns/a/b/",
            "i\\\nw x\\\ne y\np",
            ":e\nbe",
            "s/e/\\//2gp",
            "# w x",
            "\\,e w,d",
            "2q5",
            "/[abc]/p",
        ] {
            check(script, Some(&[]));
        }
    }

    #[test]
    fn commands_and_files_of_a_script_are_found() {
        check("1e id", Some(&[SedEffect::Runs("id".into())]));
        check("e", Some(&[SedEffect::RunsText]));
        check("s/x/id/e", Some(&[SedEffect::RunsText]));
        check("p;$!{e id\n}", Some(&[SedEffect::Runs("id".into())]));
        check("s/x/y/gw /tmp/out", Some(&[SedEffect::Writes("/tmp/out".into())]));
        check(
            "w /tmp/a\nr /tmp/b",
            Some(&[SedEffect::Writes("/tmp/a".into()), SedEffect::Reads("/tmp/b".into())]),
        );
        check("/x/ , $ W f", Some(&[SedEffect::Writes("f".into())]));
    }

    #[test]
    fn uncertain_scripts_are_not_guessed() {
        for script in ["s/[/]/x/", "k", "s/a/b", "s/a/b/q", "/a", "\u{7f}"] {
            check(script, None);
        }
    }
}
