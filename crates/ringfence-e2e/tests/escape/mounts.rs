//! Attempts to change mounts or the root directory.

use ringfence_testkit::{each_user, needs};

use crate::project;

const REFUSED: &[&str] = &["EPERM", "ENOSYS"];

#[test]
fn mount_syscalls_are_refused() {
    each_user(|user| {
        let project = project(user);
        for code in [
            "call('mount', b'none', b'/tmp', b'tmpfs', 0, 0)",
            "call('mount', b'/', b'/tmp', 0, 4096, 0)",
            "call('mount', 0, b'/', 0, 32 | 4096, 0)",
            "call('umount2', b'ROOT/.env', 2)",
            "call('umount2', b'ROOT', 2)",
            "call('umount2', b'/', 2)",
            "call('pivot_root', b'/tmp', b'/tmp')",
            "call('chroot', b'/tmp')",
            "call('open_tree', AT_FDCWD, b'ROOT', 1)",
            "call('open_tree', AT_FDCWD, b'ROOT', 0)",
            "call('move_mount', AT_FDCWD, b'ROOT/.env', AT_FDCWD, b'/tmp', 0)",
            "call('fsopen', b'tmpfs', 0)",
            "call('fsopen', b'proc', 0)",
            "call('fspick', AT_FDCWD, b'/', 0)",
            "call('fsconfig', 0, 6, 0, 0, 0)",
            "call('fsmount', 0, 0, 0)",
            "call('mount_setattr', AT_FDCWD, b'/', 0x8000, struct.pack('QQQQ', 0, 1, 0, 0), 32)",
        ] {
            project.tries(code).inside(REFUSED);
        }
    });
}

/// Promise: no-privilege
#[test]
fn namespaces_cannot_be_made_or_entered() {
    each_user(|user| {
        let project = project(user);
        for flag in [
            "0x10000000",
            "0x00020000",
            "0x20000000",
            "0x40000000",
            "0x08000000",
            "0x04000000",
            "0x02000000",
            "0x00000080",
            "0x10020000",
            "0x1000000010000000",
        ] {
            project.tries(&format!("call('unshare', {flag})")).inside(REFUSED);
        }
        for flag in ["0x10000000", "0x10020000", "0x20000000", "0x40000000", "0x02000000"] {
            project
                .tries(&format!("call('clone', {flag} | 17, 0, 0, 0, 0) or os._exit(0)"))
                .inside(REFUSED);
        }
        project
            .tries("call('clone3', struct.pack('Q' * 11, 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88) or os._exit(0)")
            .inside(&["ENOSYS", "EPERM"]);
        project
            .tries("call('setns', os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)")
            .inside(REFUSED);
        project.tries("call('setns', call('pidfd_open', os.getpid(), 0), 0x20000)").inside(REFUSED);
        project.tries("os.open('/proc/1/ns/mnt', os.O_RDONLY)").inside(&["EACCES", "EPERM"]);
    });
}

#[test]
fn nested_user_namespace_does_not_open_a_secret() {
    each_user(|user| {
        if !needs(&["unshare"]) {
            return;
        }
        let project = project(user);
        let line = "unshare -Urm sh -c 'mount --bind sub /mnt && cat /mnt/.env'";
        let bare = project.sh_bare(line);
        assert!(
            bare.text().contains(ringfence_testkit::SECRET),
            "the probe cannot succeed: {}",
            bare.stderr_text()
        );
        let inside = project.sh(line);
        assert!(inside.status != 0 && inside.text().is_empty(), "{}", inside.text());
        let inside = project.sh("unshare -Ur true || unshare -m true || unshare -n true || unshare -p true || chroot . true");
        assert_ne!(inside.status, 0);
    });
}

#[test]
fn mask_stays_when_its_directory_is_removed_or_moved() {
    each_user(|user| {
        let project = project(user);
        for line in [
            "rm -rf .env sub; cat sub/.env",
            "rmdir sub; mv sub/.env sub/env; cat sub/env",
            "rm -f x.pem; cat x.pem",
            "find . -delete; cat .env x.pem",
        ] {
            let said = project.sh(line).text();
            assert!(!said.contains(ringfence_testkit::SECRET), "{line}: {said}");
        }
        assert_eq!(project.read(".env").as_deref(), Some(ringfence_testkit::SECRET));
        assert_eq!(project.read("sub/.env").as_deref(), Some(ringfence_testkit::SECRET));
    });
}
