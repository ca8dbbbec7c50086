//! What the two processes publish for the coordinator, in memory that all three share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::failure::{Context, Failure};
use crate::histogram::Histogram;

/// Written by the server. All counts are of events since the beginning.
#[repr(C, align(128))]
pub(crate) struct ServerCounts {
    /// Workers whose listeners are open.
    pub(crate) listening: AtomicU32,
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// Written by the load.
#[repr(C, align(128))]
pub(crate) struct LoadCounts {
    pub(crate) connected: AtomicU64,
    /// Attempts to connect that failed and were repeated.
    pub(crate) retried: AtomicU64,
    /// Users or subscribers whose greeting is over.
    pub(crate) greeted: AtomicU64,
    /// Replies or deliveries that are to come for what has been sent.
    pub(crate) expected: AtomicU64,
    /// Replies or deliveries that have come.
    pub(crate) arrived: AtomicU64,
    /// Messages that all subscribers have.
    pub(crate) messages: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// From a message's first receipt to its last, nanoseconds.
    pub(crate) spread: Histogram,
}

/// See the module. All zeros is the state before the run.
#[repr(C)]
pub(crate) struct Board {
    pub(crate) server: ServerCounts,
    pub(crate) load: LoadCounts,
}

impl Board {
    /// A board that processes forked later share. It is never unmapped: there is one for each run of
    /// the program.
    pub(crate) fn shared() -> Result<&'static Self, Failure> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                size_of::<Self>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }
        .context("map shared memory")?;
        // SAFETY: the mapping is page-aligned, as large as a Board, all zeros, which is a valid Board
        // as it consists of atomic integers, and lives until the process ends. Processes that share
        // it only touch it through these atomics.
        Ok(unsafe { &*memory.cast::<Self>() })
    }

    /// Connections that the server has.
    pub(crate) fn open_connections(&self) -> u64 {
        let closed = self.server.closed.load(Ordering::Relaxed);
        let accepted = self.server.accepted.load(Ordering::Relaxed);
        accepted.saturating_sub(closed)
    }

    /// Connections that exist for the load but that the server has not accepted yet.
    pub(crate) fn waiting_connections(&self) -> u64 {
        let accepted = self.server.accepted.load(Ordering::Relaxed);
        let connected = self.load.connected.load(Ordering::Relaxed);
        connected.saturating_sub(accepted)
    }

    /// Replies or deliveries under way.
    pub(crate) fn outstanding(&self) -> u64 {
        let arrived = self.load.arrived.load(Ordering::Relaxed);
        let expected = self.load.expected.load(Ordering::Relaxed);
        expected.saturating_sub(arrived)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.server.errors.load(Ordering::Relaxed) + self.load.errors.load(Ordering::Relaxed)
    }
}
