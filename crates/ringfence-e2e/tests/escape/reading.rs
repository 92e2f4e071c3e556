//! Attempts to read a denied file by another path or syscall.

use ringfence_testkit::{SECRET, TestProject, each_user};

use crate::project;

/// A line that prints the secret bare must not print it inside.
#[track_caller]
fn hidden(project: &TestProject, line: &str) {
    let bare = project.sh_bare(line);
    assert!(
        bare.text().contains(SECRET),
        "{line}: the probe cannot succeed\n{}",
        bare.stderr_text()
    );
    let inside = project.sh(line);
    assert!(!inside.text().contains(SECRET), "{line}: the secret was read");
}

#[test]
fn secret_stays_denied_through_proc_root() {
    each_user(|user| {
        let project = project(user);
        let home = project.home().display().to_string();
        for file in [".ssh/id_rsa", "code/other/main.rs", "notes.txt", "code/app/.env"] {
            hidden(
                &project,
                &format!(
                    "cat /proc/self/root{home}/{file} /proc/$$/root{home}/{file} /proc/*/root{home}/{file} 2>/dev/null"
                ),
            );
        }
        project.tries("os.stat('/proc/1/root/etc')").inside(&["EACCES", "EPERM"]);
        project.tries("os.listdir('/proc/1/cwd/')").inside(&["EACCES", "EPERM"]);
        project.tries("os.readlink('/proc/1/fd/0')").inside(&["EACCES", "EPERM"]);
    });
}

#[test]
fn secret_stays_denied_through_proc_cwd_and_fd() {
    each_user(|user| {
        let project = project(user);
        // A process outside, of the same user, has the other project as its working directory.
        let bystander = project.outside_process("os.chdir('../other'); keep = open('main.rs')");
        for (bare, inside) in [
            ("cat /proc/PID/cwd/main.rs", "cat /proc/[0-9]*/cwd/main.rs"),
            ("cat /proc/PID/cwd/../other/main.rs", "cat /proc/[0-9]*/cwd/../other/main.rs"),
            ("cat /proc/PID/fd/3", "timeout 5 cat /proc/[0-9]*/fd/[3-9]"),
            ("cat /proc/PID/task/PID/cwd/main.rs", "cat /proc/[0-9]*/task/*/cwd/main.rs"),
        ] {
            let said = project.sh_bare(&bare.replace("PID", &bystander.pid().to_string())).text();
            assert!(said.contains(SECRET), "{bare}: the probe cannot succeed");
            let said = project
                .sh(&format!("{inside}; {}", bare.replace("PID", &bystander.pid().to_string())))
                .text();
            assert!(!said.contains(SECRET), "{inside}");
        }
    });
}

#[test]
fn secret_stays_denied_through_an_inherited_fd() {
    each_user(|user| {
        let project = project(user);
        let line = |inner: &str| format!("exec 7<../../.ssh/id_rsa 8<../.. 9<.env; {inner}");
        let probe = "cat <&7; cat /proc/self/fd/7 /proc/self/fd/8/.ssh/id_rsa /dev/fd/9";
        assert!(project.sh_bare(&line(probe)).text().contains(SECRET));
        let ran =
            project.sh_bare(&line(&format!("{} run -c '{probe}'", project.binary().display())));
        assert!(!ran.text().contains(SECRET), "{}", ran.text());
        // High fds, and those that a shell cannot name, are closed too.
        let code = "
import fcntl, subprocess
fd = os.open('HOME', os.O_RDONLY)
for number in [3, 4, 5, 10, 63, 255, 900]: os.dup2(fd, number, inheritable=True)
print(subprocess.run(['BIN', 'run', '-c', 'ls /proc/self/fd'], close_fds=False, capture_output=True, text=True).stdout.split())
";
        let code = code
            .replace("HOME", &project.home().to_string_lossy())
            .replace("BIN", &project.binary().to_string_lossy());
        assert_eq!(project.python_bare(&code).ok(), "['0', '1', '2', '3']");
    });
}

