//! What a command wrote, for those who watch it from wherever they begin.

use std::collections::VecDeque;
use std::sync::Mutex;

use ringfence_api::OutputStream;

use crate::tenants::lock;

/// So much is kept for somebody who comes later or reads slowly.
const KEPT: usize = 1 << 20;

/// Something that was written in one go.
#[derive(Debug, Clone)]
pub(crate) struct OutputChunk {
    pub(crate) stream: OutputStream,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct OutputBuffer(Mutex<OutputBufferState>);

#[derive(Default)]
struct OutputBufferState {
    /// How many chunks are gone from the beginning.
    gone: usize,
    chunks: VecDeque<OutputChunk>,
    bytes: usize,
}

/// A single byte takes more room than that, and more yet for whoever is told of it.
fn weight(bytes: &[u8]) -> usize {
    bytes.len().max(512)
}

impl OutputBuffer {
    pub(crate) fn push(&self, stream: OutputStream, bytes: &[u8]) {
        let mut inner = lock(&self.0);
        inner.bytes += weight(bytes);
        inner.chunks.push_back(OutputChunk { stream, bytes: bytes.to_vec() });
        while inner.bytes > KEPT && inner.chunks.len() > 1 {
            let first = inner.chunks.pop_front().expect("there are several");
            inner.bytes -= weight(&first.bytes);
            inner.gone += 1;
        }
    }

    /// What came from this chunk on, the number of the next, and how many were missed.
    pub(crate) fn from(&self, number: usize) -> (Vec<OutputChunk>, usize, usize) {
        let inner = lock(&self.0);
        let missed = inner.gone.saturating_sub(number);
        let chunks: Vec<OutputChunk> =
            inner.chunks.iter().skip(number.saturating_sub(inner.gone)).cloned().collect();
        (chunks, inner.gone + inner.chunks.len(), missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_take_no_more_room_than_many_at_once() {
        let output = OutputBuffer::default();
        (0..100_000).for_each(|_| output.push(OutputStream::Out, b"x"));
        let (chunks, next, missed) = output.from(0);
        assert!(
            chunks.len() <= KEPT / 512 && chunks.len() + missed == next,
            "{} {missed} {next}",
            chunks.len()
        );
        output.push(OutputStream::Err, &vec![b'x'; 2 * KEPT]);
        assert_eq!(output.from(next).0.len(), 1);
    }
}
