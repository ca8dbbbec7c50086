//! The connections of a shard: how they begin and end, and the state that every other part needs.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fastrand::Rng;
use protocol::nats::error;
use protocol::ws::close;
use reactor::{Closed, ConnId};

use crate::admission::{Admission, Stage};
use crate::http::answer;
use crate::io::{Io, Timer};
use crate::jobs::{Job, Jobs};
use crate::listeners::Listeners;
use crate::log::ShardLog;
use crate::mail::Mail;
use crate::memory::Memory;
use crate::metrics::shard::Counts;
use crate::metrics::table::{Counter, Dropped, Flow};
use crate::outbound;
use crate::protocols::Protocol;
use crate::random::SystemRandom;
use crate::reading::Reading;
use crate::reason::Reason;
use crate::session::{Deferred, Session};
use crate::shared::Shared;
use crate::subscriber::Subscriber;
use crate::subscriptions::{SubscriptionId, Subscriptions, UNSUBSCRIBE};
use crate::transport::ListenerKind;

/// Work of looking at one slot for a subscription.
const LOOK: usize = 10;
/// Slots that are looked at before the budget is asked.
const STEP: u32 = 32;
/// Subscriptions of a connection that are removed at once.
const FEW: u32 = 64;

/// The connections of a shard, with their counters, log, memory and admission.
pub(crate) struct Sessions {
    pub(crate) shared: Arc<Shared>,
    /// Index of the shard.
    pub(crate) index: u16,
    /// Time of the broker's start; apart from the memory that other shards write to.
    started: Instant,
    pub(crate) counts: Counts,
    pub(crate) log: ShardLog,
    pub(crate) listeners: Listeners,
    /// Random numbers that cannot be predicted.
    pub(crate) random: SystemRandom,
    /// The generator of times that may be predicted.
    rng: Rng,
    pub(crate) memory: Memory,
    pub(crate) admission: Admission,
    pub(crate) jobs: Jobs,
    pub(crate) reading: Reading,
    /// Clients that are connected.
    pub(crate) open: usize,
    /// Whether lame duck mode has begun.
    pub(crate) is_draining: bool,
}

