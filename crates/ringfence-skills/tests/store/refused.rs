//! Archives that are refused, each for one reason.

use std::io::Cursor;

use ringfence_skills::{ArchiveError, ArchiveFault, SkillStore, StoreError, UploadBounds};

use crate::pack::{Item, Pack, deflate};
use crate::stage::{SkillStage, name, shape, skill, skill_md};

/// The reason for which an archive is refused.
fn fault(store: &SkillStore, bytes: Vec<u8>) -> ArchiveError {
    match store.upload(&name("ada"), &name("helper"), Cursor::new(bytes), None) {
        Err(StoreError::Archive { source }) => source,
        other => panic!("not refused: {other:?}"),
    }
}

/// Asserts that it is refused for this reason, without changes or leftovers.
#[track_caller]
fn check(stage: &SkillStage, pack: &Pack, entry: Option<&str>, expect: ArchiveFault) {
    check_bytes(stage, pack.bytes(), entry, expect);
}

#[track_caller]
fn check_bytes(stage: &SkillStage, bytes: Vec<u8>, entry: Option<&str>, expect: ArchiveFault) {
    if !stage.at("one").exists() {
        stage.put("one", &[("kept.txt", "kept")]);
    }
    let before = shape(&stage.root);
    let error = fault(&stage.store, bytes);
    assert_eq!(error.fault, expect);
    assert_eq!(error.entry.as_deref(), entry, "{expect:?}");
    assert_eq!(shape(&stage.root), before, "{expect:?}");
    stage.check_clear();
}

/// A valid skill with one more entry.
fn with(item: Item) -> Pack {
    let mut items = skill("one", &[]);
    items.push(item);
    Pack::new(items)
}

/// Asserts that an entry is refused because of its name.
#[track_caller]
fn check_name(stage: &SkillStage, path: &str, expect: ArchiveFault) {
    let shown: String = path
        .chars()
        .flat_map(|c| {
            if c.is_control() || c == '\u{202e}' { c.escape_default().collect() } else { vec![c] }
        })
        .collect();
    check(stage, &with(Item::file(path, "x")), Some(&shown), expect);
}

