//! What a connection sends: on WebSocket gathered into as few masked frames as possible.

use protocol::ws::Batch;
use reactor::Output;

use crate::rng::Rng;

/// The open frame of a connection, if it has frames.
#[derive(Debug)]
pub(crate) struct Outbox {
    batch: Option<Batch>,
}

impl Outbox {
    /// For a connection with or without frames.
    pub(crate) const fn new(is_ws: bool) -> Self {
        let batch = if is_ws { Some(Batch::new()) } else { None };
        Self { batch }
    }

    /// Appends about `len` bytes, which `write` writes.
    #[inline]
    pub(crate) fn append(
        &mut self,
        output: &mut Output,
        keys: &mut Rng,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if output.tail_is_full() {
            self.seal(output, keys);
            output.seal();
        }
        if let Some(batch) = &mut self.batch {
            batch.begin(output.tail(), len, Some(keys.key()));
        }
        write(output.tail());
    }

    /// Completes the open frame, after which the bytes may be sent.
    #[inline]
    pub(crate) fn seal(&mut self, output: &mut Output, keys: &mut Rng) {
        if let Some(batch) = &mut self.batch {
            batch.seal(output.tail(), Some(keys.key()));
        }
    }
}
