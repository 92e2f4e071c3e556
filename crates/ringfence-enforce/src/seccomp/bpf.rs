//! A small assembler for classic BPF over `seccomp_data`.

use super::calls::Arch;
use super::table::{Entry, When};

pub use ringfence_sys::seccomp::Instruction;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes through.
    Allow,
    /// It fails with this error number.
    Errno(u16),
    /// The usher is asked.
    Notify,
}

impl Action {
    fn code(self) -> u32 {
        match self {
            Action::Allow => 0x7fff_0000,
            Action::Errno(number) => 0x0005_0000 | u32::from(number),
            Action::Notify => 0x7fc0_0000,
        }
    }
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

const CALL: u32 = 0;
const ARCH: u32 = 4;
/// Low half of an argument on a little-endian machine: flags and numbers the kernel
/// takes as 32 bits must be compared in 32 bits, or high garbage would slip them past.
fn argument(number: u8) -> u32 {
    16 + 8 * u32::from(number)
}

/// Builds the filter architecture by architecture.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
}

fn op(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: usize, jf: usize) -> Instruction {
    Instruction { code, jt: distance(jt), jf: distance(jf), k }
}

fn distance(instructions: usize) -> u8 {
    u8::try_from(instructions).expect("jumps of the table stay within one entry")
}

impl Assembler {
    /// Adds the part for one architecture. Calls are sorted and found by a binary search:
    /// every call of every program passes through here.
    pub(super) fn architecture(&mut self, arch: Arch, entries: &[Entry]) {
        let mut block = vec![op(LOAD, CALL)];
        if arch == Arch::X86_64 {
            // x32 numbers have this bit: an ABI nobody uses and filters forget.
            block.push(jump(JUMP_GREATER_EQUAL, 0x4000_0000, 0, 1));
            block.push(op(RETURN, Action::Errno(libc::ENOSYS as u16).code()));
        }
        let mut calls: Vec<(u32, Vec<Instruction>)> = Vec::new();
        for entry in entries {
            let body = body(entry);
            match calls.iter_mut().find(|(number, _)| *number == entry.call) {
                Some((_, code)) => code.extend(body),
                None => calls.push((entry.call, body)),
            }
        }
        calls.sort_by_key(|(number, _)| *number);
        block.extend(search(&calls));
        self.code.push(op(LOAD, ARCH));
        if block.len() <= 255 {
            self.code.push(jump(JUMP_EQUAL, arch.audit(), 0, block.len()));
        } else {
            // Conditional jumps reach 255 instructions; the unconditional one reaches all.
            self.code.push(jump(JUMP_EQUAL, arch.audit(), 1, 0));
            self.code.push(op(0x05, block.len() as u32));
        }
        self.code.append(&mut block);
    }

    /// Calls of any other architecture do not exist.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        self.code.push(op(RETURN, Action::Errno(libc::ENOSYS as u16).code()));
        self.code
    }
}

/// A decision tree over sorted call numbers; each leaf is a call's code, which falls
/// through to allowing it.
fn search(calls: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    const FEW: usize = 4;
    if calls.len() <= FEW {
        let mut code = Vec::new();
        for (number, body) in calls {
            code.push(jump(JUMP_EQUAL, *number, 0, body.len() + 1));
            code.extend(body);
            code.push(op(RETURN, Action::Allow.code()));
        }
        code.push(op(RETURN, Action::Allow.code()));
        return code;
    }
    let (low, high) = calls.split_at(calls.len() / 2);
    let (low_code, high_code) = (search(low), search(high));
    let mut code = vec![jump(JUMP_GREATER_EQUAL, high[0].0, 0, 1), op(0x05, low_code.len() as u32)];
    code.extend(low_code);
    code.extend(high_code);
    code
}

/// The code of one entry: returns its action if its condition holds, else goes on behind.
fn body(entry: &Entry) -> Vec<Instruction> {
    let action = op(RETURN, entry.action.code());
    match entry.when {
        When::Always => vec![action],
        When::Equals(number, value) => vec![op(LOAD, argument(number)), jump(JUMP_EQUAL, value, 0, 1), action],
        When::AnyBit(number, bits) => vec![op(LOAD, argument(number)), jump(JUMP_SET, bits, 0, 1), action],
        When::MaskedEquals(number, mask, value) => {
            vec![op(LOAD, argument(number)), op(AND, mask), jump(JUMP_EQUAL, value, 0, 1), action]
        }
        When::NoneOf(number, values) => {
            let mut code = vec![op(LOAD, argument(number))];
            for (i, value) in values.iter().enumerate() {
                code.push(jump(JUMP_EQUAL, *value, values.len() - i, 0));
            }
            code.push(action);
            code
        }
        When::Both((first, value), (second, not)) => vec![
            op(LOAD, argument(first)),
            jump(JUMP_EQUAL, value, 0, 3),
            op(LOAD, argument(second)),
            jump(JUMP_EQUAL, not, 1, 0),
            action,
        ],
    }
}

#[cfg(test)]
mod tests;
