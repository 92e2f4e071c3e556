//! Shell commands in string literals of other languages.

use super::ShellWord;
use super::unwrap::base_name;

/// Interpreters that take code as an argument.
const INTERPRETERS: &[&str] = &[
    "python", "pypy", "perl", "ruby", "node", "nodejs", "bun", "deno", "php", "lua", "awk", "gawk",
    "mawk",
];
/// Words that code needs to start a program.
const STARTING: &[&str] =
    &["system", "exec", "spawn", "popen", "subprocess", "Popen", "check_output", "`", "| getline"];

/// Lines that the code in an interpreter's arguments may run.
///
/// Finds only complete string literals. A language has many ways to build a string, and a text rule
/// cannot stop them.
pub(super) fn commands(words: &[ShellWord]) -> Vec<String> {
    let Some(program) = words.first().and_then(ShellWord::literal) else { return Vec::new() };
    let name = base_name(&program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&name) {
        return Vec::new();
    }
    let codes = words[1..]
        .iter()
        .filter_map(ShellWord::literal)
        .filter(|code| STARTING.iter().any(|word| code.contains(word)));
    codes
        .flat_map(|code| {
            let strings = quoted(&code);
            let joined = strings.join(" ");
            strings.into_iter().chain([joined])
        })
        .filter(|text| !text.trim().is_empty())
        .collect()
}

/// The string literals in the code.
fn quoted(code: &str) -> Vec<String> {
    let mut strings = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['\'', '"', '`']) {
        let mark = rest[at..].chars().next().unwrap_or('"');
        let after = &rest[at + 1..];
        let Some(end) = after.find(mark) else { break };
        strings.push(after[..end].to_owned());
        rest = &after[end + 1..];
    }
    strings
}
