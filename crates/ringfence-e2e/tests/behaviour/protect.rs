//! Protected files, which host programs obey, can be read and not written, also while absent.

use ringfence_testkit::{TestProject, TreeListing, each_user};

use crate::project;

/// Ways to make an absent name. `T` is the target; a list of (word, attempt).
const MAKE: &str = r#"
def ways(T):
    D, N = os.path.dirname(T) or '.', os.path.basename(T)
    def fresh():
        write('scratch')
        return 'scratch'
    def fresh_directory():
        os.mkdir('scratch')
        write('scratch/file')
        return 'scratch'
    def at(act):
        fd = os.open(D, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return act(fd)
        finally:
            os.close(fd)
    def through(target):
        os.symlink(target, 'dangling')
        return create('dangling')
    def through_directory():
        os.symlink(D, 'dangling')
        return create('dangling/' + N)
    def through_descriptor():
        return at(lambda fd: create('/proc/self/fd/%d/%s' % (fd, N)))
    def moved_away_and_back():
        os.rename(D, 'moved')
        try:
            create('moved/' + N)
        finally:
            os.rename('moved', D)
    found = [
        ('create', lambda: create(T)),
        ('create exclusively', lambda: create(T, os.O_EXCL)),
        ('create by creat', lambda: call('creat', T.encode(), 0o644) if 'creat' in NUMBERS else create(T)),
        ('create by descriptor', lambda: at(lambda fd: os.close(os.open(N, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)))),
        ('create by dots', lambda: create('src/../' + T)),
        ('create by dots within', lambda: create(D + '/./../' + os.path.basename(os.path.abspath(D)) + '/' + N) if D != '.' else create('./' + T)),
        ('create by cwd', lambda: create('/proc/self/cwd/' + T)),
        ('create by root', lambda: create('/proc/self/root' + os.path.abspath(T))),
        ('create by thread', lambda: create('/proc/thread-self/cwd/' + T)),
        ('create by fd path', through_descriptor),
        ('create through a link', lambda: through(os.path.abspath(T))),
        ('create through a relative link', lambda: through(T)),
        ('create through a linked directory', through_directory),
        ('mkdir', lambda: os.mkdir(T)),
        ('mkdir with slashes', lambda: os.mkdir(T + '//')),
        ('mkdir by descriptor', lambda: at(lambda fd: os.mkdir(N, dir_fd=fd))),
        ('mknod', lambda: os.mknod(T)),
        ('mkfifo', lambda: os.mkfifo(T)),
        ('rename over', lambda: os.rename(fresh(), T)),
        ('rename a directory over', lambda: os.rename(fresh_directory(), T)),
        ('rename without replacing', lambda: rename2(fresh(), T, 1)),
        ('rename by descriptor', lambda: at(lambda fd: os.rename(fresh(), N, dst_dir_fd=fd))),
        ('link', lambda: os.link(fresh(), T)),
        ('link by descriptor', lambda: at(lambda fd: os.link(fresh(), N, dst_dir_fd=fd))),
        ('symlink', lambda: os.symlink('/etc/hostname', T)),
        ('symlink by descriptor', lambda: at(lambda fd: os.symlink('/etc/hostname', N, dir_fd=fd))),
        ('unnamed file', lambda: tmpfile_as(T)),
        ('bind a socket', lambda: listen_at(T)),
    ]
    if D != '.':
        found.append(('moved away and back', moved_away_and_back))
    return found
"#;

/// Ways to change an existing name.
const CHANGE: &str = r#"
def ways(T):
    D = os.path.dirname(T) or '.'
    def fresh():
        write('scratch')
        return 'scratch'
    def fresh_directory():
        os.mkdir('scratch')
        return 'scratch'
    def by_link():
        os.link(T, 'linked')
        write('linked')
    def swapped():
        os.symlink('/etc/hostname', 'scratch')
        os.rename('scratch', T)
    def moved_away_and_back():
        os.rename(D, 'moved')
        try:
            os.rename('moved/' + os.path.basename(T), 'moved/old')
        finally:
            os.rename('moved', D)
    file = os.path.isfile(T)
    found = [
        ('unlink', lambda: os.unlink(T) if file else os.rmdir(T)),
        ('rename away', lambda: os.rename(T, 'gone')),
        ('rename over', lambda: os.rename(fresh() if file else fresh_directory(), T)),
        ('exchange', lambda: rename2(fresh(), T, 2)),
        ('exchange the other way', lambda: rename2(T, fresh(), 2)),
        ('swap for a link', swapped),
        ('chmod', lambda: os.chmod(T, 0o777)),
        ('touch', lambda: os.utime(T, (0, 0))),
        ('chown', lambda: os.chown(T, os.getuid(), os.getgid())),
        ('attribute', lambda: os.setxattr(T, 'user.x', b'x')),
    ]
    if file:
        found += [
            ('write', lambda: os.close(os.open(T, os.O_WRONLY))),
            ('write and make', lambda: create(T)),
            ('append', lambda: os.close(os.open(T, os.O_WRONLY | os.O_APPEND | os.O_CREAT))),
            ('truncate', lambda: os.truncate(T, 0)),
            ('open to read and truncate', lambda: os.close(os.open(T, os.O_RDONLY | os.O_TRUNC))),
            ('by cwd', lambda: write('/proc/self/cwd/' + T)),
            ('by a link of its own', by_link),
        ]
    else:
        found += [('make within', lambda: create(T + '/new')), ('make a directory within', lambda: os.mkdir(T + '/new'))]
    if D != '.':
        found.append(('moved away and back', moved_away_and_back))
    return found
"#;

/// Tries every way on each of `targets`; prints `target<TAB>way<TAB>outcome`.
const TRY: &str = r#"
import shutil, warnings
warnings.simplefilter('ignore')
def clean(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)
for target in TARGETS:
    for word, act in ways(target):
        came = outcome(act)
        print(target, word, came, sep='\t')
        for left in ['scratch', 'dangling', 'moved', 'linked', 'gone'] + ([target] if came == 'ok' and UNDO else []):
            clean(left)
"#;

/// Removal of an attempt's result, so that the next can succeed too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    Yes,
    No,
}