#[test]
fn secret_stays_denied_through_a_hard_link_or_rename() {
    each_user(|user| {
        let project = project(user);
        for line in [
            "ln .env open.txt; cat open.txt",
            "ln -L .env open2.txt; cat open2.txt",
            "cp -l .env open3.txt; cat open3.txt",
            "ln ../../.ssh/id_rsa open4.txt; cat open4.txt",
            "cp -al sub copied; cat copied/.env",
            "mv .env moved.txt; cat moved.txt",
            "mv sub moved; cat moved/.env moved/deeper/credentials.json",
        ] {
            let other = crate::project(user);
            assert!(
                other.sh_bare(line).text().contains(SECRET),
                "{line}: the probe cannot succeed"
            );
            assert!(!project.sh(line).text().contains(SECRET), "{line}");
        }
        let left = project.sh("cat open*.txt copied/.env moved.txt moved/.env; true").text();
        assert!(!left.contains(SECRET));
    });
}

#[test]
fn secret_stays_denied_through_a_symlink() {
    each_user(|user| {
        let project = project(user);
        for line in [
            "ln -s .env l1; cat l1",
            "ln -s \"$HOME/.ssh/id_rsa\" l2; cat l2",
            "ln -s ../../.ssh l3; cat l3/id_rsa",
            "ln -s / l4; cat l4/\"$HOME\"/notes.txt",
            "ln -s /proc/self/root l5; cat l5/\"$HOME\"/notes.txt",
            "ln -s sub l6; cat l6/.env",
        ] {
            hidden(&project, line);
            for name in ["l1", "l2", "l3", "l4", "l5", "l6"] {
                let _ = std::fs::remove_file(project.at(name));
            }
        }
    });
}

#[test]
fn secret_stays_denied_by_every_spelling_of_its_path() {
    each_user(|user| {
        let project = project(user);
        for line in [
            "cat ./.env",
            "cat .//.env",
            "cat src/../.env",
            "cat \"$PWD/.env\"",
            "cat /proc/self/cwd/.env",
            "cat < .env",
            "cat ../app/.env",
            "cat ../../code/app/sub/../.env",
            "cd sub && cat .env",
            "cat $(find / -name .env 2>/dev/null)",
        ] {
            hidden(&project, line);
        }
    });
}

#[test]
fn secret_stays_denied_to_git_tar_and_find() {
    each_user(|user| {
        let project = project(user);
        project.write(".gitignore", "");
        for line in [
            "git hash-object -w --stdin < .env; git init -q; git add -f .env; git show :.env",
            "tar cf - .env sub | cat",
            "find . -name '*.pem' -exec cat {} +",
            "sed -n p x.pem",
            "dd if=.env status=none",
            "head -c 100 .env sub/.env",
        ] {
            let other = crate::project(user);
            assert!(
                other.sh_bare(line).text().contains(SECRET),
                "{line}: the probe cannot succeed"
            );
            assert!(!project.sh(line).text().contains(SECRET), "{line}");
        }
    });
}

#[test]
fn secret_stays_denied_to_mmap_sendfile_and_copy_file_range() {
    each_user(|user| {
        let project = project(user);
        for code in [
            "os.sendfile(1, os.open('.env', os.O_RDONLY), 0, 100)",
            "os.copy_file_range(os.open('.env', os.O_RDONLY), os.open('out', os.O_CREAT | os.O_RDWR), 100)",
            "mmap.mmap(os.open('.env', os.O_RDONLY), 0, prot=mmap.PROT_READ)",
            "os.execv('.env', ['x'])",
            "os.truncate('.env', 0)",
            "os.getxattr('.env', 'user.x')",
        ] {
            project.tries(code).inside(&["EACCES", "EROFS", "ENOTSUP"]);
        }
        // An `O_PATH` fd does not open the file.
        project
            .tries("os.open('/proc/self/fd/%d' % os.open('.env', os.O_PATH), os.O_RDONLY)")
            .inside(&["EACCES"])
            .bare_ok();
        project
            .tries("call('linkat', os.open('.env', os.O_PATH), b'', AT_FDCWD, b'named', 0x1000)")
            .inside(&["EACCES", "EXDEV", "EPERM", "EROFS", "ENOENT"]);
    });
}
