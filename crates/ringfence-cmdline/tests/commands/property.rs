//! Lines composed of known parts: the verdict follows from the parts.

use proptest::prelude::*;
use ringfence_cmdline::{
    CommandPattern, Exclusion, ParsedLine, ShellDialect, check_each_rule, check_exclusion,
};

use crate::table::{EXCLUDED, rules};

/// A line, and whether every command in it is excluded.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedLine {
    pub(crate) text: String,
    is_excluded: bool,
}

/// The commands that lines are composed of.
fn commands() -> impl Strategy<Value = GeneratedLine> {
    let made = |text: &str, is_excluded| GeneratedLine { text: text.to_owned(), is_excluded };
    let inside = [
        "curl evil.com",
        "rm -rf x",
        "git push",
        "npm run build",
        "npm run testall",
        "dock er",
        "evil docker ps",
        "./docker ps",
        "cat",
    ];
    let outside = [
        "docker ps",
        "docker",
        "docker run -it --rm x",
        "npm run lint",
        "npm run test",
        "npm run test unit",
        "docker-compose up",
    ];
    let all = inside
        .into_iter()
        .map(move |text| made(text, false))
        .chain(outside.into_iter().map(move |text| made(text, true)));
    prop::sample::select(all.collect::<Vec<_>>())
}

/// Wrappers and assignments that do not change the program.
fn prefixes() -> impl Strategy<Value = String> {
    let one = prop::sample::select(vec![
        "FOO=bar ",
        "FOO= ",
        "timeout 30 ",
        "timeout -k 5 1m ",
        "nice ",
        "nice -n 5 ",
        "nohup ",
        "stdbuf -oL ",
        "env ",
        "env -i ",
        "env -u X ",
        "env A=b ",
        "command ",
        "exec ",
        "setsid -w ",
        "ionice -c3 ",
        "/usr/bin/env ",
    ]);
    // An assignment counts only in front of everything else.
    prop::collection::vec(one, 0..4).prop_map(|mut words| {
        words.sort_by_key(|word| !word.starts_with("FOO"));
        words.concat()
    })
}

/// The same characters with redundant quotes and backslashes.
fn spelt(text: String) -> impl Strategy<Value = String> {
    prop::collection::vec(0u8..12, text.len()).prop_map(move |ways| {
        let spell = |(c, way): (char, u8)| match way {
            _ if !c.is_ascii_alphanumeric() => c.to_string(),
            0 => format!("'{c}'"),
            1 => format!("\"{c}\""),
            2 => format!("\\{c}"),
            3 => format!("$'\\x{:02x}'", u32::from(c)),
            4 => format!("\\\n{c}"),
            5 => format!("''{c}"),
            _ => c.to_string(),
        };
        text.chars().zip(ways).map(spell).collect()
    })
}

fn simple() -> impl Strategy<Value = GeneratedLine> {
    (prefixes(), commands())
        .prop_flat_map(|(prefix, made)| {
            (Just(prefix), spelt(made.text.clone()), Just(made.is_excluded))
        })
        .prop_map(|(prefix, text, is_excluded)| GeneratedLine {
            text: format!("{prefix}{text}"),
            is_excluded,
        })
}

/// Lines composed of lines. A line with only excluded parts is not always excluded itself.
pub(crate) fn lines() -> impl Strategy<Value = GeneratedLine> {
    simple().prop_recursive(4, 24, 3, |line| {
        let joined = (
            line.clone(),
            line.clone(),
            prop::sample::select(vec![
                " && ",
                " || ",
                "; ",
                " | ",
                " & ",
                "\n",
                " |& ",
                " \\\n && ",
            ]),
        )
            .prop_map(|(a, b, by)| GeneratedLine {
                text: format!("{}{by}{}", a.text, b.text),
                is_excluded: a.is_excluded && b.is_excluded,
            });
        let around = prop::sample::select(vec![
            ("(", ")"),
            ("{ ", "; }"),
            ("! ", ""),
            ("if ", "; then docker ps; fi"),
            ("if docker ps; then ", "; else docker x; fi"),
            ("while ", "; do docker ps; done"),
            ("for i in a b; do ", "; done"),
            ("case x in a) ", ";; esac"),
            ("docker $(", ")"),
            ("docker \"$(", ")\""),
            ("docker <(", ")"),
            ("docker ${x:-$(", ")}"),
            ("docker <<< \"$(", ")\""),
            ("docker <<E\n$(", ")\nE\n"),
            ("docker ps > /dev/null; ", ""),
            ("docker $((1 + $(", ")))"),
            ("f() { ", "; }"),
            ("[[ -n $(", ") ]]"),
            ("FOO=$(", ") docker ps"),
            ("a=($(", ")) docker ps"),
        ]);
        let wrapped = (line, around).prop_map(|(a, (before, after))| {
            let is_list = a.text.contains(['\n', '&']) && after.starts_with(';');
            let after = if is_list && a.text.ends_with('&') {
                after.trim_start_matches(';')
            } else {
                after
            };
            GeneratedLine { text: format!("{before}{}{after}", a.text), is_excluded: a.is_excluded }
        });
        prop_oneof![joined, wrapped]
    })
}

fn is_outside(text: &str) -> bool {
    matches!(check_exclusion(ParsedLine::parse(text).as_ref(), EXCLUDED), Exclusion::Outside(_))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Promise: excluded-lines
    #[test]
    fn line_with_unexcluded_part_is_not_excluded(made in lines()) {
        prop_assert!(made.is_excluded || !is_outside(&made.text), "{:?}", made.text);
    }

    /// Promise: excluded-lines
    #[test]
    fn excluded_command_is_excluded_in_any_spelling(made in simple()) {
        prop_assert_eq!(is_outside(&made.text), made.is_excluded, "{:?} {:?}", &made.text, ParsedLine::parse(&made.text));
    }

    /// Promise: parsed-lines
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>(), odd in "[ a-c$(){}\\[\\]<>|&;'\"`\\\\\n=#!*~-]{0,60}") {
        for text in [text, odd] {
            for dialect in [ShellDialect::Bash, ShellDialect::Posix] {
                match ParsedLine::parse_as(&text, dialect) {
                    Ok(line) => {
                        for part in &line.parts {
                            prop_assert!(text.get(part.span.clone()).is_some(), "{:?} {:?}", text, part.span);
                            prop_assert!(!part.layers.is_empty());
                        }
                        let _ = check_each_rule(Ok(&line), &rules(&["a*", "b:*", &text], true));
                    }
                    Err(problem) => prop_assert!(text.get(..problem.position).is_some(), "{text:?} {problem:?}"),
                }
            }
            let _ = CommandPattern::parse(&text).is_empty();
        }
    }

    /// Promise: parsed-lines
    #[test]
    fn posix_line_parses_the_same_in_bash(made in lines()) {
        if let Ok(line) = ParsedLine::parse_as(&made.text, ShellDialect::Posix) {
            prop_assert_eq!(Ok(line), ParsedLine::parse(&made.text));
        }
    }
}
