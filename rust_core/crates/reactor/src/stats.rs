//! Figures of a shard, its thread and its process: bytes sent, system calls, memory, descriptors, time.

use std::time::Duration;

/// Totals of items, bytes and writes that the kernel has taken since the shard began.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sent {
    /// Items wholly sent; see [`crate::Output`].
    pub items: u64,
    /// Bytes.
    pub bytes: u64,
    /// System calls, or submissions, that sent them.
    pub writes: u64,
}

/// System calls of a backend since the shard began; each has those that it makes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Calls {
    /// io_uring_enter(2): all that this backend does with connections.
    pub enter: u64,
    /// epoll_wait(2).
    pub wait: u64,
    /// recv(2) of epoll's; sends are [`Sent::writes`].
    pub receive: u64,
    /// accept(2) of epoll's.
    pub accept: u64,
}

/// Memory of a shard besides its handler's, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Memory {
    /// Slots of connections, sessions included, and their timers.
    pub connections: usize,
    /// Buffers to receive into, and free ones to send from.
    pub buffers: usize,
}

/// File descriptors, or slots of an io_uring's file tables.
#[derive(Debug, Default, Clone, Copy)]
pub struct Descriptors {
    /// Taken by connections and listeners.
    pub used: usize,
    /// The most that there may be.
    pub limit: usize,
}

/// Return the processor time that all threads of this process have used.
#[must_use]
pub fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Return the processor time that the calling thread has used, the kernel's work for it included.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Return the bytes of a memory page.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