tests! { "refused":
#[test]
fn valid_archive_is_accepted(stage) {
    stage.upload(&with(Item::file("one/x", "x"))).unwrap();
    stage.upload(&with(Item::file("one/x", "x").deflated().described())).unwrap();
    // Without the signature, as in early programs.
    let mut item = Item::file("one/x", "x").described();
    item.behind.drain(..4);
    stage.upload(&with(item)).unwrap();
}

/// Promise: archives
#[test]
fn names_that_leave_the_skill_are_refused(stage) {
    check_name(stage, "one/../../../x", ArchiveFault::Upwards);
    check_name(stage, "../x", ArchiveFault::Upwards);
    check_name(stage, "one/..", ArchiveFault::Upwards);
    check_name(stage, "/etc/x", ArchiveFault::Absolute);
    check_name(stage, "//x", ArchiveFault::Absolute);
    check_name(stage, "one\\..\\x", ArchiveFault::Backslash);
    check_name(stage, "C:/x", ArchiveFault::Drive);
    check_name(stage, "c:x", ArchiveFault::Drive);
    check_name(stage, "one//x", ArchiveFault::EmptyPart);
    check_name(stage, "one/./x", ArchiveFault::EmptyPart);
    check_name(stage, "./one/x", ArchiveFault::EmptyPart);
    check_name(stage, "one/x\0y", ArchiveFault::Character { character: '\0' });
    check_name(stage, "one/x\ny", ArchiveFault::Character { character: '\n' });
    check_name(stage, "one/x\u{202e}y", ArchiveFault::Character { character: '\u{202e}' });
    check_name(stage, "", ArchiveFault::Nameless);
    let mut bad = Item::file("one/x", "x");
    bad = bad.both(|header| header.name = b"one/\xff".to_vec());
    check(stage, &with(bad), Some("one/\u{fffd}"), ArchiveFault::NotUtf8);
}

#[test]
fn long_and_deep_names_are_refused(stage) {
    stage.upload(&with(Item::file(format!("one/{}", "x".repeat(255)), "x"))).unwrap();
    let long = format!("one/{}", "x".repeat(256));
    check(stage, &with(Item::file(&long, "x")), Some(&long.chars().take(200).collect::<String>()), ArchiveFault::TooLong { limit: 255 });
    let long = format!("one{}", format!("/{}", "x".repeat(200)).repeat(6));
    check(stage, &with(Item::file(&long, "x")), Some(&long[..200]), ArchiveFault::TooLong { limit: 1024 });
    stage.upload(&with(Item::file(format!("one{}", "/d".repeat(31)), "x"))).unwrap();
    let deep = format!("one{}", "/d".repeat(32));
    check(stage, &with(Item::file(&deep, "x")), Some(&deep), ArchiveFault::TooDeep { limit: 32 });
}

/// Promise: archives
#[test]
fn links_and_special_files_are_refused(stage) {
    let kinds = [(0o120_777, ArchiveFault::Link), (0o010_644, ArchiveFault::Special), (0o020_644, ArchiveFault::Special), (0o060_644, ArchiveFault::Special), (0o140_644, ArchiveFault::Special)];
    for (mode, expect) in kinds {
        check(stage, &with(Item::file("one/x", "/etc/passwd").attributes(mode << 16)), Some("one/x"), expect);
    }
    for mode in [0o104_755, 0o102_755, 0o101_755] {
        check(stage, &with(Item::file("one/x", "x").attributes(mode << 16)), Some("one/x"), ArchiveFault::Privileged);
    }
    check(stage, &with(Item::directory("one/d/").attributes(0o041_777 << 16)), Some("one/d/"), ArchiveFault::Privileged);
    // The mode counts for archives of any system, and so does each mark of a directory.
    check(stage, &with(Item::file("one/x", "x").attributes(0o040_755 << 16)), Some("one/x"), ArchiveFault::TwoKinds);
    check(stage, &with(Item::file("one/x", "x").attributes(0x10)), Some("one/x"), ArchiveFault::TwoKinds);
    check(stage, &with(Item::directory("one/d/").attributes(0o100_644 << 16)), Some("one/d/"), ArchiveFault::TwoKinds);
    check(stage, &with(Item::file("one/d/", "x").attributes(0)), Some("one/d/"), ArchiveFault::TwoKinds);
    let linked = |id: u16, data: &[u8]| [&id.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), data].concat();
    let hard = Item::file("one/x", "x").both(|header| header.extra = linked(0x000d, b"timetimeugidone/SKILL.md"));
    check(stage, &with(hard), Some("one/x"), ArchiveFault::Link);
    let asi = Item::file("one/x", "x").central(|header| header.extra = linked(0x756e, &[0; 14]));
    check(stage, &with(asi), Some("one/x"), ArchiveFault::Extra { id: 0x756e, what: "kind" });
    let other = Item::file("one/x", "x").local(|header| header.extra = linked(0x7075, b"\x01crc!../y"));
    check(stage, &with(other), Some("one/x"), ArchiveFault::Extra { id: 0x7075, what: "name" });
    // Some programs repeat the same name.
    stage.upload(&with(Item::file("one/x", "x").both(|header| header.extra = linked(0x7075, b"\x01crc!one/x")))).unwrap();
}

/// Promise: archives
#[test]
fn names_that_collide_on_some_system_are_refused(stage) {
    let two = |one: &str, other: &str| {
        let mut pack = with(Item::file(one, "1"));
        pack.items.push(Item::file(other, "2"));
        pack
    };
    check(stage, &two("one/x", "one/x"), Some("one/x"), ArchiveFault::Twice);
    check(stage, &two("one/x", "one/X"), Some("one/X"), ArchiveFault::Alike { other: "one/x".into() });
    check(stage, &two("one/d/x", "one/D/y"), Some("one/D/y"), ArchiveFault::Alike { other: "one/d".into() });
    check(stage, &two("one/stra\u{df}e", "one/STRASSE"), Some("one/STRASSE"), ArchiveFault::Alike { other: "one/stra\u{df}e".into() });
    check(stage, &two("one/\u{e9}", "one/e\u{301}"), Some("one/e\u{301}"), ArchiveFault::Alike { other: "one/\u{e9}".into() });
    check(stage, &two("one/\u{c9}", "one/e\u{301}"), Some("one/e\u{301}"), ArchiveFault::Alike { other: "one/\u{c9}".into() });
    check(stage, &two("one/x", "one/x/y"), Some("one/x/y"), ArchiveFault::FileAndDirectory);
    check(stage, &two("one/x/y", "one/x"), Some("one/x"), ArchiveFault::FileAndDirectory);
    let mut pack = with(Item::directory("one/d/"));
    pack.items.push(Item::directory("one/d/"));
    check(stage, &pack, Some("one/d/"), ArchiveFault::Twice);
    let mut pack = with(Item::directory("one/d/"));
    pack.items.push(Item::file("one/d", "x"));
    check(stage, &pack, Some("one/d"), ArchiveFault::FileAndDirectory);
    // The entry of a directory may come after its content.
    let mut pack = with(Item::file("one/d/x", "x"));
    pack.items.push(Item::directory("one/d/"));
    stage.upload(&pack).unwrap();
}

