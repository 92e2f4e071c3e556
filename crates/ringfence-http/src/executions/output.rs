//! The output of a command, for any number of readers at any position.

use std::collections::VecDeque;
use std::sync::Mutex;

use ringfence_api::OutputStream;

use crate::tenants::lock;

/// Bytes kept for readers that come late or read slowly.
const KEPT: usize = 1 << 20;

/// The output of one write.
#[derive(Debug, Clone)]
pub(crate) struct OutputChunk {
    pub(crate) stream: OutputStream,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct OutputBuffer(Mutex<OutputBufferState>);

#[derive(Default)]
struct OutputBufferState {
    /// Chunks dropped from the beginning.
    gone: usize,
    chunks: VecDeque<OutputChunk>,
    bytes: usize,
}

/// The memory a chunk counts for: a single byte takes about 512 bytes here, and more in events.
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

    /// The chunks from `number` on, the number of the next chunk, and how many were dropped before.
    pub(crate) fn read_from(&self, number: usize) -> (Vec<OutputChunk>, usize, usize) {
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
    fn single_byte_chunks_stay_within_the_memory_limit() {
        let output = OutputBuffer::default();
        (0..100_000).for_each(|_| output.push(OutputStream::Out, b"x"));
        let (chunks, next, missed) = output.read_from(0);
        assert!(
            chunks.len() <= KEPT / 512 && chunks.len() + missed == next,
            "{} {missed} {next}",
            chunks.len()
        );
        output.push(OutputStream::Err, &vec![b'x'; 2 * KEPT]);
        assert_eq!(output.read_from(next).0.len(), 1);
    }
}
