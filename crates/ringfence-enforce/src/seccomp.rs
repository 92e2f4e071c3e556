//! The seccomp filter: a table with a reason per line, and the assembler for it.

mod bpf;
pub mod calls;
pub(crate) mod ioctls;
mod limited;
mod table;

pub use bpf::{BpfInsn, FilterAction};
pub use ioctls::Commands;
pub use table::{ArgCondition, FilterRule, entries};
pub(crate) use table::{
    EXECUTE, HANDED_OVER, is_only_awaited, is_only_observed, is_only_told, is_writing, refusal,
};

use std::borrow::Cow;
use std::sync::OnceLock;

use ringfence_policy::Observe;

use bpf::BpfAssembler;
use calls::Arch;

/// What the filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOptions {
    /// Whether `kill(0, …)` would reach processes outside.
    pub group_signals: GroupSignals,
    /// Whose files the command makes.
    pub owner: FileOwner,
    /// Whether calls that go through are looked at.
    pub observe: Observe,
    /// Who connects.
    pub connects: ConnectHandling,
    /// Calls that take disk space which the kernel counts for no process.
    pub disk: Uncounted,
    /// Calls that take memory which the kernel counts for no process.
    pub memory: Uncounted,
}

/// Calls that use something without it being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// No limit is on it, or a cgroup counts it.
    Allowed,
    /// A limit is on it, and only what processes tell is counted.
    Refused,
}

/// Who connects sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectHandling {
    /// Programs themselves.
    Free,
    /// Programs themselves, in a network that leads nowhere: whom they mean is told of.
    Shut,
    /// The usher and its caller, since sockets of the host's network are among them.
    Asked,
}

/// Whose files the command makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOwner {
    /// The superuser's.
    Root,
    /// Anybody else's.
    Person,
}

impl FileOwner {
    /// Whose they are if the command runs as this user.
    pub fn of(uid: Option<u32>) -> Self {
        if uid == Some(0) { FileOwner::Root } else { FileOwner::Person }
    }
}

/// Who keeps signals to the own process group inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupSignals {
    /// Landlock does.
    Scoped,
    /// Nobody: the call is refused.
    Refused,
}

/// The filter as instructions for the kernel; of a shape that was made ready, it is there.
pub(crate) fn ready_filter(shape: FilterOptions) -> Cow<'static, [BpfInsn]> {
    match READY.get().into_iter().flatten().find(|(ready, _)| *ready == shape) {
        Some((_, instructions)) => Cow::Borrowed(instructions),
        None => Cow::Owned(filter(shape)),
    }
}

/// Makes some ready, of the shapes that most sandboxes will want whose processes come from this
/// one.
pub(crate) fn make_ready(shapes: &[FilterOptions]) {
    READY.get_or_init(|| shapes.iter().map(|shape| (*shape, filter(*shape))).collect());
}

static READY: OnceLock<Vec<(FilterOptions, Vec<BpfInsn>)>> = OnceLock::new();

/// The filter as instructions for the kernel.
pub fn filter(shape: FilterOptions) -> Vec<BpfInsn> {
    let mut assembler = BpfAssembler::default();
    for arch in Arch::NATIVE_FIRST {
        assembler.architecture(*arch, &entries(*arch, shape));
    }
    assembler.finish()
}
