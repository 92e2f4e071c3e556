//! A small assembler for classic BPF over `seccomp_data`.
//!
//! Every call of every program passes through the filter, and the kernel compiles it at
//! every start: it is kept short. Calls are found by binary search and share their returns.

use super::calls::{Arch, Call};
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
    /// It fails with this error number, and the usher tells of it.
    Told(u16),
}

impl Action {
    /// The kernel's word for it.
    pub fn code(self) -> u32 {
        match self {
            Action::Allow => 0x7fff_0000,
            Action::Errno(number) => 0x0005_0000 | u32::from(number),
            Action::Notify | Action::Told(_) => 0x7fc0_0000,
        }
    }
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

const CALL: u32 = 0;
const ARCH: u32 = 4;
const NO_SUCH_CALL: Action = Action::Errno(libc::ENOSYS as u16);
/// From here on (Linux 6.13, `setxattrat`) calls are newer than the table, and may do what it refuses
/// or wants to be told of in another way: there are none, and programs fall back to older ones. Numbers
/// of the x32 ABI, which nobody uses and filters forget, are greater as well.
const UNKNOWN: u32 = 463;

/// Low half of an argument on a little-endian machine: flags and numbers the kernel
/// takes as 32 bits must be compared in 32 bits, or high garbage would slip them past.
fn argument(number: u8) -> u32 {
    16 + 8 * u32::from(number)
}

/// Where a comparison leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// The next line.
    Next,
    /// A label.
    Label(usize),
    /// A return, shared by all who want it.
    Return(Action),
}

/// An instruction whose jumps are not known yet.
#[derive(Debug, Clone, Copy)]
enum Line {
    Plain(u16, u32),
    Compare(u16, u32, To, To),
    Label(usize),
}

/// Builds the filter architecture by architecture.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
}

impl Assembler {
    /// Adds the part for one architecture.
    pub(super) fn architecture(&mut self, arch: Arch, entries: &[Entry]) {
        let block = Block::new(arch, entries).finish();
        self.code.push(Instruction { code: LOAD, jt: 0, jf: 0, k: ARCH });
        // Conditional jumps reach 255 instructions; the unconditional one reaches all.
        self.code.push(Instruction { code: JUMP_EQUAL, jt: 1, jf: 0, k: arch.audit() });
        self.code.push(Instruction { code: JUMP, jt: 0, jf: 0, k: block.len() as u32 });
        self.code.extend(block);
    }

    /// Calls of any other architecture do not exist.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        self.code.push(Instruction { code: RETURN, jt: 0, jf: 0, k: NO_SUCH_CALL.code() });
        self.code
    }
}

/// The code of one architecture.
#[derive(Default)]
struct Block {
    lines: Vec<Line>,
    labels: usize,
    bodies: Vec<(usize, Vec<When>, Vec<Action>)>,
}

impl Block {
    fn new(arch: Arch, entries: &[Entry]) -> Self {
        let mut block = Self::default();
        block.lines.push(Line::Plain(LOAD, CALL));
        let mut calls: Vec<(u32, To)> = Vec::new();
        for entry in entries {
            if calls.iter().any(|(number, _)| *number == entry.call) {
                continue;
            }
            let same: Vec<&Entry> = entries.iter().filter(|other| other.call == entry.call).collect();
            let to = match same.as_slice() {
                [only] if only.when == When::Always => To::Return(only.action),
                _ => {
                    let label = block.label();
                    block.bodies.push((label, same.iter().map(|e| e.when).collect(), same.iter().map(|e| e.action).collect()));
                    To::Label(label)
                }
            };
            calls.push((entry.call, to));
        }
        calls.sort_by_key(|(number, _)| *number);
        // Opening files is what programs do most of what is looked at here at all.
        if let Some((number, to)) = calls.iter().find(|(number, _)| Some(*number) == Call::Openat.number(arch)) {
            block.lines.push(Line::Compare(JUMP_EQUAL, *number, *to, To::Next));
        }
        block.lines.push(Line::Compare(JUMP_GREATER_EQUAL, UNKNOWN, To::Return(NO_SUCH_CALL), To::Next));
        block.search(&calls);
        block
    }

    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    /// A decision tree over sorted call numbers.
    fn search(&mut self, calls: &[(u32, To)]) {
        const FEW: usize = 6;
        if calls.len() <= FEW {
            for (i, (number, to)) in calls.iter().enumerate() {
                let last = i + 1 == calls.len();
                self.lines.push(Line::Compare(JUMP_EQUAL, *number, *to, if last { To::Return(Action::Allow) } else { To::Next }));
            }
            return;
        }
        let (low, high) = calls.split_at(calls.len() / 2);
        let label = self.label();
        self.lines.push(Line::Compare(JUMP_GREATER_EQUAL, high[0].0, To::Label(label), To::Next));
        self.search(low);
        self.lines.push(Line::Label(label));
        self.search(high);
    }

