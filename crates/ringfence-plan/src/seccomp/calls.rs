//! Syscalls that the filter uses, by architecture.

/// An architecture with known syscall numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86, whose programs also run on 64-bit kernels.
    X86,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// Architectures whose programs run here.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE_FIRST: &[Arch] = &[Arch::X86_64, Arch::X86];
    /// Architectures whose programs run here.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE_FIRST: &[Arch] = &[Arch::Aarch64];

    /// The kernel's constant (`AUDIT_ARCH_…`).
    pub fn audit_arch(self) -> u32 {
        match self {
            Arch::X86_64 => 0xc000_003e,
            Arch::X86 => 0x4000_0003,
            Arch::Aarch64 => 0xc000_00b7,
        }
    }

    /// The architecture of an `AUDIT_ARCH_…` constant.
    pub fn from_audit_arch(word: u32) -> Option<Arch> {
        [Arch::X86_64, Arch::X86, Arch::Aarch64].into_iter().find(|arch| arch.audit_arch() == word)
    }
}

macro_rules! calls {
    ($($name:ident $x86_64:tt $x86:tt $aarch64:tt)*) => {
        /// A syscall.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is the call of that name")]
        pub enum Call { $($name),* }

        const TABLE: &[(Call, Option<u32>, Option<u32>, Option<u32>)] = &[
            $((Call::$name, calls!(@ $x86_64), calls!(@ $x86), calls!(@ $aarch64)),)*
        ];
    };
    (@ _) => { None };
    (@ $number:literal) => { Some($number) };
}

impl Call {
    /// Syscall number; `None` if the architecture does not have it.
    pub fn number(self, arch: Arch) -> Option<u32> {
        let (_, x86_64, x86, aarch64) = TABLE.iter().find(|row| row.0 == self)?;
        match arch {
            Arch::X86_64 => *x86_64,
            Arch::X86 => *x86,
            Arch::Aarch64 => *aarch64,
        }
    }

    /// Name of the syscall.
    pub fn name(self) -> String {
        let mut name = String::new();
        for character in format!("{self:?}").chars() {
            if character.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(character.to_ascii_lowercase());
        }
        name
    }

    /// The syscall with this number.
    pub fn from_number(arch: Arch, number: u32) -> Option<Call> {
        let found = TABLE.iter().find(|(_, x86_64, x86, aarch64)| {
            let column = match arch {
                Arch::X86_64 => x86_64,
                Arch::X86 => x86,
                Arch::Aarch64 => aarch64,
            };
            *column == Some(number)
        });
        found.map(|row| row.0)
    }
}

