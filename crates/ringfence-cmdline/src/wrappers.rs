//! Wrappers: programs that run the program in their arguments.

/// A wrapper program.
#[derive(Debug)]
pub(super) struct WrapperProgram {
    pub(super) name: &'static str,
    /// Options; see [`options`](super::options).
    pub(super) short: &'static str,
    pub(super) long: &'static str,
    /// Number of arguments before the program.
    pub(super) arguments: usize,
    pub(super) manner: WrapperManner,
}

/// Effect of a wrapper on the program it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrapperManner {
    /// None: the same program with the same privileges.
    Same,
    /// As `Same`, with optional `NAME=value` before the program.
    Assigning,
    /// Other privileges or another root directory: an exclusion of a program does not cover this.
    Elsewhere,
    /// As `Elsewhere`, with optional `NAME=value` before the program.
    ElsewhereAssigning,
    /// Extra arguments from standard input.
    Input,
}

const fn w(
    name: &'static str,
    short: &'static str,
    long: &'static str,
    arguments: usize,
    manner: WrapperManner,
) -> WrapperProgram {
    WrapperProgram { name, short, long, arguments, manner }
}

/// The known wrappers. Any other program is an ordinary program: an allow list must name it, and a
/// deny list does not see through it.
pub(super) const WRAPPERS: &[WrapperProgram] = &[
    w(
        "env",
        "iu=C=0v",
        "ignore-environment unset= chdir= null debug default-signal? ignore-signal? block-signal? list-signal-handling help! version!",
        0,
        WrapperManner::Assigning,
    ),
    w(
        "timeout",
        "k=s=vfp",
        "kill-after= signal= foreground preserve-status verbose help! version!",
        1,
        WrapperManner::Same,
    ),
    w("nice", "n=0123456789", "adjustment= help! version!", 0, WrapperManner::Same),
    w("nohup", "", "help! version!", 0, WrapperManner::Same),
    w("stdbuf", "i=o=e=", "input= output= error= help! version!", 0, WrapperManner::Same),
    w(
        "time",
        "f=apvqV!",
        "format= append portability verbose quiet help! version!",
        0,
        WrapperManner::Same,
    ),
    w("command", "pv!V!", "", 0, WrapperManner::Same),
    w("builtin", "", "", 0, WrapperManner::Same),
    w("exec", "a=cl", "", 0, WrapperManner::Same),
    w("setsid", "cfwh!V!", "ctty fork wait help! version!", 0, WrapperManner::Same),
    w(
        "ionice",
        "c=n=tp!P!u!h!V!",
        "class= classdata= ignore pid! pgid! uid! help! version!",
        0,
        WrapperManner::Same,
    ),
    w(
        "chrt",
        "abdfiorT=P=D=RGp!m!vh!V!",
        "all-tasks batch deadline fifo idle other rr sched-runtime= sched-period= sched-deadline= reset-on-fork pid! max! verbose help! version!",
        1,
        WrapperManner::Same,
    ),
    w("taskset", "acp!h!V!", "all-tasks cpu-list pid! help! version!", 1, WrapperManner::Same),
    w(
        "setarch",
        "vRFZLXBITS3h!V!",
        "verbose uname-2.6 addr-no-randomize 3gb 4gb 32bit help! version! list!",
        0,
        WrapperManner::Same,
    ),
    w("linux64", "vRh!V!", "verbose addr-no-randomize help! version!", 0, WrapperManner::Same),
    w("linux32", "vRh!V!", "verbose addr-no-randomize help! version!", 0, WrapperManner::Same),
    w("unbuffer", "p", "", 0, WrapperManner::Same),
    w("chronic", "ve", "", 0, WrapperManner::Same),
    w("catchsegv", "", "", 0, WrapperManner::Same),
    w(
        "xargs",
        "0oprtxa=d=E=I=L=n=P=s=e?i?l?",
        "null open-tty interactive no-run-if-empty verbose exit arg-file= delimiter= eof? replace? max-lines? max-args= max-procs= max-chars= process-slot-var= show-limits help! version!",
        0,
        WrapperManner::Input,
    ),
    w(
        "sudo",
        "ABbEHknPSC=D=g=h=p=R=r=T=t=U=u=KvV!l!",
        "askpass bell background preserve-env? set-home non-interactive preserve-groups stdin close-from= chdir= group= host= prompt= chroot= role= command-timeout= type= other-user= user= reset-timestamp remove-timestamp! validate! version! list!",
        0,
        WrapperManner::ElsewhereAssigning,
    ),
    w("doas", "nC=u=a=L!", "", 0, WrapperManner::Elsewhere),
    w(
        "pkexec",
        "",
        "user= disable-internal-agent keep-cwd help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w("chroot", "", "userspec= groups= skip-chdir help! version!", 1, WrapperManner::Elsewhere),
    w("busybox", "", "list! help! install!", 0, WrapperManner::Elsewhere),
    w("toybox", "", "help! version! long!", 0, WrapperManner::Elsewhere),
    w(
        "fakeroot",
        "l=s=i=uhv",
        "lib= faked= unknown-is-real help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w(
        "flock",
        "senxoFuE=w=W=h!V!",
        "shared exclusive nonblock nb unlock close no-fork conflict-exit-code= timeout= verbose help! version!",
        1,
        WrapperManner::Elsewhere,
    ),
    w(
        "unshare",
        "mupiUCTrcfS=G=R=w=",
        "mount? uts? ipc? net? pid? user? cgroup? time? map-root-user map-current-user map-auto fork kill-child? mount-proc? setuid= setgid= root= wd= propagation= help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w(
        "nsenter",
        "at=m?u?i?n?p?U?C?T?S=G=r?w?FZe",
        "all target= mount? uts? ipc? net? pid? user? cgroup? time? setuid= setgid= preserve-credentials root? wd? no-fork help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w("prlimit", "h!V!v", "verbose help! version!", 0, WrapperManner::Elsewhere),
    w(
        "setpriv",
        "dh!V!",
        "nnp no-new-privs reuid= regid= ruid= euid= rgid= egid= clear-groups keep-groups init-groups groups= inh-caps= bounding-set= ambient-caps= securebits= reset-env dump! help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w(
        "strace",
        "fFqvyYxcCtTe=s=a=p=",
        "follow-forks quiet? trace= help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w("ltrace", "fcSCe=s=p=", "help! version!", 0, WrapperManner::Elsewhere),
    w(
        "systemd-run",
        "u=p=E=dPGtqS",
        "user system scope unit= property= setenv= pty pipe quiet wait collect no-block same-dir help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w(
        "dbus-run-session",
        "",
        "config-file= dbus-daemon= help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
    w("tini", "svgp=e=w", "version!", 0, WrapperManner::Elsewhere),
    w(
        "dumb-init",
        "cr=v",
        "single-child rewrite= verbose help! version!",
        0,
        WrapperManner::Elsewhere,
    ),
];
