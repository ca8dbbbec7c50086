//! A shard's connections and their pending output.

use std::fmt;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use slab::Slab;

use crate::chunk::Pool;
use crate::conn_id::{ConnId, Uses};
use crate::output::Output;

/// The stages of a connection's life, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// Sends what is pending, then ends.
    Closing,
    /// Has sent everything and waits for the peer's EOF, so that the peer reads our last bytes
    /// rather than a reset.
    Lingering,
    /// The peer has sent its last byte; the answers to it get one write.
    PeerClosed,
    /// Ends at the end of this turn, whatever is pending.
    Aborting,
}

/// The driver's part of a connection.
pub(crate) enum Socket {
    /// Nothing yet.
    None,
    /// A file descriptor, and whether epoll knows it.
    Descriptor { fd: OwnedFd, is_registered: bool },
    /// A slot in the file table of an io_uring, with the operations that are under way.
    Direct { slot: u32, ring: u16, ops: u8 },
    /// One end of a simulated connection, by its number, and whether an event of it waits until the
    /// connection is read again.
    #[cfg(feature = "sim")]
    Simulated { end: u32, has_held: bool },
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self::Descriptor {
            fd,
            is_registered: false,
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn simulated(end: usize) -> Self {
        Self::Simulated {
            end: end as u32,
            has_held: false,
        }
    }
}

/// The events that a connection's state calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Received bytes and the peer's end.
    pub(crate) read: bool,
    /// Room for pending output, or the end of an attempt to connect.
    pub(crate) write: bool,
}

/// One connection.
pub struct Conn<S> {
    /// The handler's state.
    pub session: S,
    /// Bytes to be written at the end of the turn.
    pub output: Output,
    /// Bytes that the kernel has taken, modulo 2^32: tells whether a blocked peer makes progress.
    pub taken: u32,
    pub(crate) socket: Socket,
    /// Its part of [`Connections::backlog`].
    backlog: u32,
    /// Its part of [`Connections::own_backlog`].
    own_backlog: u32,
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    pub(crate) linger_rounds: u8,
    /// [`Conn::taken`] when the linger timer was set.
    pub(crate) linger_mark: u32,
    /// Whether the connection is in the list of those to be visited at the end of the turn.
    touched: bool,
    /// Whether its output was appended to in this turn.
    pub(crate) appended: bool,
    /// Whether a write has left bytes pending that are not all taken yet.
    pub(crate) blocked: bool,
    /// Whether the socket may take bytes, as far as is known.
    pub(crate) ready: bool,
    /// The reason for the failure of a write.
    pub(crate) failure: Option<Errno>,
}

impl<S> fmt::Debug for Conn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (paused, blocked, ready) = (self.paused, self.blocked, self.ready);
        write!(
            f,
            "{:?}, paused {paused}, blocked {blocked}, ready {ready}",
            self.phase
        )
    }
}

impl<S> Conn<S> {
    /// Return whether bytes may still be appended to be sent.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Return the bytes that wait because the socket has stopped taking them, as counted at the end of a turn.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.backlog as usize
    }

    /// Return whether the socket has stopped taking bytes.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn interest(&self) -> Interest {
        let (read, write) = match self.phase {
            Phase::Connecting => (false, true),
            Phase::Open => (!self.paused, !self.ready),
            Phase::Closing => (false, !self.ready),
            Phase::Lingering => (true, false),
            Phase::PeerClosed | Phase::Aborting => (false, false),
        };
        let write = write && self.failure.is_none();
        Interest { read, write }
    }
}

/// The connections of one shard.
pub struct Connections<S> {
    slab: Slab<Conn<S>, Uses>,
    pub(crate) pool: Pool,
    pub(crate) touched: Vec<ConnId>,
    /// Connections that are to end at the end of this turn.
    pub(crate) aborted: Vec<ConnId>,
    backlog: usize,
    own_backlog: usize,
    /// Connections whose part of the backlog has passed a power of two, up or down.
    resized: Vec<ConnId>,
}

impl<S> Default for Connections<S> {
    fn default() -> Self {
        Self {
            slab: Slab::default(),
            pool: Pool::default(),
            touched: Vec::new(),
            aborted: Vec::new(),
            backlog: 0,
            own_backlog: 0,
            resized: Vec::new(),
        }
    }
}

impl<S> Connections<S> {
    /// Return the number of connections, those being established or closed included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Return whether there is no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Return how many bytes wait for sockets which take no more, all connections together.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Return the bytes of memory that wait so: those that several outputs hold together are not in it.
    #[must_use]
    pub fn own_backlog(&self) -> usize {
        self.own_backlog
    }