    /// Conditions of one call: each either returns its action or goes on to the next.
    fn body(&mut self, when: When, action: Action, otherwise: To) {
        let (yes, no) = (To::Return(action), otherwise);
        match when {
            When::Always => self.lines.push(Line::Plain(RETURN, action.code())),
            When::Equals(number, value) => {
                self.lines.extend([Line::Plain(LOAD, argument(number)), Line::Compare(JUMP_EQUAL, value, yes, no)]);
            }
            When::AnyBit(number, bits) => {
                self.lines.extend([Line::Plain(LOAD, argument(number)), Line::Compare(JUMP_SET, bits, yes, no)]);
            }
            When::MaskedEquals(number, mask, value) => {
                self.lines.extend([Line::Plain(LOAD, argument(number)), Line::Plain(AND, mask), Line::Compare(JUMP_EQUAL, value, yes, no)])
            }
            When::NoneOf(number, values) => {
                self.lines.push(Line::Plain(LOAD, argument(number)));
                for (i, value) in values.iter().enumerate() {
                    let last = i + 1 == values.len();
                    self.lines.push(Line::Compare(JUMP_EQUAL, *value, no, if last { yes } else { To::Next }));
                }
            }
            When::Both((first, value), (second, not)) => self.lines.extend([
                Line::Plain(LOAD, argument(first)),
                Line::Compare(JUMP_EQUAL, value, To::Next, no),
                Line::Plain(LOAD, argument(second)),
                Line::Compare(JUMP_EQUAL, not, no, yes),
            ]),
            When::Among((first, value), (second, values)) => {
                self.lines.extend([
                    Line::Plain(LOAD, argument(first)),
                    Line::Compare(JUMP_EQUAL, value, To::Next, no),
                    Line::Plain(LOAD, argument(second)),
                ]);
                for (i, value) in values.iter().enumerate() {
                    let last = i + 1 == values.len();
                    self.lines.push(Line::Compare(JUMP_EQUAL, *value, yes, if last { no } else { To::Next }));
                }
            }
        }
    }

    /// Puts the bodies and the shared returns behind, and the distances in.
    fn finish(mut self) -> Vec<Instruction> {
        for (label, whens, actions) in std::mem::take(&mut self.bodies) {
            self.lines.push(Line::Label(label));
            for (i, (when, action)) in whens.iter().zip(&actions).enumerate() {
                if i + 1 == whens.len() {
                    self.body(*when, *action, To::Return(Action::Allow));
                } else {
                    let next = self.label();
                    self.body(*when, *action, To::Label(next));
                    self.lines.push(Line::Label(next));
                }
            }
        }
        // By the kernel's word: what is asked about and what is only told of are one to it.
        let mut returns: Vec<u32> = Vec::new();
        for line in &self.lines {
            if let Line::Compare(_, _, yes, no) = line {
                for to in [yes, no] {
                    if let To::Return(action) = to
                        && !returns.contains(&action.code())
                    {
                        returns.push(action.code());
                    }
                }
            }
        }
        let length = self.lines.iter().filter(|line| !matches!(line, Line::Label(_))).count();
        let mut at = vec![0; self.labels + 1];
        let mut position = 0;
        for line in &self.lines {
            if let Line::Label(label) = line { at[*label] = position } else { position += 1 }
        }
        let target = |to: To, next: usize| match to {
            To::Next => next,
            To::Label(label) => at[label],
            To::Return(action) => length + returns.iter().position(|known| *known == action.code()).expect("collected above"),
        };
        let mut code = Vec::with_capacity(length + returns.len());
        for line in &self.lines {
            let next = code.len() + 1;
            let distance = |to: To| u8::try_from(target(to, next) - next).expect("a block is shorter than a jump is long");
            match *line {
                Line::Plain(code_, k) => code.push(Instruction { code: code_, jt: 0, jf: 0, k }),
                Line::Compare(code_, k, yes, no) => code.push(Instruction { code: code_, jt: distance(yes), jf: distance(no), k }),
                Line::Label(_) => {}
            }
        }
        code.extend(returns.iter().map(|word| Instruction { code: RETURN, jt: 0, jf: 0, k: *word }));
        code
    }
}

#[cfg(test)]
mod tests;
