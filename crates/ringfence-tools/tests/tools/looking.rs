//! `list` and `search`.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_tools::{FileTools, ListEntry, ListEntryKind, ListParams, SearchParams};

use crate::stage::{SECRET, code, denial};

fn names(tools: &FileTools, params: &ListParams) -> Vec<String> {
    tools.list(params).unwrap().entries.into_iter().map(|entry| entry.path).collect()
}

fn lines(tools: &FileTools, params: &SearchParams) -> Vec<String> {
    tools
        .search(params)
        .unwrap()
        .matches
        .into_iter()
        .map(|found| format!("{}:{}:{}", found.path, found.line, found.column))
        .collect()
}

tests! { "looking":

#[test]
fn directory_is_listed(stage) {
    let tools = stage.tools();
    symlink("../../notes.txt", stage.at("link")).unwrap();
    let listing = tools.list(&ListParams::new(".")).unwrap();
    assert_eq!(listing.path, stage.workspace);
    let entry = |name: &str| listing.entries.iter().find(|entry| entry.path == name).unwrap_or_else(|| panic!("{name} is not listed"));
    let file = ListEntry { path: "README".into(), kind: ListEntryKind::File, size: Some(12), target: None, denied: false };
    assert_eq!(*entry("README"), file);
    assert_eq!((entry("link").kind, entry("link").target.as_deref()), (ListEntryKind::Link, Some("../../notes.txt")));
    assert_eq!((entry(".env").denied, entry(".env").size), (true, None));
    assert_eq!(names(&tools, &ListParams::new("")), [".env", ".git", "README", "link", "src", "sub"]);
    assert_eq!(code(tools.list(&ListParams::new("README"))), "kind");
    assert_eq!(code(tools.list(&ListParams::new("nowhere"))), "not-found");
}

#[test]
fn depth_glob_and_limit_select_entries(stage) {
    let tools = stage.tools();
    stage.put("src/deep/er/x.rs", "");
    let list = |depth: Option<usize>, glob: Option<&str>| names(&tools, &ListParams { depth, glob: glob.map(Into::into), ..ListParams::new("src") });
    assert_eq!(list(None, None), ["deep", "main.rs"]);
    assert_eq!(list(Some(2), None), ["deep", "deep/er", "main.rs"]);
    assert_eq!(list(None, Some("*.rs")), ["deep/er/x.rs", "main.rs"]);
    assert_eq!(list(Some(1), Some("*.rs")), ["main.rs"]);
    assert_eq!(list(None, Some("deep/**/*.rs")), ["deep/er/x.rs"]);
    let few = tools.list(&ListParams { limit: Some(2), ..ListParams::new(".") }).unwrap();
    assert_eq!((few.entries.len(), few.truncated), (2, true));
    assert_eq!(code(tools.list(&ListParams { glob: Some("[".into()), ..ListParams::new(".") })), "glob");
}

/// Promise: tools-decide-alike
#[test]
fn paths_absent_in_the_sandbox_are_not_listed(stage) {
    let tools = stage.tools_with("[filesystem]\nread = [\"~/data/open\"]");
    stage.put_at(&stage.home.join("data/open/x"), "x");
    stage.put_at(&stage.home.join("data/shut/y"), SECRET);
    // Only the way to the allowed path.
    let names = |path: &str| names(&tools, &ListParams { depth: Some(9), ..ListParams::new(path) });
    assert_eq!(names("../../data"), ["open", "open/x"]);
    assert_eq!(names("../../code"), ["app", "app/.env", "app/.git", "app/.git/HEAD", "app/.git/config", "app/.git/hooks", "app/README", "app/src", "app/src/main.rs", "app/sub", "app/sub/x.pem"]);
    denial(tools.list(&ListParams::new("../../data/shut")));
    denial(tools.list(&ListParams::new("../../.ssh")));
    denial(tools.list(&ListParams::new("../other")));
    let home = tools.list(&ListParams::new("../..")).unwrap();
    assert!(home.entries.iter().all(|entry| entry.path != "notes.txt"), "{home:?}");
}

#[test]
fn search_reports_file_line_and_column(stage) {
    let tools = stage.tools();
    stage.put("src/a.txt", "one\r\n two One\n");
    stage.put("src/latin", b"caf\xe9 one\n");
    assert_eq!(lines(&tools, &SearchParams::literal("one")), ["src/a.txt:1:1", "src/latin:1:6"]);
    assert_eq!(lines(&tools, &SearchParams { ignore_case: true, ..SearchParams::literal("ONE") }), ["src/a.txt:1:1", "src/a.txt:2:6", "src/latin:1:6"]);
    assert_eq!(lines(&tools, &SearchParams { glob: Some("*.rs".into()), ..SearchParams::literal("main") }), ["src/main.rs:1:4"]);
    assert_eq!(lines(&tools, &SearchParams { path: "README".into(), ..SearchParams::literal("world") }), ["README:2:1"]);
    assert_eq!(tools.search(&SearchParams::literal("two")).unwrap().matches[0].text, " two One");
    assert_eq!(code(tools.search(&SearchParams::literal(""))), "input");
}

#[test]
fn search_supports_regular_expressions(stage) {
    let tools = stage.tools();
    stage.put("src/lib.rs", "pub fn one() {}\nfn two() {}\n// fn three\n");
    let search = |pattern: &str, ignore_case: bool| lines(&tools, &SearchParams { pattern: pattern.into(), ignore_case, ..SearchParams::default() });
    assert_eq!(search(r"^\s*(pub )?fn \w+\(", false), ["src/lib.rs:1:1", "src/lib.rs:2:1", "src/main.rs:1:1"]);
    assert_eq!(search(r"T(WO|HREE)\b", true), ["src/lib.rs:2:4", "src/lib.rs:3:7"]);
    assert_eq!(code(tools.search(&SearchParams { pattern: "(".into(), ..SearchParams::default() })), "input");
    // As plain text, if requested.
    assert_eq!(lines(&tools, &SearchParams::literal("()")), ["src/lib.rs:1:11", "src/lib.rs:2:7", "src/main.rs:1:8"]);
}

/// Promise: tools-decide-alike
#[test]
fn denied_files_are_never_found(stage) {
    let tools = stage.tools();
    symlink("../../notes.txt", stage.at("out")).unwrap();
    symlink("..", stage.at("above")).unwrap();
    fs::hard_link(stage.at(".env"), stage.at("innocent")).unwrap();
    let found = tools.search(&SearchParams::literal(SECRET)).unwrap();
    assert!(found.matches.is_empty(), "{found:?}");
    assert_eq!((found.denied, found.truncated), (3, false));
    // Also by a hard link created after the survey.
    fs::hard_link(stage.home.join(".ssh/id_test").as_path(), stage.at("src/plain")).unwrap();
    let found = tools.search(&SearchParams::literal(SECRET)).unwrap();
    assert_eq!((found.matches.len(), found.denied), (0, 4));
    denial(tools.search(&SearchParams { path: ".env".into(), ..SearchParams::literal(SECRET) }));
    denial(tools.search(&SearchParams { path: "../../.ssh".into(), ..SearchParams::literal(SECRET) }));
    // A search from a parent directory finds no more.
    let found = tools.search(&SearchParams { path: "../..".into(), ..SearchParams::literal(SECRET) }).unwrap();
    assert!(found.matches.is_empty(), "{found:?}");
}

/// Promise: tool-writes
#[test]
fn search_skips_binary_and_large_files_and_never_blocks(stage) {
    let tools = stage.tools();
    stage.put("binary", b"needle\0");
    stage.put("large", vec![b'n'; 9 << 20]);
    rustix::fs::mknodat(rustix::fs::CWD, stage.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    stage.put("hay", "needle\n");
    let found = tools.search(&SearchParams::literal("needle")).unwrap();
    assert_eq!((found.matches.len(), found.skipped), (1, 2));
}

#[test]
fn search_is_bounded(stage) {
    let tools = stage.tools();
    stage.put("many", "x\n".repeat(5000));
    let few = tools.search(&SearchParams { limit: Some(10), ..SearchParams::literal("x") }).unwrap();
    assert_eq!((few.matches.len(), few.truncated), (10, true));
    let now = tools.search(&SearchParams { timeout_ms: Some(0), ..SearchParams::literal("x") }).unwrap();
    assert!(now.truncated);
    stage.put("long", format!("{}needle", "y".repeat(5000)));
    let long = tools.search(&SearchParams::literal("needle")).unwrap();
    assert_eq!((long.matches[0].column, long.matches[0].text.len()), (5001, 500));
}

}
