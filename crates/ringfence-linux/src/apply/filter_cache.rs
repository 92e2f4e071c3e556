//! Seccomp filters in the kernel's form, assembled in advance where possible.

use std::borrow::Cow;
use std::sync::OnceLock;

use ringfence_plan::seccomp::{FilterInsn, FilterOptions, filter};
use ringfence_sys::seccomp::BpfInsn;

/// The filter as instructions; reuses a prepared one.
pub(super) fn cached_filter(shape: FilterOptions) -> Cow<'static, [BpfInsn]> {
    match READY.get().into_iter().flatten().find(|(ready, _)| *ready == shape) {
        Some((_, instructions)) => Cow::Borrowed(instructions),
        None => Cow::Owned(assemble(shape)),
    }
}

/// Assembles filters in advance, for the options that most sandboxes forked from this process use.
pub(super) fn prepare_filters(shapes: &[FilterOptions]) {
    READY.get_or_init(|| shapes.iter().map(|shape| (*shape, assemble(*shape))).collect());
}

static READY: OnceLock<Vec<(FilterOptions, Vec<BpfInsn>)>> = OnceLock::new();

fn assemble(shape: FilterOptions) -> Vec<BpfInsn> {
    let convert = |FilterInsn { code, jt, jf, k }| BpfInsn { code, jt, jf, k };
    filter(shape).into_iter().map(convert).collect()
}
