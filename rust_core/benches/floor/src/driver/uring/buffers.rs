//! Receive buffers that the kernel picks from: a ring of them shared with it, see
//! io_uring_register_buf_ring(3).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::failure::{Context, Failure};

/// Buffers of one size, each either the kernel's or, between a completion and
/// [`recycle`](Self::recycle), ours.
pub(super) struct Buffers {
    ring: Mapping,
    data: Mapping,
    group: u16,
    /// A power of two.
    count: u16,
    size: usize,
    tail: u16,
}

impl Buffers {
    /// Registers `count` (a power of two) buffers of `size` bytes with `io` as `group`.
    ///
    /// They must be dropped after `io`, or after everything that receives into them is over.
    pub(super) fn register(
        io: &IoUring,
        group: u16,
        count: u16,
        size: usize,
    ) -> Result<Self, Failure> {
        debug_assert!(count.is_power_of_two());
        let mut buffers = Self {
            ring: Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?,
            data: Mapping::new(usize::from(count) * size)?,
            group,
            count,
            size,
            tail: 0,
        };
        let address = buffers.ring.start.as_ptr() as u64;
        let submitter = io.submitter();
        // SAFETY: the mapping has room for `count` entries, is page-aligned, and lives as long as `io`
        // uses it, which the caller guarantees.
        unsafe { submitter.register_buf_ring_with_flags(address, count, group, 0) }
            .context(format!("register {count} receive buffers of {size} bytes"))?;
        (0..count).for_each(|id| buffers.recycle(id));
        buffers.publish();
        Ok(buffers)
    }

    pub(super) fn group(&self) -> u16 {
        self.group
    }

    /// The first `length` bytes of buffer `id`, which a completion has named together with them.
    pub(super) fn get(&self, id: u16, length: usize) -> &[u8] {
        assert!(id < self.count && length <= self.size);
        // SAFETY: inside the mapping, as checked, and initialised: it began as zeros. The kernel has
        // handed this buffer over with the completion and writes to it again only when it has been
        // recycled, which takes `&mut self`, so that the slice is gone by then.
        unsafe {
            let start = self.data.start.as_ptr().cast::<u8>();
            std::slice::from_raw_parts(start.add(usize::from(id) * self.size), length)
        }
    }

    /// Returns buffer `id`; the kernel sees it after [`publish`](Self::publish).
    pub(super) fn recycle(&mut self, id: u16) {
        assert!(id < self.count);
        let slot = usize::from(self.tail & (self.count - 1));
        // SAFETY: `slot` and `id` are inside their mappings. There are as many entries as buffers, so
        // that the entry at the tail is not one that the kernel may read.
        unsafe {
            let data = self.data.start.as_ptr().cast::<u8>();
            let entry = &mut *self.ring.start.as_ptr().cast::<BufRingEntry>().add(slot);
            entry.set_addr(data.add(usize::from(id) * self.size) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what has been recycled.
    pub(super) fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, in a part that `recycle` does not write; it is
        // aligned, and the kernel only reads it.
        unsafe {
            let tail = BufRingEntry::tail(self.ring.start.as_ptr().cast());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Ordering::Release);
        }
    }
}

/// Private memory, page-aligned, zeros at first.
struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

impl Mapping {
    fn new(length: usize) -> Result<Self, Failure> {
        let what = || format!("map {length} bytes of memory");
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .context(what())?;
        let start =
            NonNull::new(start).ok_or_else(|| Failure::new(format!("cannot {}", what())))?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and whoever lent parts of it has dropped them.
        // Nothing can be done about an error.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}
