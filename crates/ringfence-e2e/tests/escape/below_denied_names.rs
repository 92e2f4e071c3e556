//! Git may make directories with a denied name: files that a command plants in them are swept as
//! elsewhere.

use ringfence_testkit::{each_user, needs};

use crate::project;

/// Lines that plant a program, and the line on the host that would run it.
const PLANTED: [(&str, &str); 3] = [
    (
        "git init -q --separate-git-dir=$PWD/k8s/secrets/store k8s/secrets/tree && cd k8s/secrets/tree && git commit -q --allow-empty -m x && \
         git config core.fsmonitor 'touch ../../../ran; false' && cd ../../.. && \
         git update-index --add --cacheinfo 160000,$(git -C k8s/secrets/tree rev-parse HEAD),k8s/secrets/tree",
        "git status; cd k8s/secrets/tree; git status",
    ),
    (
        "git init -q --bare k/secrets/b && git -C k/secrets/b config core.fsmonitor 'touch ../../../ran; false' && \
         git -C k/secrets/b config core.bare false && git -C k/secrets/b config core.worktree .",
        "cd k/secrets/b && git status",
    ),
    (
        "git init -q mysecret && git -C mysecret config core.fsmonitor 'touch ../ran; false'",
        "cd mysecret && git status",
    ),
];

/// Promise: below-denied
#[test]
fn repository_below_a_denied_name_runs_nothing() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        for (plant, host) in PLANTED {
            let bare = project(user);
            bare.sh_bare("git init -q && git commit -q --allow-empty -m x").ok();
            bare.sh_bare(plant).ok();
            bare.sh_bare(host);
            assert!(bare.has("ran"), "{plant}: the probe cannot succeed");
            let project = project(user);
            project.sh_bare("git init -q && git commit -q --allow-empty -m x").ok();
            project.sh(plant);
            project.sh("true").ok();
            project.sh_bare(host);
            assert!(!project.has("ran"), "{user}: {plant}");
        }
    });
}

/// Promise: below-denied
#[test]
fn git_cannot_make_agent_settings_below_a_denied_name() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && git commit -q --allow-empty -m x").ok();
        let names = ["n/secrets/.mcp.json", "n/secrets/.cursor/mcp.json"];
        let entries = names.map(|name| format!("--cacheinfo 100644,$id,{name}")).join(" ");
        let line = format!(
            "export GIT_INDEX_FILE=/tmp/i; id=$(echo x | git hash-object -w --stdin); git update-index --add {entries}"
        );
        project.sh(&format!("{line}; git checkout-index -a"));
        for name in names {
            assert!(!project.has(name), "{user}: {name}");
        }
    });
}
