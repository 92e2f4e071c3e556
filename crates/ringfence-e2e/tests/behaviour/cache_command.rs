//! Caches of projects are listed and removed, never while a run uses them.

use std::fs;

use ringfence_testkit::{TestOutput, TestProject, becomes_true, each_user};
use serde_json::Value;

use crate::project;

fn cache(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().arg("cache").args(words), b"")
}

#[track_caller]
fn listed(project: &TestProject) -> Vec<Value> {
    serde_json::from_str(&cache(project, &["list", "--json"]).ok()).expect("a JSON array")
}

/// Fills a private cache that is an overlay over the host's.
fn filled(project: &TestProject) {
    project.write_at(&project.home().join(".npm/host"), "of the host");
    project
        .sh("mkdir -p ~/.npm && head -c 300000 /dev/zero > ~/.npm/big && mkdir -m 000 ~/.npm/shut")
        .ok();
}

#[test]
fn caches_are_listed_with_size_and_project_and_removed() {
    each_user(|user| {
        let project = project(user);
        assert!(cache(&project, &["list"]).ok().contains("no caches"));
        filled(&project);
        let all = listed(&project);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0]["project"], project.root().display().to_string(), "{all:?}");
        assert!(
            all[0]["bytes"].as_u64().unwrap() >= 300_000 && all[0]["inUse"] == false,
            "{all:?}"
        );
        assert!(
            all[0]["lastUse"].as_u64().is_some()
                && all[0]["caches"].as_array().unwrap().contains(&".npm".into()),
            "{all:?}"
        );
        assert!(cache(&project, &["list"]).ok().contains(&project.root().display().to_string()));
        let store = std::path::PathBuf::from(all[0]["store"].as_str().unwrap());
        // The quarantine is not listed as a cache.
        project.write_at(&store.join("quarantine/kept"), "x");
        assert!(cache(&project, &["clear"]).ok().contains("removed"));
        assert!(
            listed(&project).is_empty()
                && store.join("quarantine/kept").exists()
                && !store.join(".npm").exists()
        );
        assert!(cache(&project, &["clear"]).ok().contains("nothing to remove"));
        project.sh("test ! -e ~/.npm/big").ok();
    });
}

#[test]
fn cache_in_use_is_not_removed() {
    each_user(|user| {
        let project = project(user);
        filled(&project);
        let mut running = project
            .ringfence()
            .args(["run", "-c", "touch begun; while [ ! -e end ]; do sleep 0.05; done"])
            .spawn()
            .unwrap();
        assert!(becomes_true(std::time::Duration::from_secs(20), || project.has("begun")));
        assert_eq!(listed(&project)[0]["inUse"], true);
        let kept = cache(&project, &["clear", "--all"]);
        assert!(
            kept.expect_status(1).stderr_text().contains("a run is using it"),
            "{}",
            kept.stderr_text()
        );
        project.write("end", "");
        running.wait().unwrap();
        let removed = cache(
            &project,
            &["clear", "--project", &project.root().display().to_string(), "--json"],
        )
        .ok();
        assert!(removed.contains("\"removed\":true"), "{removed}");
        assert!(listed(&project).is_empty());
    });
}

#[test]
fn cache_can_be_removed_with_rm() {
    each_user(|user| {
        let project = project(user);
        // A preset with an overlay over the host's cache.
        project.write("Gemfile", "");
        project.write_at(&project.home().join("tools/bin/gem"), "#!/bin/sh\n");
        project.write_at(&project.home().join(".gem/seen"), "from the host");
        let path = format!("{}/tools/bin:/usr/local/bin:/usr/bin:/bin", project.home().display());
        TestOutput::run(
            project.ringfence().env("PATH", path).args(["run", "-c", "echo x > ~/.gem/made"]),
            b"",
        )
        .ok();
        let caches = project.home().join(".cache/ringfence");
        let work = TestOutput::run(
            project.command("find").args([caches.to_str().unwrap(), "-path", "*/work/work"]),
            b"",
        )
        .text();
        assert!(!work.is_empty(), "no overlay was made");
        TestOutput::run(project.command("rm").args(["-rf", caches.to_str().unwrap()]), b"").ok();
        assert!(!fs::exists(&caches).unwrap());
    });
}
