//! A connection's pending output: bytes that the kernel has not taken yet.

use std::collections::VecDeque;

pub use crate::chunk::Shared;
use crate::chunk::{Bytes, Chunk, POOLED_CAPACITY, Pool};

/// Size in bytes at which the tail is sealed and a new chunk begun, so that a long backlog never
/// has to be moved to grow.
pub const CHUNK: usize = POOLED_CAPACITY;

/// Chunks of one write at most.
pub(crate) const WRITE_CHUNKS: usize = 64;
/// Bytes of one write, without its last chunk, at most: as much as a socket takes at once.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes that were taken out of an output to be written at once.
pub(crate) struct Taken {
    pub(crate) first: Chunk,
    pub(crate) more: Vec<Chunk>,
    /// Bytes of the first chunk that had been sent before.
    sent: u32,
    /// Bytes to be sent.
    pub(crate) len: usize,
}

impl Taken {
    fn new(first: Chunk, sent: u32) -> Self {
        Self {
            len: first.len() - sent as usize,
            first,
            more: Vec::new(),
            sent,
        }
    }

    /// Return the bytes to be sent of the first chunk.
    #[inline]
    pub(crate) fn front(&self) -> &[u8] {
        &self.first.bytes()[self.sent as usize..]
    }

    /// Return the bytes to be sent, chunk by chunk.
    #[cfg(feature = "sim")]
    pub(crate) fn chunks(&self) -> Vec<&[u8]> {
        let more = self.more.iter().map(Chunk::bytes);
        std::iter::once(self.front()).chain(more).collect()
    }

    /// Return how many items the chunks have.
    #[cfg(feature = "sim")]
    pub(crate) fn items(&self) -> u64 {
        let more = self.more.iter().map(|chunk| u64::from(chunk.items));
        u64::from(self.first.items) + more.sum::<u64>()
    }

    /// Count what was taken as sent, and return its items.
    pub(crate) fn finish(self, pool: &mut Pool) -> u64 {
        let mut items = u64::from(self.first.items);
        self.first.recycle(pool);
        for chunk in self.more {
            items += u64::from(chunk.items);
            chunk.recycle(pool);
        }
        items
    }
}

#[derive(Default)]
struct Backlog {
    chunks: VecDeque<Chunk>,
    /// Bytes in `chunks`, those already sent of the front chunk included.
    bytes: usize,
    /// The part of `bytes` that belongs to this output alone.
    own: usize,
}

impl Backlog {
    fn push_back(&mut self, chunk: Chunk) {
        self.count(&chunk);
        self.chunks.push_back(chunk);
    }

    fn insert(&mut self, n: usize, chunk: Chunk) {
        self.count(&chunk);
        self.chunks.insert(n, chunk);
    }

    fn count(&mut self, chunk: &Chunk) {
        self.bytes += chunk.len();
        self.own += chunk.own_len();
    }

    fn pop_front(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.bytes -= chunk.len();
        self.own -= chunk.own_len();
        Some(chunk)
    }
}

/// Pending output, oldest bytes first. Empty, it owns no memory.
///
/// An *item* is whatever the owner wants accounted for, a message say: items are counted as sent
/// when the kernel has taken the last byte of the chunk that holds them, and as unsent when the
/// connection ends before that. A chunk is at most [`CHUNK`] bytes and one append long.
#[derive(Default)]
pub struct Output {
    tail: Vec<u8>,
    backlog: Option<Box<Backlog>>,
    /// Bytes of the front chunk that the kernel has taken.
    sent: u32,
    tail_items: u32,
}

