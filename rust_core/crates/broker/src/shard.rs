//! One shard's state, and how its connections begin and end.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use protocol::nats::error;
use protocol::ws::close;
use reactor::{ConnId, Mailboxes};
use router::{Matches, Rng};

use crate::clients::Clients;
use crate::drain::Draining;
use crate::http::{Call, Date};
use crate::jobs::Jobs;
use crate::log::ShardLog;
use crate::mail::{Mail, Subscriber};
use crate::metrics::shard::Counts;
use crate::metrics::table::Counter;
use crate::monitor::{Hot, Monitor};
use crate::outbound::{self, Encoded, Framing};
use crate::random::SystemRandom;
use crate::reason::Reason;
use crate::session::Deferred;
use crate::shared::{ListenerKind, Shared};
use crate::subscriptions::{Place, Subscriptions};

/// The reactor's side of a shard.
pub(crate) type Io = reactor::Io<Shard>;

/// Kinds of timers.
pub(crate) struct Timer;

impl Timer {
    pub(crate) const HANDSHAKE: u8 = 0;
    pub(crate) const PING: u8 = 1;
    pub(crate) const WRITE: u8 = 2;
    pub(crate) const RESUME: u8 = 3;
    pub(crate) const LAME_DUCK: u8 = 4;
    pub(crate) const REPLY: u8 = 5;
    pub(crate) const SAMPLE: u8 = 6;
    pub(crate) const SURVEY: u8 = 7;
}

/// One shard's state besides its connections.
pub(crate) struct Shard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: u16,
    pub(crate) counts: Counts,
    pub(crate) log: ShardLog,
    pub(crate) clients: Clients,
    /// When the broker started; apart from what other shards write to.
    pub(crate) started: Instant,
    /// Reads that brought something in this turn.
    pub(crate) received: u32,
    /// Whether this turn had something to do.
    pub(crate) has_worked: bool,
    pub(crate) matches: Matches<Subscriber>,
    /// The most receivers that a message had.
    pub(crate) widest: usize,
    pub(crate) hot: Hot,
    /// On the shard that has the monitor's listener.
    pub(crate) monitor: Option<Box<Monitor>>,
    /// Serves all receivers of one message.
    pub(crate) encoded: Encoded,
    /// Kept between requests for its memory.
    pub(crate) call: Call,
    pub(crate) reply_subject: Vec<u8>,
    pub(crate) date: Date,
    /// Random numbers that cannot be foretold.
    pub(crate) random: SystemRandom,
    /// The generator of choices that may be foretold, such as the member of a queue group.
    pub(crate) rng: Rng,
    /// Receivers of the message being routed who get it by mail, by shard.
    pub(crate) parcelled: Vec<Vec<Subscriber>>,
    /// Publishers with mail of this shard to itself on the way, and how much.
    pub(crate) mailed: Vec<(ConnId, u32)>,
    /// The connection whose operations are being read; `None` once it has ended.
    pub(crate) reading: Option<ConnId>,
    /// Whether it has been stalled meanwhile.
    pub(crate) is_stalled: bool,
    /// Whether the connection being read has `UNSUB`s whose barrier is not sent.
    pub(crate) has_open_batch: bool,
    /// The publisher of another shard that was stalled last in this turn.
    pub(crate) stalled_elsewhere: Option<(u16, ConnId)>,
    /// Connections whose replies wait for mail, with the mark that ends the wait; oldest first.
    pub(crate) fences: VecDeque<(u64, ConnId)>,
    /// Work that takes several turns.
    pub(crate) jobs: Jobs,
    /// Connections with received bytes that wait for a turn with budget.
    pub(crate) deferred: VecDeque<ConnId>,
    pub(crate) listeners: Vec<ListenerKind>,
    pub(crate) mailboxes: Mailboxes<Mail>,
    pub(crate) draining: Option<Draining>,
    /// This shard's connections of clients.
    pub(crate) open: usize,
}

