//! What the tests of all readers share.

use super::PeekState;

/// Shows `bytes` to `read` as a queue that grows at each of `cuts`, until it has made up its mind.
pub(super) fn grown<T>(
    bytes: &[u8],
    cuts: &[usize],
    mut read: impl FnMut(&[u8]) -> PeekState<T>,
) -> PeekState<T> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]).collect();
    cuts.sort_unstable();
    let mut told = PeekState::NeedMore;
    for cut in cuts {
        told = read(&bytes[..cut]);
        if !matches!(told, PeekState::NeedMore) {
            break;
        }
    }
    told
}