fn script(ways: &str, targets: &[&str], undo: Undo) -> String {
    format!(
        "{ways}\nTARGETS = {targets:?}\nUNDO = {}\n{TRY}",
        if undo == Undo::Yes { "True" } else { "False" }
    )
}

/// Checks that every way fails inside with a permission error, and that nothing has changed.
#[track_caller]
fn none_succeeds(project: &TestProject, ways: &str, targets: &[&str]) {
    let before = project.entries();
    let ran = project.python(&script(ways, targets, Undo::No));
    let said = ran.ok();
    let through: Vec<&str> = said
        .lines()
        .filter(|line| {
            ![
                "EACCES",
                "EROFS",
                "EBUSY",
                "EXDEV",
                "EEXIST",
                "EPERM",
                "ENOTEMPTY",
                "ENOTDIR",
                "EISDIR",
            ]
            .iter()
            .any(|error| line.ends_with(&format!("\t{error}")))
        })
        .collect();
    assert!(through.is_empty(), "as {}:\n{}", project.user, through.join("\n"));
    assert!(said.lines().count() >= targets.len() * 10, "too few ways were tried:\n{said}");
    same(&before, &project.entries(), &ran.stderr_text());
}

#[track_caller]
fn same(before: &TreeListing, after: &TreeListing, talk: &str) {
    let changed: Vec<_> =
        before.iter().filter(|(path, what)| after.get(*path) != Some(what)).collect();
    let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(changed.is_empty() && new.is_empty(), "changed: {changed:?}\nnew: {new:?}\n{talk}");
}

/// A repository with a commit, made on the host.
fn repository(project: &TestProject, at: &str) {
    project.make_directories(&project.at(at));
    project
        .sh_bare(&format!(
            "cd {at} && git init -q . && echo x > tracked && git add tracked && git commit -qm one"
        ))
        .ok();
}

const ABSENT: &[&str] = &[
    ".mcp.json",
    ".claude",
    ".vscode",
    ".ringfence",
    ".gitmodules",
    ".bashrc",
    ".idea",
    ".ripgreprc",
    ".codex",
];

