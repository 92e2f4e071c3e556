//! The filter, tested by an interpreter.

use ringfence_policy::Observe;

use super::{FilterAction, FilterInsn};
use crate::abi;
use crate::landlock::Mediation;
use crate::seccomp::calls::{Arch, Call};
use crate::seccomp::{
    ConnectHandling, FileOwner, FilterOptions, GroupSignals, HostNetwork, PlainFilterOptions,
    Truncation, Uncounted, filter, find_refusal, ioctls, plain_filter, plain_rules_for, rules_for,
};

const SHAPE: FilterOptions = FilterOptions {
    group_signals: GroupSignals::Scoped,
    owner: FileOwner::Root,
    observe: Observe::Denials,
    connects: ConnectHandling::KernelExceptUnixPaths,
    disk: Uncounted::Allowed,
    memory: Uncounted::Allowed,
};

/// Runs a filter as the kernel would; returns its result.
fn run(code: &[FilterInsn], arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
    let load = |offset: u32| match offset {
        0 => call,
        4 => arch,
        16.. => (arguments[(offset as usize - 16) / 8] >> ((offset % 8) * 8)) as u32,
        other => panic!("load of {other}"),
    };
    let (mut at, mut a) = (0usize, 0u32);
    loop {
        let FilterInsn { code: op, jt, jf, k } = code[at];
        at += 1;
        let taken = match op {
            0x20 => {
                a = load(k);
                continue;
            }
            0x54 => {
                a &= k;
                continue;
            }
            0x05 => {
                at += k as usize;
                continue;
            }
            0x06 => return k,
            0x15 => a == k,
            0x35 => a >= k,
            0x45 => a & k != 0,
            other => panic!("instruction {other:#x}"),
        };
        at += usize::from(if taken { jt } else { jf });
    }
}

#[track_caller]
fn check(arch: Arch, call: Call, arguments: [u64; 6], expect: FilterAction) {
    check_in(SHAPE, arch, call, arguments, expect);
}

#[track_caller]
fn check_in(
    shape: FilterOptions,
    arch: Arch,
    call: Call,
    arguments: [u64; 6],
    expect: FilterAction,
) {
    let number = call.number(arch).expect("the architecture has the call");
    assert_eq!(
        run(&filter(shape), arch.audit_arch(), number, arguments),
        expect.return_value(),
        "{arch:?} {call:?} {arguments:?}"
    );
}

const PERM: FilterAction = FilterAction::ReportedErrno(abi::EPERM as u16);
const NONE: FilterAction = FilterAction::Errno(abi::ENOSYS as u16);
#[cfg(target_arch = "x86_64")]
const FAMILY: FilterAction = FilterAction::ReportedErrno(abi::EAFNOSUPPORT as u16);

#[test]
fn every_unconditional_rule_holds() {
    for arch in Arch::NATIVE_FIRST {
        let code = filter(SHAPE);
        for entry in rules_for(*arch, SHAPE)
            .iter()
            .filter(|entry| entry.when == crate::seccomp::ArgCondition::Always)
        {
            assert_eq!(
                run(&code, arch.audit_arch(), entry.call, [0; 6]),
                entry.action.return_value(),
                "{arch:?} {}",
                entry.reason
            );
        }
    }
}

