//! A handler's view of its shard: the connections, and the commands that it may give.
//!
//! Nothing here talks to the kernel. Commands are collected and carried out in the turn's order.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::accepting::Pauses;
use crate::clock::Clock;
use crate::conn_id::ConnId;
use crate::connections::{Conn, Connections, Phase, Socket};
use crate::mail::Post;
use crate::mailbox::Mailboxes;
use crate::socket;
use crate::stats::{Calls, Descriptors, Memory, Sent};
use crate::timer::Wheel;
use crate::work::{self, Budget};

/// A connection to be established.
pub(crate) struct Connect {
    pub(crate) id: ConnId,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

/// Commands of a handler that are carried out at the end of the turn, besides writing and mail.
#[derive(Default)]
pub(crate) struct Commands {
    pub(crate) connects: Vec<Connect>,
    /// Listeners to be closed.
    pub(crate) unlisten: Vec<usize>,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) stopping: bool,
}

/// One shard's connections and commands; handed to every call of its [`Handler`](crate::Handler).
pub struct ShardIo<S, M> {
    /// Totals of what the kernel has taken.
    pub sent: Sent,
    /// Connections that arrived and could not be accepted for want of descriptors or memory.
    pub accept_failures: u64,
    /// System calls so far.
    pub calls: Calls,
    /// The shard's connections.
    pub connections: Connections<S>,
    /// The listening sockets, while they are open.
    pub(crate) listeners: Vec<Option<RawFd>>,
    /// Descriptors that connections may take.
    pub(crate) descriptor_limit: usize,
    /// Bytes of the driver's own buffers.
    pub(crate) driver_buffers: usize,
    /// Bytes received for paused connections, which the driver keeps.
    pub(crate) held_bytes: usize,
    pub(crate) commands: Commands,
    pub(crate) pauses: Pauses,
    pub(crate) timers: Wheel,
    pub(crate) post: Post<M>,
    pub(crate) budget: Budget,
    clock: Clock,
    now: Instant,
}

/// Time that a closing connection may wait for its peer.
const LINGER: Duration = Duration::from_secs(2);
/// Times that this wait is renewed while the peer still takes what is pending.
const LINGER_ROUNDS: u8 = 10;
/// The timer kind that the reactor keeps for itself.
pub(crate) const LINGER_TIMER: u8 = u8::MAX;

impl<S, M> ShardIo<S, M> {
    pub(crate) fn new(
        shard: usize,
        mailboxes: Mailboxes<M>,
        turn_budget: usize,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        Self {
            sent: Sent::default(),
            accept_failures: 0,
            calls: Calls::default(),
            connections: Connections::default(),
            listeners: Vec::new(),
            descriptor_limit: 0,
            driver_buffers: 0,
            held_bytes: 0,
            commands: Commands::default(),
            pauses: Pauses::default(),
            timers: Wheel::new(now),
            post: Post::new(shard, mailboxes),
            budget: Budget::new(turn_budget),
            clock,
            now,
        }
    }

    // The shard and its time.

    /// Return this shard's index.
    #[inline]
    #[must_use]
    pub fn shard(&self) -> usize {
        self.post.shard()
    }

    /// Return the number of shards that mail can be sent to.
    #[inline]
    #[must_use]
    pub fn shards(&self) -> usize {
        self.post.shards()
    }

    /// Return the time at which this turn's events were received.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Return the clock, for times finer than a turn.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    // Connections.

    /// Return a connection's state, to read.
    #[inline]
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Option<&Conn<S>> {
        self.connections.conn(id)
    }

    /// Return a connection's state, to change without sending anything.
    #[inline]
    #[must_use]
    pub fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn<S>> {
        self.connections.conn_mut(id)
    }

    /// Return a connection to append output to; it is written at the end of the turn. `None` when it is
    /// gone or closing.
    #[inline]
    #[must_use]
    pub fn writer(&mut self, id: ConnId) -> Option<&mut Conn<S>> {
        let (conn, is_first) = self.connections.writer(id)?;
        if is_first {
            self.budget.spend(work::WRITE);
        }
        Some(conn)
    }

    /// Establish a connection to `to`, from the local address `from` if one is given.
    pub fn connect(&mut self, to: SocketAddr, from: Option<IpAddr>, session: S) -> ConnId {
        let id = self
            .connections
            .insert(session, Socket::None, Phase::Connecting);
        self.commands.connects.push(Connect { id, to, from });
        self.budget.spend(work::CONNECT);
        id
    }

    /// Send what is pending, then close. Nothing more is received.
    pub fn close(&mut self, id: ConnId) {
        self.end(id, Phase::Closing);
    }

    /// Close at the end of this turn and discard what is pending.
    pub fn abort(&mut self, id: ConnId) {
        self.end(id, Phase::Aborting);
    }

    /// Stop or resume receiving from a connection; what its peer sends waits in the kernel.
    pub fn set_reading(&mut self, id: ConnId, reading: bool) {
        if let Some(conn) = self.connections.conn_mut(id)
            && conn.paused == reading
        {
            conn.paused = !reading;
            self.connections.touch(id);
        }
    }

    // Commands.

    /// Ask for [`Handler::on_timer`](crate::Handler::on_timer) with `(id, kind)` when `after` has passed. It
    /// cannot be cancelled; kind 255 is taken.
    pub fn set_timer(&mut self, id: ConnId, kind: u8, after: Duration) {
        debug_assert_ne!(kind, LINGER_TIMER);
        self.timers.set(self.now + after, id, kind);
    }

