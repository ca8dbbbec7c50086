//! Writes that are on their way: their bytes stay in place until the kernel has carried them out, which it
//! does while they are submitted.

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::token::Token;
use crate::chunk::Chunk;
use crate::conn_id::ConnId;
use crate::driver::{Unsent, Wait};
use crate::output::Taken;
use crate::shrink::give_back_list;

/// Sending never waits in the kernel (MSG_DONTWAIT); a write that is cut short fails (MSG_WAITALL), so
/// that it completes although successes are not told.
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;

/// One write.
struct Flight {
    id: ConnId,
    taken: Taken,
    /// The list of its chunks if there are several. A box would be claimed anew when it is moved, and the
    /// pointer to it would be void; what a vector owns may be pointed to while the vector is moved.
    _list: Vec<List>,
}

/// The arguments of sendmsg(2).
#[repr(C)]
struct List {
    header: libc::msghdr,
    _vectors: Vec<libc::iovec>,
}

/// The writes that are on their way; see the module.
#[derive(Default)]
pub(super) struct Flights(Vec<Option<Flight>>);

impl Flights {
    /// Return the operation that sends `taken`. Its bytes stay in place until [`settle`](Self::settle) or
    /// [`abandon`](Self::abandon).
    #[inline]
    pub(super) fn begin(&mut self, id: ConnId, slot: u32, taken: Taken) -> squeue::Entry {
        let token = Token::Send(self.0.len() as u32);
        let mut list = Vec::new();
        let entry = if taken.more.is_empty() {
            let bytes = taken.front();
            opcode::Send::new(types::Fixed(slot), bytes.as_ptr(), bytes.len() as u32)
                .flags(FLAGS)
                .build()
        } else {
            list.push(List::new(&taken));
            // A list begins with its header.
            opcode::SendMsg::new(types::Fixed(slot), list.as_ptr().cast())
                .flags(FLAGS as u32)
                .build()
        };
        self.0.push(Some(Flight {
            id,
            taken,
            _list: list,
        }));
        entry
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(token.to_bits())
    }

    /// Account for all writes after they have been carried out. `missed` tells the results of those
    /// that were cut short or failed.
    ///
    /// # Safety
    /// Every operation that [`begin`](Self::begin) has returned since the last call has been submitted, or
    /// never will be.
    pub(super) unsafe fn settle<R>(
        &mut self,
        missed: &mut Vec<(u32, i32)>,
        wait: &mut Wait<'_, R>,
    ) {
        for (flight, result) in missed.drain(..) {
            if let Some(Flight { id, taken, .. }) =
                self.0.get_mut(flight as usize).and_then(Option::take)
            {
                let is_failure = !matches!(-result, (..=0) | libc::EAGAIN | libc::EINTR);
                wait.unsent.push(Unsent {
                    id,
                    sent: usize::try_from(result).unwrap_or(0).min(taken.len),
                    taken,
                    error: is_failure.then(|| Errno::from_raw_os_error(-result)),
                });
            }
        }
        for Flight { taken, .. } in self.0.drain(..).flatten() {
            wait.sent.bytes += taken.len as u64;
            wait.sent.writes += 1;
            wait.sent.items += taken.finish(wait.pool);
        }
        give_back_list(&mut self.0);
        give_back_list(missed);
    }

    /// Return all writes as unsent: the driver has failed.
    ///
    /// # Safety
    /// No operation that [`begin`](Self::begin) has returned will be submitted any more.
    pub(super) unsafe fn abandon(&mut self, unsent: &mut Vec<Unsent>) {
        let all = self.0.drain(..).flatten();
        unsent.extend(all.map(|Flight { id, taken, .. }| Unsent {
            id,
            taken,
            sent: 0,
            error: None,
        }));
    }
}

