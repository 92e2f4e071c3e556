//! Pseudo-random numbers, reproducible by seed.

pub(crate) struct ArchiveRng(u64);

impl ArchiveRng {
    pub(crate) fn new(seed: u64) -> ArchiveRng {
        // Spreads adjacent seeds.
        ArchiveRng(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
