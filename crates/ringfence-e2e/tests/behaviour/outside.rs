//! Paths that no rule opens are absent and cannot be written.

use ringfence_testkit::{SECRET, TestOutput, TestUser, each_user, skip};

use crate::project;

/// Promise: outside-absent
#[test]
fn other_projects_are_absent() {
    each_user(|user| {
        let project = project(user);
        for path in ["HOME/code/other/main.rs", "HOME/notes.txt", "../other/main.rs"] {
            project.tries(&format!("read('{path}')")).inside(&["ENOENT"]).bare_ok();
        }
        project.tries("os.listdir('HOME/code/other')").inside(&["ENOENT"]).bare_ok();
        for path in [
            "/root/.bashrc",
            "/home",
            "/opt",
            "/boot",
            "/lost+found",
            "/etc/machine-id",
            "/var/log",
            "/sys/kernel",
            "/sys/fs/cgroup",
        ] {
            if project.root().starts_with(path) {
                // The parent directories of the project exist, with nothing else in them.
                continue;
            }
            project.tries(&format!("os.stat('{path}')")).inside(&["ENOENT", "EACCES"]);
        }
    });
}

/// Promise: outside-absent
#[test]
fn write_outside_fails_with_an_error() {
    each_user(|user| {
        let project = project(user);
        for path in
            ["HOME/new.txt", "HOME/.bashrc", "HOME/code/new.txt", "../new.txt", "HOME/.config/new"]
        {
            project
                .tries(&format!("create('{path}')"))
                .inside(&["EACCES", "EROFS", "ENOENT"])
                .bare_ok();
        }
        for path in [
            "/etc/new.conf",
            "/usr/bin/new",
            "/new",
            "/run/new",
            "/dev/new",
            "/var/new",
            "/proc/new",
            "/etc/passwd",
        ] {
            project.tries(&format!("create('{path}')")).inside(&["EACCES", "EROFS", "ENOENT"]);
        }
        project.tries("os.mkdir('HOME/code/third')").inside(&["EACCES", "EROFS"]).bare_ok();
        project.tries("os.rename('README', 'HOME/README')").inside(&["EACCES", "EROFS", "EXDEV"]);
        project.tries("os.link('README', 'HOME/README')").inside(&["EACCES", "EROFS", "EXDEV"]);
        assert_eq!(project.read("README").as_deref(), Some("hello\n"));
    });
}

#[test]
fn system_programs_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        for code in [
            "os.open('/usr/bin/env', os.O_WRONLY)",
            "os.unlink('/usr/bin/env')",
            "os.chmod('/usr/bin/env', 0o777)",
            "os.utime('/usr/bin/env')",
            "os.truncate('/usr/bin/env', 0)",
        ] {
            project.tries(code).inside(&["EACCES", "EROFS", "EPERM", "ETXTBSY"]);
        }
    });
}

#[test]
fn read_and_write_flags_open_paths() {
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join("data/set.csv"), "1,2\n");
        let data = project.home().join("data").to_string_lossy().into_owned();
        project.tries("read('HOME/data/set.csv')").inside(&["ENOENT"]);
        project.tries("read('HOME/data/set.csv')").with(&["--read", &data]).inside(&["ok"]);
        project
            .tries("create('HOME/data/new')")
            .with(&["--read", &data])
            .inside(&["EACCES", "EROFS"]);
        project.tries("create('HOME/data/new')").with(&["--write", &data]).inside(&["ok"]);
        assert!(project.home().join("data/new").exists());
        // A single file, and not its neighbours.
        let file = format!("{data}/set.csv");
        project.tries("read('HOME/data/set.csv')").with(&["--read", &file]).inside(&["ok"]);
        project.tries("read('HOME/data/new')").with(&["--read", &file]).inside(&["ENOENT"]);
        project.tries("write('HOME/data/set.csv')").with(&["--write", &file]).inside(&["ok"]);
        // A path that does not exist yet is no error.
        project
            .tries("read('README')")
            .with(&["--read", "HOME/absent", "--deny", "absent-too"])
            .inside(&["ok"]);
    });
}

