//! Whoever looks for what is not opened is told of, exactly: who, what, for what, and by
//! which rule.

use ringfence_testkit::{TestProject, TestUser, each_user, fuse_for_all};
use serde_json::Value;

use crate::project;

/// What was refused to a command line, each as `operation target explicit program`.
fn denials(project: &TestProject, line: &str) -> (Value, Vec<String>) {
    let said: Value =
        serde_json::from_str(&project.run(["--json", "--", "/bin/sh", "-c", line]).text())
            .expect("one object of JSON");
    let (home, root) = (
        project.home().to_string_lossy().into_owned(),
        project.root().to_string_lossy().into_owned(),
    );
    let told = said["denials"].as_array().expect("a list").iter().map(|denial| {
        let text = |name: &str| denial[name].as_str().unwrap_or_default().to_owned();
        // The shell is another program on each distribution.
        let program = text("program")
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .replace("dash", "sh")
            .replace("bash", "sh");
        format!(
            "{} {} {} {program}",
            text("operation"),
            text("target").replace(&root, "PROJECT").replace(&home, "~"),
            denial["explicit"]
        )
    });
    let told = told.collect();
    (said, told)
}

#[track_caller]
fn check(line: &str, expected: &[&str]) {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = fresh(user);
        let (said, told) = denials(&project, line);
        let expected: Vec<String> = expected.iter().map(|one| (*one).to_owned()).collect();
        assert_eq!(told, expected, "{user}: {line}\n{}", said["stderr"]);
    });
}

/// A project beside another, and a home with a few files.
fn fresh(user: TestUser) -> TestProject {
    let project = project(user);
    let home = project.home();
    project.write_at(&home.join("other/notes.txt"), "not yours");
    project.write_at(&home.join("other/tool"), "#!/bin/sh\necho ran\n");
    project.sh_bare("chmod +x ~/other/tool; rm -f ~/notes.txt").ok();
    project
}

/// Promise: P22
#[test]
fn what_lies_outside_is_told_of_and_looks_absent() {
    check("cat ~/other/notes.txt", &["read ~/other/notes.txt false cat"]);
    check("cat ~/other/../other/notes.txt", &["read ~/other/notes.txt false cat"]);
    check("ls ~/other", &["read ~/other false ls"]);
    check("exec ~/other/tool", &["execute ~/other/tool false sh"]);
    check("ln -s ~/other/notes.txt l; cat l", &["read ~/other/notes.txt false cat"]);
    check("ln -s ~/other l; cat l/notes.txt", &["read ~/other/notes.txt false cat"]);
    check(
        "rm -f ~/other/notes.txt",
        &["read ~/other/notes.txt false rm", "write ~/other/notes.txt false rm"],
    );
}

/// Promise: P22
#[test]
fn what_is_denied_is_told_of_by_its_rule() {
    check("cat .env", &["read PROJECT/.env true cat"]);
    check("cat ~/.ssh/id_rsa", &["read ~/.ssh/id_rsa true cat"]);
    check("ls ~/.ssh", &["read ~/.ssh true ls"]);
    check("echo x >> .env", &["write PROJECT/.env true sh"]);
    check("chmod 777 .env", &["write PROJECT/.env true chmod"]);
}

/// Promise: P22
#[test]
fn what_is_made_outside_is_told_of() {
    check("echo x > ~/new", &["create ~/new false sh"]);
    check("mkdir ~/other/new", &["create ~/other/new false mkdir"]);
    check("touch /usr/new", &["create /usr/new false touch"]);
    check("cp README ~/other/", &["read ~/other false cp"]);
}

