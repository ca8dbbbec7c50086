//! The primitives that a turn is made of, and the drivers that supply them.
//!
//! A driver knows sockets and no handlers: it waits, tells events in their order, reads, writes, and
//! opens and closes sockets. The order of all this, and every decision, stands once in
//! [`turn`](crate::turn).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;

use crate::chunk::Pool;
use crate::conn_id::ConnId;
use crate::connections::{Interest, Socket};
use crate::output::Output;
use crate::stats::{Calls, Sent};

pub(crate) mod epoll;
mod events;
mod kind;
pub(crate) mod uring;

pub(crate) use events::{Event, Events};
pub use kind::{DriverChoice, DriverKind};

/// The lists and totals that a driver works on while it waits.
pub(crate) struct Wait<'a, R> {
    /// Longest time to wait; `None` for ever.
    pub(crate) timeout: Option<Duration>,
    pub(crate) events: &'a mut Events<R>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) sent: &'a mut Sent,
    pub(crate) calls: &'a mut Calls,
    /// Writes of the last turn that were cut short, or failed.
    pub(crate) unsent: &'a mut Vec<Unsent>,
}

/// A write whose outcome became known after its turn.
pub(crate) struct Unsent {
    pub(crate) id: ConnId,
    pub(crate) taken: crate::output::Taken,
    /// Bytes that were sent all the same.
    pub(crate) sent: usize,
    /// Why it failed; `None` when the socket took no more.
    pub(crate) error: Option<Errno>,
}

/// The outcome of a write.
pub(crate) enum Write {
    /// The socket has taken all that was written.
    Whole { bytes: usize, items: u64 },
    /// The socket has taken so much and takes no more now.
    Short { bytes: usize, items: u64 },
    /// So many bytes are on their way. What of them was not sent the next [`Driver::poll`] tells.
    Queued { bytes: usize },
    /// The connection has failed.
    Failed(Errno),
}

/// The outcome of a read.
pub(crate) struct Received<'a> {
    pub(crate) outcome: Outcome<'a>,
    /// The connection is to be armed again.
    pub(crate) rearm: bool,
}

/// The bytes, or the end, that a read brought.
pub(crate) enum Outcome<'a> {
    Bytes(&'a mut [u8]),
    Nothing,
    /// The peer has sent its last byte.
    End,
    Failed(Errno),
}

/// The outcome of holding an event back.
pub(crate) struct Held {
    pub(crate) rearm: bool,
    /// The connection has failed, which no later read would tell in time.
    pub(crate) failed: Option<Errno>,
}

/// The outcome of accepting.
pub(crate) enum Accepted {
    Connection(Socket, SocketAddr),
    /// No connection was there; the driver notes the listener again when one may be.
    Empty,
    /// Descriptors, slots or memory have run out: try again later. The driver has noted the listener.
    Exhausted,
}

/// A way to ask the kernel. An error of any call ends the shard: the driver itself has failed.
pub(crate) trait Driver {
    /// A handle for what an event tells of a connection, used up when the event is handed out.
    type Receipt;

    /// Carry out what the last turn has queued, wait for events, and add them in the order of their
    /// arrival. Return whether the wake-up descriptor must be cleared.
    fn poll(&mut self, wait: Wait<'_, Self::Receipt>) -> io::Result<bool>;

    /// Read what an event announced, at most `limit` bytes if they are still with the kernel. What is left
    /// is queued again. A slice stays valid until [`release`](Self::release).
    fn receive(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        receipt: Self::Receipt,
        limit: usize,
        events: &mut Events<Self::Receipt>,
    ) -> Received<'_>;

    /// Give back the memory of what was read last.
    fn release(&mut self) {}

    /// Give back what the event of a connection that is gone announced.
    fn discard(&mut self, _receipt: Self::Receipt) {}

    /// Keep what an event announced until [`arm`](Self::arm) finds the connection read again. Bytes
    /// that have been received already are forgotten unless `is_kept`.
    fn hold(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        receipt: Self::Receipt,
        is_kept: bool,
    ) -> Held;

    /// Note that the event is handed out which tells that a socket takes bytes.
    fn note_writable(&mut self, id: ConnId, socket: &mut Socket);

    /// Return how many bytes [`hold`](Self::hold) keeps.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Ask for exactly the events of `interest`.
    fn arm(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        interest: Interest,
        events: &mut Events<Self::Receipt>,
    ) -> io::Result<()>;

    /// Write what waits, as far as one write goes. There is something to write.
    fn write(
        &mut self,
        id: ConnId,
        socket: &Socket,
        output: &mut Output,
        pool: &mut Pool,
    ) -> io::Result<Write>;

    /// Return the writes that are on their way as unsent, after the driver has failed.
    fn abandon(&mut self, _unsent: &mut Vec<Unsent>) {}

    /// Accept one connection, and note the listener again if more may wait.
    fn accept(
        &mut self,
        listener: usize,
        events: &mut Events<Self::Receipt>,
    ) -> io::Result<Accepted>;

    /// Stop or resume accepting on one listener. Connections that have been accepted already wait, and so
    /// does what was noted in the events.
    fn set_accepting(&mut self, _listener: usize, _accepting: bool) -> io::Result<()> {
        Ok(())
    }

    /// Stop accepting on one listener for good.
    fn close_listener(&mut self, listener: usize) -> io::Result<()>;

    /// Stop accepting on all listeners for good.
    fn close_listeners(&mut self) -> io::Result<()>;

    /// Begin to establish a connection.
    fn connect(
        &mut self,
        id: ConnId,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<Result<Socket, Errno>>;

    /// Finish what [`connect`](Self::connect) began.
    fn establish(&mut self, socket: &mut Socket) -> Result<(), Errno>;

    /// Say that nothing more will be sent.
    fn end_sending(&mut self, id: ConnId, socket: &Socket) -> io::Result<()>;

    /// Close a socket.
    fn close(&mut self, id: ConnId, socket: Socket) -> io::Result<()>;

    /// Return how many bytes the driver's own buffers take.
    fn buffer_bytes(&self) -> usize;

    /// Return how many connections there is room for, if the driver bounds them.
    fn room(&self) -> Option<usize> {
        None
    }
}
