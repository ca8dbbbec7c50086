//! The memory of outputs: chunks of bytes, and the pool of the buffers that they come from.

use std::sync::Arc;

/// Buffers that grew beyond this many bytes are freed rather than pooled.
pub(crate) const POOLED_CAPACITY: usize = 64 * 1024;

/// Bytes of buffers kept for reuse by one shard: enough for a turn's fan-out.
const POOLED_BYTES: usize = 8 << 20;

const FRESH_CAPACITY: usize = 512;

/// Bytes that several outputs hold together.
pub type Shared = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The memory of a chunk.
pub(crate) enum Bytes {
    Own(Vec<u8>),
    /// The bytes of this owner from this place on.
    Shared(Shared, u32),
}

/// Consecutive bytes of an output.
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    pub(crate) items: u32,
}

impl Chunk {
    pub(crate) fn own(bytes: Vec<u8>, items: u32) -> Self {
        let bytes = Bytes::Own(bytes);
        Self { bytes, items }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(owner, from) => &owner.as_ref().as_ref()[*from as usize..],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Give the memory back, to the pool if it belongs to this output alone.
    pub(crate) fn recycle(self, pool: &mut Pool) {
        if let Bytes::Own(buffer) = self.bytes {
            pool.give(buffer);
        }
    }

    /// Bytes of it that belong to this output alone.
    pub(crate) fn own_len(&self) -> usize {
        match &self.bytes {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Shared(..) => 0,
        }
    }
}

/// Output buffers of one shard that wait for their next connection.
#[derive(Default)]
pub(crate) struct Pool {
    pub(crate) buffers: Vec<Vec<u8>>,
    /// Their capacity in all.
    bytes: usize,
}

impl Pool {
    /// Return how many bytes of buffers are kept for reuse.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match self.buffers.pop() {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(FRESH_CAPACITY),
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let poolable = (1..=POOLED_CAPACITY).contains(&buffer.capacity());
        if poolable && self.bytes < POOLED_BYTES {
            self.bytes += buffer.capacity();
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}