#[test]
fn archives_without_skill_layout_are_refused(stage) {
    check(stage, &Pack::default(), None, ArchiveFault::Empty);
    check(stage, &Pack::new([Item::file("__MACOSX/x", "x")]), None, ArchiveFault::Empty);
    check(stage, &with(Item::file("README", "x")), Some("README"), ArchiveFault::TopLevelFile);
    check(stage, &Pack::new([Item::file("SKILL.md", skill_md("x"))]), Some("SKILL.md"), ArchiveFault::SkillAtTop);
    check(stage, &with(Item::file("two/x", "x")), Some("two"), ArchiveFault::NoSkillFile);
    check(stage, &with(Item::directory("two/")), Some("two"), ArchiveFault::NoSkillFile);
    check(stage, &with(Item::file("two/skill.md", "x")), Some("two"), ArchiveFault::NoSkillFile);
    check(stage, &with(Item::file("two/docs/SKILL.md", "x")), Some("two"), ArchiveFault::NoSkillFile);
    check(stage, &with(Item::directory("two/SKILL.md/")), Some("two"), ArchiveFault::NoSkillFile);
    let source = "a b".parse::<ringfence_skills::SkillName>().unwrap_err();
    check(stage, &with(Item::file("a b/SKILL.md", "x")), Some("a b"), ArchiveFault::SkillName { source });
    let hint = fault(&stage.store, Pack::new([Item::file("SKILL.md", "x")]).bytes()).hint().unwrap();
    assert!(hint.contains("zip -r"), "{hint}");
}

#[test]
fn entries_that_cannot_be_unpacked_reliably_are_refused(stage) {
    let item = || Item::file("one/x", "some text that is here");
    for flags in [1, 1 << 6, 1 << 13] {
        check(stage, &with(item().both(|header| header.flags = flags)), Some("one/x"), ArchiveFault::Encrypted);
    }
    let sealed = |id: u16| [&id.to_le_bytes()[..], &[0, 0]].concat();
    check(stage, &with(item().both(|header| header.extra = sealed(0x9901))), Some("one/x"), ArchiveFault::Encrypted);
    check(stage, &with(item().both(|header| header.flags = 1 << 5)), Some("one/x"), ArchiveFault::Flags { flags: 1 << 5 });
    let mut newer = with(item()).bytes();
    let central = newer.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    newer[central + 6] = 64;
    check_bytes(stage, newer, Some("one/x"), ArchiveFault::Version { version: 64 });
    for method in [1, 9, 12, 14, 93, 99] {
        check(stage, &with(item().both(|header| header.method = method)), Some("one/x"), ArchiveFault::Method { method });
    }
    check(stage, &with(item().both(|header| header.checksum ^= 1)), Some("one/x"), ArchiveFault::Checksum);
    check(stage, &with(item().deflated().both(|header| header.checksum ^= 1)), Some("one/x"), ArchiveFault::Checksum);
    check(stage, &with(item().both(|header| header.size += 1)), Some("one/x"), ArchiveFault::Size);
    check(stage, &with(item().deflated().both(|header| header.size += 1)), Some("one/x"), ArchiveFault::Size);
    check(stage, &with(item().deflated().both(|header| header.size -= 1)), Some("one/x"), ArchiveFault::Size);
    let mut broken = item().deflated();
    broken.data[0] = 0xff;
    check(stage, &with(broken), Some("one/x"), ArchiveFault::Data);
    // A stream without end, and bytes after the end.
    let mut short = item().deflated();
    short.data.pop();
    let short = short.both(|header| header.length -= 1);
    check(stage, &with(short), Some("one/x"), ArchiveFault::Data);
    let mut long = item().deflated();
    long.data.extend(b"hidden");
    let long = long.both(|header| header.length += 6);
    check(stage, &with(long), Some("one/x"), ArchiveFault::Data);
}

