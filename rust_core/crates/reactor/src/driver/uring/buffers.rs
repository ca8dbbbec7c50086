//! The buffers of one ring that the kernel receives into: few and large, each used up piece by
//! piece (IOU_PBUF_RING_INC, io_uring_register_buf_ring(3)), so that a short message takes no more
//! than its length and a long one need not be cut.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{IoUring, cqueue};

/// The only group of buffers.
pub(super) const GROUP: u16 = 0;

/// IOU_PBUF_RING_INC.
const INCREMENTAL: u16 = 2;

/// The place of received bytes. There is one for each receive, and it is used up when it is given back.
#[derive(Debug)]
pub(crate) struct Piece {
    ring: u16,
    buffer: u16,
    start: u32,
    len: u32,
}

impl Piece {
    /// Return the ring that the buffer belongs to.
    pub(super) fn ring(&self) -> u16 {
        self.ring
    }
}

/// The state of one buffer.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    /// Bytes that the kernel has used.
    used: u32,
    /// Pieces that have not been released.
    lent: u32,
    /// The kernel has done with it.
    is_done: bool,
}

/// Zeroed memory that starts on a page.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
    is_leaked: bool,
}

impl Pages {
    fn new(bytes: usize) -> io::Result<Self> {
        let page = crate::stats::page_size() as usize;
        let bytes = bytes.max(1).next_multiple_of(page);
        let layout = Layout::from_size_align(bytes, page).map_err(io::Error::other)?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Self {
                start,
                layout,
                is_leaked: false,
            }),
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.is_leaked {
            // SAFETY: allocated with this layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// The receive buffers of a ring; see the module.
///
/// The kernel writes to the buffers only while it carries out a receive. It does so within this thread's
/// calls of io_uring_enter(2), since the ring is made with IORING_SETUP_DEFER_TASKRUN. Those calls borrow
/// the [`Ring`](super::ring::Ring) that owns the buffers, so no slice of them is alive meanwhile.
pub(super) struct Buffers {
    entries: Pages,
    memory: Pages,
    /// The index of the ring that they belong to.
    ring: u16,
    uses: Box<[Use]>,
    size: u32,
    tail: u16,
    /// Bytes in pieces that have not been released.
    lent: usize,
}

impl Buffers {
    /// Allocate `count` buffers of `size` bytes for the ring with index `ring`, and provide them;
    /// `count` is a power of two.
    fn unregistered(ring: u16, count: u16, size: u32) -> io::Result<Self> {
        debug_assert!(count.is_power_of_two());
        let count_bytes = usize::from(count);
        let mut buffers = Self {
            entries: Pages::new(count_bytes * size_of::<BufRingEntry>())?,
            memory: Pages::new(count_bytes * size as usize)?,
            ring,
            uses: vec![Use::default(); usize::from(count)].into_boxed_slice(),
            size,
            tail: 0,
            lent: 0,
        };
        (0..count).for_each(|buffer| buffers.provide(buffer));
        Ok(buffers)
    }

    /// Give `ring` `count` buffers of `size` bytes; `count` is a power of two and `index` the ring's
    /// index. They must be [unregistered](Self::unregister) before they are dropped.
    pub(super) fn register(ring: &IoUring, index: u16, count: u16, size: u32) -> io::Result<Self> {
        let buffers = Self::unregistered(index, count, size)?;
        let address = buffers.entries.start.as_ptr() as u64;
        // SAFETY: the entries start on a page, are as many as stated, and point into `memory`. Both live
        // until the kernel has let go of them, see `unregister`.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, GROUP, INCREMENTAL)?;
        }
        Ok(buffers)
    }

    /// Take the buffers from the kernel. Memory that it does not let go of is never freed.
    pub(super) fn unregister(&mut self, ring: &IoUring) {
        if ring.submitter().unregister_buf_ring(GROUP).is_err() {
            self.entries.is_leaked = true;
            self.memory.is_leaked = true;
        }
    }

    /// Return how many bytes there are to receive into.
    pub(super) fn size(&self) -> usize {
        self.memory.layout.size()
    }

    /// Return how many bytes are in pieces that have not been released.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    /// Return the place of the bytes of a completed receive; `None` when it used no buffer. To be asked in
    /// the order of completion, once for each.
    #[inline]
    pub(super) fn locate(&mut self, result: i32, flags: u32) -> Option<Piece> {
        let buffer = cqueue::buffer_select(flags)?;
        let len = u32::try_from(result).unwrap_or(0);
        let one = self.uses.get_mut(usize::from(buffer))?;
        let start = one.used;
        one.used = start.saturating_add(len).min(self.size);
        one.is_done = !cqueue::buffer_more(flags);
        one.lent += 1;
        let piece = Piece {
            ring: self.ring,
            buffer,
            start,
            len: one.used - start,
        };
        self.lent += piece.len as usize;
        if piece.len == 0 {
            self.release(piece);
            return None;
        }
        Some(piece)
    }

    /// Return the bytes of a piece.
    #[inline]
    pub(super) fn bytes(&mut self, piece: &Piece) -> &mut [u8] {
        assert_eq!(piece.ring, self.ring, "a piece of another ring");
        let start = usize::from(piece.buffer) * self.size as usize + piece.start as usize;
        // SAFETY: the piece is one of these buffers', made by `locate`, which keeps it within its buffer.
        // The memory is initialised from the start, and the kernel does not write to it while `self` is
        // borrowed, see above.
        unsafe {
            let first = self.memory.start.as_ptr().add(start);
            std::slice::from_raw_parts_mut(first, piece.len as usize)
        }
    }

    /// Give a piece back.
    #[inline]
    pub(super) fn release(&mut self, piece: Piece) {
        assert_eq!(piece.ring, self.ring, "a piece of another ring");
        self.lent -= piece.len as usize;
        let one = &mut self.uses[usize::from(piece.buffer)];
        one.lent -= 1;
        if one.is_done && one.lent == 0 {
            self.provide(piece.buffer);
        }
    }

    /// Hand a buffer to the kernel.
    fn provide(&mut self, buffer: u16) {
        let mask = self.uses.len() as u16 - 1;
        self.uses[usize::from(buffer)] = Use::default();
        // SAFETY: the index is within the entries, the buffer within the memory; the kernel reads
        // the entry after the tail has passed it, and not before.
        unsafe {
            let entries = self.entries.start.as_ptr().cast::<BufRingEntry>();
            let entry = &mut *entries.add(usize::from(self.tail & mask));
            let first = usize::from(buffer) * self.size as usize;
            entry.set_addr(self.memory.start.as_ptr().add(first) as u64);
            entry.set_len(self.size);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(entries).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const COUNT: u16 = 4;
    const SIZE: u32 = 64;
    /// Flags of a completion, see io_uring_prep_recv_multishot(3).
    const HAS_BUFFER: u32 = 1;
    const BUFFER_MORE: u32 = 1 << 4;

    /// The kernel's side of a ring of buffers.
    #[derive(Default)]
    struct Kernel {
        head: u16,
        /// Bytes of the buffer at the head that are used.
        used: u32,
        next: u8,
    }

    impl Kernel {
        /// Receive `len` bytes, or as many as the buffer at the head takes; return the completion and the
        /// bytes. `None` when no buffer is left.
        fn receive(&mut self, buffers: &mut Buffers, len: u32) -> Option<(i32, u32, Vec<u8>)> {
            if self.head == buffers.tail {
                return None;
            }
            let entries = buffers.entries.start.as_ptr().cast::<BufRingEntry>();
            // SAFETY: within the entries.
            let entry = unsafe { &*entries.add(usize::from(self.head % COUNT)) };
            let len = len.min(entry.len() - self.used);
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    self.next = self.next.wrapping_add(1);
                    self.next
                })
                .collect();
            let to = std::ptr::with_exposed_provenance_mut::<u8>(entry.addr() as usize);
            // SAFETY: the entry says that so many bytes are there to be written.
            unsafe {
                to.add(self.used as usize)
                    .copy_from(bytes.as_ptr(), bytes.len())
            };
            let mut flags = HAS_BUFFER | u32::from(entry.bid()) << 16;
            self.used += len;
            if self.used < entry.len() {
                flags |= BUFFER_MORE;
            } else {
                self.head = self.head.wrapping_add(1);
                self.used = 0;
            }
            Some((len as i32, flags, bytes))
        }
    }

    #[test]
    fn pieces_are_where_the_kernel_put_them_in_any_order_of_release() {
        let mut buffers = Buffers::unregistered(3, COUNT, SIZE).expect("memory");
        let mut kernel = Kernel::default();
        let mut lent: VecDeque<(Piece, Vec<u8>)> = VecDeque::new();
        let mut random = 1u32;
        let mut below = |bound: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % bound
        };
        let (mut received, mut scarce) = (0, 0);
        for _ in 0..if cfg!(miri) { 1000 } else { 20_000 } {
            match kernel.receive(&mut buffers, 1 + below(2 * SIZE)) {
                Some((result, flags, bytes)) => {
                    let piece = buffers.locate(result, flags).expect("bytes");
                    received += 1;
                    lent.push_back((piece, bytes));
                }
                None => scarce += 1,
            }
            while !lent.is_empty() && below(3) > 0 {
                let chosen = below(lent.len() as u32) as usize;
                let (piece, bytes) = lent.remove(chosen).expect("there");
                assert_eq!(buffers.bytes(&piece), bytes);
                // A handler may write to them.
                buffers.bytes(&piece).fill(0);
                buffers.release(piece);
            }
            let held: usize = lent.iter().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!(buffers.lent(), held);
        }
        assert!(received > 100 && scarce > 10, "{received}, {scarce}");
        for (piece, bytes) in lent {
            assert_eq!(buffers.bytes(&piece), bytes);
            buffers.release(piece);
        }
        assert_eq!(
            (buffers.lent(), kernel.receive(&mut buffers, 1).is_some()),
            (0, true)
        );
    }

    #[test]
    fn a_receive_without_bytes_or_buffer_has_no_piece() {
        let mut buffers = Buffers::unregistered(0, COUNT, SIZE).expect("memory");
        assert!(buffers.locate(-libc::ENOBUFS, 0).is_none());
        assert!(buffers.locate(0, HAS_BUFFER | BUFFER_MORE).is_none());
        assert!(
            buffers
                .locate(1, HAS_BUFFER | u32::from(COUNT) << 16)
                .is_none()
        );
        assert_eq!(buffers.lent(), 0);
        // More than fits is never said; it would not leave the buffer.
        let piece = buffers.locate(i32::MAX, HAS_BUFFER).expect("bytes");
        assert_eq!(buffers.bytes(&piece).len(), SIZE as usize);
        buffers.release(piece);
    }

    #[test]
    #[should_panic(expected = "a piece of another ring")]
    fn a_piece_of_another_ring_is_refused() {
        let mut one = Buffers::unregistered(0, COUNT, SIZE).expect("memory");
        let mut other = Buffers::unregistered(1, COUNT, SIZE).expect("memory");
        let piece = one.locate(8, HAS_BUFFER | BUFFER_MORE).expect("bytes");
        other.bytes(&piece);
    }
}
