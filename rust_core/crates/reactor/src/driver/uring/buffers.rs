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

/// The place of received bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    buffer: u16,
    start: u32,
    len: u32,
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
}

impl Pages {
    fn new(bytes: usize) -> io::Result<Self> {
        let page = crate::page_size() as usize;
        let bytes = bytes.max(1).next_multiple_of(page);
        let layout = Layout::from_size_align(bytes, page).map_err(io::Error::other)?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Self { start, layout }),
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// See the module. Must outlive its ring.
pub(super) struct Buffers {
    entries: Pages,
    memory: Pages,
    uses: Box<[Use]>,
    size: u32,
    tail: u16,
}

impl Buffers {
    /// Bytes that are received into.
    pub(super) fn size(&self) -> usize {
        self.memory.layout.size()
    }

    /// Gives `ring` `count` buffers of `size` bytes; `count` is a power of two.
    pub(super) fn new(ring: &IoUring, count: u16, size: u32) -> io::Result<Self> {
        debug_assert!(count.is_power_of_two());
        let count_bytes = usize::from(count);
        let mut buffers = Self {
            entries: Pages::new(count_bytes * size_of::<BufRingEntry>())?,
            memory: Pages::new(count_bytes * size as usize)?,
            uses: vec![Use::default(); usize::from(count)].into_boxed_slice(),
            size,
            tail: 0,
        };
        let address = buffers.entries.start.as_ptr() as u64;
        // SAFETY: the entries are page-aligned and as many as stated. They live until the ring is gone,
        // which is dropped first: what the kernel still has to do for it afterwards runs without this
        // process's memory.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, GROUP, INCREMENTAL)?;
        }
        (0..count).for_each(|buffer| buffers.provide(buffer));
        Ok(buffers)
    }

    /// The place of the bytes of a completed receive; `None` when it used no buffer. To be asked in the
    /// order of completion, once for each.
    #[inline]
    pub(super) fn locate(&mut self, result: i32, flags: u32) -> Option<Piece> {
        let buffer = cqueue::buffer_select(flags)?;
        let len = u32::try_from(result).unwrap_or(0);
        let one = self.uses.get_mut(usize::from(buffer))?;
        let start = one.used;
        one.used = (start + len).min(self.size);
        one.is_done = !cqueue::buffer_more(flags);
        let piece = Piece {
            buffer,
            start,
            len: one.used - start,
        };
        one.lent += 1;
        if len == 0 {
            self.release(piece);
            return None;
        }
        Some(piece)
    }

    /// The bytes themselves.
    #[inline]
    pub(super) fn bytes(&mut self, piece: Piece) -> &mut [u8] {
        let start = usize::from(piece.buffer) * self.size as usize + piece.start as usize;
        // SAFETY: `locate` keeps the range within the buffer, which the kernel has filled so far and
        // does not touch there again before it is provided anew, when all pieces are released; `self`
        // is borrowed meanwhile.
        unsafe {
            let first = self.memory.start.as_ptr().add(start);
            std::slice::from_raw_parts_mut(first, piece.len as usize)
        }
    }

    /// Give a piece back, once.
    #[inline]
    pub(super) fn release(&mut self, piece: Piece) {
        let one = &mut self.uses[usize::from(piece.buffer)];
        one.lent -= 1;
        if one.is_done && one.lent == 0 {
            self.provide(piece.buffer);
        }
    }

    /// Hands a buffer to the kernel.
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
