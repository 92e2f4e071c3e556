//! Files edited by the service's callers.

use std::os::unix::fs::PermissionsExt;

use ringfence_skills::{EditPrecondition, LineRange, Replacement, SkillEdit};

use crate::pack::{Item, Pack};
use crate::stage::{id, skill_md};

fn whole(path: &str, text: &str) -> SkillEdit {
    SkillEdit {
        path: path.into(),
        change: Replacement::Whole { bytes: text.into() },
        expect: EditPrecondition::Anything,
    }
}

fn lines(path: &str, start: u64, end: u64, text: &str) -> SkillEdit {
    let range = LineRange { start, end: Some(end) };
    SkillEdit {
        path: path.into(),
        change: Replacement::Lines { range, text: text.into() },
        expect: EditPrecondition::Anything,
    }
}

fn with_needs(hosts: &str) -> String {
    format!("---\nname: one\ndescription: x\nmetadata:\n  hosts: {hosts}\n---\nbody\n")
}

tests! { "edited":
#[test]
fn file_is_replaced_completely_or_by_lines(stage) {
    let one = stage.put("one", &[("a.txt", "1\r\n2\r\n3\r\n")]);
    std::fs::set_permissions(one.join("a.txt"), PermissionsExt::from_mode(0o750)).unwrap();
    let edited = stage.store.edit(&id("one"), &lines("a.txt", 2, 2, "zwei\nzwei"), None).unwrap();
    assert_eq!(std::fs::read_to_string(one.join("a.txt")).unwrap(), "1\r\nzwei\r\nzwei\r\n3\r\n");
    assert_eq!((edited.created, edited.total_lines, edited.bytes), (false, Some(4), 18));
    assert_eq!(edited.etag, stage.store.content(&id("one"), "a.txt", None).unwrap().etag);
    assert_eq!(std::fs::metadata(one.join("a.txt")).unwrap().permissions().mode() & 0o7777, 0o750);
    let edited = stage.store.edit(&id("one"), &whole("new/deep/b", "b"), None).unwrap();
    assert!(edited.created);
    assert_eq!(std::fs::metadata(one.join("new/deep/b")).unwrap().permissions().mode() & 0o7777, 0o644);
    for (edit, code) in [
        (lines("a.txt", 9, 9, "x"), "lines"), (lines("none", 1, 1, "x"), "no-file"), (whole("a.txt/b", "x"), "path"), (whole("new", "x"), "not-a-file"),
        (whole("../x", "x"), "path"), (whole("/x", "x"), "path"), (whole("x\n", "x"), "path"), (whole(&"d/".repeat(40), "x"), "path"),
    ] {
        assert_eq!(stage.store.edit(&id("one"), &edit, None).unwrap_err().code(), code, "{edit:?}");
    }
    stage.store.edit(&id("one"), &SkillEdit { path: "bytes".into(), change: Replacement::Whole { bytes: vec![0, 255] }, expect: EditPrecondition::Anything }, None).unwrap();
    assert_eq!(stage.store.edit(&id("one"), &lines("bytes", 1, 1, "x"), None).unwrap_err().code(), "not-text");
    assert_eq!(stage.store.edit(&id("none"), &whole("x", "x"), None).unwrap_err().code(), "no-skill");
    stage.check_clear();
}

#[test]
fn concurrent_edits_with_etag_are_all_kept(stage) {
    stage.put("one", &[("n", "0")]);
    let etag = stage.store.content(&id("one"), "n", None).unwrap().etag;
    let expecting = |text: &str, expect: EditPrecondition| stage.store.edit(&id("one"), &SkillEdit { expect, ..whole("n", text) }, None);
    expecting("1", EditPrecondition::Etag(etag.clone())).unwrap();
    assert_eq!(expecting("2", EditPrecondition::Etag(etag)).unwrap_err().code(), "changed");
    assert_eq!(expecting("2", EditPrecondition::Absent).unwrap_err().code(), "changed");
    let made = SkillEdit { expect: EditPrecondition::Absent, ..whole("m", "x") };
    assert!(stage.store.edit(&id("one"), &made, None).unwrap().created);
    stage.store.edit(&id("one"), &whole("n", "0"), None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    loop {
                        let content = stage.store.content(&id("one"), "n", None).unwrap();
                        let ringfence_skills::SkillFileBody::Text(text) = content.body else { panic!("no text") };
                        let next = (text.parse::<u32>().unwrap() + 1).to_string();
                        match expecting(&next, EditPrecondition::Etag(content.etag)) {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.code(), "changed"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(stage.at("one/n")).unwrap(), "40");
    stage.check_clear();
}

#[test]
fn quota_applies_to_edits(stage) {
    stage.put("one", &[("a", "12345")]);
    let quota = skill_md("one").len() as u64 + 5;
    assert_eq!(stage.store.edit(&id("one"), &whole("a", "123456"), Some(quota)).unwrap_err().code(), "quota");
    assert_eq!(stage.store.edit(&id("one"), &whole("b", "1"), Some(quota)).unwrap_err().code(), "quota");
    stage.store.edit(&id("one"), &whole("a", "54321"), Some(quota)).unwrap();
    // A smaller file is always accepted, even above the quota.
    stage.store.edit(&id("one"), &whole("a", "1"), Some(1)).unwrap();
}

/// Promise: skill-rights
#[test]
fn needs_change_only_by_upload_or_edit(stage) {
    stage.upload(&Pack::new([Item::file("one/SKILL.md", with_needs("a.example.org"))])).unwrap();
    let hosts = || stage.store.needs(&id("one")).unwrap().hosts.unwrap();
    assert_eq!(hosts(), ["a.example.org"]);
    // A command changes the needs, without effect.
    std::fs::write(stage.at("one/SKILL.md"), with_needs("evil.example.org")).unwrap();
    assert_eq!(hosts(), ["a.example.org"]);
    let info = stage.store.info(&id("one")).unwrap();
    assert!(info.warnings.iter().any(|warning| warning.what.contains("changed its needs")), "{info:?}");
    // An edit of another line does not confirm them.
    assert_eq!(stage.store.edit(&id("one"), &lines("SKILL.md", 7, 7, "more"), None).unwrap_err().code(), "needs-changed");
    std::fs::write(stage.at("one/SKILL.md"), "---\nhosts: x\n---\n").unwrap();
    assert_eq!(stage.store.edit(&id("one"), &lines("SKILL.md", 2, 2, "name: one"), None).unwrap_err().code(), "needs-changed");
    stage.store.edit(&id("one"), &whole("other.txt", "x"), None).unwrap();
    assert_eq!(hosts(), ["a.example.org"]);
    stage.store.edit(&id("one"), &whole("SKILL.md", &with_needs("b.example.org")), None).unwrap();
    assert_eq!(hosts(), ["b.example.org"]);
    stage.store.edit(&id("one"), &lines("SKILL.md", 5, 5, "  hosts: c.example.org"), None).unwrap();
    assert_eq!(hosts(), ["c.example.org"]);
    let error = stage.store.edit(&id("one"), &whole("SKILL.md", &with_needs("http://x/")), None).unwrap_err();
    assert_eq!(error.code(), "needs");
    assert_eq!(hosts(), ["c.example.org"]);
    // A removed file changes nothing.
    std::fs::remove_file(stage.at("one/SKILL.md")).unwrap();
    assert_eq!(hosts(), ["c.example.org"]);
    let refused = stage.upload(&Pack::new([Item::file("one/SKILL.md", with_needs("http://x/"))])).unwrap_err();
    assert_eq!(refused.code(), "needs");
    assert_eq!(hosts(), ["c.example.org"]);
    stage.check_clear();
}
}
