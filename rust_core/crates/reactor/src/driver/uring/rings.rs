//! The rings of one thread, which waits for all of them at once.

use std::io;
use std::ops::{Index, IndexMut};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::buffers::Piece;
use super::pace::{self, Pace};
use super::ring::{Ring, RingSize};
use crate::connections::Socket;
use crate::fdtable;
use crate::stats::thread_cpu_time;

/// Files that the kernel lets one table have, IORING_MAX_FIXED_FILES.
const MAX_FILES: u64 = 1 << 20;

/// Find out whether the kernel permits what this driver needs.
///
/// # Errors
/// It does not: io_uring is missing, forbidden, or older than Linux 6.12.
pub(crate) fn probe() -> io::Result<()> {
    // As large as any ring but for its file table: a limit may refuse the memory.
    let size = ring_size(1, 1);
    // A ring belongs to the thread that made it.
    let attempt = std::thread::Builder::new().spawn(move || Ring::new(0, size).map(drop))?;
    let died = |_| Err(io::Error::other("the attempt panicked"));
    attempt.join().unwrap_or_else(died)
}

/// Return how many rings `connections` connections need.
fn rings_for(connections: usize) -> usize {
    let files = fdtable::limit().clamp(1, MAX_FILES);
    connections.div_ceil(files as usize).max(1)
}

/// Return the size of each of `rings` rings that hold `connections` connections in all.
fn ring_size(rings: usize, connections: usize) -> RingSize {
    let is_single = rings == 1;
    RingSize {
        submissions: if is_single { 4096 } else { 512 },
        completions: if is_single { 16_384 } else { 4096 },
        files: connections.max(1).div_ceil(rings) as u32,
        buffers: if is_single { 16 } else { 4 },
        buffer_bytes: 32 * 1024,
    }
}

/// All rings of a thread. The first ring is there until [`close`](Self::close).
pub(super) struct Rings {
    all: Vec<Ring>,
    pace: Pace,
}

impl Index<u16> for Rings {
    type Output = Ring;

    #[inline]
    fn index(&self, ring: u16) -> &Ring {
        &self.all[usize::from(ring)]
    }
}

impl IndexMut<u16> for Rings {
    #[inline]
    fn index_mut(&mut self, ring: u16) -> &mut Ring {
        &mut self.all[usize::from(ring)]
    }
}

impl Rings {
    /// Make rings with room for `connections` connections. All but the first signal `wake`.
    pub(super) fn new(wake: RawFd, connections: usize) -> io::Result<Self> {
        let count = rings_for(connections);
        let size = ring_size(count, connections);
        let mut all = (0..count)
            .map(|index| Ring::new(index as u16, size))
            .collect::<io::Result<Vec<_>>>()?;
        for ring in all.iter_mut().skip(1) {
            ring.register_wakeup(wake)?;
        }
        Ok(Self {
            all,
            pace: Pace::new(Instant::now(), thread_cpu_time()),
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Ring> {
        self.all.iter()
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.all.iter_mut()
    }

    /// Close all rings after a failure; nothing can be submitted any more.
    pub(super) fn close(&mut self) {
        self.all.clear();
    }

    /// Give a piece of a buffer back to its ring.
    #[inline]
    pub(super) fn release(&mut self, piece: Piece) {
        self[piece.ring()].buffers.release(piece);
    }

    /// Submit everything, and wait for completions for at most `timeout`; `None` for ever.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enter_others()?;
        let is_wanted = self.all.iter().any(|ring| ring.meter.is_wanted());
        if timeout == Some(Duration::ZERO) || is_wanted || self.have_completions() {
            self.all[0].enter()?;
        } else {
            self.sleep(timeout)?;
        }
        self.pace.note(Instant::now(), thread_cpu_time);
        Ok(())
    }

    /// Enter every ring but the first that has something to submit or to run.
    fn enter_others(&mut self) -> io::Result<()> {
        for ring in &mut self.all[1..] {
            if ring.has_work() {
                ring.enter()?;
            }
        }
        Ok(())
    }

    fn have_completions(&mut self) -> bool {
        self.all[1..].iter_mut().any(Ring::has_completions)
    }

    /// Wait in the first ring. A busy thread first lets a batch gather: fewer passes through the
    /// kernel for each message is what makes messages cheap.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut batch = self.pace.batch();
        if let Some(timeout) = timeout {
            batch = batch.min(timeout);
        }
        if !batch.is_zero() {
            self.all[0].wait(pace::BATCH, Some(batch))?;
            self.enter_others()?;
            if self.have_completions() || self.all[0].has_completions() {
                return Ok(());
            }
        }
        self.all[1..]
            .iter_mut()
            .for_each(|ring| ring.enable_wakeup(true));
        // Completions from before the wake-up was enabled must be seen below.
        fence(Ordering::SeqCst);
        let is_idle = !self.all[1..].iter_mut().any(Ring::has_work);
        if is_idle && !self.have_completions() {
            let left = timeout.map(|timeout| timeout.saturating_sub(batch));
            self.all[0].wait(1, left)?;
        } else {
            self.all[0].enter()?;
        }
        self.all[1..]
            .iter_mut()
            .for_each(|ring| ring.enable_wakeup(false));
        self.enter_others()
    }

    /// Return the ring with the most room, if any has some.
    pub(super) fn with_room(&self) -> Option<u16> {
        let rooms = self.all.iter().map(Ring::room).enumerate();
        let (ring, room) = rooms.max_by_key(|(n, room)| (*room, usize::MAX - n))?;
        (room > 0).then_some(ring as u16)
    }

    /// Move a descriptor to a slot of the ring with the most room.
    pub(super) fn install(&mut self, fd: OwnedFd) -> Result<Socket, Errno> {
        let ring = self.with_room().ok_or(Errno::NFILE)?;
        match self.all[usize::from(ring)].install(fd) {
            Ok(slot) => Ok(Socket::Direct { slot, ring, ops: 0 }),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}
