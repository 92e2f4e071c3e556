//! Helpers for the tests of all readers.

use super::PeekState;

/// Shows `bytes` to `read` as a queue that grows at each of `cuts`, until it decides.
pub(super) fn grown<T>(
    bytes: &[u8],
    cuts: &[usize],
    mut read: impl FnMut(&[u8]) -> PeekState<T>,
) -> PeekState<T> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]).collect();
    cuts.sort_unstable();
    let mut state = PeekState::NeedMore;
    for cut in cuts {
        state = read(&bytes[..cut]);
        if !matches!(state, PeekState::NeedMore) {
            break;
        }
    }
    state
}