impl Sessions {
    /// Return a shard that has no connections, one of `shards`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        shards: usize,
        listeners: Vec<ListenerKind>,
        mut random: SystemRandom,
    ) -> io::Result<Self> {
        let admission = Admission::new(
            Arc::clone(&shared.places),
            index,
            shared.room,
            shared.limits.handshake_timeout,
            shared.limits.connects_per_s / shards as f64,
            shared.started,
        );
        Ok(Self {
            index: index as u16,
            started: shared.started,
            counts: Counts::new(Arc::clone(&shared.metrics[index])),
            log: ShardLog::new(Arc::clone(&shared.log), index as u16, shared.started),
            listeners: Listeners::new(listeners),
            rng: Rng::with_seed(random.next()?),
            random,
            memory: Memory::default(),
            admission,
            jobs: Jobs::default(),
            reading: Reading::default(),
            open: 0,
            is_draining: false,
            shared,
        })
    }

    /// Return the whole seconds from the broker's start to `now`.
    #[inline]
    pub(crate) fn second(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.started).as_secs() as u32
    }

    /// Return the handle of a subscription of this shard.
    pub(crate) fn subscriber(&self, conn: ConnId, handle: SubscriptionId) -> Subscriber {
        Subscriber::subscription(self.index, conn, handle)
    }

    /// Count a client that is connected.
    pub(crate) fn count_opened(&mut self, io: &Io, id: ConnId) {
        let Some(conn) = io.conn(id) else { return };
        self.log.connected(io.now(), &conn.session);
        self.counts.add_flow(conn.session.kind(), Flow::Opened, 1);
        self.open += 1;
        self.shared.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Give back what a connection that is gone has taken. `unsent` messages of its output were not
    /// wholly sent.
    pub(crate) fn close(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut session: Session,
        why: Closed,
        unsent: u64,
    ) {
        let reason = session.ended.unwrap_or(match why {
            Closed::Failed(_) | Closed::Refused(_) => Reason::ConnectionFailed,
            Closed::Shutdown => Reason::Shutdown,
            Closed::Peer | Closed::Local => Reason::ClientClosed,
        });
        self.reading.note_ended(id);
        self.memory.forget(&session);
        self.admission.close(session.stage, id, session.ip);
        let subscriptions = std::mem::take(&mut session.subscriptions);
        self.remove_subscriptions(io, id, subscriptions);
        let dropped = match reason {
            Reason::SlowConsumer => Dropped::SlowConsumer,
            Reason::NoMemory => Dropped::NoMemory,
            Reason::Shutdown => Dropped::Shutdown,
            _ => Dropped::Closed,
        };
        self.counts.add_unsent(dropped, unsent);
        if session.is_client() {
            self.counts.add_flow(session.kind(), Flow::Closed, 1);
            self.counts.add_closed(reason);
            self.log.closed(io.now(), &session, reason);
            self.open -= 1;
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// End a connection: `-ERR` if there is a text, a close frame on a WebSocket, then close.
    pub(crate) fn end(&mut self, io: &mut Io, id: ConnId, reason: Reason, error: Option<&str>) {
        self.end_with_close(io, id, reason, error, None);
    }

    /// Like [`end`](Self::end), with a close frame other than the reason's own.
    pub(crate) fn end_with_close(
        &mut self,
        io: &mut Io,
        id: ConnId,
        reason: Reason,
        error: Option<&str>,
        close: Option<(u16, &str)>,
    ) {
        self.reading.note_ended(id);
        let Some(conn) = io.writer(id) else { return };
        if conn.session.ended.is_some() {
            return;
        }
        conn.session.ended = Some(reason);
        outbound::append_held(conn);
        if let Some(text) = error {
            self.counts.add(Counter::Errors, 1);
            outbound::append_error(conn, text);
        }
        let (code, text) = close.unwrap_or((close_code(reason), error.unwrap_or_default()));
        outbound::append_close(conn, code, text);
        self.release(io, id);
        io.close(id);
    }

    /// End a connection at once, and discard its output.
    pub(crate) fn abort(&mut self, io: &mut Io, id: ConnId, reason: Reason) {
        let Some(conn) = io.conn_mut(id) else { return };
        if conn.session.ended.is_none() {
            conn.session.ended = Some(reason);
            self.release(io, id);
            self.reading.note_ended(id);
        }
        io.abort(id);
    }

    /// Remove the subscriptions of a connection that is ending.
    fn release(&mut self, io: &mut Io, id: ConnId) {
        if let Some(conn) = io.conn_mut(id) {
            let subscriptions = std::mem::take(&mut conn.session.subscriptions);
            self.memory.weigh(io, id);
            self.remove_subscriptions(io, id, subscriptions);
        }
    }

    /// Remove the subscriptions of a connection that ends: few at once, many in slices. Messages that
    /// are routed to them meanwhile are dropped as messages to a closed connection.
    fn remove_subscriptions(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        mut subscriptions: Subscriptions,
    ) {
        self.memory.hold(subscriptions.bytes());
        let slots = subscriptions.slots();
        if slots <= FEW {
            self.remove_range(io, conn, &mut subscriptions, 0..slots);
            return;
        }
        self.jobs.add(Job::Leave {
            conn,
            subscriptions: Box::new(subscriptions),
            next: 0,
        });
        io.wake_at(io.now());
    }

    /// Go on with the subscriptions of a connection that has ended; return the rest of the work.
    pub(crate) fn remove_left(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        mut subscriptions: Box<Subscriptions>,
        mut next: u32,
    ) -> Option<Job> {
        while next < subscriptions.slots() {
            if io.is_spent() {
                return Some(Job::Leave {
                    conn,
                    subscriptions,
                    next,
                });
            }
            self.remove_range(io, conn, &mut subscriptions, next..next + STEP);
            next += STEP;
        }
        self.jobs.note_left(conn);
        None
    }

    /// Remove the subscriptions in these slots, and free their memory.
    fn remove_range(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        subscriptions: &mut Subscriptions,
        slots: Range<u32>,
    ) {
        io.spend(LOOK * slots.len());
        let (mut removed, before) = (0, subscriptions.bytes());
        subscriptions.drain_in(slots, |handle, one| {
            if !one.leaving {
                let subscriber = self.subscriber(conn, handle);
                let routing = &self.shared.routing;
                routing.unsubscribe(one.subject(), one.queue(), &subscriber);
                removed += 1;
            }
        });
        self.counts.add(Counter::Unsubscribed, removed as u64);
        self.memory.give_back(before - subscriptions.bytes());
        io.spend(UNSUBSCRIBE * removed);
    }

    /// Remove a subscription that has had its last message.
    pub(crate) fn remove_exhausted(&mut self, io: &mut Io, id: ConnId, handle: SubscriptionId) {
        let Some(conn) = io.conn_mut(id) else { return };
        if let Some(one) = conn.session.subscriptions.remove(handle)
            && !one.leaving
        {
            let subscriber = self.subscriber(id, handle);
            let routing = &self.shared.routing;
            routing.unsubscribe(one.subject(), one.queue(), &subscriber);
            self.counts.add(Counter::Unsubscribed, 1);
        }
        self.memory.weigh(io, id);
    }

    /// Send a client its first `INFO`, alone in its frame, and set the timer of its first `PING`.
    pub(crate) fn greet(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.writer(id) else { return };
        let info = conn.session.info_line(&self.shared.info, false);
        outbound::append_bytes(conn, &info);
        if let Some(interval) = self.shared.limits.ping_interval {
            // Spread, or a million clients that came together are pinged together.
            let percent = self.rng.u32(50..=100);
            io.set_timer(id, Timer::PING, interval * percent / 100);
        }
    }

    /// Begin the time in which a connection that has a place must introduce itself.
    pub(crate) fn begin_half_open(&mut self, io: &mut Io, id: ConnId) {
        let now = io.now();
        if let Some(conn) = io.conn_mut(id) {
            conn.session.stage = self.admission.begin(id, now);
            self.set_half_open_timer(io);
        }
    }

    /// Set the timer for the next deadline of a half-open connection, unless it is set.
    pub(crate) fn set_half_open_timer(&mut self, io: &mut Io) {
        if let Some(left) = self.admission.begin_timer(io.now()) {
            io.set_timer(ConnId::NONE, Timer::HALF_OPEN, left);
        }
    }

    /// Note that a connection has introduced itself. Return false when it has lost its place before, and
    /// ends.
    pub(crate) fn introduce(&mut self, io: &mut Io, id: ConnId) -> bool {
        let Some(conn) = io.conn_mut(id) else {
            return false;
        };
        let Stage::HalfOpen(ticket) = conn.session.stage else {
            return true;
        };
        if self.admission.introduce(ticket, id) {
            conn.session.stage = Stage::Introduced;
            return true;
        }
        self.evict(io, id);
        false
    }

    /// End a half-open connection whose place was given to another one.
    pub(crate) fn evict(&mut self, io: &mut Io, id: ConnId) {
        let text = error::MAX_CONNECTIONS_EXCEEDED;
        self.end_half_open(io, id, Reason::Evicted, text, (503, text));
    }

    /// End a half-open connection that has lost its place. It is told why, with `error` or with an HTTP
    /// `status`, unless too many others are being told, or it is ending already.
    pub(crate) fn end_half_open(
        &mut self,
        io: &mut Io,
        id: ConnId,
        reason: Reason,
        error: &str,
        status: (u16, &str),
    ) {
        let Some(conn) = io.conn_mut(id) else { return };
        if !matches!(conn.session.stage, Stage::HalfOpen(_)) {
            return;
        }
        let stage = self.admission.lose(conn.session.ended.is_none());
        conn.session.stage = stage;
        if stage == Stage::Ending {
            conn.session.ended.get_or_insert(reason);
            self.reading.note_ended(id);
            io.abort(id);
            if self.admission.is_closing_enough() {
                self.listeners.pause_clients(io, io.now());
            }
        } else if matches!(conn.session.protocol, Protocol::Http(_)) {
            self.end_request(io, id, reason, status);
        } else {
            self.end(io, id, reason, Some(error));
        }
    }

    /// End a connection whose request has not come whole, with an answer of this status and detail.
    pub(crate) fn end_request(
        &mut self,
        io: &mut Io,
        id: ConnId,
        reason: Reason,
        status: (u16, &str),
    ) {
        self.counts.add(Counter::HttpErrors, 1);
        if let Some(conn) = io.writer(id) {
            let response = answer::problem(status.0, status.1);
            conn.output.tail().extend_from_slice(&response);
        }
        self.end(io, id, reason, None);
    }

    /// Keep received bytes for a turn with budget.
    pub(crate) fn defer(&mut self, io: &mut Io, id: ConnId, plain: &[u8], frames: &[u8]) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        conn.session.deferred = Some(Box::new(Deferred {
            plain: plain.to_vec(),
            frames: frames.to_vec(),
        }));
        io.set_reading(id, false);
        self.reading.put_off(id);
    }

    /// Stop reading a connection until [`resume`](Self::resume). Return false when it is stalled already.
    pub(crate) fn stall(&mut self, io: &mut Io, id: ConnId) -> bool {
        let Some(conn) = io.conn_mut(id).filter(|conn| !conn.session.is_stalled) else {
            return false;
        };
        conn.session.is_stalled = true;
        self.reading.note_stalled(id);
        io.set_reading(id, false);
        true
    }

    /// Go on with a connection that was not read.
    pub(crate) fn resume(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        conn.session.is_stalled = false;
        let is_http = matches!(conn.session.protocol, Protocol::Http(_));
        if conn.session.deferred.is_none() && !is_http {
            io.set_reading(id, true);
        } else {
            self.reading.put_off(id);
            io.wake_at(io.now());
        }
    }

    /// End the largest and oldest holders of memory while more is held than the bound. The holders of
    /// other shards are ended by their shards.
    pub(crate) fn bound_memory(&mut self, io: &mut Io) {
        let account = &self.shared.account;
        let (mut excess, largest) = (account.excess(), account.largest_class());
        if excess == 0 || largest == 0 {
            return;
        }
        if self.memory.largest_class() < largest {
            io.mail(account.shard_with(largest), Mail::BoundMemory);
            return;
        }
        while excess > 0
            && let Some(id) = self.memory.largest(largest)
        {
            let held = |conn: &reactor::Conn<Session>| conn.session.kept as usize + conn.waiting();
            let freed = io.conn(id).map_or(0, held);
            self.abort(io, id, Reason::NoMemory);
            excess = excess.saturating_sub(freed);
            self.memory.note_freed(&self.shared.account, freed);
        }
    }

    /// Enter what the shard holds into the account, at the end of a turn.
    pub(crate) fn settle_memory(&mut self, io: &mut Io) {
        let mail = self.shared.queued[usize::from(self.index)].memory();
        self.memory.settle(io, &self.shared.account, mail);
    }

    /// Bring the counters of output up to date, at the end of a turn.
    pub(crate) fn publish_counts(&mut self, io: &Io) {
        self.counts.set_delivered(io.sent.items);
        self.counts.set(Counter::WireBytesOut, io.sent.bytes);
        self.counts.set(Counter::Writes, io.sent.writes);
        self.counts.set(Counter::AcceptFailures, io.accept_failures);
        self.log.accept_failures(io.now(), io.accept_failures);
        self.shared.backlogs[usize::from(self.index)].publish(io.connections.backlog());
    }
}

/// Return the close frame's code for each reason, as in nats-server.
fn close_code(reason: Reason) -> u16 {
    match reason {
        Reason::ClientClosed | Reason::HttpAnswered => close::NORMAL,
        Reason::Stale | Reason::Shutdown | Reason::ConnectionFailed => close::GOING_AWAY,
        Reason::ProtocolError | Reason::Refused => close::PROTOCOL_ERROR,
        Reason::InvalidText => close::INVALID_PAYLOAD,
        Reason::PayloadTooLarge => close::MESSAGE_TOO_BIG,
        Reason::SlowConsumer
        | Reason::ControlLineTooLong
        | Reason::TooManyConnections
        | Reason::TooManyFromAddress
        | Reason::Evicted
        | Reason::NoMemory
        | Reason::HandshakeTimeout => close::POLICY_VIOLATION,
    }
}
