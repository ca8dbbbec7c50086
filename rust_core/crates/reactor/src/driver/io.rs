//! What a handler sees of its shard: the connections, and the wishes it may state.
//!
//! Nothing here talks to the kernel. Wishes are collected and carried out by the backend at the
//! end of the turn.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::driver::stats::{Calls, Sent};
use crate::driver::{Closed, Handler};
use crate::mailbox::Mailboxes;
use crate::output::{Output, Pool};
use crate::slab::{ConnId, Slab};
use crate::timer::Wheel;

/// How far a connection's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// Sends what is pending, then ends.
    Closing,
    /// Has sent everything and waits for the peer's EOF, so that the peer reads our last bytes
    /// rather than a reset.
    Lingering,
    /// The peer has sent its last byte; what was answered to it gets one write.
    PeerClosed,
    /// Ends at the end of this turn, whatever is pending.
    Aborting,
}

/// The backend's part of a connection.
pub(crate) enum Socket {
    /// Nothing yet.
    None,
    /// A file descriptor, with the events that the backend has asked the kernel for.
    Descriptor { fd: OwnedFd, interest: u8 },
    /// A slot in the file table of an io_uring, with the operations that are under way.
    Direct { slot: u32, ring: u16, ops: u8 },
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self::Descriptor { fd, interest: 0 }
    }

    #[inline]
    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        match self {
            Self::Descriptor { fd, .. } => Some(fd),
            _ => None,
        }
    }
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
    /// Its part of [`Io::backlog`].
    pub(crate) backlog: u32,
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    pub(crate) linger_rounds: u8,
    /// [`Conn::taken`] when the linger timer was set.
    pub(crate) linger_mark: u32,
    /// Whether the connection is in the list of those to be visited at the end of the turn.
    pub(crate) touched: bool,
    /// Whether a write has left bytes pending that are not all taken yet.
    pub(crate) blocked: bool,
    /// Whether the socket may take bytes, as far as is known.
    pub(crate) ready: bool,
}

impl<S> Conn<S> {
    /// Whether bytes may still be appended to be sent.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether the socket has stopped taking bytes.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }
}

/// A connection to be established.
pub(crate) struct Connect {
    pub(crate) id: ConnId,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

/// One shard's connections and wishes; handed to every call of its [`Handler`].
pub struct Io<H: Handler> {
    /// What has been sent so far.
    pub sent: Sent,
    /// Bytes that wait for sockets which take no more, all connections together.
    pub backlog: usize,
    /// Connections that arrived and could not be accepted for want of descriptors or memory.
    pub accept_failures: u64,
    /// System calls so far.
    pub calls: Calls,
    /// The listening sockets, while they are open.
    pub(crate) listeners: Vec<Option<RawFd>>,
    /// Descriptors that connections may take.
    pub(crate) descriptor_limit: usize,
    /// Bytes of the backend's own buffers.
    pub(crate) driver_buffers: usize,
    pub(crate) conns: Slab<Conn<H::Session>>,
    pub(crate) pool: Pool,
    pub(crate) touched: Vec<ConnId>,
    /// Connections that are to end at the end of this turn; they are touched, too.
    pub(crate) aborted: Vec<ConnId>,
    pub(crate) connects: Vec<Connect>,
    pub(crate) timers: Wheel,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) stopping: bool,
    /// Listeners to be closed at the end of the turn.
    pub(crate) unlisten: Vec<usize>,
    pub(crate) mailboxes: Mailboxes<H::Mail>,
    /// Mail taken from the mailbox and not handed out yet.
    pub(crate) inbox: VecDeque<H::Mail>,
    pub(crate) mail_peak: usize,
    outboxes: Vec<Vec<H::Mail>>,
    shard: usize,
    now: Instant,
    spent: usize,
    turn_budget: usize,
}

/// How long a closing connection may wait for its peer.
const LINGER: Duration = Duration::from_secs(2);
/// How often that is renewed while the peer still takes what is pending.
const LINGER_ROUNDS: u8 = 10;
/// The timer kind that the reactor keeps for itself.
pub(crate) const LINGER_TIMER: u8 = u8::MAX;

impl<H: Handler> Io<H> {
    pub(crate) fn new(shard: usize, mailboxes: Mailboxes<H::Mail>, turn_budget: usize) -> Self {
        let now = Instant::now();
        Self {
            sent: Sent::default(),
            backlog: 0,
            accept_failures: 0,
            calls: Calls::default(),
            listeners: Vec::new(),
            descriptor_limit: 0,
            driver_buffers: 0,
            conns: Slab::default(),
            pool: Pool::default(),
            touched: Vec::new(),
            aborted: Vec::new(),
            connects: Vec::new(),
            timers: Wheel::new(now),
            wake_at: None,
            stopping: false,
            unlisten: Vec::new(),
            spent: 0,
            turn_budget,
            inbox: VecDeque::new(),
            mail_peak: 0,
            outboxes: (0..mailboxes.shards()).map(|_| Vec::new()).collect(),
            mailboxes,
            shard,
            now,
        }
    }