calls! {
    Open               2    5    _
    Creat             85    8    _
    Openat           257  295   56
    Openat2          437  437  437
    PidfdGetfd       438  438  438
    Mkdir             83   39    _
    Mkdirat          258  296   34
    Mknod            133   14    _
    Mknodat          259  297   33
    Symlink           88   83    _
    Symlinkat        266  304   36
    Link              86    9    _
    Linkat           265  303   37
    Rename            82   38    _
    Renameat         264  302   38
    Renameat2        316  353  276
    Bind              49  361  200
    Connect           42  362  203
    Listen            50  363  201
    Setsockopt        54  366  208
    Sendto            44  369  206
    Sendmsg           46  370  211
    Sendmmsg         307  345  269
    Umask             95   60  166
    Unlink            87   10    _
    Unlinkat         263  301   35
    Chmod             90   15    _
    Fchmod            91   94   52
    Fchmodat         268  306   53
    Fchmodat2        452  452  452
    Setpriority      141   97  140
    IoprioSet        251  289   30
    Seccomp          317  354  277
    LandlockCreate   444  444  444
    Socketcall         _  102    _
    Socket            41  359  198
    Socketpair        53  360  199
    Clone             56  120  220
    Clone3           435  435  435
    Unshare          272  310   97
    Setns            308  346  268
    Mount            165   21   40
    Umount             _   22    _
    Umount2          166   52   39
    PivotRoot        155  217   41
    Chroot           161   61   51
    OpenTree         428  428  428
    MoveMount        429  429  429
    Fsopen           430  430  430
    Fsconfig         431  431  431
    Fsmount          432  432  432
    Fspick           433  433  433
    MountSetattr     442  442  442
    Shmget            29  395  194
    Shmat             30  397  196
    Shmctl            31  396  195
    Semget            64  393  190
    Semop             65    _  193
    Semtimedop       220    _  192
    Semtimedop64       _  420    _
    Semctl            66  394  191
    Msgget            68  399  186
    Msgsnd            69  400  189
    Msgrcv            70  401  188
    Msgctl            71  402  187
    Ipc                _  117    _
    MqOpen           240  277  180
    MqUnlink         241  278  181
    SchedSetparam    142  154  118
    SchedSetscheduler 144 156  119
    SchedSetaffinity 203  241  122
    SchedSetattr     314  351  274
    Fchown            93  207   55
    Fchown16           _   95    _
    Fremovexattr     199  237   16
    Fcntl             72  221   25
    FcntlOld           _   55    _
    Keyctl           250  288  219
    AddKey           248  286  217
    RequestKey       249  287  218
    Bpf              321  357  280
    PerfEventOpen    298  336  241
    Userfaultfd      323  374  282
    IoUringSetup     425  425  425
    IoUringEnter     426  426  426
    IoUringRegister  427  427  427
    KexecLoad        246  283  104
    KexecFileLoad    320    _  294
    Reboot           169   88  142
    Swapon           167   87  224
    Swapoff          168  115  225
    InitModule       175  128  105
    FinitModule      313  350  273
    DeleteModule     176  129  106
    Iopl             172  110    _
    Ioperm           173  101    _
    Acct             163   51   89
    Settimeofday     164   79  170
    ClockSettime     227  264  112
    ClockSettime64     _  404    _
    Stime              _   25    _
    Quotactl         179  131   60
    QuotactlFd       443  443  443
    OpenByHandleAt   304  342  265
    NameToHandleAt   303  341  264
    Cachestat        451  451  451
    FanotifyInit     300  338  262
    LookupDcookie    212  253   18
    Nfsservctl       180  169   42
    Uselib           134   86    _
    Sysfs            139  135    _
    SysctlOld        156  149    _
    Syslog           103  103  116
    Vhangup          153  111   58
    Ioctl             16   54   29
    Prlimit64        302  340  261
    Kill              62   37  129
    Vm86               _  166    _
    Vm86old            _  113    _
    Stat               4  195    _
    Lstat              6  196    _
    Newfstatat       262  300   79
    Statx            332  383  291
    Access            21   33    _
    Faccessat        269  307   48
    Faccessat2       439  439  439
    Readlink          89   85    _
    Readlinkat       267  305   78
    Chdir             80   12   49
    Statfs           137   99   43
    Getxattr         191  229    8
    Lgetxattr        192  230    9
    Listxattr        194  232   11
    Llistxattr       195  233   12
    InotifyAddWatch  254  292   27
    Execve            59   11  221
    Execveat         322  358  281
    Fallocate        285  324   47
    CopyFileRange    326  377  285
    MemfdCreate      319  356  279
    MemfdSecret      447  447  447
    Vmsplice         278  316   75
    Truncate          76   92   45
    Rmdir             84   40    _
    Chown             92  212    _
    Lchown            94  198    _
    Chown16            _  182    _
    Lchown16           _   16    _
    Fchownat         260  298   54
    Utimensat        280  320   88
    Utimensat64        _  412    _
    Utime            132   30    _
    Utimes           235  271    _
    Futimesat        261  299    _
    Truncate64         _  193    _
    Setxattr         188  226    5
    Lsetxattr        189  227    6
    Fsetxattr        190  228    7
    Removexattr      197  235   14
    Lremovexattr     198  236   15
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn syscall_numbers_are_unique() {
        for arch in [Arch::X86_64, Arch::X86, Arch::Aarch64] {
            let mut numbers: Vec<u32> =
                super::TABLE.iter().filter_map(|row| row.0.number(arch)).collect();
            let all = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), all, "{arch:?}");
        }
    }
}
