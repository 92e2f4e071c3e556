//! `read`.

use std::os::unix::fs::symlink;

use ringfence_tools::{ReadParams, ReadResultBody};

use crate::stage::{code, text};

tests! { "reading":

/// Promise: P78
#[test]
fn a_file_is_shown_as_it_is(stage) {
    let tools = stage.tools();
    assert_eq!(text(&tools, "README"), "hello\nworld\n");
    assert_eq!(text(&tools, stage.at("README")), "hello\nworld\n");
    assert_eq!(text(&tools, "src/../README"), "hello\nworld\n");
    stage.put("marked", "\u{feff}a\r\nb\r\n");
    assert_eq!(text(&tools, "marked"), "\u{feff}a\r\nb\r\n");
    stage.put("empty", "");
    let shown = tools.read(&ReadParams::new("empty")).unwrap();
    assert_eq!((shown.text.as_deref(), shown.size, shown.truncated), (Some(""), 0, false));
}

/// Promise: P78
#[test]
fn bytes_that_are_no_text_are_kept(stage) {
    let tools = stage.tools();
    stage.put("picture", b"\x89PNG\0\0");
    stage.put("latin", b"caf\xe9\n");
    let shown = |name: &str| tools.read(&ReadParams::new(name)).map(|content| (content.text, content.base64)).unwrap();
    assert_eq!(shown("picture"), (None, Some("iVBORwAA".into())));
    assert_eq!(shown("latin"), (None, Some("Y2Fm6Qo=".into())));
}

#[test]
fn a_range_of_lines_is_shown(stage) {
    let tools = stage.tools();
    stage.put("lines", "1\n2\n3\n4\n5");
    let range = |offset: u64, limit: u64| {
        let shown = tools.read(&ReadParams { offset: Some(offset), limit: Some(limit), ..ReadParams::new("lines") }).unwrap();
        (shown.text.unwrap(), shown.first_line.unwrap(), shown.truncated)
    };
    assert_eq!(range(2, 2), ("2\n3\n".into(), 2, true));
    assert_eq!(range(5, 9), ("5".into(), 5, false));
    assert_eq!(range(9, 9), (String::new(), 9, false));
    assert_eq!(range(1, 5), ("1\n2\n3\n4\n5".into(), 1, false));
    assert_eq!(range(1, 0), (String::new(), 1, true));
}

#[test]
fn a_range_of_bytes_is_shown_and_no_character_is_cut(stage) {
    let tools = stage.tools();
    stage.put("bytes", "aé€z");
    let range = |offset: u64, limit: u64| {
        let shown = tools.read(&ReadParams { byte_offset: Some(offset), byte_limit: Some(limit), ..ReadParams::new("bytes") }).unwrap();
        (shown.text, shown.truncated)
    };
    assert_eq!(range(0, 4), (Some("aé".into()), true));
    assert_eq!(range(3, 9), (Some("€z".into()), false));
    assert_eq!(range(7, 9), (Some(String::new()), false));
    // In the middle of a character there is no text, but what is there is shown.
    assert_eq!(range(4, 1), (None, true));
}

#[test]
fn no_more_is_shown_than_anybody_reads(stage) {
    let tools = stage.tools();
    stage.put("large", vec![b'a'; 3 << 20]);
    let shown = tools.read(&ReadParams::new("large")).unwrap();
    assert_eq!((shown.text.unwrap().len() as u64, shown.size, shown.truncated), (ReadResultBody::USUAL, 3 << 20, true));
    let shown = tools.read(&ReadParams { byte_limit: Some(u64::MAX), ..ReadParams::new("large") }).unwrap();
    assert_eq!((shown.text.unwrap().len(), shown.truncated), (3 << 20, false));
}

/// Promise: P78
#[test]
fn what_is_no_file_is_not_waited_for(stage) {
    let tools = stage.tools();
    rustix::fs::mknodat(rustix::fs::CWD, stage.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(stage.at("socket")).unwrap();
    symlink("pipe", stage.at("to-pipe")).unwrap();
    symlink("/dev/zero", stage.at("zero")).unwrap();
    assert_eq!(code(tools.read(&ReadParams::new("pipe"))), "kind");
    assert_eq!(code(tools.read(&ReadParams::new("to-pipe"))), "kind");
    assert_eq!(code(tools.read(&ReadParams::new("src"))), "kind");
    assert_eq!(code(tools.read(&ReadParams::new("."))), "kind");
    // Sockets of the host are covered in a sandbox, and no device is in one but its own.
    assert_eq!(code(tools.read(&ReadParams::new("socket"))), "denied");
    assert_eq!(code(tools.read(&ReadParams::new("zero"))), "denied");
}

#[test]
fn what_is_not_there_is_not_found(stage) {
    let tools = stage.tools();
    symlink("loop", stage.at("loop")).unwrap();
    symlink("nowhere", stage.at("dangling")).unwrap();
    assert_eq!(code(tools.read(&ReadParams::new("nowhere"))), "not-found");
    assert_eq!(code(tools.read(&ReadParams::new("nowhere/at/all"))), "not-found");
    assert_eq!(code(tools.read(&ReadParams::new("README/x"))), "not-found");
    assert_eq!(code(tools.read(&ReadParams::new("dangling"))), "not-found");
    assert_eq!(code(tools.read(&ReadParams::new("loop"))), "system");
    assert_eq!(code(tools.read(&ReadParams::new("a\0b"))), "input");
    assert_eq!(code(tools.read(&ReadParams::new("x".repeat(300)))), "system");
    assert_eq!(code(tools.read(&ReadParams::new(format!("/{}", "x/".repeat(3000))))), "input");
}

#[test]
fn links_are_followed_where_they_stay_inside(stage) {
    let tools = stage.tools();
    symlink("README", stage.at("relative")).unwrap();
    symlink(stage.at("src"), stage.at("absolute")).unwrap();
    symlink("absolute/../README", stage.at("around")).unwrap();
    assert_eq!(text(&tools, "relative"), "hello\nworld\n");
    assert_eq!(text(&tools, "absolute/main.rs"), "fn main() {}\n");
    assert_eq!(text(&tools, "around"), "hello\nworld\n");
    let shown = tools.read(&ReadParams::new("absolute/main.rs")).unwrap();
    assert_eq!(shown.path, stage.workspace.join("src/main.rs"));
    // What the system has is as open as to a command.
    assert!(!text(&tools, "/etc/os-release").is_empty());
}

}
