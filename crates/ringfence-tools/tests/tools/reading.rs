//! `read`.

use std::os::unix::fs::symlink;

use ringfence_tools::{ReadParams, ReadResultBody};

use crate::stage::{code, text};

tests! { "reading":

/// Promise: tool-writes
#[test]
fn file_is_read_unchanged(stage) {
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

/// Promise: tool-writes
#[test]
fn binary_content_is_returned_as_base64(stage) {
    let tools = stage.tools();
    stage.put("picture", b"\x89PNG\0\0");
    stage.put("latin", b"caf\xe9\n");
    let shown = |name: &str| tools.read(&ReadParams::new(name)).map(|content| (content.text, content.base64)).unwrap();
    assert_eq!(shown("picture"), (None, Some("iVBORwAA".into())));
    assert_eq!(shown("latin"), (None, Some("Y2Fm6Qo=".into())));
}

#[test]
fn line_range_is_read(stage) {
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
fn byte_range_never_splits_a_character(stage) {
    let tools = stage.tools();
    stage.put("bytes", "aé€z");
    let range = |offset: u64, limit: u64| {
        let shown = tools.read(&ReadParams { byte_offset: Some(offset), byte_limit: Some(limit), ..ReadParams::new("bytes") }).unwrap();
        (shown.text, shown.truncated)
    };
    assert_eq!(range(0, 4), (Some("aé".into()), true));
    assert_eq!(range(3, 9), (Some("€z".into()), false));
    assert_eq!(range(7, 9), (Some(String::new()), false));
    // In the middle of a character the bytes are not text, but they are returned.
    assert_eq!(range(4, 1), (None, true));
}

#[test]
fn read_size_is_limited_by_default(stage) {
    let tools = stage.tools();
    stage.put("large", vec![b'a'; 3 << 20]);
    let shown = tools.read(&ReadParams::new("large")).unwrap();
    assert_eq!((shown.text.unwrap().len() as u64, shown.size, shown.truncated), (ReadResultBody::DEFAULT_BYTES, 3 << 20, true));
    let shown = tools.read(&ReadParams { byte_limit: Some(u64::MAX), ..ReadParams::new("large") }).unwrap();
    assert_eq!((shown.text.unwrap().len(), shown.truncated), (3 << 20, false));
}

/// Promise: tool-writes
#[test]
fn read_never_blocks_on_special_files(stage) {
    let tools = stage.tools();
    rustix::fs::mknodat(rustix::fs::CWD, stage.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(stage.at("socket")).unwrap();
    symlink("pipe", stage.at("to-pipe")).unwrap();
    symlink("/dev/zero", stage.at("zero")).unwrap();
    assert_eq!(code(tools.read(&ReadParams::new("pipe"))), "kind");
    assert_eq!(code(tools.read(&ReadParams::new("to-pipe"))), "kind");
    assert_eq!(code(tools.read(&ReadParams::new("src"))), "kind");
    assert_eq!(code(tools.read(&ReadParams::new("."))), "kind");
    // Host sockets are masked in a sandbox, and it has only its own devices.
    assert_eq!(code(tools.read(&ReadParams::new("socket"))), "denied");
    assert_eq!(code(tools.read(&ReadParams::new("zero"))), "denied");
}

#[test]
fn missing_path_is_not_found(stage) {
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
fn links_inside_the_project_are_followed(stage) {
    let tools = stage.tools();
    symlink("README", stage.at("relative")).unwrap();
    symlink(stage.at("src"), stage.at("absolute")).unwrap();
    symlink("absolute/../README", stage.at("around")).unwrap();
    assert_eq!(text(&tools, "relative"), "hello\nworld\n");
    assert_eq!(text(&tools, "absolute/main.rs"), "fn main() {}\n");
    assert_eq!(text(&tools, "around"), "hello\nworld\n");
    let shown = tools.read(&ReadParams::new("absolute/main.rs")).unwrap();
    assert_eq!(shown.path, stage.workspace.join("src/main.rs"));
    // System files are as readable as for a command.
    assert!(!text(&tools, "/etc/os-release").is_empty());
}

}