/// Promise: archives
#[test]
fn headers_that_disagree_are_refused(stage) {
    let item = || Item::file("one/x", "some text that is here");
    check(stage, &with(item().local(|header| header.name = b"one/y".to_vec())), Some("one/x"), ArchiveFault::Disagreement { what: "name" });
    check(stage, &with(item().local(|header| header.method = 8)), Some("one/x"), ArchiveFault::Disagreement { what: "method" });
    check(stage, &with(item().local(|header| header.flags = 1 << 11)), Some("one/x"), ArchiveFault::Disagreement { what: "flags" });
    check(stage, &with(item().local(|header| header.checksum = 0)), Some("one/x"), ArchiveFault::Disagreement { what: "checksum" });
    check(stage, &with(item().local(|header| header.size = 1)), Some("one/x"), ArchiveFault::Disagreement { what: "size" });
    check(stage, &with(item().local(|header| header.length = 0)), Some("one/x"), ArchiveFault::Disagreement { what: "size" });
    let mut described = item().described();
    described.behind[8] ^= 1;
    check(stage, &with(described), Some("one/x"), ArchiveFault::Disagreement { what: "size" });
    let mut described = item().described();
    described.behind.clear();
    check(stage, &with(described), Some("one/x"), ArchiveFault::Disagreement { what: "size" });
}

/// Promise: archives
#[test]
fn stray_and_shared_bytes_are_refused(stage) {
    let good = || with(Item::file("one/x", "x"));
    check(stage, &Pack { before: b"#!/bin/sh\n".to_vec(), ..good() }, None, ArchiveFault::Stray { from: 0, to: 10 });
    let bytes = good().bytes();
    let (size, end) = (bytes.len() as u64, bytes.len() as u64 + 4);
    check(stage, &Pack { trailing: b"more".to_vec(), ..good() }, None, ArchiveFault::Stray { from: size, to: end });
    let mut hidden = Item::file("one/x", "x");
    hidden.behind = Pack::new([Item::file("one/y", "y")]).bytes();
    let error = fault(&stage.store, with(hidden).bytes());
    assert!(matches!(error.fault, ArchiveFault::Stray { .. }), "{error}");
    let error = fault(&stage.store, Pack { between: vec![0; 3], ..good() }.bytes());
    assert!(matches!(error.fault, ArchiveFault::Stray { .. }), "{error}");
    // Two entries with the same bytes, and one inside another: a few bytes would expand to
    // petabytes.
    let mut same = good();
    same.items.push(Item::file("one/x", "x"));
    same.items[2].central.name = b"one/y".to_vec();
    same.items[2].at = Some(0);
    let error = fault(&stage.store, same.bytes());
    assert!(matches!(error.fault, ArchiveFault::Disagreement { what: "name" | "method" }), "{error}");
    let inner = Item::file("one/y", "yy");
    let quoted = Pack::new([inner.clone()]).bytes();
    let header = 30 + 5;
    let mut pack = with(Item::file("one/x", &quoted[..header + 2]));
    let place = Pack::new(pack.items[..1].to_vec()).bytes();
    let first = place.windows(4).position(|window| window == b"PK\x01\x02").unwrap() as u32;
    pack.items.push(Item { at: Some(first + 30 + 5), ..inner });
    // The bytes in between belong to the previous entry, so nothing is left over.
    let error = fault(&stage.store, pack.bytes());
    assert_eq!((error.entry.as_deref(), &error.fault), (Some("one/x"), &ArchiveFault::Overlap));
}

#[test]
fn invalid_and_zip64_archives_are_refused(stage) {
    let good = || with(Item::file("one/x", "x"));
    check_bytes(stage, Vec::new(), None, ArchiveFault::NoArchive);
    check_bytes(stage, b"not an archive".to_vec(), None, ArchiveFault::NoArchive);
    let bytes = good().bytes();
    for length in 0..bytes.len() {
        fault(&stage.store, bytes[..length].to_vec());
    }
    stage.check_clear();
    check(stage, &Pack { count: Some(1), ..good() }, None, ArchiveFault::Broken { what: "it is longer than its entries" });
    let error = fault(&stage.store, Pack { count: Some(3), ..good() }.bytes());
    assert!(matches!(error.fault, ArchiveFault::Broken { .. }), "{error}");
    check(stage, &Pack { count: Some(u16::MAX), ..good() }, None, ArchiveFault::Zip64);
    check(stage, &with(Item::file("one/x", "x").central(|header| header.size = u32::MAX)), Some("one/x"), ArchiveFault::Zip64);
    check(stage, &with(Item::file("one/x", "x").central(|header| header.length = u32::MAX)), Some("one/x"), ArchiveFault::Zip64);
    check(stage, &with(Item { at: Some(u32::MAX), ..Item::file("one/x", "x") }), Some("one/x"), ArchiveFault::Zip64);
    check(stage, &with(Item::file("one/x", "x").local(|header| header.size = u32::MAX)), Some("one/x"), ArchiveFault::Zip64);
    let huge = Item::file("one/x", "x").both(|header| header.extra = [&1u16.to_le_bytes()[..], &[8, 0], &[0; 8]].concat());
    check(stage, &with(huge), Some("one/x"), ArchiveFault::Zip64);
    let mut volumes = good().bytes();
    let end = volumes.len() - 22;
    volumes[end + 4] = 1;
    check_bytes(stage, volumes, None, ArchiveFault::Volumes);
    let endless = Item::file("one/x", "x").both(|header| header.extra = vec![9, 9, 255, 255]);
    check(stage, &with(endless), Some("one/x"), ArchiveFault::Broken { what: "an extra field is longer than all fields together" });
}

