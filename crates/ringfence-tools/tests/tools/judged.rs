//! Calls that another program makes: decided as if made here, but not made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ringfence_policy::{Access, Tool};
use ringfence_tools::{ReadParams, WriteParams};

use crate::stage::code;

tests! { "judged":

#[test]
fn judge_gives_the_result_of_the_real_call(stage) {
    let tools = stage.tools();
    symlink(".env", stage.at("link")).unwrap();
    symlink("README", stage.at("fine")).unwrap();
    fs::hard_link(stage.at(".env"), stage.at("twin")).unwrap();
    for name in ["README", ".env", "link", "fine", "twin", "../other/main.rs", "/etc/shadow", "src/../.env"] {
        let judged = tools.check_call(Tool::Read, Path::new(name), Access::Read).err().map(|error| error.code());
        assert_eq!(judged, tools.read(&ReadParams::new(name)).err().map(|error| error.code()), "{name}");
    }
    for name in ["README", ".env", "link", ".mcp.json", "HEAD", "../x", "new"] {
        let judged = tools.check_call(Tool::Write, Path::new(name), Access::Write).err().map(|error| error.code());
        assert!(name != "new" || !stage.at("new").exists(), "nothing is done");
        assert_eq!(judged, tools.write(&WriteParams::new(name, "x")).err().map(|error| error.code()), "{name}");
    }
}

#[test]
fn missing_paths_can_be_read_and_new_parent_directories_are_checked(stage) {
    let tools = stage.tools();
    tools.check_call(Tool::Read, Path::new("nowhere/at/all"), Access::Read).unwrap();
    tools.check_call(Tool::Write, Path::new("a/b/c"), Access::Write).unwrap();
    assert!(!stage.at("a").exists());
    for name in ["a/b/.env", ".claude/x/y", "../q/r"] {
        assert_eq!(code(tools.check_call(Tool::Write, Path::new(name), Access::Write)), "denied", "{name}");
    }
}

#[test]
fn denied_paths_in_a_tree_are_reported(stage) {
    let tools = stage.tools();
    stage.put("deep/er/.env", "x");
    let below = |path: &str, glob: Option<&str>| tools.denied_below(Path::new(path), glob).unwrap().len();
    assert_eq!(below("deep", None), 1);
    assert_eq!(below("deep", Some("*.rs")), 0);
    assert_eq!(below("deep", Some("**/.e*")), 1);
    assert_eq!(below("src", None), 0);
}
}
