//! Accepted uploads.

use ringfence_skills::{LineRange, SkillFileBody, SkillFileKind, SkillStore};

use crate::pack::{Item, Pack};
use crate::stage::{SkillStage, id, name, shape, skill, skill_md};

tests! { "taken":
#[test]
fn archive_becomes_skills_with_default_modes(stage) {
    let mut items = skill("one", &[("notes/a.txt", "a\n")]);
    items.push(Item::directory("one/empty/"));
    items.push(Item::file("one/run.sh", "#!/bin/sh\n").deflated().attributes(0o100_777 << 16).described());
    items.extend(skill("two", &[]));
    items.push(Item::file("__MACOSX/one/._SKILL.md", "x"));
    items.push(Item::file("one/.DS_Store", "x"));
    let uploaded = stage.upload(&Pack { comment: b"made by hand".to_vec(), ..Pack::new(items) }).unwrap();
    assert_eq!(uploaded.skills.iter().map(|taken| (taken.info.skill_id.as_str(), taken.replaced)).collect::<Vec<_>>(), [("one", false), ("two", false)]);
    assert_eq!(uploaded.warnings.len(), 1, "{:?}", uploaded.warnings);
    assert!(uploaded.skills.iter().all(|taken| taken.info.warnings.is_empty()), "{uploaded:?}");
    let found: Vec<(String, String)> = shape(&stage.at("")).into_iter().map(|(path, what)| (path.display().to_string(), what)).collect();
    let one = format!("file 644 {}", skill_md("one"));
    let two = format!("file 644 {}", skill_md("two"));
    let expect = [
        ("one", "directory 755"), ("one/SKILL.md", &one), ("one/empty", "directory 755"), ("one/notes", "directory 755"),
        ("one/notes/a.txt", "file 644 a\n"), ("one/run.sh", "file 755 #!/bin/sh\n"), ("two", "directory 755"), ("two/SKILL.md", &two),
    ];
    assert_eq!(found, expect.map(|(path, what)| (path.to_owned(), what.to_owned())));
    stage.check_clear();
}

#[test]
fn only_the_skills_of_the_archive_are_replaced(stage) {
    stage.put("one", &[("old.txt", "old")]);
    stage.put("two", &[("two.txt", "two")]);
    let uploaded = stage.upload(&Pack::new(skill("one", &[("new.txt", "new")]))).unwrap();
    assert!(uploaded.skills[0].replaced);
    assert!(!stage.at("one/old.txt").exists() && stage.at("one/new.txt").exists() && stage.at("two/two.txt").exists());
    let listed = stage.store.list(&name("ada"), &name("helper")).unwrap();
    assert_eq!(listed.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(stage.store.list(&name("ada"), &name("other")).unwrap(), []);
    assert_eq!(stage.store.list(&name("bob"), &name("helper")).unwrap(), []);
    stage.check_clear();
}

#[test]
fn nested_skills_are_listed_at_any_depth(stage) {
    let deep = "---\nname: deep\ndescription: far down\n---\ntext\n";
    stage.put("one", &[("sub/inner/SKILL.md", deep), ("bare/SKILL.md", "no head\n"), ("sub/SKILL.md.txt", deep), ("xSKILL.md", deep)]);
    stage.put("two", &[]);
    let listed = stage.store.list(&name("ada"), &name("helper")).unwrap();
    let nested: Vec<_> = listed[0].nested.iter().map(|nested| (nested.path.as_str(), nested.name.as_str(), nested.description.as_deref())).collect();
    assert_eq!(nested, [("bare", "bare", None), ("sub/inner", "deep", Some("far down"))]);
    // The name in one head differs from its directory, and the other has no head.
    assert!(listed[0].nested.iter().all(|nested| !nested.warnings.is_empty()), "{listed:?}");
    assert!(listed[1].nested.is_empty());
}

#[test]
fn skill_can_be_listed_read_and_removed(stage) {
    stage.put("one", &[("a/b.txt", "1\n2\n3"), ("bytes", "\0\u{7f}")]);
    let files = stage.store.files(&id("one")).unwrap();
    assert!(!files.truncated);
    let shown: Vec<(&str, SkillFileKind, u64)> = files.files.iter().map(|file| (file.path.as_str(), file.kind, file.bytes)).collect();
    let length = skill_md("one").len() as u64;
    assert_eq!(shown, [("SKILL.md", SkillFileKind::File, length), ("a", SkillFileKind::Directory, 0), ("a/b.txt", SkillFileKind::File, 5), ("bytes", SkillFileKind::File, 2)]);
    let content = stage.store.content(&id("one"), "a/b.txt", Some(LineRange { start: 2, end: Some(9) })).unwrap();
    assert_eq!((content.body, content.total_lines, content.start, content.end), (SkillFileBody::Text("2\n3".into()), Some(3), Some(2), Some(3)));
    assert_eq!(stage.store.content(&id("one"), "bytes", None).unwrap().body, SkillFileBody::Base64("AH8=".into()));
    assert_eq!(stage.store.content(&id("one"), "../one/SKILL.md", None).unwrap_err().code(), "path");
    assert_eq!(stage.store.content(&id("one"), "missing", None).unwrap_err().code(), "no-file");
    assert_eq!(stage.store.content(&id("one"), "a", None).unwrap_err().code(), "not-a-file");
    let usage = stage.store.usage(&name("ada")).unwrap();
    assert_eq!((usage.bytes, usage.files, usage.skills, usage.is_complete), (length + 7, 3, 1, true));
    assert_eq!(stage.store.users().unwrap(), [name("ada")]);
    assert_eq!(stage.store.agents(&name("ada")).unwrap(), [name("helper")]);
    stage.store.remove(&id("one")).unwrap();
    assert_eq!(stage.store.remove(&id("one")).unwrap_err().code(), "no-skill");
    assert_eq!(stage.store.info(&id("one")).unwrap_err().code(), "no-skill");
    assert_eq!(stage.store.users().unwrap(), []);
    stage.check_clear();
}

#[test]
fn archives_of_other_programs_are_accepted(stage) {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    writer.add_directory("one", options).unwrap();
    for (path, text) in [("one/SKILL.md", skill_md("one")), ("one/größe.txt", "ü".repeat(5000))] {
        writer.start_file(path, options).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    stage.upload_bytes(writer.finish().unwrap().into_inner()).unwrap();
    assert_eq!(std::fs::read_to_string(stage.at("one/größe.txt")).unwrap(), "ü".repeat(5000));
    if !ringfence_testkit::needs(&["python3"]) {
        return;
    }
    let made = stage.root.with_file_name("made.zip");
    let program = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED)\nz.writestr('py/SKILL.md', '---\\nname: py\\ndescription: x\\n---\\n')\nz.writestr('py/dir/', '')\nz.writestr('py/ü', 'x' * 100000)\nz.close()\n";
    let status = std::process::Command::new("python3").args(["-c", program]).arg(&made).status().unwrap();
    assert!(status.success());
    stage.upload_bytes(std::fs::read(&made).unwrap()).unwrap();
    assert_eq!(std::fs::read_to_string(stage.at("py/ü")).unwrap().len(), 100_000);
}

#[test]
fn store_refuses_shared_and_unsafe_roots(stage) {
    let open = |path: &std::path::Path| SkillStore::open(path, SkillStage::bounds()).map(|_| ()).map_err(|error| error.code());
    assert_eq!(open(&stage.root), Err("in-use"));
    let link = stage.root.with_file_name("link");
    let target = stage.root.with_file_name("target");
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(open(&link), Err("root"));
    for mode in [0o777, 0o770, 0o702] {
        std::fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(open(&target), Err("root"), "{mode:o}");
    }
    std::fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(open(&target), Ok(()));
}
}
