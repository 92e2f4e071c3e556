//! Hostile content of a skill, and concurrent changes by commands.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_skills::{
    EditPrecondition, LineRange, Replacement, SkillEdit, SkillFileBody, SkillFileKind,
};
use rustix::fs::{CWD, Mode, OFlags};

use crate::pack::Pack;
use crate::stage::{id, name, skill, skill_md};

fn whole(path: &str, text: &str) -> SkillEdit {
    SkillEdit {
        path: path.into(),
        change: Replacement::Whole { bytes: text.into() },
        expect: EditPrecondition::Anything,
    }
}

/// Nested directories, deeper than the longest path.
fn dig(top: &Path, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut here = rustix::fs::openat(CWD, top, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&here, "deeper", Mode::from_raw_mode(0o755)).unwrap();
        here = rustix::fs::openat(&here, "deeper", flags, Mode::empty()).unwrap();
    }
    rustix::fs::openat(&here, "end", OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o600))
        .unwrap();
}

fn lock(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

tests! { "hostile":
/// Promise: skill-files
#[test]
fn links_in_a_skill_are_never_followed(stage) {
    let secret = stage.root.with_file_name("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "secret").unwrap();
    let other = stage.put("two", &[("private", "of two")]);
    let one = stage.put("one", &[("x", "x")]);
    symlink(&secret, one.join("away")).unwrap();
    symlink(secret.join("key"), one.join("key")).unwrap();
    symlink("../two/private", one.join("up")).unwrap();
    symlink("x", one.join("within")).unwrap();
    symlink("/proc/self/environ", one.join("magic")).unwrap();
    for path in ["away/key", "key", "up", "within", "magic", "away"] {
        assert_eq!(stage.store.content(&id("one"), path, None).unwrap_err().code(), "not-a-file", "{path}");
        assert!(matches!(stage.store.edit(&id("one"), &whole(path, "changed"), None).unwrap_err().code(), "not-a-file"), "{path}");
    }
    assert_eq!(stage.store.edit(&id("one"), &whole("away/new/file", "x"), None).unwrap_err().code(), "not-a-file");
    let files = stage.store.files(&id("one")).unwrap();
    assert_eq!(files.files.iter().filter(|file| file.kind == SkillFileKind::Link).count(), 5);
    assert!(!files.files.iter().any(|file| file.path.contains("away/")));
    assert_eq!(stage.store.usage(&name("ada")).unwrap().bytes, (skill_md("one").len() * 2 + 7) as u64);
    // Also as `SKILL.md` itself.
    fs::remove_file(one.join("SKILL.md")).unwrap();
    symlink(secret.join("key"), one.join("SKILL.md")).unwrap();
    let info = stage.store.info(&id("one")).unwrap();
    assert!(info.description.is_none() && !info.warnings.is_empty());
    stage.store.remove(&id("one")).unwrap();
    assert_eq!(fs::read_to_string(secret.join("key")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(other.join("private")).unwrap(), "of two");
    assert_eq!(fs::read_dir(&secret).unwrap().count(), 1);
    stage.check_clear();
}

#[test]
fn skill_directory_that_is_a_link_is_no_skill(stage) {
    let one = stage.put("one", &[]);
    let moved = stage.root.with_file_name("moved");
    fs::rename(&one, &moved).unwrap();
    symlink(&moved, &one).unwrap();
    assert_eq!(stage.store.info(&id("one")).unwrap_err().code(), "no-skill");
    assert_eq!(stage.store.lease(&id("one")).unwrap_err().code(), "no-skill");
}

#[test]
fn pipes_and_sockets_never_block_the_service(stage) {
    let one = stage.put("one", &[]);
    rustix::fs::mknodat(CWD, one.join("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(one.join("socket")).unwrap();
    fs::remove_file(one.join("SKILL.md")).unwrap();
    rustix::fs::mknodat(CWD, one.join("SKILL.md"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let began = Instant::now();
    for path in ["pipe", "socket", "SKILL.md"] {
        assert_eq!(stage.store.content(&id("one"), path, None).unwrap_err().code(), "not-a-file", "{path}");
        assert_eq!(stage.store.edit(&id("one"), &whole(path, "x"), None).unwrap_err().code(), "not-a-file", "{path}");
    }
    assert!(!stage.store.list(&name("ada"), &name("helper")).unwrap()[0].warnings.is_empty());
    assert!(began.elapsed() < Duration::from_secs(5));
    stage.put("one", &[]);
    stage.check_clear();
}

/// Promise: skill-files
#[test]
fn locked_directories_are_counted_replaced_and_removed(stage) {
    let one = stage.put("one", &[("d/e/f", "12345"), ("d/g", "1")]);
    lock(&one.join("d/e/f"), 0);
    lock(&one.join("d/e"), 0);
    lock(&one.join("d"), 0o400);
    lock(&one, 0);
    // A skill with a locked directory still exists.
    assert!(stage.store.info(&id("one")).is_ok());
    lock(&one.join("d"), 0o100);
    assert_eq!(stage.store.usage(&name("ada")).unwrap().bytes, skill_md("one").len() as u64 + 6);
    for mode in [0o000, 0o500, 0o200] {
        let one = stage.put("one", &[("d/e/f", "12345")]);
        lock(&one.join("d/e"), mode);
        lock(&one.join("d"), mode);
        lock(&one, mode);
    }
    stage.store.remove(&id("one")).unwrap();
    stage.check_clear();
}

/// Promise: skill-files
#[test]
fn deep_directories_can_be_removed(stage) {
    let one = stage.put("one", &[]);
    dig(&one, 2000);
    let files = stage.store.files(&id("one")).unwrap();
    assert!(files.truncated && files.files.len() > 100);
    assert!(!stage.store.usage(&name("ada")).unwrap().is_complete);
    // A skill that cannot be counted exceeds every quota.
    let bytes = std::io::Cursor::new(Pack::new(skill("two", &[])).bytes());
    let error = stage.store.upload(&name("ada"), &name("helper"), bytes, Some(u64::MAX)).unwrap_err();
    assert_eq!(error.code(), "quota");
    stage.put("one", &[]);
    stage.check_clear();
    dig(&stage.at("one"), 2000);
    stage.store.remove(&id("one")).unwrap();
    stage.check_clear();
}

#[test]
fn skill_that_cannot_be_counted_can_be_replaced_within_a_quota(stage) {
    dig(&stage.put("one", &[]), 2000);
    let bytes = std::io::Cursor::new(Pack::new(skill("one", &[])).bytes());
    stage.store.upload(&name("ada"), &name("helper"), bytes, Some(1 << 20)).unwrap();
    assert!(stage.store.usage(&name("ada")).unwrap().is_complete);
    stage.check_clear();
}

#[test]
fn number_of_names_is_limited_including_hard_links(stage) {
    let root = stage.root.with_file_name("crowded");
    let bounds = ringfence_skills::UploadBounds { counted: 100, ..crate::stage::SkillStage::bounds() };
    let store = ringfence_skills::SkillStore::open(&root, bounds).unwrap();
    let upload = |name_of: &str| {
        let bytes = std::io::Cursor::new(Pack::new(skill(name_of, &[("x", "")])).bytes());
        store.upload(&name("ada"), &name("helper"), bytes, Some(1 << 30))
    };
    upload("one").unwrap();
    let one = root.join("skills/ada/helper/one");
    (0..90).for_each(|i| fs::hard_link(one.join("x"), one.join(format!("x{i}"))).unwrap());
    assert!(store.usage(&name("ada")).unwrap().is_complete);
    (90..110).for_each(|i| fs::hard_link(one.join("x"), one.join(format!("x{i}"))).unwrap());
    assert!(!store.usage(&name("ada")).unwrap().is_complete);
    assert!(upload("two").unwrap_err().to_string().contains("more than 100 names"));
    upload("one").unwrap();
    upload("two").unwrap();
}

#[test]
fn search_for_nested_skills_ends_at_the_limit_of_names(stage) {
    let root = stage.root.with_file_name("crowded");
    let bounds = ringfence_skills::UploadBounds { counted: 100, ..crate::stage::SkillStage::bounds() };
    let store = ringfence_skills::SkillStore::open(&root, bounds).unwrap();
    let bytes = std::io::Cursor::new(Pack::new(skill("one", &[("below/SKILL.md", "")])).bytes());
    store.upload(&name("ada"), &name("helper"), bytes, None).unwrap();
    assert_eq!(store.info(&id("one")).unwrap().nested.len(), 1);
    // All entries of a directory come before those of its subdirectories.
    let one = root.join("skills/ada/helper/one");
    (0..110).for_each(|i| drop(fs::File::create(one.join(format!("f{i}"))).unwrap()));
    assert_eq!(store.info(&id("one")).unwrap().nested.len(), 0);
}

#[test]
fn usage_counts_allocated_blocks(stage) {
    let one = stage.put("one", &[]);
    let before = stage.store.usage(&name("ada")).unwrap().bytes;
    let reserved = fs::File::create(one.join("reserved")).unwrap();
    rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
    fs::File::create(one.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    let more = stage.store.usage(&name("ada")).unwrap().bytes - before;
    assert!(((8 << 20)..(9 << 20)).contains(&more), "{more}");
}

#[test]
fn long_listing_is_truncated_and_reported(stage) {
    let one = stage.put("one", &[]);
    for i in 0..stage.store.bounds().listed + 5 {
        fs::File::create(one.join(format!("f{i}"))).unwrap();
    }
    let files = stage.store.files(&id("one")).unwrap();
    assert!(files.truncated);
    assert_eq!(files.files.len(), stage.store.bounds().listed);
    stage.store.remove(&id("one")).unwrap();
    stage.check_clear();
}

#[test]
fn large_sparse_files_are_not_read(stage) {
    let one = stage.put("one", &[]);
    fs::File::create(one.join("giant")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(stage.store.content(&id("one"), "giant", None).unwrap_err().code(), "too-large");
    let lines = SkillEdit { path: "giant".into(), change: Replacement::Lines { range: LineRange { start: 1, end: None }, text: "x".into() }, expect: EditPrecondition::Anything };
    fs::File::options().write(true).open(one.join("giant")).unwrap().set_len((128 << 20) + 1).unwrap();
    assert_eq!(stage.store.edit(&id("one"), &lines, None).unwrap_err().code(), "too-large");
    fs::File::options().write(true).open(one.join("giant")).unwrap().set_len(9 << 20).unwrap();
    let content = stage.store.content(&id("one"), "giant", None).unwrap();
    assert!(content.truncated && content.total_lines.is_none() && matches!(content.body, SkillFileBody::Base64(text) if text.len() == (8 << 20) / 3 * 4 + 4));
}

/// Promise: skill-files
#[test]
fn swapped_name_never_shows_files_outside(stage) {
    let secret = stage.root.with_file_name("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("x"), "secret").unwrap();
    let one = stage.put("one", &[("d/x", "plain")]);
    symlink(&secret, one.join("link")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, one.join("d"), CWD, one.join("link"), exchange).unwrap();
            }
        });
        let (mut plain, mut refused) = (0, 0);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) || ((plain == 0 || refused == 0) && began.elapsed() < Duration::from_secs(20)) {
            match stage.store.content(&id("one"), "d/x", None) {
                Ok(content) => {
                    assert!(matches!(&content.body, SkillFileBody::Text(text) if text == "plain" || text == "edited"), "{content:?}");
                    plain += 1;
                }
                Err(_) => refused += 1,
            }
            let _ = stage.store.edit(&id("one"), &whole("d/x", "edited"), None);
            let _ = stage.store.edit(&id("one"), &whole("d/new/y", "edited"), None);
            stage.store.files(&id("one")).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(plain > 0 && refused > 0, "{plain} {refused}");
    });
    assert_eq!(fs::read_to_string(secret.join("x")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&secret).unwrap().count(), 1);
}
}