    /// This shard's index.
    #[inline]
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Number of shards that mail can be sent to.
    #[inline]
    #[must_use]
    pub fn shards(&self) -> usize {
        self.outboxes.len()
    }

    /// The time at which this turn's events were received.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Connections, those being established or closed included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Ids of the connections in `slots`, in slot order: for passes over all of them that do not keep
    /// others waiting.
    pub fn ids_in(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.ids_in(slots)
    }

    /// One more than the highest slot that may be taken.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.conns.slots()
    }

    /// Ids of all connections, in slot order.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.ids()
    }

    /// A connection's state, to read.
    #[inline]
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Option<&Conn<H::Session>> {
        self.conns.value(id)
    }

    /// A connection's state, to change without sending anything.
    #[inline]
    #[must_use]
    pub fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn<H::Session>> {
        self.conns.value_mut(id)
    }

    /// A connection to append output to; it is written at the end of the turn. `None` when it is
    /// gone or closing.
    #[inline]
    #[must_use]
    pub fn writer(&mut self, id: ConnId) -> Option<&mut Conn<H::Session>> {
        let conn = self.conns.value_mut(id)?;
        if conn.phase != Phase::Open {
            return None;
        }
        if !conn.touched {
            conn.touched = true;
            self.touched.push(id);
        }
        conn.output.prepare(&mut self.pool);
        Some(conn)
    }

    /// Establishes a connection to `to`, from the local address `from` where one is given.
    pub fn connect(&mut self, to: SocketAddr, from: Option<IpAddr>, session: H::Session) -> ConnId {
        let id = self.insert(session, Socket::None, Phase::Connecting);
        self.connects.push(Connect { id, to, from });
        id
    }

    /// Sends what is pending, then closes. Nothing more is received.
    pub fn close(&mut self, id: ConnId) {
        self.end(id, Phase::Closing);
    }

    /// Closes at the end of this turn and discards what is pending.
    pub fn abort(&mut self, id: ConnId) {
        self.end(id, Phase::Aborting);
    }

    /// Stops or resumes receiving from a connection; what its peer sends waits in the kernel.
    pub fn set_reading(&mut self, id: ConnId, reading: bool) {
        if let Some(conn) = self.conns.value_mut(id)
            && conn.paused == reading
        {
            conn.paused = !reading;
            self.touch(id);
        }
    }

    /// Asks for [`Handler::on_timer`] with `(id, kind)` when `after` has passed. It cannot be
    /// cancelled; kind 255 is taken.
    pub fn set_timer(&mut self, id: ConnId, kind: u8, after: Duration) {
        debug_assert_ne!(kind, LINGER_TIMER);
        self.timers.set(self.now + after, id, kind);
    }

    /// Begins the next turn at `at` if nothing else does before: finer than a timer, and forgotten
    /// after one turn.
    #[inline]
    pub fn wake_at(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Sends mail to another shard at the end of this turn.
    #[inline]
    pub fn mail(&mut self, shard: usize, mail: H::Mail) {
        self.outboxes[shard].push(mail);
    }

    /// Counts bytes that were received or appended in this turn. A turn that has spent its budget
    /// hands out no more and writes, so that output does not pile up which the peers would take.
    #[inline]
    pub fn spend(&mut self, bytes: usize) {
        self.spent += bytes;
    }

    /// Whether the turn's budget is spent: a handler with much left to do should do it in the next
    /// turn.
    #[inline]
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.spent >= self.turn_budget
    }

    /// Stops accepting on the listener with this index; what is connected stays.
    pub fn close_listener(&mut self, listener: usize) {
        if let Some(descriptor) = self.listeners.get_mut(listener) {
            *descriptor = None;
        }
        self.unlisten.push(listener);
    }

    /// Ends the shard after this turn. Remaining connections are closed after one last write.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn begin_turn(&mut self) {
        self.now = Instant::now();
        self.wake_at = None;
        self.spent = 0;
    }

    pub(crate) fn insert(&mut self, session: H::Session, socket: Socket, phase: Phase) -> ConnId {
        self.conns.insert(Conn {
            session,
            output: Output::default(),
            taken: 0,
            socket,
            backlog: 0,
            phase,
            paused: false,
            linger_rounds: 0,
            linger_mark: 0,
            touched: false,
            blocked: false,
            ready: true,
        })
    }

    /// Takes the connection out and tells the handler; what remains is the socket.
    pub(crate) fn finish(&mut self, handler: &mut H, id: ConnId, why: Closed) -> Option<Socket> {
        let mut conn = self.conns.remove(id)?;
        self.backlog -= conn.backlog as usize;
        let unsent = conn.output.discard(&mut self.pool);
        let asked = matches!(
            conn.phase,
            Phase::Closing | Phase::Lingering | Phase::Aborting
        );
        let why = if asked && why != Closed::Shutdown {
            Closed::Local
        } else {
            why
        };
        handler.on_closed(self, id, conn.session, why, unsent);
        Some(conn.socket)
    }

    /// Counts what a connection's socket has left pending anew.
    #[inline]
    pub(crate) fn recount(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.value_mut(id)
            && (conn.blocked || conn.backlog > 0)
        {
            let waiting = if conn.blocked { conn.output.len() } else { 0 };
            let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            self.backlog = self.backlog + waiting as usize - conn.backlog as usize;
            conn.backlog = waiting;
        }
    }

    pub(crate) fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.value_mut(id)
            && !conn.touched
        {
            conn.touched = true;
            self.touched.push(id);
        }
    }

    /// How long the backend may wait in the kernel; `None` for ever.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let has_work =
            !(self.touched.is_empty() && self.aborted.is_empty() && self.inbox.is_empty());
        if self.stopping || has_work || !self.connects.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let wake = self.wake_at.map(|at| at.saturating_duration_since(now));
        match (wake, self.timers.until_next(now)) {
            (Some(wake), Some(timer)) => Some(wake.min(timer)),
            (wake, timer) => wake.or(timer),
        }
    }

    /// Gives the turn's next part a budget of its own, so that busy connections do not keep the
    /// mail waiting, nor mail what the handler has put off.
    pub(crate) fn renew_budget(&mut self) {
        self.spent = 0;
    }

    /// Hands out mail and timers.
    pub(crate) fn deliver_mail_and_timers(&mut self, handler: &mut H) {
        self.renew_budget();
        if self.inbox.is_empty() {
            self.mailboxes.take(self.shard, &mut self.inbox);
            self.mail_peak = self.mail_peak.max(self.inbox.len());
        }
        while !self.is_spent()
            && let Some(mail) = self.inbox.pop_front()
        {
            handler.on_mail(self, mail);
        }
        while let Some((id, kind)) = self.timers.poll(self.now) {
            if kind == LINGER_TIMER {
                self.handle_linger_timer(id);
            } else if id == ConnId::NONE || self.conns.value(id).is_some() {
                handler.on_timer(self, id, kind);
            }
        }
    }

    /// Posts the mail collected in this turn.
    pub(crate) fn post_mail(&mut self, handler: &mut H) {
        for (shard, outbox) in self.outboxes.iter_mut().enumerate() {
            if outbox.is_empty() {
                continue;
            }
            self.mailboxes.post_batch(shard, outbox);
            outbox
                .drain(..)
                .for_each(|mail| handler.on_undelivered(mail));
        }
    }

    /// Gives the handler back what it will never be told: the shard has ended.
    pub(crate) fn return_mail(&mut self, handler: &mut H) {
        let arrived = self.mailboxes.close(self.shard);
        for mail in self.inbox.drain(..).chain(arrived) {
            handler.on_undelivered(mail);
        }
    }

    /// A closing connection may go on while its peer takes bytes, for a few rounds.
    fn handle_linger_timer(&mut self, id: ConnId) {
        let Some(conn) = self.conns.value_mut(id) else {
            return;
        };
        let moves = conn.phase == Phase::Closing && conn.taken != conn.linger_mark;
        if moves && conn.linger_rounds < LINGER_ROUNDS {
            conn.linger_rounds += 1;
            conn.linger_mark = conn.taken;
            self.timers.set(self.now + LINGER, id, LINGER_TIMER);
        } else {
            self.end(id, Phase::Aborting);
        }
    }

    fn end(&mut self, id: ConnId, phase: Phase) {
        if let Some(conn) = self.conns.value_mut(id)
            && conn.phase < phase
            && !(conn.phase == Phase::Lingering && phase == Phase::Closing)
        {
            // A connection that was never established has nothing to send.
            let connecting = conn.phase == Phase::Connecting;
            conn.phase = if connecting { Phase::Aborting } else { phase };
            if conn.phase == Phase::Closing {
                conn.linger_mark = conn.taken;
                self.timers.set(self.now + LINGER, id, LINGER_TIMER);
            }
            if conn.phase == Phase::Aborting {
                self.aborted.push(id);
            }
            self.touch(id);
        }
    }
}