/// Promise: protected-names
#[test]
fn absent_protected_name_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        none_succeeds(&project, MAKE, ABSENT);
    });
}

#[test]
fn each_way_to_make_a_name_works_on_unprotected_names() {
    each_user(|user| {
        let project = project(user);
        let before = project.entries();
        // Inside on an unprotected name, and bare on a protected one: so the attempts above fail
        // because of the protection.
        let inside = project.python(&script(MAKE, &["plain.json"], Undo::Yes)).ok();
        let bare = project.python_bare(&script(MAKE, &[".mcp.json"], Undo::Yes)).ok();
        for said in [inside, bare] {
            let failed: Vec<&str> = said.lines().filter(|line| !line.ends_with("\tok")).collect();
            assert!(failed.is_empty(), "{failed:?}");
        }
        same(&before, &project.entries(), "");
    });
}

/// Promise: protected-names
#[test]
fn absent_git_settings_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        repository(&project, ".");
        std::fs::remove_dir_all(project.at(".git/hooks")).expect("git made it");
        none_succeeds(
            &project,
            MAKE,
            &[".git/commondir", ".git/config.worktree", ".git/info/attributes", ".git/hooks"],
        );
    });
}

/// Promise: protected-names
#[test]
fn git_settings_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        repository(&project, ".");
        project.write(".git/hooks/pre-commit", "#!/bin/sh\n");
        project.write(".git/info/attributes", "");
        none_succeeds(
            &project,
            CHANGE,
            &[".git/config", ".git/hooks", ".git/hooks/pre-commit", ".git/info/attributes"],
        );
        none_succeeds(&project, MAKE, &[".git/hooks/post-checkout"]);
    });
}

#[test]
fn existing_protected_name_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        project.write(".mcp.json", "{}");
        project.write(".claude/settings.json", "{}");
        project.write(".vscode/tasks.json", "{}");
        project.write(".bashrc", "");
        none_succeeds(
            &project,
            CHANGE,
            &[
                ".mcp.json",
                ".claude",
                ".claude/settings.json",
                ".vscode",
                ".vscode/tasks.json",
                ".bashrc",
            ],
        );
        assert_eq!(project.sh("cat .mcp.json").ok(), "{}");
    });
}

/// Promise: protected-names
#[test]
fn nested_repository_is_protected_at_any_depth() {
    each_user(|user| {
        let project = project(user);
        repository(&project, "a/b/c/d/e/f");
        none_succeeds(&project, CHANGE, &["a/b/c/d/e/f/.git/config", "a/b/c/d/e/f/.git/hooks"]);
        none_succeeds(
            &project,
            MAKE,
            &["a/b/c/d/e/f/.git/commondir", "a/b/c/d/e/f/.git/hooks/pre-commit"],
        );
    });
}

/// Promise: protected-names
#[test]
fn moving_a_parent_does_not_unprotect_a_repository() {
    each_user(|user| {
        let project = project(user);
        repository(&project, "a/b");
        project
            .sh("mv a z; cd z/b 2>/dev/null || cd a/b; echo x > .git/commondir; echo x >> .git/config; touch .git/hooks/pre-commit; true")
            .ok();
        project.sh("mv a/b bb; mkdir q && mv a q/a; echo x > bb/.git/commondir; echo x > q/a/b/.git/commondir; mv a/b/.git gg; echo x > gg/commondir; true").ok();
        let after = project.entries();
        let planted: Vec<_> = after
            .keys()
            .filter(|path| path.ends_with("commondir") || path.ends_with("pre-commit"))
            .collect();
        assert!(planted.is_empty(), "{planted:?}");
    });
}

#[test]
fn gitdir_pointer_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        repository(&project, "real");
        project.write("linked/.git", format!("gitdir: {}\n", project.at("real/.git").display()));
        none_succeeds(&project, CHANGE, &["linked/.git"]);
    });
}

