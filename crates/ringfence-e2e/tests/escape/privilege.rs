//! Attempts to gain privileges.

use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::{TestUser, each_user, skip};

use crate::project;

/// Promise: no-privilege
#[test]
fn command_has_no_capabilities() {
    each_user(|user| {
        let project = project(user);
        let said = project.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").ok();
        for line in said.lines() {
            let (name, value) = line.split_once(':').expect("name and value");
            let expected = match name {
                "NoNewPrivs" => "1",
                "Seccomp" => "2",
                _ => "0000000000000000",
            };
            assert_eq!(value.trim(), expected, "{said}");
        }
        assert_eq!(said.lines().count(), 7, "{said}");
    });
}

/// Promise: no-privilege
#[test]
fn setuid_program_in_the_project_gains_nothing() {
    if !TestUser::runner_is_root() {
        skip("only root can make a setuid program of root");
        return;
    }
    // Not as root, who gains nothing from it.
    let project = project(TestUser::User);
    for mode in [0o4755, 0o2755] {
        let copy = project.at("id");
        std::fs::copy("/usr/bin/id", &copy).expect("every system has it");
        std::os::unix::fs::chown(&copy, Some(0), Some(0)).expect("the superuser may");
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode))
            .expect("the superuser may");
        let bare = project.sh_bare("./id").ok();
        assert!(
            bare.contains("euid=0") || bare.contains("egid=0"),
            "the probe cannot succeed: {bare}"
        );
        let inside = project.sh("./id").ok();
        assert!(!inside.contains("euid=") && !inside.contains("egid="), "{inside}");
        std::fs::remove_file(copy).expect("it was made above");
    }
}

#[test]
fn every_mount_is_nosuid() {
    each_user(|user| {
        let project = project(user);
        // No executable is on a mount without nosuid; device nodes are bound one by one and are
        // no programs.
        let said = project.sh("cat /proc/self/mounts").ok();
        let counts = |line: &&str| {
            let mut words = line.split(' ').skip(1);
            let (place, options) =
                (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
            let is_device =
                place.starts_with("/dev/") && !["/dev/pts", "/dev/shm"].contains(&place);
            !is_device && !options.split(',').any(|option| option == "nosuid")
        };
        let counting: Vec<&str> = said.lines().filter(counts).collect();
        assert!(counting.is_empty(), "{counting:?}");
        assert!(said.lines().count() > 5, "{said}");
    });
}

#[test]
fn user_and_group_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        project.tries("os.setuid(1)").inside(&["EPERM", "EINVAL"]);
        project.tries("os.setgid(1)").inside(&["EPERM", "EINVAL"]);
        project.tries("os.setgroups([0])").inside(&["EPERM", "EINVAL"]);
        project.tries("os.chown('README', 1, 1)").inside(&["EPERM", "EINVAL"]);
        project.tries("os.setresuid(0, 0, 65534)").inside(&["EPERM", "EINVAL"]);
    });
}

#[test]
fn files_of_root_stay_shut_under_the_id_mapping() {
    each_user(|user| {
        let project = project(user);
        // Denied by a rule, absent, or shut by its mode: never readable.
        for path in [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/root/.bash_history",
            "/var/lib/private",
            "/etc/ssl/private",
        ] {
            project
                .tries(&format!(
                    "os.listdir('{path}') if os.path.isdir('{path}') else read('{path}')"
                ))
                .inside(&["EACCES", "ENOENT"]);
        }
    });
}

#[test]
fn setuid_bits_cannot_be_set() {
    each_user(|user| {
        let project = project(user);
        let code = r#"
open('left', 'w').close()
fd = os.open('left', os.O_RDWR)
for attempt in [lambda: os.chmod('left', 0o4755), lambda: os.fchmod(fd, 0o4755), lambda: os.chmod('left', 0o6755, dir_fd=os.open('.', os.O_RDONLY)), lambda: call(452, AT_FDCWD, b'left', 0o4755, 0)]:
    try: attempt(); print('made')
    except OSError as error: print(errno.errorcode[error.errno])
os.umask(0)
os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o6777))
os.mknod('node', 0o106777)
print([oct(os.stat(name).st_mode & 0o6000) for name in ['left', 'made', 'node']])
"#;
        let said = project.python(code).ok();
        assert_eq!(said, "EPERM\nEPERM\nEPERM\nEPERM\n['0o0', '0o0', '0o0']");
        assert!(crate::project(user).python_bare(code).ok().starts_with("made"));
    });
}
