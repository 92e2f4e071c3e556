//! `list` and `search`.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_tools::{Entry, EntryKind, List, Search, Tools};

use crate::stage::{SECRET, code, denial};

fn names(tools: &Tools, wish: &List) -> Vec<String> {
    tools.list(wish).unwrap().entries.into_iter().map(|entry| entry.path).collect()
}

fn lines(tools: &Tools, wish: &Search) -> Vec<String> {
    tools
        .search(wish)
        .unwrap()
        .matches
        .into_iter()
        .map(|found| format!("{}:{}:{}", found.path, found.line, found.column))
        .collect()
}

tests! { "looking":

#[test]
fn a_directory_is_listed(stage) {
    let tools = stage.tools();
    symlink("../../notes.txt", stage.at("link")).unwrap();
    let listing = tools.list(&List::new(".")).unwrap();
    assert_eq!(listing.path, stage.workspace);
    let entry = |name: &str| listing.entries.iter().find(|entry| entry.path == name).unwrap_or_else(|| panic!("{name} is not listed"));
    let file = Entry { path: "README".into(), kind: EntryKind::File, size: Some(12), target: None, denied: false };
    assert_eq!(*entry("README"), file);
    assert_eq!((entry("link").kind, entry("link").target.as_deref()), (EntryKind::Link, Some("../../notes.txt")));
    assert_eq!((entry(".env").denied, entry(".env").size), (true, None));
    assert_eq!(names(&tools, &List::new("")), [".env", ".git", "README", "link", "src", "sub"]);
    assert_eq!(code(tools.list(&List::new("README"))), "kind");
    assert_eq!(code(tools.list(&List::new("nowhere"))), "not-found");
}

#[test]
fn depth_glob_and_limit_choose(stage) {
    let tools = stage.tools();
    stage.put("src/deep/er/x.rs", "");
    let list = |depth: Option<usize>, glob: Option<&str>| names(&tools, &List { depth, glob: glob.map(Into::into), ..List::new("src") });
    assert_eq!(list(None, None), ["deep", "main.rs"]);
    assert_eq!(list(Some(2), None), ["deep", "deep/er", "main.rs"]);
    assert_eq!(list(None, Some("*.rs")), ["deep/er/x.rs", "main.rs"]);
    assert_eq!(list(Some(1), Some("*.rs")), ["main.rs"]);
    assert_eq!(list(None, Some("deep/**/*.rs")), ["deep/er/x.rs"]);
    let few = tools.list(&List { limit: Some(2), ..List::new(".") }).unwrap();
    assert_eq!((few.entries.len(), few.truncated), (2, true));
    assert_eq!(code(tools.list(&List { glob: Some("[".into()), ..List::new(".") })), "glob");
}

#[test]
fn what_is_not_there_inside_is_not_listed(stage) {
    let tools = stage.tools_with("[filesystem]\nread = [\"~/data/open\"]");
    stage.put_at(&stage.home.join("data/open/x"), "x");
    stage.put_at(&stage.home.join("data/shut/y"), SECRET);
    // The way to what is opened, and nothing beside it.
    let names = |path: &str| names(&tools, &List { depth: Some(9), ..List::new(path) });
    assert_eq!(names("../../data"), ["open", "open/x"]);
    assert_eq!(names("../../code"), ["app", "app/.env", "app/.git", "app/.git/HEAD", "app/.git/config", "app/.git/hooks", "app/README", "app/src", "app/src/main.rs", "app/sub", "app/sub/x.pem"]);
    denial(tools.list(&List::new("../../data/shut")));
    denial(tools.list(&List::new("../../.ssh")));
    denial(tools.list(&List::new("../other")));
    let home = tools.list(&List::new("../..")).unwrap();
    assert!(home.entries.iter().all(|entry| entry.path != "notes.txt"), "{home:?}");
}

#[test]
fn text_is_found_by_file_line_and_column(stage) {
    let tools = stage.tools();
    stage.put("src/a.txt", "one\r\n two One\n");
    stage.put("src/latin", b"caf\xe9 one\n");
    assert_eq!(lines(&tools, &Search::literal("one")), ["src/a.txt:1:1", "src/latin:1:6"]);
    assert_eq!(lines(&tools, &Search { ignore_case: true, ..Search::literal("ONE") }), ["src/a.txt:1:1", "src/a.txt:2:6", "src/latin:1:6"]);
    assert_eq!(lines(&tools, &Search { glob: Some("*.rs".into()), ..Search::literal("main") }), ["src/main.rs:1:4"]);
    assert_eq!(lines(&tools, &Search { path: "README".into(), ..Search::literal("world") }), ["README:2:1"]);
    assert_eq!(tools.search(&Search::literal("two")).unwrap().matches[0].text, " two One");
    assert_eq!(code(tools.search(&Search::literal(""))), "input");
}

#[test]
fn regular_expressions_are_found(stage) {
    let tools = stage.tools();
    stage.put("src/lib.rs", "pub fn one() {}\nfn two() {}\n// fn three\n");
    let search = |pattern: &str, ignore_case: bool| lines(&tools, &Search { pattern: pattern.into(), ignore_case, ..Search::default() });
    assert_eq!(search(r"^\s*(pub )?fn \w+\(", false), ["src/lib.rs:1:1", "src/lib.rs:2:1", "src/main.rs:1:1"]);
    assert_eq!(search(r"T(WO|HREE)\b", true), ["src/lib.rs:2:4", "src/lib.rs:3:7"]);
    assert_eq!(code(tools.search(&Search { pattern: "(".into(), ..Search::default() })), "input");
    // As it is written, where that is asked for.
    assert_eq!(lines(&tools, &Search::literal("()")), ["src/lib.rs:1:11", "src/lib.rs:2:7", "src/main.rs:1:8"]);
}

#[test]
fn what_may_not_be_read_is_not_found(stage) {
    let tools = stage.tools();
    symlink("../../notes.txt", stage.at("out")).unwrap();
    symlink("..", stage.at("above")).unwrap();
    fs::hard_link(stage.at(".env"), stage.at("innocent")).unwrap();
    let found = tools.search(&Search::literal(SECRET)).unwrap();
    assert!(found.matches.is_empty(), "{found:?}");
    assert_eq!((found.denied, found.truncated), (3, false));
    // Also by a name that was made after the host was looked at.
    fs::hard_link(stage.home.join(".ssh/id_test").as_path(), stage.at("src/plain")).unwrap();
    let found = tools.search(&Search::literal(SECRET)).unwrap();
    assert_eq!((found.matches.len(), found.denied), (0, 4));
    denial(tools.search(&Search { path: ".env".into(), ..Search::literal(SECRET) }));
    denial(tools.search(&Search { path: "../../.ssh".into(), ..Search::literal(SECRET) }));
    // From further up nothing more is seen.
    let found = tools.search(&Search { path: "../..".into(), ..Search::literal(SECRET) }).unwrap();
    assert!(found.matches.is_empty(), "{found:?}");
}

#[test]
fn what_is_no_text_is_passed_by_and_nothing_is_waited_for(stage) {
    let tools = stage.tools();
    stage.put("binary", b"needle\0");
    stage.put("large", vec![b'n'; 9 << 20]);
    rustix::fs::mknodat(rustix::fs::CWD, stage.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    stage.put("hay", "needle\n");
    let found = tools.search(&Search::literal("needle")).unwrap();
    assert_eq!((found.matches.len(), found.skipped), (1, 2));
}

#[test]
fn there_is_an_end_to_a_search(stage) {
    let tools = stage.tools();
    stage.put("many", "x\n".repeat(5000));
    let few = tools.search(&Search { limit: Some(10), ..Search::literal("x") }).unwrap();
    assert_eq!((few.matches.len(), few.truncated), (10, true));
    let now = tools.search(&Search { timeout_ms: Some(0), ..Search::literal("x") }).unwrap();
    assert!(now.truncated);
    stage.put("long", format!("{}needle", "y".repeat(5000)));
    let long = tools.search(&Search::literal("needle")).unwrap();
    assert_eq!((long.matches[0].column, long.matches[0].text.len()), (5001, 500));
}

}