impl Output {
    /// Return how many bytes wait to be sent.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.bytes) + self.tail.len()
            - self.sent as usize
    }

    /// Return the bytes of memory that wait in this output alone.
    #[must_use]
    pub(crate) fn own_len(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.own) + self.tail.len()
    }

    /// Return whether nothing waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.backlog.is_none()
    }

    /// Return the open chunk, to append to. What is already in it may be changed only from where the
    /// owner began to append since the last turn.
    #[inline]
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Count `items` that the bytes just appended hold.
    #[inline]
    pub fn add_items(&mut self, items: u32) {
        self.tail_items += items;
    }

    /// Return how many items are not wholly sent, by chunk.
    #[must_use]
    pub fn items(&self) -> u64 {
        let sealed = self.backlog.iter().flat_map(|backlog| &backlog.chunks);
        sealed.map(|chunk| u64::from(chunk.items)).sum::<u64>() + u64::from(self.tail_items)
    }

    /// Return whether the tail is long enough to be sealed before more is appended.
    #[inline]
    #[must_use]
    pub fn tail_is_full(&self) -> bool {
        self.tail.len() >= CHUNK
    }

    /// Seal the tail and begin a new one.
    pub fn seal(&mut self) {
        self.seal_into(Vec::with_capacity(CHUNK));
    }

    fn seal_into(&mut self, next: Vec<u8>) {
        if self.tail.is_empty() {
            return;
        }
        let bytes = std::mem::replace(&mut self.tail, next);
        let items = std::mem::take(&mut self.tail_items);
        let backlog = self.backlog.get_or_insert_default();
        backlog.push_back(Chunk::own(bytes, items));
    }

    /// Append the bytes of an owner from a place on, without a copy. Items of the bytes before count as
    /// sent with these.
    pub fn append_shared(&mut self, owner: Shared, from: u32) {
        let items = std::mem::take(&mut self.tail_items);
        if !self.tail.is_empty() {
            // The bytes before are few: their buffer is for longer ones.
            let bytes = self.tail.as_slice().to_vec();
            self.tail.clear();
            let backlog = self.backlog.get_or_insert_default();
            backlog.push_back(Chunk::own(bytes, 0));
        }
        let backlog = self.backlog.get_or_insert_default();
        backlog.push_back(Chunk {
            bytes: Bytes::Shared(owner, from),
            items,
        });
    }

    /// Forget everything and return the number of items that were not wholly sent.
    pub(crate) fn discard(&mut self, pool: &mut Pool) -> u64 {
        let items = self.items();
        pool.give(std::mem::take(&mut self.tail));
        *self = Self::default();
        items
    }

    /// Give back a buffer that was prepared and not used.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        if self.tail.is_empty() {
            pool.give(std::mem::take(&mut self.tail));
        }
    }

    /// Return the chunk that waits if there is only one, which is the common case.
    #[inline]
    pub(crate) fn single(&self) -> Option<&[u8]> {
        match self.backlog {
            None => Some(&self.tail[self.sent as usize..]),
            Some(_) => None,
        }
    }

    /// Return every chunk that waits, oldest first.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let sealed = self.backlog.iter().flat_map(|backlog| &backlog.chunks);
        sealed
            .map(Chunk::bytes)
            .chain(std::iter::once(self.tail.as_slice()))
            .enumerate()
            .map(|(n, bytes)| {
                if n == 0 {
                    &bytes[self.sent as usize..]
                } else {
                    bytes
                }
            })
            .filter(|bytes| !bytes.is_empty())
    }

    /// Note that the kernel took `count` bytes; return the items that are now wholly sent.
    pub(crate) fn advance(&mut self, mut count: usize, pool: &mut Pool) -> u64 {
        let mut items = 0;
        while let Some(backlog) = &mut self.backlog {
            let Some(front) = backlog.chunks.front() else {
                self.backlog = None;
                break;
            };
            let left = front.len() - self.sent as usize;
            if count < left {
                self.sent += count as u32;
                return items;
            }
            count -= left;
            self.sent = 0;
            if let Some(chunk) = backlog.pop_front() {
                items += u64::from(chunk.items);
                chunk.recycle(pool);
            }
        }
        self.sent += count as u32;
        if self.sent as usize == self.tail.len() {
            self.sent = 0;
            items += u64::from(std::mem::take(&mut self.tail_items));
            pool.give(std::mem::take(&mut self.tail));
        }
        items
    }

    /// Take out what waits, oldest first, as far as one write goes; `None` when nothing waits. The
    /// buffers do not move, and are for the caller to give to the pool or to
    /// [`restore`](Self::restore).
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let sent = std::mem::take(&mut self.sent);
        let Some(backlog) = &mut self.backlog else {
            if self.tail.is_empty() {
                return None;
            }
            let bytes = std::mem::take(&mut self.tail);
            let first = Chunk::own(bytes, std::mem::take(&mut self.tail_items));
            return Some(Taken::new(first, sent));
        };
        let first = backlog.pop_front()?;
        let mut taken = Taken::new(first, sent);
        while taken.len < WRITE_BYTES
            && taken.more.len() + 1 < WRITE_CHUNKS
            && let Some(next) = backlog.pop_front()
        {
            taken.len += next.len();
            taken.more.push(next);
        }
        if backlog.chunks.is_empty() {
            self.backlog = None;
        }
        Some(taken)
    }

    /// Put back what [`take`](Self::take) gave, of which the first `count` bytes have been sent since;
    /// return the items that are now wholly sent.
    pub(crate) fn restore(&mut self, taken: Taken, mut count: usize, pool: &mut Pool) -> u64 {
        let mut items = 0;
        let mut sent = taken.sent as usize;
        let backlog = self.backlog.get_or_insert_default();
        let mut chunks = std::iter::once(taken.first).chain(taken.more).peekable();
        while let Some(chunk) = chunks.next_if(|chunk| count + sent >= chunk.len()) {
            count -= chunk.len() - sent;
            sent = 0;
            items += u64::from(chunk.items);
            chunk.recycle(pool);
        }
        for (n, chunk) in chunks.enumerate() {
            backlog.insert(n, chunk);
        }
        if backlog.chunks.is_empty() {
            self.backlog = None;
        } else {
            self.sent = (sent + count) as u32;
        }
        items
    }

    /// Make the tail ready for appending, from the pool if it owns nothing.
    #[inline]
    pub(crate) fn prepare(&mut self, pool: &mut Pool) {
        if self.tail.capacity() == 0 {
            self.tail = pool.take();
        }
    }

    /// Seal the tail when the socket takes no more: bytes that wait must not hold a large pooled buffer.
    pub(crate) fn settle(&mut self) {
        self.seal_into(Vec::new());
        if let Some(chunk) = self
            .backlog
            .as_mut()
            .and_then(|backlog| backlog.chunks.back_mut())
            && let Bytes::Own(bytes) = &mut chunk.bytes
            && bytes.capacity() > 2 * bytes.len()
        {
            bytes.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn appended(output: &mut Output, pool: &mut Pool, bytes: &[u8]) {
        output.prepare(pool);
        output.tail().extend_from_slice(bytes);
        output.add_items(1);
    }

    #[test]
    fn empty_output_owns_nothing_and_buffers_return_to_the_pool() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        appended(&mut output, &mut pool, b"hello");
        assert_eq!(output.single(), Some(&b"hello"[..]));
        assert_eq!(output.advance(5, &mut pool), 1);
        assert!(output.is_empty());
        assert_eq!(output.tail().capacity(), 0);
        assert_eq!(pool.buffers.len(), 1);
    }

    #[test]
    fn partial_sends_keep_order_and_count_items_by_chunk() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        appended(&mut output, &mut pool, b"abc");
        output.seal();
        appended(&mut output, &mut pool, b"defg");
        appended(&mut output, &mut pool, b"hi");
        assert_eq!((output.len(), output.items()), (9, 3));
        let mut taken = Vec::new();
        for (step, sent_items) in [(2, 0), (2, 1), (4, 0), (1, 2)] {
            let waiting: Vec<u8> = output.chunks().flatten().copied().collect();
            taken.extend_from_slice(&waiting[..step]);
            assert_eq!(output.advance(step, &mut pool), sent_items);
        }
        assert_eq!(taken, b"abcdefghi");
        assert!(output.is_empty());
        assert_eq!(output.len(), 0);
    }

    #[test]
    fn what_was_taken_out_can_be_put_back() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        appended(&mut output, &mut pool, b"abc");
        let taken = output.take().expect("a chunk");
        assert_eq!((taken.front(), taken.len), (&b"abc"[..], 3));
        assert!(output.is_empty() && output.take().is_none());
        appended(&mut output, &mut pool, b"defg");
        assert_eq!(output.restore(taken, 2, &mut pool), 0);
        assert_eq!((output.len(), output.items()), (5, 2));
        let waiting: Vec<u8> = output.chunks().flatten().copied().collect();
        assert_eq!(waiting, b"cdefg");
        let taken = output.take().expect("a chunk");
        assert_eq!((taken.front(), taken.len), (&b"c"[..], 1));
        assert_eq!(output.len(), 4);
        assert_eq!(taken.finish(&mut pool), 1);
        assert_eq!(output.take().expect("the tail").front(), b"defg");
        assert_eq!((output.len(), output.items()), (0, 0));
    }

    #[test]
    fn a_write_cut_short_anywhere_leaves_the_rest_in_order() {
        for count in 0..=9 {
            let (mut output, mut pool) = (Output::default(), Pool::default());
            for bytes in [&b"xabc"[..], b"defg", b"hi"] {
                appended(&mut output, &mut pool, bytes);
                output.seal();
            }
            assert_eq!(output.advance(1, &mut pool), 0);
            let taken = output.take().expect("chunks");
            assert_eq!((taken.len, taken.more.len()), (9, 2));
            appended(&mut output, &mut pool, b"j");
            let items = output.restore(taken, count, &mut pool);
            assert_eq!(items + output.items(), 4, "{count}");
            let waiting: Vec<u8> = output.chunks().flatten().copied().collect();
            assert_eq!(waiting, b"abcdefghij"[count..], "{count}");
            assert_eq!(output.len(), 10 - count);
        }
    }

    #[test]
    fn discarding_tells_what_was_not_sent() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        for _ in 0..3 {
            appended(&mut output, &mut pool, b"xyz");
            output.seal();
        }
        assert_eq!(output.advance(4, &mut pool), 1);
        assert_eq!(output.discard(&mut pool), 2);
        assert!(output.is_empty());
    }

    #[test]
    fn a_blocked_output_gives_back_slack() {
        let (mut output, mut pool) = (Output::default(), Pool::default());
        output.tail = Vec::with_capacity(CHUNK);
        appended(&mut output, &mut pool, b"tiny");
        output.settle();
        let backlog = output.backlog.as_ref().expect("sealed");
        assert!(matches!(&backlog.chunks[0].bytes, Bytes::Own(bytes) if bytes.capacity() < 64));
        assert_eq!(output.len(), 4);
    }

    #[test]
    fn shared_bytes_keep_their_place_and_are_held_until_they_are_sent() {
        let owner: Shared = Arc::new(b"..shared".to_vec());
        let (mut output, mut pool) = (Output::default(), Pool::default());
        appended(&mut output, &mut pool, b"one ");
        output.append_shared(Arc::clone(&owner), 2);
        appended(&mut output, &mut pool, b" two");
        assert_eq!((output.len(), output.own_len(), output.items()), (14, 8, 2));
        let waiting: Vec<u8> = output.chunks().flatten().copied().collect();
        assert_eq!(waiting, b"one shared two");
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(output.advance(5, &mut pool), 0);
        let taken = output.take().expect("chunks");
        assert_eq!((taken.front(), taken.len), (&b"hared"[..], 5));
        assert_eq!(output.restore(taken, 3, &mut pool), 0);
        assert_eq!((output.len(), output.own_len()), (6, 4));
        assert_eq!(output.advance(2, &mut pool), 1);
        assert_eq!(Arc::strong_count(&owner), 1);
        assert_eq!((output.len(), output.own_len(), output.items()), (4, 4, 1));
    }
}
