//! What a shard can say of itself: what it has sent, called, and holds.

use crate::handler::Handler;
use crate::io::Io;
use crate::socket;

/// What the kernel has taken since the shard began.
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

/// What a shard holds in memory besides what its handler does, in bytes.
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

impl<H: Handler> Io<H> {
    /// Memory held for connections.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            connections: self.connections.bytes() + self.timers.bytes(),
            buffers: self.connections.pool.bytes() + self.driver_buffers + self.held_bytes,
        }
    }

    /// Descriptors taken and left.
    #[must_use]
    pub fn descriptors(&self) -> Descriptors {
        Descriptors {
            used: self.connections.len() + self.listeners.iter().flatten().count(),
            limit: self.descriptor_limit,
        }
    }

    /// The most mail that was found waiting at once since this was last called.
    pub fn take_mail_peak(&mut self) -> usize {
        self.post.take_peak()
    }

    /// Connections that wait to be accepted by the listener with this index.
    #[must_use]
    pub fn accept_queue(&self, listener: usize) -> usize {
        let descriptor = self.listeners.get(listener).copied().flatten();
        descriptor.map_or(0, socket::accept_queue)
    }
}
