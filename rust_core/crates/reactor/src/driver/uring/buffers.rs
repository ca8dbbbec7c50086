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

/// Where received bytes are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    buffer: u16,
    start: u32,
    len: u32,
    /// Whether the kernel has done with the buffer.
    is_last: bool,
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
    /// Bytes of each buffer that the kernel has used.
    used: Box<[u32]>,
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
            used: vec![0; usize::from(count)].into_boxed_slice(),
            size,
            tail: 0,
        };
        let address = buffers.entries.start.as_ptr() as u64;
        // SAFETY: the entries are page-aligned and as many as stated, and live until the ring is
        // gone, which is dropped first.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, GROUP, INCREMENTAL)?;
        }
        (0..count).for_each(|buffer| buffers.provide(buffer));
        Ok(buffers)
    }

    /// Where the bytes of a completed receive are; `None` when it used no buffer.
    #[inline]
    pub(super) fn locate(&mut self, result: i32, flags: u32) -> Option<Received> {
        let buffer = cqueue::buffer_select(flags)?;
        let len = u32::try_from(result).unwrap_or(0);
        let used = self.used.get_mut(usize::from(buffer))?;
        let start = *used;
        *used = (start + len).min(self.size);
        Some(Received {
            buffer,
            start,
            len: *used - start,
            is_last: !cqueue::buffer_more(flags),
        })
    }

    /// The bytes themselves.
    #[inline]
    pub(super) fn bytes(&mut self, received: Received) -> &mut [u8] {
        let start = usize::from(received.buffer) * self.size as usize + received.start as usize;
        // SAFETY: `locate` keeps the range within the buffer, which the kernel has filled so far and
        // does not touch there again before it is provided anew; `self` is borrowed meanwhile.
        unsafe {
            let first = self.memory.start.as_ptr().add(start);
            std::slice::from_raw_parts_mut(first, received.len as usize)
        }
    }

    /// The bytes are not needed any more. To be called in the order of completion.
    #[inline]
    pub(super) fn release(&mut self, received: Received) {
        if received.is_last {
            self.provide(received.buffer);
        }
    }

    /// Hands a buffer to the kernel.
    fn provide(&mut self, buffer: u16) {
        let mask = self.used.len() as u16 - 1;
        self.used[usize::from(buffer)] = 0;
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
