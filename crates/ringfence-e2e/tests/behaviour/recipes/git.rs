//! Recipes of git that need more than a clone.

use super::{LIBRARY, recipe, works};

#[test]
fn submodules() {
    recipe("Git submodules", &["git"], |project, lan| {
        project.write(
            ".gitmodules",
            "[submodule \"lib\"]\n\tpath = lib\n\turl = https://github.com/me/lib.git\n",
        );
        lan.run_as_server(LIBRARY).ok();
        let commit = lan.run_as_server("git -C made rev-parse HEAD").ok();
        let line = format!(
            "git init -q && git add .gitmodules && git update-index --add --cacheinfo 160000,{commit},lib && git -c user.name=A -c user.email=a@b commit -qm one"
        );
        project.sh_bare(&line).ok();
        works("Git submodules", project, lan, "");
        assert_eq!(project.read("lib/file").as_deref(), Some("42\n"));
    });
}

#[test]
fn lfs() {
    recipe("Git LFS", &["git", "git-lfs"], |project, lan| {
        project.write("big.bin", "x".repeat(1000));
        project.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        project.sh_bare("git init -q && git config user.name A && git config user.email a@b").ok();
        works("Git LFS", project, lan, "");
        let stored = project.sh_bare("git show HEAD:big.bin").ok();
        assert!(stored.starts_with("version https://git-lfs"), "{stored}");
    });
}