impl List {
    fn new(taken: &Taken) -> Self {
        let more = taken.more.iter().map(Chunk::bytes);
        let vectors: Vec<libc::iovec> = std::iter::once(taken.front())
            .chain(more)
            .map(|bytes| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            })
            .collect();
        // SAFETY: zero is a value of all fields.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = vectors.as_ptr().cast_mut();
        // A size_t in glibc, an int in musl.
        header.msg_iovlen = vectors.len() as _;
        Self {
            header,
            _vectors: vectors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Pool;
    use crate::driver::Events;
    use crate::output::Output;
    use crate::stats::{Calls, Sent};

    /// Fields of an io_uring_sqe in io_uring_enter(2), as far as a send uses them.
    #[repr(C)]
    struct Submission {
        _op: [u64; 2],
        address: u64,
        len: u32,
        _flags: u32,
        token: u64,
        _more: [u64; 3],
    }

    /// Return the bytes that the kernel would send.
    fn sent(entry: &squeue::Entry) -> Vec<u8> {
        assert_eq!(size_of::<squeue::Entry>(), size_of::<Submission>());
        // SAFETY: an entry is an io_uring_sqe of 64 bytes, all of them initialised.
        let submission: &Submission = unsafe { &*(&raw const *entry).cast() };
        let pointed = std::ptr::with_exposed_provenance::<u8>(submission.address as usize);
        let bytes = |start: *const u8, len: usize| {
            // SAFETY: the bytes are in the flights.
            unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
        };
        if submission.len > 1 {
            return bytes(pointed, submission.len as usize);
        }
        // SAFETY: sendmsg(2) has one header, which is in the flights with its vectors.
        let vectors = unsafe {
            let header: &libc::msghdr = &*pointed.cast();
            std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen)
        };
        let parts = vectors.iter();
        let parts = parts.flat_map(|vector| bytes(vector.iov_base.cast(), vector.iov_len));
        parts.collect()
    }

    /// Take a write of so many chunks, each of three bytes, out of an output.
    fn taken(n: u8, chunks: usize, pool: &mut Pool) -> Taken {
        let mut output = Output::default();
        for _ in 0..chunks {
            output.prepare(pool);
            output.tail().extend([n; 3]);
            output.add_items(1);
            output.seal();
        }
        output.take().expect("chunks")
    }

    #[test]
    fn the_kernel_finds_all_bytes_until_they_are_settled() {
        let mut pool = Pool::default();
        let mut flights = Flights::default();
        for round in 0..3 {
            let entries: Vec<_> = (0..40)
                .map(|n| flights.begin(ConnId::NONE, 0, taken(n, 1 + n as usize % 3, &mut pool)))
                .collect();
            for (n, entry) in (0..).zip(&entries) {
                assert_eq!(sent(entry), vec![n; 3 * (1 + n as usize % 3)], "{round}");
            }
            let mut unsent = Vec::new();
            let mut totals = Sent::default();
            let mut wait = Wait {
                timeout: None,
                events: &mut Events::<()>::new(),
                pool: &mut pool,
                sent: &mut totals,
                calls: &mut Calls::default(),
                unsent: &mut unsent,
            };
            let mut missed = vec![(2, 4), (5, -libc::EPIPE), (7, -libc::EAGAIN)];
            // SAFETY: the entries are submitted nowhere.
            unsafe { flights.settle(&mut missed, &mut wait) };
            let told: Vec<_> = unsent.iter().map(|one| (one.sent, one.error)).collect();
            assert_eq!(told, [(4, None), (0, Some(Errno::PIPE)), (0, None)]);
            assert_eq!(totals.writes, 37);
            assert_eq!(totals.items, 79 - 3 - 3 - 2);
            assert_eq!(totals.bytes, 3 * totals.items);
        }
        flights.begin(ConnId::NONE, 0, taken(1, 2, &mut pool));
        let mut unsent = Vec::new();
        // SAFETY: as before.
        unsafe { flights.abandon(&mut unsent) };
        assert_eq!(unsent.len(), 1);
        assert_eq!((unsent[0].sent, unsent[0].taken.len), (0, 6));
    }
}
