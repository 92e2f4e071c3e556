//! A service that is killed during uploads.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_skills::{SkillFileBody, SkillStore};

use crate::pack::{Item, Pack};
use crate::stage::{SkillStage, id, skill, skill_md};

/// The argument of the process to be killed.
pub(crate) const VICTIM: &str = "--upload-until-killed";
const FILES: usize = 40;

/// Every file of both skills contains the generation.
fn generation(number: u64) -> Pack {
    let head = |name: &str| {
        format!(
            "---\nname: {name}\ndescription: generation {number}\nmetadata:\n  hosts: g{number}.example.org\n---\n"
        )
    };
    let mut items = Vec::new();
    for name in ["one", "two"] {
        items.push(Item::file(format!("{name}/SKILL.md"), head(name)));
        items.extend((0..FILES).map(|i| {
            Item::file(format!("{name}/d{}/f{i}", i % 7), format!("generation {number}").repeat(50))
                .deflated()
        }));
    }
    Pack::new(items)
}

/// Uploads, edits and removes until it is killed.
pub(crate) fn victim(root: &Path) {
    let store = SkillStore::open(root, SkillStage::bounds()).unwrap();
    let (one, first) = (id("one"), store.info(&id("one")).unwrap());
    let first: u64 = first.description.unwrap().trim_start_matches("generation ").parse().unwrap();
    for number in first + 1.. {
        store
            .upload(&one.user, &one.agent, std::io::Cursor::new(generation(number).bytes()), None)
            .unwrap();
        store
            .upload(
                &one.user,
                &one.agent,
                std::io::Cursor::new(Pack::new(skill("passing", &[])).bytes()),
                None,
            )
            .unwrap();
        store.remove(&id("passing")).unwrap();
    }
}

/// Asserts that all of a skill has one generation, and returns it.
#[track_caller]
fn assert_one_generation(store: &SkillStore, name: &str) -> u64 {
    let info = store.info(&id(name)).unwrap();
    assert_eq!((info.warnings, info.files), (Vec::new(), FILES as u64 + 1));
    let number: u64 = info.description.unwrap().trim_start_matches("generation ").parse().unwrap();
    assert_eq!(info.needs.unwrap().hosts.unwrap(), [format!("g{number}.example.org")]);
    for i in 0..FILES {
        let content = store.content(&id(name), &format!("d{}/f{i}", i % 7), None).unwrap();
        assert_eq!(content.body, SkillFileBody::Text(format!("generation {number}").repeat(50)));
    }
    number
}

tests! { "crashed":
/// Promise: skill-versions
#[test]
fn killed_service_leaves_complete_old_or_new_skills(stage) {
    let root = stage.root.with_file_name("killed");
    let one = id("one");
    let open = || SkillStore::open(&root, SkillStage::bounds()).unwrap();
    open().upload(&one.user, &one.agent, std::io::Cursor::new(generation(1).bytes()), None).unwrap();
    let (mut last, mut interrupted) = ((1, 1), 0);
    for round in 0..20u64 {
        let mut child = Command::new(std::env::current_exe().unwrap()).arg(VICTIM).arg(&root).stdin(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(60 + round * 37 % 101));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = |part: &str| std::fs::read_dir(root.join(part)).unwrap().count();
        interrupted += usize::from(left("staging") + left("trash") > 0);
        let store = open();
        assert_eq!(left("staging") + left("trash"), 0);
        let (first, second) = (assert_one_generation(&store, "one"), assert_one_generation(&store, "two"));
        // Skills are replaced in order, so the second may be older, never newer.
        assert!(first >= last.0 && second >= last.1 && second <= first, "{last:?} {first} {second}");
        last = (first, second);
        match store.info(&id("passing")) {
            Ok(info) => assert_eq!(info.bytes, skill_md("passing").len() as u64),
            Err(error) => assert_eq!(error.code(), "no-skill"),
        }
        assert!(std::fs::read_dir(root.join("cards/ada/helper/one")).unwrap().count() == 1);
    }
    assert!(last.1 > 1 && interrupted > 0, "no kill interrupted an operation: {last:?} {interrupted}");
}

#[test]
fn leftovers_are_removed_when_the_store_opens(stage) {
    let root = stage.root.with_file_name("left");
    let one = id("one");
    SkillStore::open(&root, SkillStage::bounds()).unwrap().upload(&one.user, &one.agent, std::io::Cursor::new(generation(1).bytes()), None).unwrap();
    for part in ["staging", "trash"] {
        std::fs::create_dir_all(root.join(part).join("7/a/b/c")).unwrap();
        std::fs::write(root.join(part).join("7/a/b/f"), "x").unwrap();
        std::fs::write(root.join(part).join("8"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", root.join(part).join("9")).unwrap();
        std::fs::set_permissions(root.join(part).join("7/a"), std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    }
    // Metadata of a version that was never published, and of a skill that never existed.
    std::fs::write(root.join("cards/ada/helper/one/1"), "{}").unwrap();
    std::fs::create_dir_all(root.join("cards/eve/helper/none")).unwrap();
    std::fs::write(root.join("cards/eve/helper/none/1"), "{}").unwrap();
    let store = SkillStore::open(&root, SkillStage::bounds()).unwrap();
    assert_eq!(assert_one_generation(&store, "one"), 1);
    let count = |path: &str| std::fs::read_dir(root.join(path)).unwrap().count();
    assert_eq!((count("staging"), count("trash"), count("cards/ada/helper/one"), count("cards")), (0, 0, 1, 1));
}
}