    /// Take the connections for which the bytes that wait have passed a power of two, up or down, since
    /// this was last called. A connection may stand there twice, or be gone.
    pub fn take_resized(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.resized)
    }

    /// Return the ids of the connections in `slots`, in slot order: for passes over all of them that do not
    /// keep others waiting.
    pub fn ids_in(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = ConnId> + '_ {
        self.slab.iter_in(slots).map(|(id, _)| ConnId(id))
    }

    /// Return one more than the highest slot that may be taken.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slab.slots()
    }

    /// Return the ids of all connections, in slot order.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.ids_in(0..u32::MAX)
    }

    /// Return a connection's state, to read.
    #[inline]
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Option<&Conn<S>> {
        self.slab.value(id.0)
    }

    /// Return a connection's state, to change without sending anything.
    #[inline]
    #[must_use]
    pub fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn<S>> {
        self.slab.value_mut(id.0)
    }

    /// Return a connection, and the pool that its output's buffers come from.
    #[inline]
    pub(crate) fn conn_and_pool(&mut self, id: ConnId) -> Option<(&mut Conn<S>, &mut Pool)> {
        Some((self.slab.value_mut(id.0)?, &mut self.pool))
    }

    /// Begin to fetch a connection into the cache that will be used soon.
    #[inline]
    pub fn prefetch(&self, id: ConnId) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some((start, size)) = self.slab.location(id.slot()) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in (0..size).step_by(64) {
                // SAFETY: a prefetch reads nothing, and the address lies within the slot.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(line).cast()) };
            }
        }
    }

    /// Return a connection to append output to, and whether this is the first time in the turn; `None` when
    /// it is gone or closing.
    #[inline]
    pub(crate) fn writer(&mut self, id: ConnId) -> Option<(&mut Conn<S>, bool)> {
        let conn = self.slab.value_mut(id.0)?;
        if conn.phase != Phase::Open {
            return None;
        }
        if !conn.touched {
            conn.touched = true;
            self.touched.push(id);
        }
        let is_first = !std::mem::replace(&mut conn.appended, true);
        conn.output.prepare(&mut self.pool);
        Some((conn, is_first))
    }

    /// Have the connection visited at the end of the turn.
    #[inline]
    pub(crate) fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.value_mut(id.0)
            && !conn.touched
        {
            conn.touched = true;
            self.touched.push(id);
        }
    }

    /// Note that the connection is being visited; `None` when it is gone.
    #[inline]
    pub(crate) fn visit(&mut self, id: ConnId) -> Option<&mut Conn<S>> {
        let conn = self.slab.value_mut(id.0)?;
        conn.touched = false;
        conn.appended = false;
        Some(conn)
    }

    pub(crate) fn insert(&mut self, session: S, socket: Socket, phase: Phase) -> ConnId {
        let id = self.slab.insert(Conn {
            session,
            output: Output::default(),
            taken: 0,
            socket,
            backlog: 0,
            own_backlog: 0,
            phase,
            paused: false,
            linger_rounds: 0,
            linger_mark: 0,
            touched: false,
            appended: false,
            blocked: false,
            ready: true,
            failure: None,
        });
        ConnId(id)
    }

    /// Take a connection out; also return the items of its output that were not wholly sent.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<(Conn<S>, u64)> {
        let mut conn = self.slab.remove(id.0)?;
        self.backlog -= conn.backlog as usize;
        self.own_backlog -= conn.own_backlog as usize;
        let unsent = conn.output.discard(&mut self.pool);
        Some((conn, unsent))
    }

    /// Count anew what a connection's socket has left pending.
    #[inline]
    pub(crate) fn recount(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.value_mut(id.0)
            && (conn.blocked || conn.backlog > 0)
        {
            let (waiting, own) = if conn.blocked {
                (conn.output.len(), conn.output.own_len())
            } else {
                (0, 0)
            };
            let [waiting, own] = [waiting, own].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
            self.backlog = self.backlog + waiting as usize - conn.backlog as usize;
            self.own_backlog = self.own_backlog + own as usize - conn.own_backlog as usize;
            conn.own_backlog = own;
            if waiting.leading_zeros() != conn.backlog.leading_zeros() {
                self.resized.push(id);
            }
            conn.backlog = waiting;
        }
    }

    /// Return how many bytes are allocated for connections.
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes()
    }
}
