//! Files and functions that fit in a head.

use super::Finding;
use super::source::find_word;
use super::tree::Tree;

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// Files that may be longer: catalogues of same-shaped entries, as (path, reason).
const LONG_FILES: &[(&str, &str)] = &[
    ("crates/ringfence-api/src/optional.rs", CATALOGUE),
    ("crates/ringfence-e2e/tests/behaviour/hooks.rs", WIDTH),
    ("crates/ringfence-e2e/tests/behaviour/live.rs", WIDTH),
    ("crates/ringfence-e2e/tests/behaviour/sessions.rs", WIDTH),
    ("crates/ringfence-e2e/tests/serve/sandboxes.rs", WIDTH),
    ("crates/ringfence-cli/src/commands/session/server.rs", WIDTH),
    ("crates/ringfence-egress/src/relay/tests.rs", WIDTH),
    ("crates/ringfence-survey/src/build.rs", WIDTH),
    ("crates/ringfence-linux/src/launcher/git_sweep.rs", WIDTH),
    ("crates/ringfence-linux/src/launcher/git_sweep/state.rs", WIDTH),
    ("crates/ringfence-plan/src/seccomp/table.rs", CATALOGUE),
    ("crates/ringfence-conformance/src/shells.rs", CATALOGUE),
];

/// Functions that may be longer, as (path, name, reason).
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[
    (
        "crates/ringfence-linux/src/launcher/git_config/change.rs",
        "several_steps_cannot_redirect_the_users_branches",
        CATALOGUE,
    ),
    ("crates/ringfence-policy/src/parse/tests.rs", "policy_errors_have_line_and_column", CATALOGUE),
    (
        "crates/ringfence-conformance/src/shells.rs",
        "shell_reports_exit_status_after_option_changes",
        CATALOGUE,
    ),
];

/// The reason of the catalogues above.
const CATALOGUE: &str = "a list of entries of one shape";

/// The reason of most files above.
const WIDTH: &str = "grew past the limit when lines were cut to 100 columns";

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    judge(tree, LONG_FILES, LONG_FUNCTIONS)
}

fn judge(
    tree: &Tree,
    long_files: &[(&str, &str)],
    long_functions: &[(&str, &str, &str)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, code) in tree.rust() {
        let lines = code.lines().count();
        if lines > FILE_LINES && !long_files.iter().any(|(file, _)| *file == path) {
            findings.push(Finding::new(path, 1, format!("{lines} lines, more than {FILE_LINES}")));
        }
        for function in functions(code).iter().filter(|function| function.lines > FUNCTION_LINES) {
            if !long_functions
                .iter()
                .any(|(file, name, _)| (*file, *name) == (path, function.name.as_str()))
            {
                let what = format!(
                    "`{}` has {} lines, more than {FUNCTION_LINES}",
                    function.name, function.lines
                );
                findings.push(Finding::new(path, function.line, what));
            }
        }
    }
    findings
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// The functions of `code`, found by counting braces: good for text that the compiler accepts.
fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut offset = 0;
    for (index, line) in code.split_inclusive('\n').enumerate() {
        if let Some(at) = find_word(line, "fn") {
            let rest = &code[offset + at + 2..];
            let name: String = rest
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            // Without a name it is the type of a pointer.
            if !name.is_empty()
                && let Some(body) = body(rest)
            {
                found.push(Function {
                    name,
                    line: index + 1,
                    lines: body.matches('\n').count() + 1,
                });
            }
        }
        offset += line.len();
    }
    found
}

/// From the end of `fn` to the closing brace; nothing for a declaration without a body.
fn body(rest: &str) -> Option<&str> {
    let mut nested = 0;
    let mut braces = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '(' | '[' => nested += 1,
            ')' | ']' => nested -= 1,
            ';' if nested == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && nested == 0 {
                    return Some(&rest[..=at]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::{Function, findings, functions, judge};

    #[test]
    fn long_files_are_found() {
        check(findings, &tree(&[("a.rs", &"//\n".repeat(600))]), &[]);
        check(
            findings,
            &tree(&[("a.rs", &"//\n".repeat(601)), ("a.md", &"x\n".repeat(900))]),
            &["a.rs:1: 601 lines"],
        );
        assert!(
            judge(&tree(&[("a.rs", &"//\n".repeat(601))]), &[("a.rs", "catalogue")], &[])
                .is_empty()
        );
    }

    #[test]
    fn long_functions_are_found() {
        let short = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(68));
        let long = format!(
            "\nimpl A {{\n    pub(crate) fn f(&self) -> [u8; 2] {{\n{}    }}\n}}\n",
            "    g();\n".repeat(69)
        );
        check(findings, &tree(&[("a.rs", &short)]), &[]);
        check(findings, &tree(&[("a.rs", &long)]), &["a.rs:3: `f` has 71 lines"]);
        assert!(judge(&tree(&[("a.rs", &long)]), &[], &[("a.rs", "f", "a table")]).is_empty());
    }

    #[test]
    fn declarations_and_pointers_are_no_functions() {
        let code = "trait T {\n    fn a(&self, x: [u8; 3]);\n    fn b() {}\n}\ntype F = fn(&str) -> bool;\n";
        assert_eq!(functions(code), [Function { name: "b".into(), line: 3, lines: 1 }]);
    }
}
