//! One shard: the reactor's handler, with its turns, timers, mail and lame duck mode.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::nats::{FromClient, Parser, encode, error};
use protocol::ws::close;
use reactor::{Closed, Conn, ConnId, Handler, Mailboxes, Origin};
use router::{Matches, Rng};

use crate::counters::{Counter, Counts, Reason};
use crate::http;
use crate::mail::{Barrier, Mail, Subscriber};
use crate::nats::Read;
use crate::outbound;
use crate::server::{ListenerKind, Shared};
use crate::session::{Deferred, Flags, Session, Transport};

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

    /// How long a publisher is stalled for a receiver that has fallen behind.
    pub(crate) const STALL: Duration = Duration::from_millis(5);
    /// Between two rounds of closes in lame duck mode.
    const LAME_DUCK_STEP: Duration = Duration::from_millis(100);
}

/// One shard's state besides its connections.
pub(crate) struct Shard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: u16,
    pub(crate) counts: Counts,
    pub(crate) matches: Matches<Subscriber>,
    pub(crate) rng: Rng,
    /// Receivers of the message being routed, by shard.
    pub(crate) remote: Vec<Vec<Subscriber>>,
    /// The connection whose operations are being read; `None` once it has ended.
    pub(crate) reading: Option<ConnId>,
    /// Whether the connection being read has `UNSUB`s whose barrier is not sent.
    pub(crate) has_open_batch: bool,
    /// The publisher of another shard that was stalled last in this turn.
    pub(crate) stalled_elsewhere: Option<(u16, ConnId)>,
    /// Connections with received bytes that wait for a turn with budget.
    deferred: VecDeque<ConnId>,
    listeners: Vec<ListenerKind>,
    mailboxes: Mailboxes<Mail>,
    /// Barriers for shards that have ended, to be counted as passed.
    returned: Vec<Barrier>,
    draining: Option<Draining>,
    /// This shard's connections of clients.
    open: usize,
}

#[derive(Default)]
struct Draining {
    /// Connections to close in each round; 0 during the grace time.
    per_step: usize,
}