/// Promise: own-repository
#[test]
fn command_can_make_its_own_repository() {
    each_user(|user| {
        let project = project(user);
        repository(&project, ".");
        project.sh("mkdir new && cd new && git init -q && git config user.name X && touch f && git add f && git commit -qm x && git log --oneline | wc -l").ok();
        project.sh("git clone -q . copy && cd copy && git log --oneline").ok();
        assert!(project.has("new/.git/config") && project.has("copy/.git/HEAD"));
    });
}

#[test]
fn protect_flag_holds() {
    each_user(|user| {
        let project = project(user);
        project
            .tries("write('README')")
            .with(&["--protect", "README"])
            .inside(&["EACCES", "EROFS"]);
        project.tries("create('Makefile')").with(&["--protect", "Makefile"]).inside(&["EACCES"]);
        project.tries("create('src/x.lock')").with(&["--protect", "*.lock"]).inside(&["EACCES"]);
        project.tries("read('README')").with(&["--protect", "README"]).inside(&["ok"]);
        assert!(!project.has("Makefile") && !project.has("src/x.lock"));
    });
}

/// Promise: protected-names
#[test]
fn core_hookspath_in_the_project_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        repository(&project, ".");
        project.write(".husky/pre-commit", "#!/bin/sh\n");
        project.write("scripts/pre-push", "#!/bin/sh\n");
        let config = std::fs::read_to_string(project.at(".git/config"))
            .expect("the repository has a config");
        project.write(".git/config", format!("{config}[core]\n\thooksPath = .husky\n"));
        std::fs::remove_dir_all(project.at(".git/hooks")).expect("hooks can be removed");
        std::os::unix::fs::symlink("../scripts", project.at(".git/hooks"))
            .expect("a link can be made");
        project.tries("write('.husky/pre-commit')").inside(&["EACCES", "EROFS"]);
        project.tries("create('.husky/post-checkout')").inside(&["EACCES", "EROFS"]);
        project.tries("write('scripts/pre-push')").inside(&["EACCES", "EROFS"]);
        project.tries("create('src/other')").inside(&["ok"]);
    });
}

/// Adds to the repository's config on the host.
fn configure(project: &TestProject, lines: &str) {
    let config =
        std::fs::read_to_string(project.at(".git/config")).expect("the repository has a config");
    project.write(".git/config", format!("{config}{lines}"));
}

fn link(project: &TestProject, target: &str, name: &str) {
    std::os::unix::fs::symlink(target, project.at(name)).expect("a link can be made");
    project.user.chown(&project.at(name));
}

/// Checks that a commit on the host runs nothing that any of `lines` made inside.
#[track_caller]
fn commits_in_peace(prepare: impl Fn(&TestProject), lines: &[&str], hooks: &str) {
    let plant = format!(
        "mkdir -p {hooks}; printf '#!/bin/sh\\ntouch owned\\n' > {hooks}/pre-commit; chmod +x {hooks}/pre-commit"
    );
    let commit = "echo more >> tracked; git commit -qam more";
    each_user(|user| {
        let fresh = || {
            let project = project(user);
            repository(&project, ".");
            prepare(&project);
            project
        };
        let project = fresh();
        for line in lines {
            project.sh(&format!("{line}; {plant}"));
            project.sh_bare(commit);
            assert!(!project.has("owned"), "as {user}: {line}");
        }
        let control = fresh();
        control.sh_bare(&format!("rm -rf {hooks}; {plant}; {commit}")).ok();
        assert!(control.has("owned"), "as {user}: such a hook does not run");
    });
}

/// Promise: protected-names
#[test]
fn configured_hooks_cannot_be_moved_or_replaced() {
    let prepare = |project: &TestProject| {
        project.write(".husky/_/post-commit", "");
        configure(project, "[core]\n\thooksPath = .husky/_\n");
    };
    let lines = [
        "true",
        "mv .husky old",
        "mkdir n; mv n .husky",
        "rm -rf .husky; mkdir .husky; mv n .husky/_",
    ];
    commits_in_peace(prepare, &lines, ".husky/_");
}

