//! Promises to users, and the tests that hold them.
//!
//! `xtask/promises.txt` lists each promise as `id: sentence` below its `# section`. A test names
//! the promises that it holds in its doc comment: `/// Promise: home-secrets, no-litter`.
//! `cargo xtask gen` writes PROMISES.md from both; `cargo xtask tidy` checks that they fit.

use std::fmt::Write as _;

/// The list of promises, from the top of the workspace.
pub(crate) const CATALOGUE: &str = "xtask/promises.txt";
const TAG: &str = "/// Promise:";

/// A promise as the catalogue lists it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Promise<'a> {
    pub(crate) section: &'a str,
    pub(crate) id: &'a str,
    pub(crate) sentence: &'a str,
    pub(crate) line: usize,
}

/// A test that holds promises.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PromiseTest<'a> {
    pub(crate) path: &'a str,
    /// Line of the tag.
    pub(crate) line: usize,
    /// Name of the function, if one follows the tag.
    pub(crate) name: Option<&'a str>,
    pub(crate) promises: Vec<&'a str>,
}

/// Reads the catalogue.
pub(crate) fn read_catalogue(text: &str) -> Vec<Promise<'_>> {
    let mut section = "";
    let mut promises = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("# ") {
            section = title;
        } else if let Some((id, sentence)) = line.split_once(": ") {
            promises.push(Promise { section, id, sentence, line: index + 1 });
        }
    }
    promises
}

/// Finds the tagged tests of a Rust file.
pub(crate) fn read_tags<'a>(path: &'a str, text: &'a str) -> Vec<PromiseTest<'a>> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let tagged = lines.iter().enumerate().filter_map(|(index, line)| {
        let promises = line.strip_prefix(TAG)?.split(',').map(str::trim).collect();
        let item = lines[index + 1..]
            .iter()
            .find(|line| !line.starts_with("///") && !line.starts_with("#["));
        let name = item.and_then(|line| line.split_once("fn ")).map(|(_, rest)| {
            rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
        });
        Some(PromiseTest { path, line: index + 1, name, promises })
    });
    tagged.collect()
}

/// PROMISES.md: each promise with its tests.
pub(crate) fn render(promises: &[Promise<'_>], tests: &[PromiseTest<'_>]) -> String {
    let mut text = String::from(
        "# Promises\n\nWritten by `cargo xtask gen` from `xtask/promises.txt` and the lines \
         `/// Promise: …` above tests.\nBehaviour tests run as root and as an ordinary user. \
         Paths are below `crates/`.\n",
    );
    let mut section = "";
    for promise in promises {
        if promise.section != section {
            section = promise.section;
            let _ = write!(text, "\n## {section}\n");
        }
        let _ = write!(text, "\n**{}** ({})\n\n", promise.sentence, promise.id);
        let holding = tests.iter().filter(|test| test.promises.contains(&promise.id));
        let mut names: Vec<String> = holding
            .map(|test| {
                let path = test.path.strip_prefix("crates/").unwrap_or(test.path);
                format!("- `{path}`: `{}`\n", test.name.unwrap_or_default())
            })
            .collect();
        names.sort();
        text.extend(names);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{PromiseTest, read_catalogue, read_tags, render};

    const TEXT: &str = "/// Reads.\n///\n/// Promise: a, b\n#[test]\nfn reads_nothing() {}\n";

    #[test]
    fn tag_belongs_to_the_function_below_it() {
        let expect = PromiseTest {
            path: "x.rs",
            line: 3,
            name: Some("reads_nothing"),
            promises: vec!["a", "b"],
        };
        assert_eq!(read_tags("x.rs", TEXT), [expect]);
    }

    #[test]
    fn document_lists_each_promise_with_its_tests() {
        let promises = read_catalogue("# Files\na: It holds.\n");
        let text = render(&promises, &read_tags("crates/x.rs", TEXT));
        assert!(text.ends_with("\n## Files\n\n**It holds.** (a)\n\n- `x.rs`: `reads_nothing`\n"));
    }
}