impl Shard {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        listeners: Vec<ListenerKind>,
        mailboxes: Mailboxes<Mail>,
    ) -> Self {
        Self {
            index: index as u16,
            counts: Counts::new(),
            matches: Matches::new(),
            rng: Rng::new(shared.seed ^ index as u64),
            remote: (0..mailboxes.shards()).map(|_| Vec::new()).collect(),
            reading: None,
            has_open_batch: false,
            stalled_elsewhere: None,
            deferred: VecDeque::new(),
            listeners,
            mailboxes,
            returned: Vec::new(),
            draining: None,
            open: 0,
            shared,
        }
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
        let is_websocket = conn.session.framing.is_some();
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

    /// Gives the client one of the places that `max_connections` limits, or ends it.
    pub(crate) fn take_place(&mut self, io: &mut Io, id: ConnId) -> bool {
        if self.shared.places.fetch_add(1, Ordering::Relaxed) < self.shared.limits.max_connections
            && let Some(conn) = io.conn_mut(id)
        {
            conn.session.has_place = true;
            return true;
        }
        self.shared.places.fetch_sub(1, Ordering::Relaxed);
        let text = error::MAX_CONNECTIONS_EXCEEDED;
        self.end(io, id, Reason::TooManyConnections, Some(text));
        false
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

    /// Reads what was kept, as far as this turn's budget goes.
    fn receive_deferred(&mut self, io: &mut Io) {
        while !io.is_spent()
            && let Some(id) = self.deferred.pop_front()
        {
            let Some(conn) = io.conn_mut(id) else {
                continue;
            };
            let Some(Deferred { plain, mut frames }) =
                conn.session.deferred.take().map(|deferred| *deferred)
            else {
                continue;
            };
            let transport = std::mem::replace(&mut conn.session.transport, Transport::Busy);
            let transport = match transport {
                Transport::Tcp(parser) => self.receive_tcp(io, id, parser, &plain),
                Transport::WebSocket(mut decoder, mut parser) => {
                    let goes_on = match self.receive_nats(io, id, &mut parser, &plain) {
                        Read::All => {
                            self.receive_websocket(io, id, &mut decoder, &mut parser, &mut frames)
                        }
                        Read::Left(left) => {
                            self.defer(io, id, left, &frames);
                            true
                        }
                        Read::Ended => false,
                    };
                    goes_on.then_some(Transport::WebSocket(decoder, parser))
                }
                other => Some(other),
            };
            if let (Some(transport), Some(conn)) = (transport, io.conn_mut(id)) {
                conn.session.transport = transport;
                if conn.session.deferred.is_none() && !conn.session.is_stalled {
                    io.set_reading(id, true);
                }
            }
        }
        if !self.deferred.is_empty() {
            io.wake_at(io.now());
        }
    }

    fn receive_tcp(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut parser: Parser<FromClient>,
        input: &[u8],
    ) -> Option<Transport> {
        match self.receive_nats(io, id, &mut parser, input) {
            Read::All => {}
            Read::Left(plain) => self.defer(io, id, plain, &[]),
            Read::Ended => return None,
        }
        Some(Transport::Tcp(parser))
    }

    pub(crate) fn publish_counts(&mut self, io: &Io) {
        self.counts.set(Counter::Delivered, io.sent.items);
        self.counts.set(Counter::WireBytesOut, io.sent.bytes);
        self.counts.set(Counter::Writes, io.sent.writes);
        self.counts.set(Counter::AcceptFailures, io.accept_failures);
        self.counts
            .publish(&self.shared.published[usize::from(self.index)]);
    }

    fn handle_ping_timer(&mut self, io: &mut Io, id: ConnId) {
        let Some(interval) = self.shared.limits.ping_interval else {
            return;
        };
        let Some(conn) = io.conn_mut(id) else { return };
        let session = &mut conn.session;
        if std::mem::take(&mut session.is_active) {
            session.pings_out = 0;
        } else if session.pings_out >= self.shared.limits.ping_max {
            self.end(io, id, Reason::Stale, Some(error::STALE_CONNECTION));
            return;
        } else {
            session.pings_out += 1;
            if let Some(conn) = io.writer(id) {
                outbound::append_bytes(conn, encode::PING);
            }
        }
        io.set_timer(id, Timer::PING, interval);
    }

    /// A blocked client must have taken something since the deadline was set.
    fn handle_write_timer(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        conn.session.has_deadline = false;
        if !conn.is_blocked() {
            return;
        }
        if conn.taken == conn.session.taken_mark {
            self.end_slow_consumer(io, id);
        } else {
            self.on_blocked(io, id);
        }
    }

    fn handle_handshake_timer(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        match conn.session.transport {
            Transport::Http(_) => {
                let response = http::plain(408, "the request did not come in time", &[]);
                if let Some(conn) = io.writer(id) {
                    conn.output.tail().extend_from_slice(&response);
                }
                self.end(io, id, Reason::HandshakeTimeout, None);
            }
            // Between requests it may be idle for one interval, inside a request not at all.
            Transport::Monitor(ref head) => {
                if head.is_empty() && std::mem::take(&mut conn.session.is_active) {
                    io.set_timer(id, Timer::HANDSHAKE, self.shared.limits.handshake_timeout);
                } else {
                    self.end(io, id, Reason::HandshakeTimeout, None);
                }
            }
            _ => {}
        }
    }

    /// Lame duck mode: no new clients, those that understand are told, and all are closed after a
    /// grace time, a few at a time.
    fn begin_draining(&mut self, io: &mut Io) {
        if self.draining.is_some() {
            return;
        }
        self.draining = Some(Draining::default());
        let for_clients = |kind: &ListenerKind| *kind != ListenerKind::Monitor;
        for (listener, _) in self
            .listeners
            .iter()
            .enumerate()
            .filter(|(_, kind)| for_clients(kind))
        {
            io.close_listener(listener);
        }
        for id in io.ids().collect::<Vec<_>>() {
            let Some(conn) = io.conn(id) else { continue };
            let session = &conn.session;
            match session.transport {
                Transport::Http(_) => {
                    self.end(io, id, Reason::Shutdown, None);
                }
                _ if session.flags.has(Flags::ASYNC_INFO) && session.flags.has(Flags::GREETED) => {
                    let is_websocket = session.framing.is_some();
                    let (cid, peer) = (session.cid, session.peer);
                    let info = self.shared.info.encode(is_websocket, true, cid, peer);
                    if let Some(conn) = io.writer(id) {
                        outbound::append_bytes(conn, &info);
                    }
                }
                _ => {}
            }
        }
        io.set_timer(
            ConnId::NONE,
            Timer::LAME_DUCK,
            self.shared.limits.lame_duck_grace,
        );
    }

    /// The monitor answers until all shards have drained.
    fn is_drained(&self) -> bool {
        if self.listeners.contains(&ListenerKind::Monitor) {
            self.shared.open.load(Ordering::Relaxed) == 0
        } else {
            self.open == 0
        }
    }

    fn handle_lame_duck_timer(&mut self, io: &mut Io) {
        let Some(draining) = &mut self.draining else {
            return;
        };
        if draining.per_step == 0 {
            let duration = self.shared.limits.lame_duck_duration.as_millis();
            let steps = (duration / Timer::LAME_DUCK_STEP.as_millis()).max(1) as usize;
            draining.per_step = io.connections().div_ceil(steps).max(1);
        }
        let per_step = draining.per_step;
        let is_open = |conn: &Conn<Session>| conn.is_open() && conn.session.is_client;
        let open = io.ids().filter(|id| io.conn(*id).is_some_and(is_open));
        for id in open.take(per_step).collect::<Vec<_>>() {
            self.end(io, id, Reason::Shutdown, None);
        }
        io.set_timer(ConnId::NONE, Timer::LAME_DUCK, Timer::LAME_DUCK_STEP);
    }
}

impl Handler for Shard {
    type Session = Session;
    type Mail = Mail;

    fn accept(&mut self, listener: usize, peer: SocketAddr) -> Option<Session> {
        let transport = match self.listeners.get(listener)? {
            ListenerKind::Tcp => Transport::Tcp(Parser::new()),
            ListenerKind::Http => Transport::Http(Vec::new()),
            ListenerKind::Monitor => Transport::Monitor(Vec::new()),
        };
        let cid = self.shared.next_cid.fetch_add(1, Ordering::Relaxed);
        Some(Session::new(cid, peer, transport))
    }

    fn on_open(&mut self, io: &mut Io, id: ConnId, _: Origin) {
        let Some(conn) = io.conn_mut(id) else { return };
        if conn.session.is_client {
            self.counts.add(Counter::ConnectionsOpened, 1);
            self.open += 1;
            self.shared.open.fetch_add(1, Ordering::Relaxed);
        }
        if !matches!(conn.session.transport, Transport::Tcp(_)) {
            io.set_timer(id, Timer::HANDSHAKE, self.shared.limits.handshake_timeout);
        } else if self.take_place(io, id) {
            self.greet(io, id);
        }
    }

    fn on_received(&mut self, io: &mut Io, id: ConnId, bytes: &mut [u8]) {
        let Some(conn) = io.conn_mut(id) else { return };
        conn.session.is_active = true;
        let transport = match std::mem::replace(&mut conn.session.transport, Transport::Busy) {
            Transport::Tcp(parser) => self.receive_tcp(io, id, parser, bytes),
            Transport::WebSocket(mut decoder, mut parser) => {
                let goes_on = self.receive_websocket(io, id, &mut decoder, &mut parser, bytes);
                goes_on.then_some(Transport::WebSocket(decoder, parser))
            }
            Transport::Http(head) => self.receive_http(io, id, head, bytes),
            Transport::Monitor(head) => self.receive_monitor(io, id, head, bytes),
            Transport::Echo(mut echo) => {
                let goes_on = self.receive_echo(io, id, &mut echo, bytes);
                goes_on.then_some(Transport::Echo(echo))
            }
            Transport::Busy => None,
        };
        if let (Some(transport), Some(conn)) = (transport, io.conn_mut(id)) {
            conn.session.transport = transport;
        }
    }

    fn on_blocked(&mut self, io: &mut Io, id: ConnId) {
        if let Some(conn) = io.conn_mut(id)
            && !conn.session.has_deadline
        {
            conn.session.has_deadline = true;
            conn.session.taken_mark = conn.taken;
            io.set_timer(id, Timer::WRITE, self.shared.limits.write_deadline);
        }
    }

    fn before_write(&mut self, conn: &mut Conn<Session>) {
        outbound::seal_frame(&mut conn.session.framing, &mut conn.output);
    }

    fn on_closed(
        &mut self,
        _: &mut Io,
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
        self.note_ended(id);
        self.release_session(id, &mut session);
        let dropped = match reason {
            Reason::SlowConsumer => Counter::DroppedSlowConsumer,
            Reason::Shutdown => Counter::DroppedShutdown,
            _ => Counter::DroppedClosed,
        };
        self.counts.add(dropped, unsent);
        if session.is_client {
            self.counts.add(Counter::ConnectionsClosed, 1);
            self.counts.add_closed(reason);
            self.open -= 1;
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn on_timer(&mut self, io: &mut Io, id: ConnId, kind: u8) {
        match kind {
            Timer::PING => self.handle_ping_timer(io, id),
            Timer::WRITE => self.handle_write_timer(io, id),
            Timer::HANDSHAKE => self.handle_handshake_timer(io, id),
            Timer::RESUME => self.handle_resume_timer(io, id),
            Timer::LAME_DUCK => self.handle_lame_duck_timer(io),
            _ => {}
        }
    }

    fn on_mail(&mut self, io: &mut Io, mail: Mail) {
        match mail {
            Mail::Deliver {
                parcel,
                receivers,
                publisher,
                weight,
            } => self.deliver_parcel(io, &parcel, &receivers, publisher, weight),
            Mail::Stall(id) => self.stall(io, (self.index, id)),
            Mail::Barrier(barrier) => {
                io.mail(usize::from(barrier.shard), Mail::Passed(barrier));
            }
            Mail::Passed(barrier) => self.handle_passed(io, barrier),
            Mail::Drain => self.begin_draining(io),
            Mail::Stop => io.stop(),
        }
    }

    fn on_undelivered(&mut self, mail: Mail) {
        match mail {
            Mail::Deliver {
                receivers, weight, ..
            } => {
                if let Some(to) = receivers.as_slice().first() {
                    self.shared.weights[usize::from(to.shard)].subtract(weight);
                }
                let count = receivers.as_slice().len() as u64;
                self.counts.add(Counter::DroppedShutdown, count);
            }
            Mail::Barrier(barrier) if barrier.shard == self.index => {
                self.returned.push(barrier);
            }
            Mail::Barrier(barrier) => {
                // If that shard has ended, too, nobody waits.
                let shard = usize::from(barrier.shard);
                drop(self.mailboxes.post(shard, Mail::Passed(barrier)));
            }
            Mail::Passed(_) | Mail::Stall(_) | Mail::Drain | Mail::Stop => {}
        }
    }

    fn on_turn_end(&mut self, io: &mut Io) {
        self.stalled_elsewhere = None;
        self.receive_deferred(io);
    }

    fn on_written(&mut self, io: &mut Io) {
        for barrier in std::mem::take(&mut self.returned) {
            self.handle_passed(io, barrier);
        }
        self.publish_counts(io);
        if self.draining.is_some() && self.is_drained() {
            io.stop();
        }
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
        | Reason::HandshakeTimeout => close::POLICY_VIOLATION,
    }
}