/// Promise: protected-names
#[test]
fn absent_configured_hooks_cannot_be_made() {
    let prepare = |project: &TestProject| {
        configure(
            project,
            "[core]\n\thooksPath = nowhere # comment\n\thooksPath = \"tools/my hooks\"\n",
        )
    };
    commits_in_peace(prepare, &["true", "mkdir tools"], "'tools/my hooks'");
    let linked = |project: &TestProject| {
        std::fs::remove_dir_all(project.at(".git/hooks")).expect("hooks can be removed");
        link(project, "../a", ".git/hooks");
        link(project, "b", "a");
    };
    commits_in_peace(linked, &["true", "rm a", "mkdir b"], "b");
}

/// Promise: protected-names
#[test]
fn global_hooks_of_the_user_cannot_be_changed() {
    let prepare = |project: &TestProject| {
        project.write_at(
            &project.home().join(".gitconfig"),
            "[user]\n\tname = A\n\temail = a@b\n[include]\n\tpath = more\n",
        );
        project.write_at(&project.home().join("more"), "[core]\n\thooksPath = .githooks\n");
        project.write(".githooks/post-commit", "");
    };
    commits_in_peace(prepare, &["true", "mv .githooks old"], ".githooks");
}

/// Promise: protected-names
#[test]
fn links_to_protected_files_cannot_be_redirected() {
    each_user(|user| {
        let project = project(user);
        project.write("b/tasks.json", "{}");
        link(&project, "b", "a");
        link(&project, "a", ".vscode");
        link(&project, "gone", ".mcp.json");
        project.sh("rm a; mkdir a; echo planted > a/tasks.json; ln -s src a; mv src a; echo planted > b/tasks.json; echo planted > gone");
        assert_eq!(project.read("b/tasks.json").as_deref(), Some("{}"));
        assert!(project.read(".vscode/tasks.json").is_none_or(|text| text == "{}"));
        assert!(!project.has("gone"));
        project.tries("create('other')").inside(&["ok"]);
    });
}

/// Promise: protected-names
#[test]
fn parents_of_absent_protected_names_cannot_be_moved() {
    each_user(|user| {
        let project = project(user);
        project.write("ci/owners", "");
        project
            .run([
                "--protect",
                "ci/jobs",
                "-c",
                "mv ci g; mkdir -p g/jobs; touch g/jobs/x; mv g ci; true",
            ])
            .ok();
        assert!(!project.has("ci/jobs"));
        project.run(["-c", "mv ci g"]).ok();
    });
}

/// Promise: protected-names
#[test]
fn repository_behind_a_link_is_protected_and_usable() {
    each_user(|user| {
        let project = project(user);
        repository(&project, ".");
        project.sh_bare("mv .git real && ln -s real .git").ok();
        project
            .sh("git status && git log --oneline && echo y > tracked && git commit -qam two")
            .ok();
        project.tries("write('real/config')").inside(&["EACCES", "EROFS"]);
        project.tries("create('real/hooks/pre-commit')").inside(&["EACCES", "EROFS"]);
        project.sh("rm .git; mkdir .git; ln -s src .git; mv src .git");
        assert_eq!(
            std::fs::read_link(project.at(".git")).ok().as_deref(),
            Some("real".as_ref()),
            "{user}"
        );
    });
}

/// Promise: protected-names
#[test]
fn incomplete_repository_is_protected() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q --bare fix && rm -r fix/refs").ok();
        project.tries("write('fix/config')").inside(&["EACCES", "EROFS"]);
        project.tries("os.rename('fix', 'fax')").inside(&["EACCES", "EBUSY"]);
        project.sh_bare("mkdir less && cp fix/HEAD less/").ok();
        project.tries("create('less/config')").inside(&["EACCES"]).bare_ok();
    });
}

/// Promise: protected-names
#[test]
fn protected_name_cannot_be_made_in_other_case() {
    each_user(|user| {
        let project = project(user);
        for name in [".Mcp.json", ".VSCODE", ".RINGFENCE", "sub/.Ringfence"] {
            project.tries(&format!("create('{name}')")).inside(&["EACCES"]).bare_ok();
        }
        project.tries("create('.Mcp.yaml')").inside(&["ok"]);
    });
}
