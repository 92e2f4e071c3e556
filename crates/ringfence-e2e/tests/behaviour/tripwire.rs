//! Each access to a path that is not open is reported exactly: program, path, operation and rule.

use ringfence_testkit::{TestProject, TestUser, each_user, fuse_for_all};
use serde_json::Value;

use crate::project;

/// The denials of a command line, each as `operation target explicit program`.
fn denials(project: &TestProject, line: &str) -> (Value, Vec<String>) {
    let said: Value =
        serde_json::from_str(&project.run(["--json", "--", "/bin/sh", "-c", line]).text())
            .expect("one object of JSON");
    let (home, root) = (
        project.home().to_string_lossy().into_owned(),
        project.root().to_string_lossy().into_owned(),
    );
    let report = said["denials"].as_array().expect("a list").iter().map(|denial| {
        let text = |name: &str| denial[name].as_str().unwrap_or_default().to_owned();
        // The shell is a different program on each distribution.
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
    let report = report.collect();
    (said, report)
}

#[track_caller]
fn check(line: &str, expected: &[&str]) {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = fresh(user);
        let (said, denied) = denials(&project, line);
        let expected: Vec<String> = expected.iter().map(|one| (*one).to_owned()).collect();
        assert_eq!(denied, expected, "{user}: {line}\n{}", said["stderr"]);
    });
}

/// A project next to another, and a home with a few files.
fn fresh(user: TestUser) -> TestProject {
    let project = project(user);
    let home = project.home();
    project.write_at(&home.join("other/notes.txt"), "not yours");
    project.write_at(&home.join("other/tool"), "#!/bin/sh\necho ran\n");
    project.sh_bare("chmod +x ~/other/tool; rm -f ~/notes.txt").ok();
    project
}

/// Promise: exact-denials
#[test]
fn access_outside_is_reported_and_looks_absent() {
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

/// Promise: exact-denials
#[test]
fn denied_access_is_reported_with_its_rule() {
    check("cat .env", &["read PROJECT/.env true cat"]);
    check("cat ~/.ssh/id_rsa", &["read ~/.ssh/id_rsa true cat"]);
    check("ls ~/.ssh", &["read ~/.ssh true ls"]);
    check("echo x >> .env", &["write PROJECT/.env true sh"]);
    check("chmod 777 .env", &["write PROJECT/.env true chmod"]);
}

/// Promise: exact-denials
#[test]
fn creation_outside_is_reported() {
    check("echo x > ~/new", &["create ~/new false sh"]);
    check("mkdir ~/other/new", &["create ~/other/new false mkdir"]);
    check("touch /usr/new", &["create /usr/new false touch"]);
    check("cp README ~/other/", &["read ~/other false cp"]);
}

/// Promise: exact-denials
#[test]
fn absent_files_are_not_reported() {
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
    // A file that is unreadable by its own mode.
    if !fuse_for_all() {
        return;
    }
    for user in TestUser::all().iter().filter(|user| **user != TestUser::Root) {
        let project = fresh(*user);
        let (said, denied) = denials(&project, "echo x > f; chmod 000 f; cat f");
        assert!(denied.is_empty() && said["blocked"] == false && said["exitCode"] == 1, "{said}");
    }
}

/// Promise: exact-denials
#[test]
fn ordinary_programs_report_no_denials() {
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
fn path_search_is_not_reported() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = fresh(user);
        project.make_directories(&project.home().join("hidden/bin"));
        let path = format!("{}/hidden/bin:/usr/bin:/bin", project.home().display());
        let ran = ringfence_testkit::TestOutput::run(
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
fn unrelated_failure_is_not_blocked() {
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
fn root_directory_listing_is_correct() {
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

/// Promise: exact-denials
#[test]
fn refused_syscall_is_reported() {
    check("unshare -m true 2>/dev/null", &["call unshare false unshare"]);
    check("chroot / true 2>/dev/null", &["call chroot false chroot"]);
    check("perl -e 'socket(S, 40, 1, 0)'", &["call socket false perl"]);
}

#[test]
fn internal_directories_open_nothing() {
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
