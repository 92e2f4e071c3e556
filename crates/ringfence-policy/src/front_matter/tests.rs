use super::*;
use crate::testing::path;

const STRICT: &[&str] = &["tools", "command"];

fn read(head: &str) -> Result<FrontMatter, String> {
    FrontMatter::parse(&format!("---\n{head}\n---\nbody\n"), &path("/a.md"), STRICT)
        .map_err(|error| error.to_string())
}

/// A value in short form: plain text, `[a|b]`, `{k=v}`, `raw:…`.
fn short(kind: &FrontMatterKind) -> String {
    match kind {
        FrontMatterKind::Nothing => "nothing".into(),
        FrontMatterKind::Text(text) => text.clone(),
        FrontMatterKind::List(items) => format!(
            "[{}]",
            items.iter().map(|item| short(&item.kind)).collect::<Vec<_>>().join("|")
        ),
        FrontMatterKind::Map(entries) => {
            let each =
                entries.iter().map(|entry| format!("{}={}", entry.key, short(&entry.value.kind)));
            format!("{{{}}}", each.collect::<Vec<_>>().join("|"))
        }
        FrontMatterKind::Raw(text) => format!("raw:{text}"),
    }
}

#[track_caller]
fn check(head: &str, expect: &str) {
    let read = read(head).unwrap();
    assert_eq!(short(&FrontMatterKind::Map(read.entries)), expect, "{head}");
    assert_eq!(read.body, "body\n");
}

#[track_caller]
fn check_error(head: &str, expect: &str) {
    let error = read(head).unwrap_err();
    assert!(error.starts_with(&format!("/a.md:{expect}")), "{head}: {error}");
}

#[test]
fn values_are_texts_lists_and_maps() {
    check("tools: Read, Grep", "{tools=Read, Grep}");
    check("tools: [Read, \"a, b\", 'it''s']", "{tools=[Read|a, b|it's]}");
    check("tools: [Read,\n  Grep, # why\n  Glob,\n]", "{tools=[Read|Grep|Glob]}");
    check("tools:\n  - Read\n  - \"Grep\" # why\n", "{tools=[Read|Grep]}");
    check("tools:\n- Read\n- Grep\nmodel: opus", "{tools=[Read|Grep]|model=opus}");
    check("tools: []\ncommand: \"a: b \\\"c\\\" \\n\"", "{tools=[]|command=a: b \"c\" \n}");
    check(
        "tools: Read # and no more\n# a comment\n\ncommand: make\n  test",
        "{tools=Read|command=make test}",
    );
    check(
        "command: |\n  one\n    two\n\n  three\ntools: >-\n  Read,\n  Grep",
        "{command=one\n  two\n\nthree|tools=Read, Grep}",
    );
    check(
        "metadata:\n  version: \"1.0\"\n  deep:\n    a: b\n    c:\n      - d\nlicense: MIT",
        "{metadata={version=1.0|deep={a=b|c=[d]}}|license=MIT}",
    );
    check("\"tools\" : Read\nempty:", "{tools=Read|empty=nothing}");
    check("command: 'sh' # x", "{command=sh}");
}

#[test]
fn unparsable_value_of_other_key_is_kept_raw() {
    let wild = r#"Use this agent when: (1) you "must"; <example>user: "x"\nassistant: 'y'</example> - [a, {b"#;
    check(
        &format!("description: {wild}\ntools: Read"),
        &format!("{{description=raw:{wild}|tools=Read}}"),
    );
    check(
        "description: first\nprose, not indented\ntools: Read",
        "{description=first prose, not indented|tools=Read}",
    );
    check("description: \"a\" b\ntools: Read", "{description=raw:\"a\" b|tools=Read}");
    check(
        "hooks:\n  a:\n    - {x: 1}\n\ttab\ntools: Read",
        "{hooks=raw:\n  a:\n    - {x: 1}\n\ttab|tools=Read}",
    );
}

/// Promise: agent-definitions
#[test]
fn ambiguous_strict_value_is_error_with_position() {
    check_error("tools: *", "2:8: a value that begins with `*`");
    check_error("model: x\ntools: &a Read", "3:8:");
    check_error("tools: {a: b}", "2:8:");
    check_error("tools: [Read, [Edit]]", "2:15:");
    check_error("tools: [Read", "2:8: this list is not closed");
    check_error("tools: [Read] Edit", "2:14:");
    check_error("tools: [Read\n]\n  Edit", "3:2:");
    check_error("tools: \"Read", "2:8:");
    check_error("tools: \"\\x41\"", "2:8:");
    check_error("tools: 'Read' Edit", "2:8:");
    check_error("tools: Read\nEdit", "3:1:");
    check_error("tools: Read\n- Edit", "3:1: a list item after a text");
    check_error("tools: Read # x\n  Edit", "3:3: a value cannot continue");
    check_error("tools:\n  - Read\n Edit", "4:2:");
    check_error("tools:\n  - Read\n  Edit", "4:3:");
    check_error("tools:\n  - - Read", "3:5:");
    check_error("tools:\n\t- Read", "3:1: indented with a tab");
    check_error("command: a: b", "2:11: a colon");
    check_error("tools: Read\nmodel: x\ntools: Edit", "4:1: `tools` is already set in line 2");
    check_error("tools: Read\n\"tools\": Edit", "3:1: `tools` is already set");
    check_error("command: >2\n  x", "2:11:");
}

#[test]
fn front_matter_needs_two_fences() {
    let fail =
        |text: &str| FrontMatter::parse(text, &path("/a.md"), STRICT).unwrap_err().to_string();
    assert!(fail("").contains("does not begin"));
    assert!(fail("tools: Read\n---\n").contains("does not begin"));
    assert!(fail("---\ntools: Read\n").contains("has no end"));
    let read =
        FrontMatter::parse("\u{feff}---\r\ntools: Read\r\n--- \r\nx\r\n", &path("/a.md"), STRICT)
            .unwrap();
    assert_eq!(
        (short(&read.entries[0].value.kind).as_str(), read.body.as_str()),
        ("Read", "x\r\n")
    );
    assert_eq!(FrontMatter::parse("---\n---\n", &path("/a.md"), STRICT).unwrap().entries, []);
}
