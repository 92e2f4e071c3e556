//! Tools limited to one directory: other paths that the policy allows are not accessible.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringfence_tools::{FileTools, ListParams, PutParams, ReadParams, ToolError, WriteParams};
use rustix::fs::{CWD, RenameFlags};

use crate::stage::{SECRET, ToolStage, code, denial};

/// A policy that allows more than the project.
const WIDE: &str = "[filesystem]\nwrite = [\"~/code/other\"]\nread = [\"~/notes.txt\"]\n";

fn put<'a>(path: &'a str, content: &'a [u8]) -> PutParams<'a> {
    PutParams {
        path: Path::new(path),
        content: content.into(),
        create_parents: true,
        new_only: false,
        fsync: false,
    }
}

fn bounded(stage: &ToolStage) -> FileTools {
    stage.tools_with(WIDE).limited_to(stage.workspace.clone())
}

tests! { "bounded":
    /// Promise: http-files
    #[test]
    fn no_path_or_link_leads_out_of_the_directory(stage) {
        let (wide, tools) = (stage.tools_with(WIDE), bounded(stage));
        symlink("../other", stage.at("beside")).unwrap();
        symlink("../../notes.txt", stage.at("notes")).unwrap();
        assert_eq!(wide.read(&ReadParams::new("notes")).unwrap().text.as_deref(), Some(SECRET), "the policy allows it");
        for path in ["notes", "beside/main.rs", "../other/main.rs", "../../notes.txt"] {
            assert!(denial(tools.read(&ReadParams::new(path))).rule.contains("one directory"), "{path}");
            assert!(denial(tools.read_whole(Path::new(path), 100)).rule.contains("one directory"), "{path}");
            assert!(denial(tools.write(&WriteParams::new(path, "mine"))).rule.contains("one directory"), "{path}");
        }
        for path in ["beside", "..", "/", "../other"] {
            denial(tools.list(&ListParams::new(path)));
        }
        denial(tools.put(&put("beside/new", b"mine")));
        denial(tools.remove(Path::new("beside/main.rs")));
        denial(tools.remove(Path::new("../other/main.rs")));
        assert_eq!(stage.names("../other"), ["main.rs"]);
        assert_eq!(tools.list(&ListParams::new("src")).unwrap().entries.len(), 1);
    }

    #[test]
    fn bytes_are_written_and_read_unchanged(stage) {
        let tools = bounded(stage);
        let bytes: Vec<u8> = (0..=255).collect();
        assert!(tools.put(&put("a/b/c.bin", &bytes)).unwrap().created);
        assert_eq!(tools.read_whole(Path::new("a/b/c.bin"), 256).unwrap().bytes, bytes);
        assert_eq!(code(tools.read_whole(Path::new("a/b/c.bin"), 255)), "too-large");
        assert_eq!(code(tools.read_whole(Path::new("a"), 255)), "kind");
        denial(tools.read_whole(Path::new(".env"), 255));
        denial(tools.put(&put(".git/hooks/post-commit", b"#!")));
    }

    /// Promise: http-files
    #[test]
    fn remove_does_not_follow_links(stage) {
        let tools = bounded(stage);
        symlink("src", stage.at("link")).unwrap();
        tools.remove(Path::new("link")).unwrap();
        assert!(stage.has("src/main.rs") && !stage.has("link"));
        assert_eq!(code(tools.remove(Path::new("src"))), "system");
        tools.remove(Path::new("src/main.rs")).unwrap();
        tools.remove(Path::new("src")).unwrap();
        assert_eq!(code(tools.remove(Path::new("src"))), "not-found");
        for none in ["", ".", "..", "../app", "/"] {
            assert!(tools.remove(Path::new(none)).is_err(), "{none}");
        }
        denial(tools.remove(Path::new(".env")));
        denial(tools.remove(Path::new(".git/config")));
        assert!(stage.has(".env") && stage.has(".git/config"));
    }

    #[test]
    fn remove_all_removes_trees_but_not_link_targets(stage) {
        let tools = bounded(stage);
        stage.put("made/a/b/c", "x");
        stage.put("made/d", "x");
        symlink("made", stage.at("latest")).unwrap();
        symlink("../src", stage.at("made/inner")).unwrap();
        tools.remove_all(Path::new("latest")).unwrap();
        assert!(stage.has("made/a/b/c") && !stage.has("latest"));
        tools.remove_all(Path::new("made")).unwrap();
        assert!(stage.has("src/main.rs") && !stage.has("made"));
        assert_eq!(code(tools.remove_all(Path::new("made"))), "not-found");
    }

    /// Promise: http-files
    #[test]
    fn directory_swapped_with_a_link_does_not_escape(stage) {
        const SWAPS: usize = 30_000;
        let tools = bounded(stage);
        stage.put("dir/main.rs", "own");
        symlink("../other", stage.at("out")).unwrap();
        let is_over = AtomicBool::new(false);
        let mut done = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..SWAPS {
                    rustix::fs::renameat_with(CWD, stage.at("dir"), CWD, stage.at("out"), RenameFlags::EXCHANGE).expect("both are there");
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                match tools.read_whole(Path::new("dir/main.rs"), 100) {
                    Ok(taken) => assert_ne!(taken.bytes, SECRET.as_bytes()),
                    Err(ToolError::Audit { source }) => panic!("{source}"),
                    Err(_) => {}
                }
                done += usize::from(tools.remove(Path::new("dir/main.rs")).is_ok());
                done += usize::from(tools.put(&put("dir/main.rs", b"own")).is_ok());
            }
        });
        assert!(done > 0, "nothing was done");
        let other = stage.home.join("code/other");
        assert_eq!(fs::read(other.join("main.rs").as_path()).unwrap(), SECRET.as_bytes());
        assert_eq!(fs::read_dir(other.as_path()).unwrap().count(), 1);
    }
}
