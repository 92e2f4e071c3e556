//! Speaking for a program that has just been started and done nothing yet.

use std::io;
use std::ptr;

use crate::privilege::{CAP_WAKE_ALARM, CapsetArgs};

/// As wide as the kernel reads it.
const NONE: usize = 0;
const NT_PRSTATUS: usize = libc::NT_PRSTATUS as usize;

/// Whether a new process could be held before its first instruction, and hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceHold {
    Yes,
    /// The host lets nobody trace, not even a child that wants to be.
    No,
}

/// From now on this process stops when it has become another program, which will have the one
/// capability that is of no use. To be called by a child between `fork(2)` and `execve(2)`.
pub(crate) fn be_held() -> TraceHold {
    // SAFETY: the only pointer is to a live value.
    let is_held = unsafe {
        let mut trap: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut trap);
        libc::sigaddset(&mut trap, libc::SIGTRAP);
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_RAISE as usize,
            CAP_WAKE_ALARM as usize,
            NONE,
            NONE,
        ) == 0
            && libc::ptrace(libc::PTRACE_TRACEME, 0, NONE, NONE) == 0
            && libc::sigprocmask(libc::SIG_UNBLOCK, &trap, ptr::null_mut()) == 0
    };
    if is_held { TraceHold::Yes } else { TraceHold::No }
}

/// Lets the child that is held keep the one capability from those that it will start, and lets
/// it go: none of them can look into it then.
///
/// It does so by itself, before its first instruction: nobody else can do it for it. A child
/// that cannot be made to is ended.
pub(crate) fn hide_and_let_go(pid: i32) -> io::Result<()> {
    let hidden = await_trap(pid).and_then(|()| hide(pid));
    let released = hidden.and_then(|()| {
        // SAFETY: takes no pointer.
        super::check_long(unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, NONE, NONE) }).map(drop)
    });
    if released.is_err() {
        // SAFETY: takes no pointer; the child is ours and was not waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let _ = super::process::wait(pid, super::process::Wait::Block);
    }
    released
}

fn hide(pid: i32) -> io::Result<()> {
    /// Below what is in use of the stack by whatever has just begun.
    const BELOW: u64 = 1024;
    let before = registers(pid)?;
    let call = find_call(pid, machine::place(&before))?;
    let words = (machine::stack(&before) - BELOW) & !15;
    let asked = CapsetArgs::of(0, 1 << CAP_WAKE_ALARM, 0);
    put(pid, words, &asked)?;
    let arguments = [words, words + CapsetArgs::SETS as u64];
    set_registers(pid, &machine::about_to_call(&before, call, libc::SYS_capset as u64, arguments))?;
    // It stops when it calls, and when the call is done.
    for _ in 0..2 {
        // SAFETY: takes no pointer.
        super::check_long(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, NONE, NONE) })?;
        await_trap(pid)?;
    }
    let result = machine::result(&registers(pid)?);
    set_registers(pid, &before)?;
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result as i32)) }
}

/// Writes into the child's memory.
fn put(pid: i32, place: u64, asked: &CapsetArgs) -> io::Result<()> {
    const WORDS: usize = size_of::<CapsetArgs>() / size_of::<u64>();
    const { assert!(size_of::<CapsetArgs>() == WORDS * size_of::<u64>()) };
    // SAFETY: both are plain numbers, of one size, without gaps.
    let words: [u64; WORDS] = unsafe { std::mem::transmute_copy(asked) };
    for (number, word) in words.into_iter().enumerate() {
        let at = place + (number * size_of::<u64>()) as u64;
        // SAFETY: takes an address of the child's.
        super::check_long(unsafe { libc::ptrace(libc::PTRACE_POKEDATA, pid, at, word) })?;
    }
    Ok(())
}

/// Where the program that is about to begin has an instruction that calls the kernel: at its
/// beginning, or the loader's, there is always one not far ahead.
fn find_call(pid: i32, beginning: u64) -> io::Result<u64> {
    const PAGE: u64 = 4096;
    const PAGES: u64 = 512;
    let mut buffer = [0; PAGE as usize];
    let mut from = beginning;
    for _ in 0..PAGES {
        // No further than the page: what is behind it may not be there.
        let length = (PAGE - from % PAGE) as usize;
        let read = super::memory::read_process(pid, from, &mut buffer[..length])?;
        if let Some(found) = machine::call_in(&buffer[..read]) {
            return Ok(from + found as u64);
        }
        from += length as u64;
    }
    Err(io::Error::from_raw_os_error(libc::ENOTSUP))
}

/// Until the child stops, as it was told to.
fn await_trap(pid: i32) -> io::Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live value.
        match super::check(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) }) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let is_trap = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP;
    if is_trap { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    // SAFETY: plain data for which all zeroes is a value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let mut vector =
        libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
    // SAFETY: the vector describes a live value.
    super::check_long(unsafe {
        libc::ptrace(libc::PTRACE_GETREGSET, pid, NT_PRSTATUS, &raw mut vector)
    })?;
    // A program for another kind of processor has fewer of them.
    if vector.iov_len == size_of_val(&registers) {
        Ok(registers)
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTSUP))
    }
}

fn set_registers(pid: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    let vector = libc::iovec {
        iov_base: ptr::from_ref(registers).cast_mut().cast(),
        iov_len: size_of_val(registers),
    };
    // SAFETY: the vector describes a live value, which is only read.
    super::check_long(unsafe {
        libc::ptrace(libc::PTRACE_SETREGSET, pid, NT_PRSTATUS, &raw const vector)
    })
    .map(drop)
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use libc::user_regs_struct;

    pub(super) fn place(registers: &user_regs_struct) -> u64 {
        registers.rip
    }

    /// Where `syscall` stands in a program.
    pub(super) fn call_in(text: &[u8]) -> Option<usize> {
        text.windows(2).position(|two| two == [0x0f, 0x05])
    }

    pub(super) fn stack(registers: &user_regs_struct) -> u64 {
        registers.rsp
    }

    pub(super) fn about_to_call(
        before: &user_regs_struct,
        place: u64,
        call: u64,
        [rdi, rsi]: [u64; 2],
    ) -> user_regs_struct {
        user_regs_struct { rip: place, rax: call, orig_rax: u64::MAX, rdi, rsi, ..*before }
    }

    pub(super) fn result(registers: &user_regs_struct) -> i64 {
        registers.rax as i64
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use libc::user_regs_struct;

    pub(super) fn place(registers: &user_regs_struct) -> u64 {
        registers.pc
    }

    /// Where `svc #0` stands in a program.
    pub(super) fn call_in(text: &[u8]) -> Option<usize> {
        text.chunks_exact(4)
            .position(|four| four == [0x01, 0x00, 0x00, 0xd4])
            .map(|number| number * 4)
    }

    pub(super) fn stack(registers: &user_regs_struct) -> u64 {
        registers.sp
    }

    pub(super) fn about_to_call(
        before: &user_regs_struct,
        place: u64,
        call: u64,
        arguments: [u64; 2],
    ) -> user_regs_struct {
        let mut registers = *before;
        registers.pc = place;
        registers.regs[..2].copy_from_slice(&arguments);
        registers.regs[8] = call;
        registers
    }

    pub(super) fn result(registers: &user_regs_struct) -> i64 {
        registers.regs[0] as i64
    }
}
