//! Replacement during reads and runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_skills::{SkillFileBody, SkillStore};

use crate::pack::{Item, Pack};
use crate::stage::{SkillStage, id, skill, skill_md};

/// Every file contains the generation.
fn generation(number: u64) -> Pack {
    let content = format!("generation {number}\n");
    let mut items = vec![Item::file(
        "one/SKILL.md",
        format!(
            "---\nname: one\ndescription: generation {number}\nmetadata:\n  hosts: g{number}.example.org\n---\n"
        ),
    )];
    items.extend((0..5).map(|i| Item::file(format!("one/d{i}/f-{number}"), &content)));
    Pack::new(items)
}

tests! { "replaced":
/// Promise: skill-versions
#[test]
fn readers_see_one_version_and_never_a_mix(stage) {
    stage.upload(&generation(0)).unwrap();
    let is_over = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let generation_of = |text: &str| text.trim_start_matches("generation ").trim().to_owned();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let files = stage.store.files(&id("one")).unwrap();
                    let mut numbers: Vec<&str> = files.files.iter().filter_map(|file| Some(file.path.split_once("/f-")?.1)).collect();
                    assert_eq!(numbers.len(), 5, "{files:?}");
                    numbers.dedup();
                    assert_eq!(numbers.len(), 1, "{files:?}");
                    let info = stage.store.info(&id("one")).unwrap();
                    let number = generation_of(&info.description.unwrap());
                    assert_eq!(info.needs.unwrap().hosts.unwrap(), [format!("g{number}.example.org")]);
                    assert_eq!((info.warnings, info.files), (Vec::new(), 6));
                    // A file that was replaced meanwhile is missing, never mixed.
                    match stage.store.content(&id("one"), &format!("d3/f-{number}"), None) {
                        Ok(content) => assert_eq!(content.body, SkillFileBody::Text(format!("generation {number}\n"))),
                        Err(error) => assert_eq!(error.code(), "no-file"),
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 1..=200 {
            assert!(stage.upload(&generation(number)).unwrap().skills[0].replaced);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(rounds.load(Ordering::Relaxed) > 50);
    stage.check_clear();
    let cards = std::fs::read_dir(stage.root.join("cards/ada/helper/one")).unwrap().count();
    assert_eq!(cards, 1);
}

#[test]
fn concurrent_uploads_are_serialized(stage) {
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let mut items = generation(number).items;
                items.extend(skill("two", &[("f", &format!("generation {number}"))]));
                stage.upload(&Pack::new(items)).unwrap();
            });
        }
    });
    // All skills come from the same upload.
    let one = stage.store.info(&id("one")).unwrap().description.unwrap();
    let SkillFileBody::Text(two) = stage.store.content(&id("two"), "f", None).unwrap().body else { panic!("no text") };
    assert_eq!(one, two);
    stage.check_clear();
}

/// Promise: skill-versions
#[test]
fn running_command_keeps_its_version_until_it_ends(stage) {
    stage.put("one", &[("f", "old")]);
    let mut lease = stage.store.lease(&id("one")).unwrap();
    assert_eq!(lease.path(), stage.at("one").canonicalize().unwrap());
    let mounted = std::fs::File::open(lease.path()).unwrap();
    lease.sandbox_started();
    let mut second = stage.store.lease(&id("one")).unwrap();
    second.sandbox_started();
    stage.put("one", &[("f", "new")]);
    let seen = || std::fs::read_to_string(format!("/proc/self/fd/{}/f", std::os::fd::AsRawFd::as_raw_fd(&mounted)));
    assert_eq!(seen().unwrap(), "old");
    assert_eq!(std::fs::read_to_string(stage.at("one/f")).unwrap(), "new");
    drop(lease);
    assert_eq!(seen().unwrap(), "old");
    drop(second);
    assert!(seen().is_err());
    stage.check_clear();
    let mut lease = stage.store.lease(&id("one")).unwrap();
    lease.sandbox_started();
    stage.store.remove(&id("one")).unwrap();
    assert_eq!(stage.store.lease(&id("one")).unwrap_err().code(), "no-skill");
    drop(lease);
    stage.check_clear();
}

#[test]
fn lease_has_the_needs_of_its_version(stage) {
    stage.upload(&generation(1)).unwrap();
    let mut lease = stage.store.lease(&id("one")).unwrap();
    lease.sandbox_started();
    stage.upload(&generation(2)).unwrap();
    assert_eq!(lease.needs().unwrap().hosts.unwrap(), ["g1.example.org"]);
    assert_eq!(stage.store.needs(&id("one")).unwrap().hosts.unwrap(), ["g2.example.org"]);
}

#[test]
fn replacement_waits_only_for_setups(stage) {
    stage.put("one", &[("f", "old")]);
    let mut running = stage.store.lease(&id("one")).unwrap();
    running.sandbox_started();
    let began = Instant::now();
    stage.put("one", &[("f", "new")]);
    assert!(began.elapsed() < Duration::from_secs(10), "it waited for a running command");
    let mut lease = stage.store.lease(&id("one")).unwrap();
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| stage.put("one", &[("f", "newest")]));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!upload.is_finished());
        assert_eq!(std::fs::read_to_string(lease.path().join("f")).unwrap(), "new");
        // Reads and other skills do not wait.
        assert!(stage.store.content(&id("one"), "f", None).is_ok());
        stage.put("two", &[]);
        lease.sandbox_started();
        upload.join().unwrap();
    });
    assert_eq!(std::fs::read_to_string(stage.at("one/f")).unwrap(), "newest");
    drop((lease, running));
    stage.check_clear();
}

#[test]
fn waiting_is_bounded(stage) {
    let bounds = ringfence_skills::UploadBounds { patience: Duration::from_millis(200), ..SkillStage::bounds() };
    let root = stage.root.with_file_name("hasty");
    let store = SkillStore::open(&root, bounds).unwrap();
    let upload = || store.upload(&id("one").user, &id("one").agent, std::io::Cursor::new(Pack::new(skill("one", &[])).bytes()), None);
    upload().unwrap();
    let lease = store.lease(&id("one")).unwrap();
    assert_eq!(upload().unwrap_err().code(), "busy");
    assert_eq!(store.remove(&id("one")).unwrap_err().code(), "busy");
    assert_eq!(std::fs::read_dir(root.join("staging")).unwrap().count(), 0);
    // A caller that gave up does not block others.
    drop(store.lease(&id("one")).unwrap());
    drop(lease);
    upload().unwrap();
}

#[test]
fn restored_backup_keeps_its_needs(stage) {
    stage.upload(&generation(7)).unwrap();
    let copy = stage.root.with_file_name("copy");
    let status = std::process::Command::new("cp").arg("-a").args([&stage.root, &copy]).status().unwrap();
    assert!(status.success());
    let store = SkillStore::open(&copy, SkillStage::bounds()).unwrap();
    assert_eq!(store.needs(&id("one")).unwrap().hosts.unwrap(), ["g7.example.org"]);
    drop(store);
    // Without metadata the needs are unknown, which differs from no needs.
    std::fs::remove_dir_all(copy.join("cards")).unwrap();
    let store = SkillStore::open(&copy, SkillStage::bounds()).unwrap();
    assert_eq!(store.needs(&id("one")).unwrap_err().code(), "needs-unknown");
    assert_eq!(store.info(&id("one")).unwrap().needs, None);
    assert!(skill_md("one").len() > 10);
}
}