    /// Begin the next turn at `at` if nothing else does before: finer than a timer, and forgotten
    /// after one turn.
    #[inline]
    pub fn wake_at(&mut self, at: Instant) {
        let earliest = &mut self.commands.wake_at;
        *earliest = Some(earliest.map_or(at, |earlier| earlier.min(at)));
    }

    /// Send mail to a shard. Another one gets it at the end of this turn; this one's own waits behind
    /// the mail that has arrived.
    #[inline]
    pub fn mail(&mut self, shard: usize, mail: M) {
        self.post.send(shard, mail);
    }

    /// Take a mark that [`has_passed`](Self::has_passed) once all mail is handed out that other shards
    /// have posted to this one until now, or that it has sent to itself.
    pub fn mail_mark(&mut self) -> u64 {
        self.post.take_arrived();
        self.post.mark()
    }

    /// Return whether the mail that was waiting when `mark` was taken has been handed out.
    #[inline]
    #[must_use]
    pub fn has_passed(&self, mark: u64) -> bool {
        self.post.has_passed(mark)
    }

    /// Stop accepting on the listener with this index; what is connected stays.
    pub fn close_listener(&mut self, listener: usize) {
        if let Some(descriptor) = self.listeners.get_mut(listener) {
            *descriptor = None;
        }
        self.commands.unlisten.push(listener);
    }

    /// Accept nothing on the listener with this index until `until`; who comes meanwhile waits. With the
    /// time of this turn, accepting goes on in the next one.
    pub fn pause_accepting(&mut self, listener: usize, until: Instant) {
        self.pauses.pause(listener, until);
    }

    /// End the shard after this turn. Remaining connections are closed after one last write.
    pub fn stop(&mut self) {
        self.commands.stopping = true;
    }

    // The budget of work.

    /// Count work that was done in this turn, in the units of [`work`].
    #[inline]
    pub fn spend(&mut self, work: usize) {
        self.budget.spend(work);
    }

    /// Return whether this part of the turn has used its share: a handler with more to do puts it off. Where
    /// received bytes are handed out, also whether this connection has used its slice of the share.
    #[inline]
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }

    /// Return the work of a whole turn, in the units of [`work`].
    #[inline]
    #[must_use]
    pub fn turn_budget(&self) -> usize {
        self.budget.turn()
    }

    /// Begin the share of one of several that have put off work, so that the others have theirs.
    #[inline]
    pub fn begin_slice(&mut self) {
        self.budget.begin_slice();
    }

    /// End what [`begin_slice`](Self::begin_slice) began.
    #[inline]
    pub fn end_slice(&mut self) {
        self.budget.end_slice();
    }

    // Figures.

    /// Return the memory held for connections.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            connections: self.connections.bytes() + self.timers.bytes(),
            buffers: self.connections.pool.bytes() + self.driver_buffers + self.held_bytes,
        }
    }

    /// Return the descriptors taken and left.
    #[must_use]
    pub fn descriptors(&self) -> Descriptors {
        Descriptors {
            used: self.connections.len() + self.listeners.iter().flatten().count(),
            limit: self.descriptor_limit,
        }
    }

    /// Return how much mail was found waiting at most since the last call.
    pub fn take_mail_peak(&mut self) -> usize {
        self.post.take_peak()
    }

    /// Return how many connections wait to be accepted by the listener with this index.
    #[must_use]
    pub fn accept_queue(&self, listener: usize) -> usize {
        let descriptor = self.listeners.get(listener).copied().flatten();
        descriptor.map_or(0, socket::accept_queue)
    }

    // The reactor's side.

    pub(crate) fn begin_turn(&mut self) {
        self.now = self.clock.now();
        self.commands.wake_at = None;
        self.budget.begin_turn();
    }

    /// Return how long the driver may wait for events; `None` for ever.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let connections = &self.connections;
        let has_work = !(connections.touched.is_empty()
            && connections.aborted.is_empty()
            && self.commands.connects.is_empty())
            || self.post.has_waiting()
            || self.timers.has_due();
        if self.commands.stopping || has_work {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        let wakes = [self.commands.wake_at, self.pauses.next_end()];
        let wake = wakes.into_iter().flatten().min();
        let wake = wake.map(|at| at.saturating_duration_since(now));
        match (wake, self.timers.until_next(now)) {
            (Some(wake), Some(timer)) => Some(wake.min(timer)),
            (wake, timer) => wake.or(timer),
        }
    }

    /// Let a closing connection go on while its peer takes bytes, for a few rounds.
    pub(crate) fn handle_linger_timer(&mut self, id: ConnId) {
        let Some(conn) = self.connections.conn_mut(id) else {
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
        if let Some(conn) = self.connections.conn_mut(id)
            && conn.phase < phase
            && !(conn.phase == Phase::Lingering && phase == Phase::Closing)
        {
            // A connection that was never established has nothing to send.
            let connecting = conn.phase == Phase::Connecting;
            conn.phase = if connecting { Phase::Aborting } else { phase };
            let work = if conn.phase == Phase::Aborting {
                self.connections.aborted.push(id);
                work::CLOSE
            } else {
                conn.linger_mark = conn.taken;
                self.timers.set(self.now + LINGER, id, LINGER_TIMER);
                work::END_SENDING
            };
            self.budget.spend(work);
            self.connections.touch(id);
        }
    }
}