#[test]
fn host_details_are_hidden() {
    each_user(|user| {
        let project = project(user);
        let said = project.sh("hostname 2>/dev/null || cat /proc/sys/kernel/hostname; cat /etc/hostname; cat /etc/passwd").ok();
        assert!(said.starts_with("ringfence\nringfence\n"), "{said}");
        assert!(said.lines().count() <= 5, "the host's accounts are visible: {said}");
        let processes = project.sh("ls -d /proc/[0-9]* | wc -l").ok();
        assert!(processes.trim().parse::<u32>().is_ok_and(|count| count < 6), "{processes}");
    });
}

/// Promise: network-shut
#[test]
fn network_is_shut_by_default() {
    each_user(|user| {
        let project = project(user);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
        let port = listener.local_addr().expect("it is bound").port();
        project
            .tries(&format!("socket.create_connection(('127.0.0.1', {port}), 3)"))
            .inside(&["ECONNREFUSED"])
            .bare_ok();
        project.tries("socket.create_connection(('192.0.2.1', 80), 3)").inside(&["ENETUNREACH"]);
        project
            .tries(
                "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
            )
            .inside(&["ENETUNREACH"]);
        project
            .tries(&format!("socket.create_connection(('127.0.0.1', {port}), 3)"))
            .with(&["--net", "full"])
            .inside(&["ok"]);
    });
}

/// Promise: outside-absent
#[test]
fn project_with_scripts_on_path_is_absent() {
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        let tool = "#!/bin/sh\ncat \"$(dirname \"$0\")/../lib/text\"\n";
        for at in [
            "dots/bin/tool",
            "dots/bin/.env",
            "dots/.env",
            "dots/notes",
            "dots/.git/HEAD",
            "made/bin/tool",
            "made/lib/text",
            "go/src/x.go",
        ] {
            let content = if at.ends_with("/tool") { tool } else { SECRET };
            project.write_at(&home.join(at), content);
        }
        project.write_at(&home.join("go/bin/go"), tool);
        for tool in ["dots/bin/tool", "made/bin/tool", "go/bin/go"] {
            project.executable(home.join(tool));
        }
        let run = |line: &str| {
            let path = ["dots", "made", "go"]
                .map(|name| format!("{}/{name}/bin", home.display()))
                .join(":");
            TestOutput::run(
                project
                    .ringfence()
                    .env("PATH", format!("{path}:/usr/bin:/bin"))
                    .args(["run", "-c", line]),
                b"",
            )
        };
        // Programs and the files installed with them exist.
        assert!(
            run("test -x ~/dots/bin/tool && test -x ~/go/bin/go && ~/made/bin/tool")
                .text()
                .contains(SECRET)
        );
        for file in ["dots/.env", "dots/bin/.env", "dots/notes", "dots/.git/HEAD", "go/src/x.go"] {
            assert!(!run(&format!("cat ~/{file}")).text().contains(SECRET), "{file}");
        }
    });
}

/// Promise: outside-absent
#[test]
fn foreign_repository_above_the_project_opens_nothing() {
    if !TestUser::runner_is_root() {
        skip("only root can make files of another user");
        return;
    }
    // As the ordinary user, who then does not own the repository above.
    let project = project(TestUser::User);
    project.tries("read('HOME/code/other/main.rs')").inside(&["ENOENT"]);
    let above = project.home().join("code/.git");
    project.make_directories(&above.join("refs"));
    project.tries("read('HOME/code/other/main.rs')").inside(&["ok"]);
    std::os::unix::fs::chown(&above, Some(61_235), Some(61_235)).expect("root may");
    project.tries("read('HOME/code/other/main.rs')").inside(&["ENOENT"]);
}
