//! Syscalls by the ABI of another architecture.

use ringfence_testkit::{compile, each_user, skip};

use crate::project;

/// `int 0x80` from a 64-bit program, and x32 syscall numbers.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static long old(long n, long a, long b, long c, long d, long e) {
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory", "r8", "r9", "r10", "r11");
    return (int)r;
}
static char *low, *next;
static long text(const char *s) { char *at = next; strcpy(at, s); next += strlen(s) + 1; return (long)at; }
static void say(const char *name, long r) { printf("%s %s\n", name, r >= 0 ? "OPEN" : strerrorname_np(-r)); }
static long flagged(long n, long a, long b, long c) { long r = syscall(n | 0x40000000, a, b, c, 0, 0); return r < 0 ? -errno : r; }
int main() {
    low = next = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    long works = old(39, text("plain-dir"), 0755, 0, 0, 0);
    printf("works %ld\n", works);
    say("mkdir", old(39, text(".claude"), 0755, 0, 0, 0));
    say("open", old(5, text(".mcp.json"), 0101, 0644, 0, 0));
    say("creat", old(8, text(".mcp.json"), 0644, 0, 0, 0));
    say("openat", old(295, -100, text(".mcp.json"), 0101, 0644, 0));
    say("openat2", old(437, -100, text(".mcp.json"), (long)memset(next, 0, 24), 24, 0));
    say("mknod", old(14, text(".mcp.json"), 0100644, 0, 0, 0));
    say("link", old(9, text("README"), text(".mcp.json"), 0, 0, 0));
    say("symlink", old(83, text("README"), text(".mcp.json"), 0, 0, 0));
    say("rename", old(38, text("src"), text(".claude"), 0, 0, 0));
    say("renameat2", old(353, -100, text("src"), -100, text(".claude"), 0));
    say("mkdirat", old(296, -100, text(".claude"), 0755, 0, 0));
    say("unshare", old(310, 0x10000000, 0, 0, 0, 0));
    say("clone", old(120, 0x10000000 | 17, 0, 0, 0, 0));
    say("mount", old(21, text("none"), text("/tmp"), text("tmpfs"), 0, 0));
    say("umount2", old(52, text("/tmp"), 2, 0, 0, 0));
    say("umount", old(22, text("/tmp"), 0, 0, 0, 0));
    say("chroot", old(61, text("/tmp"), 0, 0, 0, 0));
    say("setns", old(346, 0, 0, 0, 0, 0));
    say("keyctl", old(288, 0, -3, 0, 0, 0));
    say("bpf", old(357, 0, 0, 0, 0, 0));
    say("io_uring_setup", old(425, 4, text(""), 0, 0, 0));
    say("open_by_handle_at", old(342, 0, text(""), 0, 0, 0));
    say("socket vsock", old(359, 40, 1, 0, 0, 0));
    int *words = (int *)(low + 32768);
    words[0] = 40; words[1] = 1; words[2] = 0;
    say("socketcall vsock", old(102, 1, (long)words, 0, 0, 0));
    words[0] = 38; words[1] = 5;
    say("socketcall alg", old(102, 1, (long)words, 0, 0, 0));
    words[0] = 16; words[1] = 3; words[2] = 9;
    say("socketcall audit", old(102, 1, (long)words, 0, 0, 0));
    words[0] = 2; words[1] = 3; words[2] = 1;
    say("socketcall raw", old(102, 1, (long)words, 0, 0, 0));
    words[0] = 40; words[1] = 1; words[2] = 0; words[3] = (int)(long)(low + 40000);
    say("socketcall pair", old(102, 8, (long)words, 0, 0, 0));
    say("secret", old(5, text(".env"), 0, 0, 0, 0));
    say("ioctl TIOCSTI", old(54, 0, 0x5412, text("x"), 0, 0));
    say("x32 mkdir", flagged(83, text(".claude"), 0755, 0));
    say("x32 open", flagged(2, text(".mcp.json"), 0101, 0644));
    say("x32 unshare", flagged(272, 0x10000000, 0, 0));
    say("x32 mount", flagged(165, text("none"), text("/tmp"), text("tmpfs")));
    say("x32 ptrace", flagged(521, 16, 1, 0));
    return 0;
}
"#;

#[test]
fn syscalls_of_i386_and_x32_are_filtered() {
    if !cfg!(target_arch = "x86_64") {
        skip("the i386 and x32 syscall numbers are known for x86-64 only");
        return;
    }
    each_user(|user| {
        let project = project(user);
        let Some(program) = compile(&project, "calls", CALLS) else { return };
        let before = project.entries();
        let said = project.run([std::ffi::OsStr::new("--"), program.as_os_str()]).ok();
        let open: Vec<&str> = said.lines().filter(|line| line.ends_with("OPEN")).collect();
        assert!(open.is_empty(), "{open:?}");
        assert_eq!(said.lines().count(), 36, "{said}");
        // Where the kernel runs 32-bit programs at all, ringfence does too.
        let bare = crate::project(user);
        let copy = compile(&bare, "calls", CALLS).expect("it was compiled before");
        let bare_said = ringfence_testkit::TestOutput::run(&mut bare.command(copy), b"").ok();
        assert!(bare_said.contains("OPEN"), "the probe cannot succeed: {bare_said}");
        assert_eq!(said.lines().next(), bare_said.lines().next());
        let new: Vec<_> =
            project.entries().into_keys().filter(|path| !before.contains_key(path)).collect();
        assert!(new == [std::path::PathBuf::from("plain-dir")] || new.is_empty(), "{new:?}");
    });
}