/// Promise: P22
#[test]
fn what_is_nowhere_is_nothing_to_tell_of() {
    for line in [
        "cat ~/nowhere",
        "ls /nowhere/at/all",
        "mkdir ~/nowhere/new",
        "cat /tmp/nothing",
        "echo Permission denied >&2; false",
        "cat < /etc/no-such-file",
    ] {
        check(line, &[]);
    }
    // A file that its own mode shuts.
    if !fuse_for_all() {
        return;
    }
    for user in TestUser::all().iter().filter(|user| **user != TestUser::Root) {
        let project = fresh(*user);
        let (said, told) = denials(&project, "echo x > f; chmod 000 f; cat f");
        assert!(told.is_empty() && said["blocked"] == false && said["exitCode"] == 1, "{said}");
    }
}

/// Promise: P22
#[test]
fn ordinary_programs_trip_over_nothing() {
    for line in [
        "ls -la",
        "ls -la / /etc ~",
        "git status; true",
        "bash -lc true",
        "python3 -c 1",
        "find . -maxdepth 2 > /dev/null",
        "env true",
        "df / > /dev/null",
    ] {
        check(line, &[]);
    }
}

#[test]
fn looking_for_programs_where_path_says_is_nothing_to_tell_of() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = fresh(user);
        project.make_directories(&project.home().join("hidden/bin"));
        let path = format!("{}/hidden/bin:/usr/bin:/bin", project.home().display());
        let ran = ringfence_testkit::TestOutput::of(
            project
                .ringfence()
                .env("PATH", path)
                .args(["run", "--json", "--", "sh", "-c", "true; ls"]),
            b"",
        );
        let said: Value = serde_json::from_str(&ran.text()).expect("one object of JSON");
        assert_eq!(said["denials"], serde_json::json!([]), "{user}");
    });
}

#[test]
fn a_command_that_fails_by_itself_is_not_blocked() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let (said, _) = denials(&fresh(user), "cat ~/other/notes.txt; exit 3");
        assert_eq!((&said["blocked"], &said["exitCode"]), (&true.into(), &3.into()));
        let (said, _) = denials(&fresh(user), "exit 3");
        assert_eq!((&said["blocked"], &said["exitCode"]), (&false.into(), &3.into()));
    });
}

#[test]
fn the_root_is_listed_as_what_it_is() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = fresh(user);
        let listed = project.sh("ls -a /").ok();
        assert!(
            listed.starts_with(".\n..\nbin\n")
                && listed.contains("\nusr\n")
                && !listed.contains("\nboot\n"),
            "{listed}"
        );
        assert_eq!(
            project.sh("cd /; pwd; ls -d etc ../usr; readlink bin; stat -c %F /etc /bin").ok(),
            "/\n../usr\netc\nusr/bin\ndirectory\nsymbolic link"
        );
    });
}

/// Promise: P22
#[test]
fn a_call_that_no_command_needs_is_told_of() {
    check("unshare -m true 2>/dev/null", &["call unshare false unshare"]);
    check("chroot / true 2>/dev/null", &["call chroot false chroot"]);
    check("perl -e 'socket(S, 40, 1, 0)'", &["call socket false perl"]);
}

#[test]
fn what_stands_behind_it_opens_nothing() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = fresh(user);
        for (code, expected) in [
            ("os.listdir('/run/ringfence/covers')", ["EACCES"].as_slice()),
            ("read('/run/ringfence/covers/0')", &["EACCES"]),
            ("os.listdir('/run/ringfence/own')", &["EACCES"]),
            ("read('/run/ringfence/own/0')", &["EACCES"]),
            ("os.chmod('/run/ringfence/own', 0o777)", &["EROFS"]),
            ("os.mkdir('/run/ringfence/new')", &["EACCES"]),
            ("os.rename('/run', '/var/x')", &["EACCES"]),
            ("os.rmdir('/run/ringfence')", &["EACCES", "EBUSY"]),
            ("os.link('.env', 'other')", &["EXDEV", "EACCES"]),
            ("read('/proc/self/fd/%d' % os.open('.env', os.O_PATH))", &["EACCES"]),
            ("os.chown('/etc', os.getuid(), os.getgid())", &["EACCES"]),
            ("read('/' + 'a' * 256)", &["ENAMETOOLONG"]),
        ] {
            project.tries(code).inside(expected);
        }
    });
}