#[test]
fn syscalls_without_a_rule_are_allowed() {
    let code = filter(SHAPE);
    for arch in Arch::NATIVE_FIRST {
        let named: Vec<u32> = rules_for(*arch, SHAPE).iter().map(|entry| entry.call).collect();
        for call in (0..463).filter(|call| !named.contains(call)) {
            assert_eq!(
                run(&code, arch.audit_arch(), call, [u64::MAX; 6]),
                FilterAction::Allow.return_value(),
                "{arch:?} {call}"
            );
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn conditions_look_at_the_right_argument() {
    const O_CLOEXEC: i32 = 0o2_000_000;
    for arch in [Arch::X86_64, Arch::X86] {
        check(
            arch,
            Call::Openat,
            [0, 0, (O_CLOEXEC | abi::O_DIRECTORY) as u64, 0, 0, 0],
            FilterAction::Allow,
        );
        for flags in [abi::O_WRONLY, abi::O_RDWR, abi::O_TRUNC] {
            check(arch, Call::Openat, [0, 0, flags as u64, 0, 0, 0], FilterAction::Notify);
            check(arch, Call::Open, [0, flags as u64, 0, 0, 0, 0], FilterAction::Notify);
        }
        check(arch, Call::Utimensat, [3, 0, 1, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Utimensat, [3, 1, 1, 0, 0, 0], FilterAction::Notify);
        check(arch, Call::Connect, [3, 1, 16, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Connect, [3, 1, 28, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Connect, [3, 1, 110, 0, 0, 0], FilterAction::Notify);
        check(arch, Call::Fchmod, [3, 0o644, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Chmod, [1, 0o644, 0, 0, 0, 0], FilterAction::Notify);
        check(
            arch,
            Call::Openat,
            [0, 0, (abi::O_WRONLY | abi::O_CREAT) as u64, 0, 0, 0],
            FilterAction::Notify,
        );
        check(arch, Call::Open, [0, abi::O_CREAT as u64, 0, 0, 0, 0], FilterAction::Notify);
        check(arch, Call::Open, [abi::O_CREAT as u64, 0, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Clone, [17, 0, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Clone, [0x1000_0000, 0, 0, 0, 0, 0], PERM);
        check(arch, Call::Unshare, [0x400, 0, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Unshare, [0x4000_0000, 0, 0, 0, 0, 0], PERM);
        check(arch, Call::Unshare, [0x80, 0, 0, 0, 0, 0], PERM);
        check(arch, Call::Ioctl, [0, 0x5412, 0, 0, 0, 0], PERM);
        check(arch, Call::Ioctl, [0, 0x541c, 0, 0, 0, 0], PERM);
        check(arch, Call::Ioctl, [0x5412, 0x5401, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Socket, [1, 1, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Socket, [2, 1, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Socket, [10, 2, 17, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Socket, [40, 1, 0, 0, 0, 0], FAMILY);
        check(arch, Call::Socket, [38, 5, 0, 0, 0, 0], FAMILY);
        check(arch, Call::Socket, [16, 3, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Socket, [16, 3, 15, 0, 0, 0], PERM);
        check(arch, Call::Socketpair, [1, 1, 0, 0, 0, 0], FilterAction::Allow);
        check(arch, Call::Socketpair, [30, 1, 0, 0, 0, 0], FAMILY);
    }
    check(Arch::X86, Call::Socketcall, [1, 0, 0, 0, 0, 0], FilterAction::Notify);
    check(Arch::X86, Call::Socketcall, [2, 0, 0, 0, 0, 0], FilterAction::Notify);
    check(Arch::X86, Call::Socketcall, [3, 0, 0, 0, 0, 0], FilterAction::Notify);
    check(Arch::X86, Call::Socketcall, [9, 0, 0, 0, 0, 0], FilterAction::Allow);
    check(Arch::X86, Call::Socketcall, [11, 0, 0, 0, 0, 0], FilterAction::Allow);
    let shut = FilterOptions { connects: ConnectHandling::Isolated, ..SHAPE };
    for call in [3, 11, 20] {
        check_in(shut, Arch::X86, Call::Socketcall, [call, 0, 0, 0, 0, 0], FilterAction::Notify);
    }
    check_in(shut, Arch::X86, Call::Socketcall, [9, 0, 0, 0, 0, 0], FilterAction::Allow);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn high_half_of_arguments_is_ignored() {
    const HIGH: u64 = 0xdead_beef_0000_0000;
    check(Arch::X86_64, Call::Ioctl, [0, HIGH | 0x5412, 0, 0, 0, 0], PERM);
    check(Arch::X86_64, Call::Socket, [HIGH | 40, 1, 0, 0, 0, 0], FAMILY);
    check(
        Arch::X86_64,
        Call::Openat,
        [0, 0, HIGH | abi::O_CREAT as u64, 0, 0, 0],
        FilterAction::Notify,
    );
}

#[test]
fn pointers_are_compared_as_64_bits() {
    const LOW_HALF_ZERO: u64 = 1 << 32;
    let arch = Arch::NATIVE_FIRST[0];
    check(arch, Call::Utimensat, [3, LOW_HALF_ZERO, 0, 0, 0, 0], FilterAction::Notify);
    for connects in [ConnectHandling::Isolated, ConnectHandling::Notified] {
        let shape = FilterOptions { connects, ..SHAPE };
        check_in(shape, arch, Call::Sendto, [3, 0, 0, 0, LOW_HALF_ZERO, 16], FilterAction::Notify);
        check_in(shape, arch, Call::Sendto, [3, 0, 0, 0, 0, 0], FilterAction::Allow);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn other_abis_get_enosys() {
    let code = filter(SHAPE);
    assert_eq!(
        run(&code, Arch::X86_64.audit_arch(), 0x4000_0000 | 257, [0; 6]),
        NONE.return_value()
    );
    assert_eq!(run(&code, Arch::X86_64.audit_arch(), u32::MAX, [0; 6]), NONE.return_value());
    assert_eq!(run(&code, 0xc000_00b7, 56, [0; 6]), NONE.return_value());
}

#[test]
fn own_process_group_is_refused_without_landlock_scope() {
    let shape =
        FilterOptions { group_signals: GroupSignals::Refused, owner: FileOwner::User, ..SHAPE };
    let arch = Arch::NATIVE_FIRST[0];
    check_in(shape, arch, Call::Kill, [0, 9, 0, 0, 0, 0], PERM);
    check_in(shape, arch, Call::Kill, [1, 9, 0, 0, 0, 0], FilterAction::Allow);
    check(arch, Call::Kill, [0, 9, 0, 0, 0, 0], FilterAction::Allow);
}

/// Promise: observe-all
#[test]
fn allowed_syscalls_are_notified_only_if_observed() {
    let arch = Arch::NATIVE_FIRST[0];
    let all = FilterOptions { observe: Observe::All, ..SHAPE };
    for (call, arguments) in [
        (Call::Openat, [0, 0, 0, 0, 0, 0]),
        (Call::Openat, [0, 0, abi::O_CREAT as u64, 0, 0, 0]),
        (Call::Execve, [0; 6]),
        (Call::Execveat, [0; 6]),
        (Call::Connect, [0; 6]),
        (Call::Umask, [0; 6]),
    ] {
        check_in(all, arch, call, arguments, FilterAction::Notify);
    }
    check(arch, Call::Openat, [0; 6], FilterAction::Allow);
    check(arch, Call::Connect, [0, 0, 16, 0, 0, 0], FilterAction::Allow);
    // All other rules stay the same.
    check_in(all, arch, Call::Mount, [0; 6], PERM);
    check_in(all, arch, Call::Openat2, [0; 6], NONE);
    check_in(all, arch, Call::Unlinkat, [0; 6], FilterAction::Notify);
}

/// The notify handler must have closed such files before. Programs are started without waiting for
/// it.
#[test]
fn making_a_file_executable_is_notified() {
    for arch in Arch::NATIVE_FIRST {
        for mode in [0o755, 0o100, 0o010, 0o001] {
            check(*arch, Call::Fchmod, [3, mode, 0, 0, 0, 0], FilterAction::Notify);
        }
        check(*arch, Call::Fchmod, [3, 0o644, 0, 0, 0, 0], FilterAction::Allow);
        check(*arch, Call::Fchmod, [3, 0o4755, 0, 0, 0, 0], PERM);
        check(*arch, Call::Fsetxattr, [3, 0, 0, 0, 0, 0], FilterAction::Notify);
        check(*arch, Call::Execve, [0; 6], FilterAction::Allow);
        check(*arch, Call::Execveat, [0; 6], FilterAction::Allow);
    }
}

/// The notify handler gets both, and must refuse set-gid only for root.
#[test]
fn set_gid_is_refused_for_root_only() {
    let arch = Arch::NATIVE_FIRST[0];
    let any_user = FilterOptions { owner: FileOwner::User, ..SHAPE };
    for (call, arguments) in
        [(Call::Chmod, [0, 0o2755, 0, 0, 0, 0]), (Call::Fchmodat, [0, 0, 0o2755, 0, 0, 0])]
    {
        check(arch, call, arguments, PERM);
        assert!(find_refusal(call, &arguments, FileOwner::Root).is_some());
        check_in(any_user, arch, call, arguments, FilterAction::Notify);
        assert!(find_refusal(call, &arguments, FileOwner::User).is_none());
    }
}

#[test]
fn uncounted_calls_are_refused_only_under_a_limit() {
    let unsupported = FilterAction::Errno(abi::EOPNOTSUPP as u16);
    let disk = FilterOptions { disk: Uncounted::Refused, ..SHAPE };
    let memory = FilterOptions { memory: Uncounted::Refused, ..SHAPE };
    for arch in Arch::NATIVE_FIRST {
        for (shape, call, arguments, expect) in [
            (disk, Call::Fallocate, [0; 6], unsupported),
            (disk, Call::Ioctl, [0, 0x4004_9409, 0, 0, 0, 0], unsupported),
            (disk, Call::CopyFileRange, [0; 6], FilterAction::Errno(abi::EXDEV as u16)),
            (memory, Call::MemfdCreate, [0; 6], NONE),
            (memory, Call::Vmsplice, [0; 6], NONE),
        ] {
            check_in(shape, *arch, call, arguments, expect);
            check(*arch, call, arguments, FilterAction::Allow);
        }
        check_in(disk, *arch, Call::MemfdCreate, [0; 6], FilterAction::Allow);
        check_in(memory, *arch, Call::Fallocate, [0; 6], FilterAction::Allow);
    }
}

/// They may do in another way what is refused or reported.
#[test]
fn syscalls_newer_than_the_table_get_enosys() {
    let code = filter(SHAPE);
    for arch in Arch::NATIVE_FIRST {
        assert_eq!(run(&code, arch.audit_arch(), 462, [0; 6]), FilterAction::Allow.return_value());
        for call in 463..=1000 {
            assert_eq!(run(&code, arch.audit_arch(), call, [0; 6]), NONE.return_value(), "{call}");
        }
    }
}

const NO_COMMAND: FilterAction = FilterAction::Errno(abi::ENOTTY as u16);

fn ioctl(command: u64) -> [u64; 6] {
    [3, command, 0, 0, 0, 0]
}

/// Compared with a linear search through the list, and one off at each end.
#[test]
fn only_listed_ioctls_are_allowed() {
    let code = filter(SHAPE);
    let set_flags = [ioctls::SET_FLAGS, ioctls::SET_FLAGS_32];
    let reported = [0x5412, 0x541c, 0x541d, 0x5423];
    for arch in Arch::NATIVE_FIRST {
        let number = Call::Ioctl.number(*arch).expect("every architecture has it");
        let edges = ioctls::ALLOWED
            .iter()
            .flat_map(|known| [known.first - 1, known.first, known.last, known.last + 1]);
        let low = (0..=0xffff).step_by(7);
        let directions = [
            0x4004_0000,
            0x4008_0000,
            0x5000_0000,
            0x8004_0000,
            0x8008_0000,
            0xc018_0000,
            0xc020_0000u32,
        ];
        let types = [0x52, 0x54, 0x58, 0x66, 0x6f, 0x76, 0x89, 0x94, 0xb7, 0xbcu32];
        let numbers =
            types.iter().flat_map(|kind| (0..=0xff).map(move |number| kind << 8 | number));
        let high = numbers.flat_map(|number| directions.map(|high| high | number));
        for command in edges.chain(low).chain(high).chain([u32::MAX]) {
            let expect = match command {
                _ if set_flags.contains(&command) => FilterAction::Notify,
                _ if reported.contains(&command)
                    || ioctls::WHOLE_TREE_COMMANDS.contains(&command) =>
                {
                    PERM
                }
                _ if ioctls::is_allowed(ioctls::ALLOWED, command) => FilterAction::Allow,
                _ => NO_COMMAND,
            };
            let answer = run(&code, arch.audit_arch(), number, ioctl(command.into()));
            assert_eq!(answer, expect.return_value(), "{arch:?} {command:#x}");
            // The kernel takes the command as 32 bits.
            let garbled = run(
                &code,
                arch.audit_arch(),
                number,
                ioctl(0xdead_beef_0000_0000 | u64::from(command)),
            );
            assert_eq!(garbled, answer, "{arch:?} {command:#x}");
        }
    }
}

#[test]
fn ioctls_are_listed_once_and_in_order() {
    for pair in ioctls::ALLOWED.windows(2) {
        assert!(pair[0].last < pair[1].first, "{:#x} {:#x}", pair[0].last, pair[1].first);
    }
    assert!(
        ioctls::ALLOWED.iter().all(|known| known.first <= known.last && !known.reason.is_empty())
    );
    assert!(
        ioctls::WHOLE_TREE_COMMANDS
            .iter()
            .all(|command| !ioctls::is_allowed(ioctls::ALLOWED, *command))
    );
}

#[test]
fn ioctls_that_change_file_systems_are_refused() {
    for arch in Arch::NATIVE_FIRST {
        for command in [
            0x5000_9401,
            0x5000_940e,
            0x5000_940f,
            0x5000_9417,
            0x5000_9418,
            0x5000_943f,
            0x4020_bc10,
            0x4020_bc11,
            0x4018_6f04,
        ] {
            check(*arch, Call::Ioctl, ioctl(command), PERM);
        }
        // Btrfs search, subvolume flags, default subvolume, send; ext4 and XFS swap, shutdown and
        // move; freeze, trim, labels, encryption, verity, reserved space, FAT attributes.
        for command in [
            0xd000_9411,
            0x4008_941a,
            0x4008_9413,
            0x4048_9426,
            0x6611,
            0xc028_660f,
            0xc0c0_586d,
            0x8004_587d,
            0xc004_5877,
            0xc018_5879,
            0x4100_9432,
            0x800c_6613,
            0x4080_6685,
            0x401c_5820,
            0x4030_5828,
            0x4030_582a,
            0x4004_7211,
        ] {
            check(*arch, Call::Ioctl, ioctl(command), NO_COMMAND);
        }
    }
}

#[test]
fn tmpfile_with_set_id_is_refused() {
    let flags = (abi::O_TMPFILE | abi::O_RDWR) as u64;
    for owner in [FileOwner::Root, FileOwner::User] {
        for mode in [0o4755, 0o2755, 0o6755] {
            assert!(find_refusal(Call::Openat, &[0, 0, flags, mode, 0, 0], owner).is_some());
            assert!(find_refusal(Call::Open, &[0, flags, mode, 0, 0, 0], owner).is_some());
        }
        assert!(find_refusal(Call::Openat, &[0, 0, flags, 0o1755, 0, 0], owner).is_none());
        assert!(
            find_refusal(Call::Openat, &[0, 0, abi::O_DIRECTORY as u64, 0o6755, 0, 0], owner)
                .is_none()
        );
    }
}

/// The kernel compiles it at every start: a thousand instructions take 0.7 ms.
#[test]
fn filter_has_at_most_460_instructions() {
    let length = filter(SHAPE).len();
    assert!(length <= 460, "{length} instructions");
}

/// The filters without namespaces.
const PLAIN: PlainFilterOptions = PlainFilterOptions {
    group_signals: GroupSignals::Scoped,
    owner: FileOwner::User,
    network: HostNetwork::Closed,
    truncation: Truncation::Landlock,
    mediation: Mediation::None,
};

#[track_caller]
fn check_plain(options: PlainFilterOptions, call: Call, arguments: [u64; 6], expect: FilterAction) {
    for arch in Arch::NATIVE_FIRST {
        let Some(number) = call.number(*arch) else { continue };
        let found = run(&plain_filter(options), arch.audit_arch(), number, arguments);
        assert_eq!(found, expect.return_value(), "{call:?} {arch:?}");
    }
}

#[test]
fn filter_without_a_handler_never_asks_one() {
    for arch in [Arch::X86_64, Arch::X86, Arch::Aarch64] {
        for network in [HostNetwork::Closed, HostNetwork::Open] {
            let truncation = Truncation::Refused;
            let rules = plain_rules_for(arch, PlainFilterOptions { network, truncation, ..PLAIN });
            let asks = rules.iter().find(|rule| {
                matches!(rule.action, FilterAction::Notify | FilterAction::ReportedErrno(_))
            });
            assert_eq!(asks, None);
        }
    }
}

#[test]
fn filter_without_namespaces_closes_what_landlock_does_not_know() {
    let denied = FilterAction::Errno(abi::EACCES as u16);
    let none = FilterAction::Errno(abi::ENOSYS as u16);
    let mediated = PlainFilterOptions { mediation: Mediation::Handler, ..PLAIN };
    let open = PlainFilterOptions { network: HostNetwork::Open, ..PLAIN };
    for options in [PLAIN, mediated] {
        for family in [1, 2, 10, 16, 17, 40] {
            check_plain(options, Call::Socket, [family, 1, 0, 0, 0, 0], denied);
        }
        for (kind, expect) in
            [(1, FilterAction::Allow), (5, FilterAction::Allow), (0x8_0002, denied), (3, denied)]
        {
            check_plain(options, Call::Socketpair, [1, kind, 0, 0, 0, 0], expect);
        }
        for call in [Call::Shmat, Call::Semop, Call::Msgrcv, Call::MqOpen, Call::Ipc] {
            check_plain(options, call, [0; 6], none);
        }
        let perm = FilterAction::Errno(abi::EPERM as u16);
        check_plain(options, Call::SchedSetaffinity, [77, 0, 0, 0, 0, 0], perm);
        check_plain(options, Call::SchedSetaffinity, [0; 6], FilterAction::Allow);
        check_plain(options, Call::Openat2, [0; 6], none);
    }
    check_plain(open, Call::Socket, [2, 1, 0, 0, 0, 0], FilterAction::Allow);
    check_plain(open, Call::Socket, [1, 1, 0, 0, 0, 0], denied);
    check_plain(PLAIN, Call::Chmod, [0; 6], FilterAction::Errno(abi::EPERM as u16));
    check_plain(PLAIN, Call::Openat, [0; 6], FilterAction::Allow);
    for call in [Call::Fchmod, Call::Fchown, Call::Utimensat] {
        check_plain(PLAIN, call, [0; 6], FilterAction::Errno(abi::EPERM as u16));
        check_plain(mediated, call, [0; 6], FilterAction::Notify);
    }
    for call in [Call::Open, Call::Openat, Call::Chmod, Call::Unlinkat, Call::Utimensat] {
        check_plain(mediated, call, [1; 6], FilterAction::Notify);
    }
    check_plain(mediated, Call::Openat, [0; 6], FilterAction::Notify);
}