/// Promise: archives
#[test]
fn archives_above_the_limits_are_refused(stage) {
    let small = UploadBounds { archive: 5000, entries: 4, skills: 2, total: 3 << 20, file: 2 << 20, ratio: 10, ..SkillStage::bounds() };
    let store = SkillStore::open(&stage.root.with_file_name("small"), small).unwrap();
    let good = with(Item::file("one/x", "x"));
    let size = 6000;
    let check = |pack: &Pack, expect: ArchiveFault| {
        let error = fault(&store, pack.bytes());
        assert_eq!(error.fault, expect);
        assert_eq!(std::fs::read_dir(stage.root.with_file_name("small").join("staging")).unwrap().count(), 0);
    };
    assert!(store.upload(&name("ada"), &name("helper"), Cursor::new(good.bytes()), None).is_ok());
    let large = with(Item::file("one/x", "x".repeat(size)));
    check(&large, ArchiveFault::ArchiveSize { size: large.bytes().len() as u64, limit: 5000 });
    let many = Pack::new((0..5).map(|i| Item::file(format!("one/{i}"), "")));
    check(&many, ArchiveFault::Entries { count: 5, limit: 4 });
    let many = Pack::new((0..3).map(|i| Item::file(format!("s{i}/SKILL.md"), "")));
    check(&many, ArchiveFault::Skills { count: 3, limit: 2 });
    let zeros = |length: usize| Item::file("one/x", vec![0; length]).deflated();
    check(&with(zeros((2 << 20) + 1)), ArchiveFault::FileSize { size: (2 << 20) + 1, limit: 2 << 20 });
    check(&with(zeros(2 << 20)), ArchiveFault::Ratio { limit: 10 });
    assert!(store.upload(&name("ada"), &name("helper"), Cursor::new(with(zeros(1 << 20)).bytes()), None).is_ok(), "small files may exceed the ratio");
    let mut both = with(Item::file("one/x", vec![0; 1 << 20]).deflated());
    both.items.push(Item::file("one/y", vec![0; 1 << 20]).deflated());
    both.items.push(Item::file("one/z", vec![0; 1 << 20]).deflated());
    check(&both, ArchiveFault::TotalSize { size: (3 << 20) + skill_md("one").len() as u64, limit: 3 << 20 });
    // An entry that declares less than it contains is refused.
    let data = deflate(&vec![0; 2 << 20]);
    let mut liar = zeros(10);
    liar.data.clone_from(&data);
    let liar = liar.both(|header| header.length = data.len() as u32);
    check(&with(liar), ArchiveFault::Size);
}

#[test]
fn quota_applies_to_the_usage_after_the_upload(stage) {
    let length = skill_md("one").len() as u64;
    let upload = |text: &str, quota: u64| {
        let bytes = Pack::new(skill("one", &[("x", text)])).bytes();
        stage.store.upload(&name("ada"), &name("helper"), Cursor::new(bytes), Some(quota)).map(|_| ()).map_err(|error| error.code())
    };
    assert_eq!(upload(&"x".repeat(100), length + 99), Err("quota"));
    assert!(!stage.at("one").exists());
    assert_eq!(upload(&"x".repeat(100), length + 100), Ok(()));
    // The replaced version does not count.
    assert_eq!(upload(&"y".repeat(100), length + 100), Ok(()));
    // Files of a command count, even in a locked directory.
    let locked = stage.at("one").join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::write(locked.join("big"), vec![0; 1000]).unwrap();
    std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    assert_eq!(stage.store.usage(&name("ada")).unwrap().bytes, length + 1100);
    stage.check_clear();
}
}
