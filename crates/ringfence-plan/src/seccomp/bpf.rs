//! A small assembler for classic BPF over `seccomp_data`.
//!
//! Every syscall of every program runs the filter, and the kernel compiles it at every start, so it
//! is short: syscalls are found by binary search and share their return instructions.

use super::calls::{Arch, Call};
use super::ioctls::Commands;
use super::table::{ArgCondition, FilterRule};
use crate::abi;

/// One instruction of the classic BPF machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInsn {
    /// Operation.
    pub code: u16,
    /// Distance to jump if true.
    pub jt: u8,
    /// Distance to jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Action of the filter for a syscall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterAction {
    /// Allow it.
    Allow,
    /// Fail with this errno.
    Errno(u16),
    /// Ask the notify handler.
    Notify,
    /// Fail with this errno; the notify handler reports it.
    ReportedErrno(u16),
}

impl FilterAction {
    /// The kernel's return value.
    pub fn return_value(self) -> u32 {
        match self {
            FilterAction::Allow => 0x7fff_0000,
            FilterAction::Errno(number) => 0x0005_0000 | u32::from(number),
            FilterAction::Notify | FilterAction::ReportedErrno(_) => 0x7fc0_0000,
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
const NO_SUCH_CALL: FilterAction = FilterAction::Errno(abi::ENOSYS as u16);
/// First unknown syscall number (Linux 6.13, `setxattrat`). Newer syscalls may do in another way
/// what the table refuses or reports, so they fail with ENOSYS and programs fall back to older
/// ones. Numbers of the x32 ABI, which is unused and often forgotten by filters, are greater as
/// well.
const UNKNOWN: u32 = 463;

/// Offset of the low half of an argument on a little-endian machine. Arguments that the kernel
/// takes as 32 bits must be compared as 32 bits: garbage in the high half would bypass the rule.
fn argument(number: u8) -> u32 {
    16 + 8 * u32::from(number)
}

/// Target of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JumpTarget {
    /// The next instruction.
    Next,
    /// A label.
    Label(usize),
    /// A shared return instruction.
    Return(FilterAction),
}

/// An instruction with unresolved jumps.
#[derive(Debug, Clone, Copy)]
enum PendingInsn {
    Plain(u16, u32),
    Compare(u16, u32, JumpTarget, JumpTarget),
    Label(usize),
}

/// Builds the filter, one architecture after the other.
#[derive(Default)]
pub(super) struct BpfAssembler {
    code: Vec<FilterInsn>,
    shared: Vec<SharedBody>,
}

/// Long conditions of a syscall that several architectures share: stored once behind all blocks,
/// and each block jumps there.
struct SharedBody {
    body: BpfBody,
    /// Positions of the jumps in the whole filter.
    jumps: Vec<usize>,
}

/// Conditions of one syscall, in order, with their actions.
type BpfBody = Vec<(ArgCondition, FilterAction)>;

impl BpfAssembler {
    /// Adds the block for one architecture.
    pub(super) fn add_architecture(&mut self, arch: Arch, entries: &[FilterRule]) {
        let (block, far) = ArchBlock::new(arch, entries).finish();
        self.code.push(FilterInsn { code: LOAD, jt: 0, jf: 0, k: ARCH });
        // Conditional jumps reach 255 instructions; the unconditional one reaches all.
        self.code.push(FilterInsn { code: JUMP_EQUAL, jt: 1, jf: 0, k: arch.audit_arch() });
        self.code.push(FilterInsn { code: JUMP, jt: 0, jf: 0, k: block.len() as u32 });
        for (position, body) in far {
            let position = self.code.len() + position;
            match self.shared.iter_mut().find(|shared| shared.body == body) {
                Some(shared) => shared.jumps.push(position),
                None => self.shared.push(SharedBody { body, jumps: vec![position] }),
            }
        }
        self.code.extend(block);
    }

    /// Finishes the filter. Syscalls of any other architecture fail with ENOSYS.
    pub(super) fn finish(mut self) -> Vec<FilterInsn> {
        self.code.push(FilterInsn { code: RETURN, jt: 0, jf: 0, k: NO_SUCH_CALL.return_value() });
        for SharedBody { body, jumps } in self.shared {
            let start = self.code.len();
            for position in jumps {
                self.code[position].k = (start - position - 1) as u32;
            }
            let mut block = ArchBlock::default();
            block.conditions(&body);
            self.code.extend(block.finish().0);
        }
        self.code
    }
}

/// Code of one architecture.
#[derive(Default)]
struct ArchBlock {
    lines: Vec<PendingInsn>,
    labels: usize,
    bodies: Vec<(usize, BpfBody)>,
    /// Shared bodies behind all blocks, in the order of the jumps to them.
    far: Vec<BpfBody>,
    /// Number of syscalls that are compared linearly.
    linear_limit: usize,
}

impl ArchBlock {
    fn new(arch: Arch, entries: &[FilterRule]) -> Self {
        // For 32-bit programs, which are rare, the filter is short rather than fast.
        let mut block =
            Self { linear_limit: if arch == Arch::X86 { 10 } else { 6 }, ..Self::default() };
        block.lines.push(PendingInsn::Plain(LOAD, CALL));
        let mut calls: Vec<(u32, JumpTarget)> = Vec::new();
        for entry in entries {
            if calls.iter().any(|(number, _)| *number == entry.call) {
                continue;
            }
            let same: Vec<&FilterRule> =
                entries.iter().filter(|other| other.call == entry.call).collect();
            let to = match same.as_slice() {
                [only] if only.when == ArgCondition::Always => JumpTarget::Return(only.action),
                _ => {
                    let label = block.label();
                    block.bodies.push((
                        label,
                        same.iter().map(|entry| (entry.when, entry.action)).collect(),
                    ));
                    JumpTarget::Label(label)
                }
            };
            calls.push((entry.call, to));
        }
        calls.sort_by_key(|(number, _)| *number);
        // Opening files is the most frequent checked syscall.
        if let Some((number, to)) =
            calls.iter().find(|(number, _)| Some(*number) == Call::Openat.number(arch))
        {
            block.lines.push(PendingInsn::Compare(JUMP_EQUAL, *number, *to, JumpTarget::Next));
        }
        block.lines.push(PendingInsn::Compare(
            JUMP_GREATER_EQUAL,
            UNKNOWN,
            JumpTarget::Return(NO_SUCH_CALL),
            JumpTarget::Next,
        ));
        block.search(&calls);
        block
    }

    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    /// A decision tree over sorted syscall numbers.
    fn search(&mut self, calls: &[(u32, JumpTarget)]) {
        if calls.len() <= self.linear_limit {
            for (i, (number, to)) in calls.iter().enumerate() {
                let last = i + 1 == calls.len();
                self.lines.push(PendingInsn::Compare(
                    JUMP_EQUAL,
                    *number,
                    *to,
                    if last { JumpTarget::Return(FilterAction::Allow) } else { JumpTarget::Next },
                ));
            }
            return;
        }
        let (low, high) = calls.split_at(calls.len() / 2);
        let label = self.label();
        self.lines.push(PendingInsn::Compare(
            JUMP_GREATER_EQUAL,
            high[0].0,
            JumpTarget::Label(label),
            JumpTarget::Next,
        ));
        self.search(low);
        self.lines.push(PendingInsn::Label(label));
        self.search(high);
    }

    /// One condition of a syscall: returns its action or goes on to `otherwise`. Its
    /// [`ArgCondition::sole_argument`] is loaded.
    fn body(&mut self, when: ArgCondition, action: FilterAction, otherwise: JumpTarget) {
        let (yes, no) = (JumpTarget::Return(action), otherwise);
        match when {
            ArgCondition::Always => {
                self.lines.push(PendingInsn::Plain(RETURN, action.return_value()))
            }
            ArgCondition::Equals(_, value) => {
                self.lines.push(PendingInsn::Compare(JUMP_EQUAL, value, yes, no))
            }
            ArgCondition::AnyBit(_, bits) => {
                self.lines.push(PendingInsn::Compare(JUMP_SET, bits, yes, no))
            }
            ArgCondition::MaskedEquals(number, mask, value) => self.lines.extend([
                PendingInsn::Plain(LOAD, argument(number)),
                PendingInsn::Plain(AND, mask),
                PendingInsn::Compare(JUMP_EQUAL, value, yes, no),
            ]),
            ArgCondition::NotNull(number) => self.lines.extend([
                PendingInsn::Plain(LOAD, argument(number)),
                PendingInsn::Compare(JUMP_EQUAL, 0, JumpTarget::Next, yes),
                PendingInsn::Plain(LOAD, argument(number) + 4),
                PendingInsn::Compare(JUMP_EQUAL, 0, no, yes),
            ]),
            ArgCondition::NoneOf(_, values) => self.one_of(values, no, yes),
            ArgCondition::OneOf(_, values) => self.one_of(values, yes, no),
            ArgCondition::Unlisted(_, commands) => self.listed(commands, no, yes),
            ArgCondition::BothBits((first, bits), (second, others)) => self.lines.extend([
                PendingInsn::Plain(LOAD, argument(first)),
                PendingInsn::Compare(JUMP_SET, bits, JumpTarget::Next, no),
                PendingInsn::Plain(LOAD, argument(second)),
                PendingInsn::Compare(JUMP_SET, others, yes, no),
            ]),
            ArgCondition::Both((first, value), (second, not)) => self.lines.extend([
                PendingInsn::Plain(LOAD, argument(first)),
                PendingInsn::Compare(JUMP_EQUAL, value, JumpTarget::Next, no),
                PendingInsn::Plain(LOAD, argument(second)),
                PendingInsn::Compare(JUMP_EQUAL, not, no, yes),
            ]),
            ArgCondition::Among((first, value), (second, values)) => {
                self.lines.extend([
                    PendingInsn::Plain(LOAD, argument(first)),
                    PendingInsn::Compare(JUMP_EQUAL, value, JumpTarget::Next, no),
                    PendingInsn::Plain(LOAD, argument(second)),
                ]);
                self.one_of(values, yes, no);
            }
        }
    }

    /// Compares the loaded value with each of `values`.
    fn one_of(&mut self, values: &[u32], yes: JumpTarget, no: JumpTarget) {
        for (i, value) in values.iter().enumerate() {
            let last = i + 1 == values.len();
            self.lines.push(PendingInsn::Compare(
                JUMP_EQUAL,
                *value,
                yes,
                if last { no } else { JumpTarget::Next },
            ));
        }
    }

    /// All conditions of one syscall.
    fn conditions(&mut self, body: &[(ArgCondition, FilterAction)]) {
        // A loaded argument stays loaded for the next condition.
        let mut loaded = None;
        for (i, (when, action)) in body.iter().enumerate() {
            let sole = when.sole_argument();
            if sole != loaded
                && let Some(number) = sole
            {
                self.lines.push(PendingInsn::Plain(LOAD, argument(number)));
            }
            loaded = sole;
            if i + 1 == body.len() {
                self.body(*when, *action, JumpTarget::Return(FilterAction::Allow));
            } else {
                let next = self.label();
                self.body(*when, *action, JumpTarget::Label(next));
                self.lines.push(PendingInsn::Label(next));
            }
        }
    }

    /// A decision tree over commands in ascending order.
    fn listed(&mut self, commands: &[Commands], is_listed: JumpTarget, is_not: JumpTarget) {
        const FEW: usize = 4;
        if commands.len() > FEW {
            let (low, high) = commands.split_at(commands.len() / 2);
            let label = self.label();
            self.lines.push(PendingInsn::Compare(
                JUMP_GREATER_EQUAL,
                high[0].first,
                JumpTarget::Label(label),
                JumpTarget::Next,
            ));
            self.listed(low, is_listed, is_not);
            self.lines.push(PendingInsn::Label(label));
            self.listed(high, is_listed, is_not);
            return;
        }
        for (i, Commands { first, last, .. }) in commands.iter().enumerate() {
            let beyond = if i + 1 == commands.len() { is_not } else { JumpTarget::Next };
            if first == last {
                self.lines.push(PendingInsn::Compare(JUMP_EQUAL, *first, is_listed, beyond));
            } else {
                self.lines.push(PendingInsn::Compare(
                    JUMP_GREATER_EQUAL,
                    *first,
                    JumpTarget::Next,
                    is_not,
                ));
                self.lines.push(PendingInsn::Compare(
                    JUMP_GREATER_EQUAL,
                    last + 1,
                    beyond,
                    is_listed,
                ));
            }
        }
    }

    /// Appends bodies and shared returns, and resolves the jumps. Also returns the jumps to shared
    /// bodies.
    fn finish(mut self) -> (Vec<FilterInsn>, Vec<(usize, BpfBody)>) {
        for (label, body) in std::mem::take(&mut self.bodies) {
            self.lines.push(PendingInsn::Label(label));
            if body.iter().any(|(when, _)| matches!(when, ArgCondition::Unlisted(..))) {
                self.lines.push(PendingInsn::Plain(JUMP, 0));
                self.far.push(body);
            } else {
                self.conditions(&body);
            }
        }
        // Grouped by the kernel's return value: `Notify` and reported errors are the same for the
        // kernel.
        let mut returns: Vec<u32> = Vec::new();
        for line in &self.lines {
            if let PendingInsn::Compare(_, _, yes, no) = line {
                for to in [yes, no] {
                    if let JumpTarget::Return(action) = to
                        && !returns.contains(&action.return_value())
                    {
                        returns.push(action.return_value());
                    }
                }
            }
        }
        let length =
            self.lines.iter().filter(|line| !matches!(line, PendingInsn::Label(_))).count();
        let mut at = vec![0; self.labels + 1];
        let mut position = 0;
        for line in &self.lines {
            if let PendingInsn::Label(label) = line { at[*label] = position } else { position += 1 }
        }
        let target = |to: JumpTarget, next: usize| match to {
            JumpTarget::Next => next,
            JumpTarget::Label(label) => at[label],
            JumpTarget::Return(action) => {
                length
                    + returns
                        .iter()
                        .position(|known| *known == action.return_value())
                        .expect("collected above")
            }
        };
        let mut code = Vec::with_capacity(length + returns.len());
        for line in &self.lines {
            let next = code.len() + 1;
            let distance = |to: JumpTarget| {
                u8::try_from(target(to, next) - next)
                    .expect("a block is shorter than a jump is long")
            };
            match *line {
                PendingInsn::Plain(code_, k) => {
                    code.push(FilterInsn { code: code_, jt: 0, jf: 0, k })
                }
                PendingInsn::Compare(code_, k, yes, no) => {
                    code.push(FilterInsn { code: code_, jt: distance(yes), jf: distance(no), k })
                }
                PendingInsn::Label(_) => {}
            }
        }
        let jumps = code
            .iter()
            .enumerate()
            .filter(|(_, instruction)| instruction.code == JUMP)
            .map(|(position, _)| position);
        let far = jumps.zip(self.far).collect();
        code.extend(returns.iter().map(|word| FilterInsn { code: RETURN, jt: 0, jf: 0, k: *word }));
        (code, far)
    }
}

#[cfg(test)]
mod tests;
