//! Writes that are on their way: their bytes stay in place until the kernel has carried them out, which it
//! does while they are submitted.

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::token::Token;
use crate::driver::{Unsent, Wait};
use crate::output::Taken;
use crate::slab::ConnId;

/// Sending never waits in the kernel (MSG_DONTWAIT); a write that is cut short fails (MSG_WAITALL), so
/// that it completes although successes are not told.
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;

/// One write.
struct Flight {
    id: ConnId,
    taken: Taken,
    /// The list of its chunks, if there are several.
    list: Option<Box<List>>,
}

/// The arguments of sendmsg(2).
struct List {
    header: libc::msghdr,
    _vectors: Vec<libc::iovec>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Flights(Vec<Option<Flight>>);

impl Flights {
    /// Return the operation that sends `taken`, whose bytes stay here until [`settle`](Self::settle).
    /// It must be submitted before that.
    #[inline]
    pub(super) fn begin(&mut self, id: ConnId, slot: u32, taken: Taken) -> squeue::Entry {
        let token = Token::Send(self.0.len() as u32);
        let mut list = None;
        let entry = if taken.more.is_empty() {
            let bytes = taken.front();
            opcode::Send::new(types::Fixed(slot), bytes.as_ptr(), bytes.len() as u32)
                .flags(FLAGS)
                .build()
        } else {
            let list = list.insert(Box::new(List::new(&taken)));
            opcode::SendMsg::new(types::Fixed(slot), &raw const list.header)
                .flags(FLAGS as u32)
                .build()
        };
        self.0.push(Some(Flight { id, taken, list }));
        entry
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(token.to_bits())
    }

    /// Account for all writes after they have been carried out. `missed` tells the results of those
    /// that were cut short or failed.
    pub(super) fn settle<R>(&mut self, missed: &mut Vec<(u32, i32)>, wait: &mut Wait<'_, R>) {
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
        for Flight { taken, list, .. } in self.0.drain(..).flatten() {
            wait.sent.bytes += taken.len as u64;
            wait.sent.writes += 1;
            wait.sent.items += taken.finish(wait.pool);
            drop(list);
        }
    }

    /// Return all writes as unsent: the driver has failed.
    pub(super) fn abandon(&mut self, unsent: &mut Vec<Unsent>) {
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
        let more = taken.more.iter().map(|chunk| chunk.bytes.as_slice());
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
        header.msg_iovlen = vectors.len();
        Self {
            header,
            _vectors: vectors,
        }
    }
}
