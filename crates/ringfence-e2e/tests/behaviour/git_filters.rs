//! Filters of the user's git config, such as git-lfs, work inside.

use ringfence_testkit::{TestProject, TestUser, each_user, needs};

use crate::project;

/// A filter that stores text in upper case and restores it in lower case.
const FILTER: &str = "#!/bin/sh\ncase $1 in clean) tr a-z A-Z ;; smudge) tr A-Z a-z ;; esac\n";

fn with_filter(user: TestUser) -> TestProject {
    let project = project(user);
    project.sh_bare("rm -rf * .[a-z]*; git init -q").ok();
    project.write("tools/upper", FILTER);
    project.executable("tools/upper");
    project.sh_bare("git config --global filter.upper.clean 'upper clean' && git config --global filter.upper.smudge 'upper smudge' && git config --global filter.upper.required true").ok();
    project.write(".gitattributes", "*.txt filter=upper\n");
    project
}

#[test]
fn filters_of_the_users_config_work_inside() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = with_filter(user);
        project.write("a.txt", "hello\n");
        project.sh("PATH=$PWD/tools:$PATH && git add .gitattributes a.txt && git commit -qm x && git status --short a.txt").ok();
        assert_eq!(
            project.sh_bare("git show HEAD:a.txt").ok(),
            "HELLO",
            "{user}: it was stored as it is"
        );
        project.sh("PATH=$PWD/tools:$PATH && rm a.txt && git checkout -q a.txt").ok();
        assert_eq!(project.read("a.txt").as_deref(), Some("hello\n"), "{user}");
        assert_eq!(
            project.sh_bare("PATH=$PWD/tools:$PATH git status --short a.txt").ok(),
            "",
            "{user}"
        );
    });
}

/// A repository's own filter still works; the copy of the user's config in the sandbox lacks it.
#[test]
fn filter_with_a_token_is_hidden() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = with_filter(user);
        project.sh_bare("git config --global filter.hidden.clean 'x --token=abc' && git config filter.own.clean y").ok();
        let shown = project.sh("cat ~/.gitconfig").ok();
        assert!(shown.contains("upper clean"), "{user}: {shown}");
        assert!(!shown.contains("abc") && !shown.contains("own"), "{user}: {shown}");
    });
}

#[test]
fn password_in_a_filter_or_comment_is_hidden() {
    each_user(|user| {
        let project = project(user);
        let config = "[filter \"enc\"]\n\tclean = openssl enc -aes-256-cbc -k hunter2 -a\n\tsmudge = gpg --batch --passphrase hunter3 -d\n\t\
                      process = vault --api-key=hunter4 -u admin:hunter5\n\trequired = true ; pw hunter6\n\
                      [lfs]\n\turl = https://host/lfs?sig=hunter7\n\tconcurrenttransfers = 8\n[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n";
        std::fs::write(project.home().join(".gitconfig"), config).unwrap();
        let shown = project.sh("cat ~/.gitconfig").ok();
        assert!(
            shown.contains("git-lfs clean -- %f")
                && shown.contains("required = true")
                && shown.contains("= 8"),
            "{user}: {shown}"
        );
        assert!(!shown.contains("hunter"), "{user}: {shown}");
    });
}

#[test]
fn git_lfs_stores_pointers_and_restores_content() {
    if !needs(&["git", "git-lfs"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("rm -rf * .[a-z]*; git init -q; git lfs install --skip-repo").ok();
        project.write("big.bin", "content\n");
        project.sh("git lfs track --filename big.bin && git add .gitattributes big.bin && git commit -qm x && git lfs ls-files").ok();
        assert!(
            project
                .sh_bare("git show HEAD:big.bin")
                .ok()
                .starts_with("version https://git-lfs.github.com/spec/"),
            "{user}"
        );
        project.sh("rm big.bin && git checkout -q big.bin").ok();
        assert_eq!(project.read("big.bin").as_deref(), Some("content\n"), "{user}");
        assert_eq!(project.sh_bare("git status --short").ok(), "", "{user}");
    });
}
