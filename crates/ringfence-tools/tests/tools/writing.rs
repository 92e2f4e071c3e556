//! `write` and `edit`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use ringfence_tools::{EditParams, ToolError, WriteOutput, WriteParams};

use crate::stage::code;

fn parents(path: &str, content: &str) -> WriteParams {
    WriteParams { create_parents: true, ..WriteParams::new(path, content) }
}

tests! { "writing":

/// Promise: tool-writes
#[test]
fn file_is_created_and_replaced(stage) {
    let tools = stage.tools();
    let WriteOutput { path, created, size } = tools.write(&WriteParams::new("new", "one")).unwrap();
    assert_eq!((path, created, size), (stage.workspace.join("new"), true, 3));
    let again = tools.write(&WriteParams { fsync: true, ..WriteParams::new("new", "two two") }).unwrap();
    assert_eq!((again.created, again.size, stage.content("new").as_str()), (false, 7, "two two"));
    assert_eq!(code(tools.write(&WriteParams { new_only: true, ..WriteParams::new("new", "three") })), "exists");
    assert_eq!(stage.content("new"), "two two");
    // No temporary file is left.
    assert_eq!(stage.names("."), [".env", ".git", "README", "new", "src", "sub"]);
}

#[test]
fn parent_directories_are_created_on_request(stage) {
    let tools = stage.tools();
    assert_eq!(code(tools.write(&WriteParams::new("a/b/c", "x"))), "not-found");
    assert!(!stage.has("a"));
    tools.write(&parents("a/b/c", "x")).unwrap();
    assert_eq!(stage.content("a/b/c"), "x");
    assert_eq!(code(tools.write(&parents("README/x", "x"))), "not-found");
}

/// Promise: tool-writes
#[test]
fn mode_stays_and_new_files_get_the_default_mode(stage) {
    let tools = stage.tools();
    let mode = |name: &str| fs::metadata(stage.at(name)).unwrap().mode() & 0o7777;
    for wanted in [0o755, 0o600, 0o640] {
        fs::set_permissions(stage.at("README"), PermissionsExt::from_mode(wanted)).unwrap();
        tools.write(&WriteParams::new("README", "x")).unwrap();
        tools.edit(&EditParams::new("README", "x", "y")).unwrap();
        assert_eq!(mode("README"), wanted);
    }
    // The setuid bit is not kept for new content.
    fs::set_permissions(stage.at("README"), PermissionsExt::from_mode(0o4755)).unwrap();
    tools.write(&WriteParams::new("README", "x")).unwrap();
    assert_eq!(mode("README"), 0o755);
    fs::write(stage.at("plain"), "").unwrap();
    tools.write(&WriteParams::new("ours", "")).unwrap();
    assert_eq!(mode("ours"), mode("plain"));
}

/// Promise: tool-writes
#[test]
fn read_only_files_and_directories_are_not_written(stage) {
    let tools = stage.tools();
    fs::set_permissions(stage.at("README"), PermissionsExt::from_mode(0o444)).unwrap();
    assert_eq!(code(tools.write(&WriteParams::new("README", "x"))), "system");
    assert_eq!(code(tools.edit(&EditParams::new("README", "hello", "x"))), "system");
    assert_eq!(stage.content("README"), "hello\nworld\n");
    fs::set_permissions(stage.at("src"), PermissionsExt::from_mode(0o555)).unwrap();
    assert_eq!(code(tools.write(&WriteParams::new("src/new", "x"))), "system");
    assert!(!stage.has("src/new"));
    fs::set_permissions(stage.at("src"), PermissionsExt::from_mode(0o755)).unwrap();
    // root has its capabilities back.
    if rustix::process::geteuid().is_root() {
        fs::write(stage.at("README"), "x").unwrap();
    }
}

#[test]
fn world_writable_file_keeps_its_owner(stage) {
    stage.put("everybodys", "x");
    let path = stage.at("everybodys");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let owner = || fs::metadata(&path).map(|file| (file.uid(), file.gid(), file.mode() & 0o7777)).unwrap();
    let before = owner();
    stage.tools().edit(&EditParams::new("everybodys", "x", "y")).unwrap();
    assert_eq!((owner(), stage.content("everybodys").as_str()), (before, "y"));
}

#[test]
fn extended_attributes_stay(stage) {
    let tools = stage.tools();
    let set = rustix::fs::setxattr(stage.at("README"), "user.note", b"kept", rustix::fs::XattrFlags::empty());
    if set.is_err() {
        return ringfence_testkit::skip("the file system has no attributes");
    }
    tools.write(&WriteParams::new("README", "x")).unwrap();
    let mut value = [0; 9];
    assert_eq!(rustix::fs::getxattr(stage.at("README"), "user.note", &mut value).map(|length| value[..length].to_vec()), Ok(b"kept".to_vec()));
}

#[test]
fn link_stays_and_its_target_is_written(stage) {
    let tools = stage.tools();
    symlink("README", stage.at("link")).unwrap();
    symlink("made", stage.at("dangling")).unwrap();
    tools.write(&WriteParams::new("link", "x")).unwrap();
    tools.write(&WriteParams::new("dangling", "y")).unwrap();
    assert_eq!((stage.content("README").as_str(), stage.content("made").as_str()), ("x", "y"));
    assert!(fs::symlink_metadata(stage.at("link")).unwrap().is_symlink());
}

#[test]
fn open_fd_keeps_the_old_content(stage) {
    let tools = stage.tools();
    let mut old = fs::File::open(stage.at("README")).unwrap();
    tools.write(&WriteParams::new("README", "x")).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut old, &mut text).unwrap();
    assert_eq!(text, "hello\nworld\n");
}

