//! `cargo xtask tidy`: the rules that no compiler knows.
//!
//! Each rule is a pure function from the tree to findings, in a file of its own
//! with its tables. Reading the tree is the only thing that touches the disk.

mod dependencies;
mod docs;
mod layers;
mod lines;
mod names;
mod platform;
mod promises;
mod prose;
mod references;
mod sizes;
mod source;
#[cfg(test)]
mod testing;
mod tree;
mod types;
mod unsafety;
mod words;

use std::fmt;

use crate::TaskResult;
use tree::Tree;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.what)
    }
}

type TidyRule = fn(&Tree) -> Vec<Finding>;

const RULES: &[TidyRule] = &[
    layers::findings,
    unsafety::findings,
    platform::findings,
    sizes::findings,
    words::findings,
    names::findings,
    dependencies::findings,
    promises::findings,
    docs::findings,
    types::findings,
    prose::findings,
    references::findings,
];

/// Prints every finding; fails if there is one.
pub(crate) fn run() -> TaskResult {
    let tree = Tree::read()?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err("1 finding".into()),
        count => Err(format!("{count} findings").into()),
    }
}

/// Prints the counts that the rules on names and prose keep low.
pub(crate) fn print_stats() -> TaskResult {
    let tree = Tree::read()?;
    let types = types::TypeStats::count(&tree);
    let (comments, openers) = prose::count_openers(&tree);
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    println!("type definitions                          {}", types.total);
    println!(
        "  with a name that is defined twice       {} ({:.1} %)",
        types.shared,
        percent(types.shared, types.total)
    );
    println!(
        "  with a name of one word                 {} ({:.1} %)",
        types.one_word,
        percent(types.one_word, types.total)
    );
    println!("doc comments                              {comments}");
    println!(
        "  that begin with What, Whether, Who …    {openers} ({:.1} %)",
        percent(openers, comments)
    );
    let lines = lines::count_production_lines(&tree);
    println!("production lines                          {}", lines.values().sum::<usize>());
    for (name, count) in lines {
        println!("  {name:<39} {count}");
    }
    Ok(())
}
