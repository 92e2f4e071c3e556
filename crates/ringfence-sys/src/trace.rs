//! Injects a syscall into a program that was just started, before its first instruction.

use std::io;
use std::ptr;

use crate::privilege::{CAP_WAKE_ALARM, CapsetArgs};

/// Zero, as wide as the kernel reads it.
const NONE: usize = 0;
const NT_PRSTATUS: usize = libc::NT_PRSTATUS as usize;

/// Result of stopping a new process before its first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceHold {
    Yes,
    /// The host forbids tracing, also of a child that asks for it.
    No,
}

/// Makes this process stop after `execve`, with the ambient capability `CAP_WAKE_ALARM`, which has
/// no use. For a child between `fork(2)` and `execve(2)`.
pub(crate) fn stop_at_exec() -> TraceHold {
    // SAFETY: the only pointer is to a live value.
    let is_traced = unsafe {
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
    if is_traced { TraceHold::Yes } else { TraceHold::No }
}

/// Makes the stopped child keep that capability from its children, and detaches: none of them can
/// ptrace it then.
///
/// The child itself has to make the syscall, before its first instruction; no other process can
/// make it. If that fails, the child is killed.
pub(crate) fn hide_and_detach(pid: i32) -> io::Result<()> {
    let hidden = await_trap(pid).and_then(|()| hide(pid));
    let released = hidden.and_then(|()| {
        // SAFETY: takes no pointer.
        let detached = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, NONE, NONE) };
        super::check_long(detached).map(drop)
    });
    if released.is_err() {
        // SAFETY: takes no pointer; the child is ours and was not waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let _ = super::process::wait(pid, super::process::Wait::Block);
    }
    released
}

fn hide(pid: i32) -> io::Result<()> {
    /// Below the part of the stack that a new program uses.
    const BELOW: u64 = 1024;
    let before = registers(pid)?;
    let call = find_call(pid, machine::place(&before))?;
    let address = (machine::stack(&before) - BELOW) & !15;
    let args = CapsetArgs::new(0, 1 << CAP_WAKE_ALARM, 0);
    write_args(pid, address, &args)?;
    let arguments = [address, address + CapsetArgs::SETS as u64];
    set_registers(pid, &machine::about_to_call(&before, call, libc::SYS_capset as u64, arguments))?;
    // It stops at entry and at exit of the syscall.
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
fn write_args(pid: i32, place: u64, args: &CapsetArgs) -> io::Result<()> {
    const WORDS: usize = size_of::<CapsetArgs>() / size_of::<u64>();
    const { assert!(size_of::<CapsetArgs>() == WORDS * size_of::<u64>()) };
    // SAFETY: both are plain numbers, of one size, without gaps.
    let words: [u64; WORDS] = unsafe { std::mem::transmute_copy(args) };
    for (number, word) in words.into_iter().enumerate() {
        let at = place + (number * size_of::<u64>()) as u64;
        // SAFETY: the address is one of the child's memory.
        super::check_long(unsafe { libc::ptrace(libc::PTRACE_POKEDATA, pid, at, word) })?;
    }
    Ok(())
}

/// Finds a syscall instruction in the program that is about to begin: there is always one not far
/// after its entry point, or the loader's.
fn find_call(pid: i32, beginning: u64) -> io::Result<u64> {
    const PAGE: u64 = 4096;
    const PAGES: u64 = 512;
    let mut buffer = [0; PAGE as usize];
    let mut from = beginning;
    for _ in 0..PAGES {
        // Not beyond the page: the next one may be unmapped.
        let length = (PAGE - from % PAGE) as usize;
        let read = super::memory::read_process(pid, from, &mut buffer[..length])?;
        if let Some(found) = machine::call_in(&buffer[..read]) {
            return Ok(from + found as u64);
        }
        from += length as u64;
    }
    Err(io::Error::from_raw_os_error(libc::ENOTSUP))
}

/// Waits until the child stops at a trap.
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
    // A program of another architecture has fewer registers.
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

    /// Offset of a `syscall` instruction.
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

    /// Offset of an `svc #0` instruction.
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
