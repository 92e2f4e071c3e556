//! A type name has one meaning in the whole workspace, so that a search finds one definition.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

/// Names that may be defined more than once, with the reason.
const SHARED: &[(&str, &str)] = &[];

/// A definition of a type.
struct Definition<'a> {
    name: &'a str,
    path: &'a str,
    line: usize,
}

pub(super) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut findings = Vec::new();
    for definition in definitions(tree) {
        let Definition { name, path, line } = definition;
        if SHARED.iter().any(|(shared, _)| *shared == name) {
            continue;
        }
        match first.get(name) {
            Some((path_of_first, line_of_first)) => findings.push(Finding::new(
                path,
                line,
                format!("type `{name}` is defined in {path_of_first}:{line_of_first}, too"),
            )),
            None => drop(first.insert(name, (path, line))),
        }
    }
    findings
}

/// Counts of type names, as `cargo xtask tidy --stats` prints them.
pub(super) struct TypeStats {
    /// Definitions in the workspace.
    pub(super) total: usize,
    /// Definitions whose name another definition has, too.
    pub(super) shared: usize,
    /// Definitions whose name is one word.
    pub(super) one_word: usize,
}

impl TypeStats {
    pub(super) fn count(tree: &Tree) -> Self {
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        definitions(tree).for_each(|definition| *by_name.entry(definition.name).or_default() += 1);
        let sum = |select: &dyn Fn(&str, usize) -> bool| {
            by_name.iter().filter(|(name, count)| select(name, **count)).map(|(_, n)| n).sum()
        };
        TypeStats {
            total: sum(&|_, _| true),
            shared: sum(&|_, count| count > 1),
            one_word: sum(&|name, _| is_one_word(name)),
        }
    }
}

/// True for `Place`, false for `CgroupParent`.
fn is_one_word(name: &str) -> bool {
    name.chars().skip(1).all(|c| !c.is_uppercase())
}

/// Every struct, enum, union and trait, and the type aliases that belong to no impl or trait.
fn definitions(tree: &Tree) -> impl Iterator<Item = Definition<'_>> {
    tree.rust().flat_map(|(path, code)| {
        code.lines().enumerate().filter_map(move |(index, line)| {
            Some(Definition { name: defined_type(line)?, path, line: index + 1 })
        })
    })
}

/// The type that `line` defines. Aliases inside of a block are associated types.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || word.ends_with(')') || matches!(*word, "unsafe" | "in")
    });
    let keyword = words.next()?;
    let is_definition = matches!(keyword, "struct" | "enum" | "union" | "trait")
        || keyword == "type" && !is_indented;
    let name = words.next()?.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
    (is_definition && name.starts_with(char::is_uppercase)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, tree};
    use super::{TypeStats, findings};

    #[test]
    fn second_definition_of_a_type_is_found() {
        check(
            findings,
            &tree(&[
                ("a.rs", "pub struct Place;\nimpl X for Y {\n    type Out = ();\n}\n"),
                ("b.rs", "mod m {\n    pub(in crate::b) enum Place {}\n}\ntype Out = ();\n"),
                ("c.rs", "// struct Place\nlet s = \"struct Place\";\n"),
            ]),
            &["b.rs:2: type `Place` is defined in a.rs:1, too"],
        );
    }

    #[test]
    fn stats_count_shared_and_one_word_names() {
        let stats = TypeStats::count(&tree(&[
            ("a.rs", "struct Place;\nstruct CgroupParent;\ntrait Tls {}\n"),
            ("b.rs", "union Place {}\n"),
        ]));
        assert_eq!((stats.total, stats.shared, stats.one_word), (4, 2, 3));
    }
}
