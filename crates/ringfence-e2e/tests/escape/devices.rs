//! Devices, and the kernel's settings below `/proc` and `/sys`.

use ringfence_testkit::{TestUser, each_user, skip};

use crate::project;

#[test]
fn device_nodes_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        for place in ["ROOT/node", "/tmp/node", "/dev/shm/node"] {
            project
                .tries(&format!("os.mknod('{place}', 0o666 | stat.S_IFCHR, os.makedev(1, 1))"))
                .inside(&["EPERM", "EACCES"]);
            project
                .tries(&format!("os.mknod('{place}', 0o666 | stat.S_IFBLK, os.makedev(254, 0))"))
                .inside(&["EPERM", "EACCES"]);
        }
        project
            .tries("os.mknod('ROOT/node', 0o666 | stat.S_IFCHR, os.makedev(1, 3))")
            .bare_ok_as_root();
    });
}

#[test]
fn device_node_in_the_project_stays_shut() {
    if !TestUser::runner_is_root() {
        skip("only the superuser can put a device node into a project");
        return;
    }
    each_user(|user| {
        let project = project(user);
        let made = std::process::Command::new("mknod")
            .args(["-m", "666"])
            .arg(project.at("zero"))
            .args(["c", "1", "5"])
            .status();
        assert!(made.is_ok_and(|status| status.success()));
        project.tries("os.open('zero', os.O_RDONLY)").inside(&["EACCES"]).bare_ok();
        project.tries("os.open('zero', os.O_RDWR | os.O_CREAT)").inside(&["EACCES"]);
    });
}

#[test]
fn disks_and_memory_devices_of_the_host_are_absent() {
    each_user(|user| {
        let project = project(user);
        for path in [
            "/dev/mem",
            "/dev/kmem",
            "/dev/port",
            "/dev/vda",
            "/dev/sda",
            "/dev/kmsg",
            "/dev/fuse",
            "/dev/kvm",
            "/dev/net/tun",
            "/dev/mapper",
            "/dev/loop0",
            "/dev/userfaultfd",
            "/dev/vsock",
        ] {
            project.tries(&format!("os.stat('{path}')")).inside(&["ENOENT"]);
        }
        project.tries("read('/proc/kcore')").inside(&["EACCES", "EPERM", "ENOENT"]);
        project.tries("read('/proc/kmsg')").inside(&["EACCES", "EPERM", "ENOENT"]);
    });
}

#[test]
fn kernel_settings_below_proc_and_sys_are_not_writable() {
    each_user(|user| {
        let project = project(user);
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/panic",
            "/proc/sys/kernel/randomize_va_space",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/vm/drop_caches",
            "/proc/sys/fs/protected_symlinks",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/user/max_user_namespaces",
            "/proc/sysrq-trigger",
            "/proc/irq/default_smp_affinity",
            "/proc/sys/fs/binfmt_misc/register",
            "/sys/devices/system/cpu/cpu0/online",
            "/sys/devices/system/cpu/online",
            "/sys/kernel/uevent_helper",
            "/proc/mtrr",
            "/proc/acpi/wakeup",
            "/proc/timer_list",
        ] {
            // Only opened: a write could harm the machine. The second goes through the notify
            // handler.
            for flags in
                ["os.O_WRONLY", "os.O_WRONLY | os.O_CREAT", "os.O_RDWR", "os.O_WRONLY | os.O_TRUNC"]
            {
                project
                    .tries(&format!("os.open('{path}', {flags})"))
                    .inside(&["EACCES", "EPERM", "EROFS", "ENOENT"]);
            }
        }
        project.tries("os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)").bare_ok_as_root();
        if std::path::Path::new("/proc/sysrq-trigger").exists() {
            project.tries("os.open('/proc/sysrq-trigger', os.O_WRONLY)").bare_ok_as_root();
        }
    });
}

#[test]
fn modes_of_system_files_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        // To the mode they have: if it works, the machine is not harmed.
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/1/mem",
            "/dev/null",
            "/dev/zero",
            "/dev/tty",
            "/dev/urandom",
            "/etc/passwd",
            "/usr",
            "/",
            "/proc",
            "/dev",
        ] {
            project
                .tries(&format!("os.chmod('{path}', os.stat('{path}').st_mode & 0o7777)"))
                .inside(&["EACCES", "EPERM", "EROFS", "ENOENT"]);
        }
    });
}