impl Shard {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        listeners: Vec<ListenerKind>,
        mailboxes: Mailboxes<Mail>,
        mut random: SystemRandom,
    ) -> io::Result<Self> {
        Ok(Self {
            index: index as u16,
            counts: Counts::new(Arc::clone(&shared.metrics[index])),
            log: ShardLog::new(Arc::clone(&shared.log), index as u16, shared.started),
            clients: Clients::default(),
            started: shared.started,
            received: 0,
            has_worked: false,
            matches: Matches::new(),
            widest: 0,
            hot: Hot::new(shared.started, random.next()?),
            monitor: listeners
                .contains(&ListenerKind::Monitor)
                .then(|| Box::new(Monitor::new(&shared))),
            encoded: Encoded::default(),
            call: Call::default(),
            reply_subject: Vec::new(),
            date: Date::new(),
            rng: Rng::new(random.next()?),
            random,
            parcelled: (0..mailboxes.shards()).map(|_| Vec::new()).collect(),
            mailed: Vec::new(),
            reading: None,
            is_stalled: false,
            has_open_batch: false,
            stalled_elsewhere: None,
            fences: VecDeque::new(),
            jobs: Jobs::default(),
            deferred: VecDeque::new(),
            listeners,
            mailboxes,
            draining: None,
            open: 0,
            shared,
        })
    }

    /// Whole seconds from the broker's start to `now`.
    #[inline]
    pub(crate) fn second(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.started).as_secs() as u32
    }

    /// Ends a connection: `-ERR` where there is a text, a close frame on a WebSocket, then close.
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
        self.note_ended(id);
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

    /// Stops the reading of operations if they are this connection's.
    pub(crate) fn note_ended(&mut self, id: ConnId) {
        if self.reading == Some(id) {
            self.reading = None;
        }
    }

    /// Sends a client its first `INFO`, alone in its frame, and begins to watch it.
    pub(crate) fn greet(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.writer(id) else { return };
        let is_websocket = matches!(conn.session.framing, Framing::WebSocket(_));
        let info =
            self.shared
                .info
                .encode(is_websocket, false, conn.session.cid, conn.session.peer);
        outbound::append_bytes(conn, &info);
        if let Some(interval) = self.shared.limits.ping_interval {
            // Spread, or a million clients that came together are pinged together.
            let percent = 50 + self.rng.below(51) as u32;
            io.set_timer(id, Timer::PING, interval * percent / 100);
        }
    }

    /// Gives the client a place, or ends it.
    pub(crate) fn take_place(&mut self, io: &mut Io, id: ConnId) -> bool {
        match self.find_place(io, id) {
            Ok(()) => true,
            Err((reason, text)) => {
                self.end(io, id, reason, Some(text));
                false
            }
        }
    }

    /// Gives the client one of the places that `max_connections` limits, or says why not: also when
    /// the memory for output is used up, so that those who are there keep theirs.
    pub(crate) fn find_place(
        &mut self,
        io: &mut Io,
        id: ConnId,
    ) -> Result<(), (Reason, &'static str)> {
        if self.shared.backlog() > self.shared.limits.max_pending_total {
            return Err((Reason::NoMemory, error::NO_MEMORY));
        }
        if self.shared.places.fetch_add(1, Ordering::Relaxed) < self.shared.limits.max_connections
            && let Some(conn) = io.conn_mut(id)
        {
            conn.session.has_place = true;
            return Ok(());
        }
        self.shared.places.fetch_sub(1, Ordering::Relaxed);
        Err((Reason::TooManyConnections, error::MAX_CONNECTIONS_EXCEEDED))
    }

    /// Keeps received bytes for a turn with budget.
    pub(crate) fn defer(&mut self, io: &mut Io, id: ConnId, plain: &[u8], frames: &[u8]) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        conn.session.deferred = Some(Box::new(Deferred {
            plain: plain.to_vec(),
            frames: frames.to_vec(),
        }));
        io.set_reading(id, false);
        self.deferred.push_back(id);
    }

    /// Removes what a connection holds that is ending.
    pub(crate) fn release(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        let has_place = std::mem::take(&mut conn.session.has_place);
        let subscriptions = std::mem::take(&mut conn.session.subscriptions);
        self.release_held(io, id, has_place, subscriptions);
    }

    /// Give back what a connection that ends has held: its place and its subscriptions.
    pub(crate) fn release_held(
        &mut self,
        io: &mut Io,
        id: ConnId,
        has_place: bool,
        subscriptions: Subscriptions,
    ) {
        if has_place {
            self.shared.places.fetch_sub(1, Ordering::Relaxed);
        }
        self.remove_subscriptions(io, id, subscriptions);
    }

    /// The handle of one of this shard's subscriptions.
    pub(crate) fn subscriber(&self, conn: ConnId, place: Place) -> Subscriber {
        Subscriber {
            conn,
            index: place.0,
            generation: place.1,
            shard: self.index,
        }
    }

    /// Pieces of work that are put off, or wait for others.
    #[cfg(feature = "sim")]
    pub(crate) fn rest(&self) -> usize {
        self.deferred.len() + self.fences.len() + self.mailed.len() + self.jobs.len()
    }

    pub(crate) fn publish_counts(&mut self, io: &Io) {
        self.counts.set_delivered(io.sent.items);
        self.counts.set(Counter::WireBytesOut, io.sent.bytes);
        self.counts.set(Counter::Writes, io.sent.writes);
        self.counts.set(Counter::AcceptFailures, io.accept_failures);
        self.log.accept_failures(io.now(), io.accept_failures);
        self.shared.backlogs[usize::from(self.index)].publish(io.connections.backlog());
    }
}

/// The close frame's code for each reason, as in nats-server.
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
        | Reason::NoMemory
        | Reason::HandshakeTimeout => close::POLICY_VIOLATION,
    }
}