#[test]
fn edit_replaces_one_occurrence(stage) {
    let tools = stage.tools();
    let edited = tools.edit(&EditParams::new("README", "world", "there")).unwrap();
    assert_eq!((edited.replacements, edited.line, edited.size), (1, 2, 12));
    assert_eq!(stage.content("README"), "hello\nthere\n");
    assert_eq!(code(tools.edit(&EditParams::new("README", "absent", "x"))), "no-match");
    assert_eq!(code(tools.edit(&EditParams::new("README", "e", "x"))), "ambiguous");
    let all = tools.edit(&EditParams { replace_all: true, ..EditParams::new("README", "e", "E") }).unwrap();
    assert_eq!((all.replacements, stage.content("README").as_str()), (3, "hEllo\nthErE\n"));
    assert_eq!(code(tools.edit(&EditParams::new("README", "", "x"))), "input");
    assert_eq!(code(tools.edit(&EditParams::new("README", "x", "x"))), "input");
    assert_eq!(code(tools.edit(&EditParams::new("nowhere", "x", "y"))), "not-found");
    assert_eq!(code(tools.edit(&EditParams::new("src", "x", "y"))), "kind");
    stage.put("letters", "a".repeat(1000));
    assert_eq!(code(tools.edit(&EditParams { replace_all: true, ..EditParams::new("letters", "a", "x".repeat(1 << 20)) })), "too-large");
}

/// Promise: tool-writes
#[test]
fn bytes_around_an_edit_stay_unchanged(stage) {
    let tools = stage.tools();
    stage.put("odd", b"\xef\xbb\xbfa\r\n\xff\xfe old\r\n\0");
    tools.edit(&EditParams::new("odd", "old\n", "new\nline\n")).unwrap();
    assert_eq!(fs::read(stage.at("odd")).unwrap(), b"\xef\xbb\xbfa\r\n\xff\xfe new\r\nline\r\n\0");
}

#[test]
fn file_size_limit_applies(stage) {
    let tools = stage.tools_with("[limits]\nfile-size = 10");
    assert_eq!(code(tools.write(&WriteParams::new("new", "x".repeat(11)))), "too-large");
    assert!(!stage.has("new"));
    tools.write(&WriteParams::new("new", "x".repeat(10))).unwrap();
    assert_eq!(code(tools.edit(&EditParams::new("new", "x".repeat(10), "x".repeat(11)))), "too-large");
}

#[test]
fn special_files_are_not_written(stage) {
    let tools = stage.tools();
    rustix::fs::mknodat(rustix::fs::CWD, stage.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(code(tools.write(&WriteParams::new("pipe", "x"))), "kind");
    assert_eq!(code(tools.write(&WriteParams::new("src", "x"))), "kind");
    assert_eq!(code(tools.write(&WriteParams::new("", "x"))), "kind");
    assert_eq!(code(tools.write(&WriteParams::new("/", "x"))), "denied");
}

/// Promise: tool-writes
#[test]
fn concurrent_edits_are_all_kept(stage) {
    const EDITORS: usize = 8;
    const EDITS: usize = 40;
    let marks: Vec<String> = (0..EDITORS).map(|number| format!("<{number}>\n")).collect();
    stage.put("shared", marks.concat());
    let tools = stage.tools();
    std::thread::scope(|scope| {
        for mark in &marks {
            let tools = &tools;
            scope.spawn(move || {
                let mark = mark.trim_end();
                for _ in 0..EDITS {
                    loop {
                        match tools.edit(&EditParams::new("shared", mark, format!("x{mark}"))) {
                            Ok(_) => break,
                            Err(ToolError::Unsettled { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let expect: Vec<String> = marks.iter().map(|mark| format!("{}{mark}", "x".repeat(EDITS))).collect();
    assert_eq!(stage.content("shared"), expect.concat());
    assert_eq!(stage.names("."), [".env", ".git", "README", "shared", "src", "sub"]);
}

}
