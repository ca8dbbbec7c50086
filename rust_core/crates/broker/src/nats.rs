//! The operations of NATS clients.

use protocol::nats::{ClientOp, ConnectOptions, FromClient, ParseError, Parser, encode, error};
use protocol::ws::close;
use reactor::ConnId;

use crate::admission::Stage;
use crate::clients::Clients;
use crate::config::Limits;
use crate::fence::Fence;
use crate::io::{Io, Timer};
use crate::jobs::Job;
use crate::metrics::table::Counter;
use crate::outbound;
use crate::pattern::Excess;
use crate::protocols::Protocol;
use crate::publishing::Publishing;
use crate::reason::Reason;
use crate::session::Flags;
use crate::sessions::Sessions;
use crate::subscriptions::{SUBSCRIBE, Subscription};

/// Work of an operation, besides its effects on other connections.
const OPERATION: usize = 100;
/// Bytes of a subject that an `-ERR` shows.
const MAX_SHOWN: usize = 256;
/// Work of looking at one slot for a subscription.
const LOOK: usize = 10;
/// Slots that are looked at before the budget is asked.
const STEP: u32 = 32;

/// The outcome of reading a slice of the stream.
pub(crate) enum Read<'a> {
    /// All of it was read.
    All,
    /// The turn has spent its budget, or the publisher is stalled: this is left for later.
    Left(&'a [u8]),
    /// The connection has ended.
    Ended,
}

/// The part of a shard that carries out the operations of NATS clients.
#[derive(Default)]
pub(crate) struct Nats {
    clients: Clients,
    pub(crate) fence: Fence,
}

impl Nats {
    /// Read bytes of a connection over TCP, whose `parser` was taken out.
    pub(crate) fn receive_tcp(
        &mut self,
        sessions: &mut Sessions,
        publishing: &mut Publishing,
        io: &mut Io,
        id: ConnId,
        mut parser: Parser<FromClient>,
        input: &[u8],
    ) {
        match self.receive(sessions, publishing, io, id, &mut parser, input) {
            Read::All => {}
            Read::Left(plain) => sessions.defer(io, id, plain, &[]),
            Read::Ended => return,
        }
        if let Some(conn) = io.conn_mut(id)
            && let Protocol::Tcp(input) = &mut conn.session.protocol
        {
            *input = parser;
        }
    }

    /// Read operations from a client's stream.
    pub(crate) fn receive<'a>(
        &mut self,
        sessions: &mut Sessions,
        publishing: &mut Publishing,
        io: &mut Io,
        id: ConnId,
        parser: &mut Parser<FromClient>,
        mut input: &'a [u8],
    ) -> Read<'a> {
        let Some(conn) = io.conn(id) else {
            return Read::Ended;
        };
        let mut is_half_open = matches!(conn.session.stage, Stage::HalfOpen(_));
        let mut client = Client {
            flags: conn.session.flags,
            nats: self,
            sessions,
            publishing,
            io,
            id,
        };
        let mut left: &[u8] = &[];
        client.sessions.reading.begin(id);
        while client.sessions.reading.goes_on() {
            let limits = protocol::nats::Limits {
                max_control_line: client.sessions.shared.limits.max_control_line,
                max_payload: client.sessions.shared.limits.max_payload,
                headers: client.flags.has(Flags::HEADERS),
            };
            match parser.next(&limits, &mut input) {
                Ok(Some(op)) => {
                    client.io.spend(OPERATION);
                    if is_half_open {
                        is_half_open = false;
                        if !client.sessions.introduce(client.io, id) {
                            break;
                        }
                    }
                    client.handle_op(op);
                }
                Ok(None) => break,
                Err(error) => client.end(reason(&error), error.err_text()),
            }
            let is_over = client.io.is_spent() || client.sessions.reading.is_stalled();
            if is_over && !input.is_empty() {
                left = std::mem::take(&mut input);
            }
        }
        self.fence.send_barrier(publishing, io, id);
        if !sessions.reading.end() || is_flooded(sessions, io, id) {
            Read::Ended
        } else if left.is_empty() {
            Read::All
        } else {
            Read::Left(left)
        }
    }

    /// Remove the subscriptions of a client that starts over, from this slot on; return the rest of the
    /// work.
    pub(crate) fn remove_former(
        &mut self,
        sessions: &mut Sessions,
        publishing: &Publishing,
        io: &mut Io,
        id: ConnId,
        mut next: u32,
    ) -> Option<Job> {
        let mut former = Vec::new();
        let rest = loop {
            let subscriptions = &io.conn(id)?.session.subscriptions;
            if next >= subscriptions.slots() {
                break None;
            }
            if io.is_spent() {
                break Some(Job::StartOver { conn: id, next });
            }
            let active = subscriptions.iter_in(next..next + STEP);
            let active = active.filter(|(_, one)| !one.leaving);
            former.extend(active.map(|(handle, _)| handle));
            io.spend(LOOK * STEP as usize);
            for handle in former.drain(..) {
                self.fence.unsubscribe(sessions, publishing, io, id, handle);
            }
            next += STEP;
        };
        if !sessions.reading.is_current(id) {
            // A barrier for each slice, so that no turn has to remove all that has left at once.
            self.fence.send_barrier(publishing, io, id);
            if rest.is_none() {
                sessions.resume(io, id);
            }
        }
        rest
    }

    /// Send a client that is silent the next `PING`, or end it if too many went unanswered.
    pub(crate) fn handle_ping_timer(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
        let Some(interval) = sessions.shared.limits.ping_interval else {
            return;
        };
        let Some(conn) = io.conn_mut(id) else { return };
        let session = &mut conn.session;
        if std::mem::take(&mut session.is_active) {
            session.pings_out = 0;
        } else if session.pings_out >= sessions.shared.limits.ping_max {
            sessions.end(io, id, Reason::Stale, Some(error::STALE_CONNECTION));
            return;
        } else {
            session.pings_out += 1;
            if let Some(conn) = io.writer(id) {
                outbound::append_bytes(conn, encode::PING);
            }
        }
        io.set_timer(id, Timer::PING, interval);
    }
}

/// A client whose operations are being read, and the parts that they reach.
struct Client<'a> {
    flags: Flags,
    nats: &'a mut Nats,
    sessions: &'a mut Sessions,
    publishing: &'a mut Publishing,
    io: &'a mut Io,
    id: ConnId,
}

impl Client<'_> {
    #[inline]
    fn handle_op(&mut self, op: ClientOp<'_>) {
        match op {
            ClientOp::Pub(message) => {
                if self.flags.has(Flags::VERBOSE | Flags::PEDANTIC) {
                    self.check_publish(message.subject);
                }
                self.publishing
                    .publish(self.sessions, self.io, self.id, self.flags, &message);
            }
            ClientOp::Sub {
                subject,
                queue,
                sid,
            } => self.handle_sub(subject, queue, sid),
            ClientOp::Unsub { sid, max } => {
                self.handle_unsub(sid, max);
                self.acknowledge();
            }
            ClientOp::Ping => self
                .nats
                .fence
                .answer_ping(self.io, self.id, &mut self.flags),
            ClientOp::Pong => {
                if let Some(conn) = self.io.conn_mut(self.id) {
                    conn.session.pings_out = 0;
                }
            }
            ClientOp::Connect(json) => self.handle_connect(json),
            ClientOp::Info | ClientOp::Ok => {}
            ClientOp::Err => self.end(Reason::ClientClosed, None),
        }
    }

    fn end(&mut self, reason: Reason, error: Option<&str>) {
        self.sessions.end(self.io, self.id, reason, error);
    }

    fn handle_connect(&mut self, json: &[u8]) {
        let Ok(options) = ConnectOptions::parse(json) else {
            return self.end(Reason::ProtocolError, None);
        };
        if let Err(text) = options.validate(true) {
            let code = match text {
                error::INVALID_CLIENT_PROTOCOL => close::PROTOCOL_ERROR,
                error::NO_RESPONDERS_REQUIRES_HEADERS => close::INTERNAL_ERROR,
                _ => close::POLICY_VIOLATION,
            };
            let (error, close) = (Some(text), Some((code, text)));
            self.sessions
                .end_with_close(self.io, self.id, Reason::Refused, error, close);
            return;
        }
        // A later CONNECT starts over: what was subscribed before is gone.
        self.start_over();
        self.flags.connect(&options);
        let now = self.io.now();
        if let Some(conn) = self.io.conn_mut(self.id) {
            conn.session.flags = self.flags;
            conn.session.info = self.nats.clients.share(&options);
            self.sessions.log.identified(now, &conn.session);
        }
        self.acknowledge();
    }

    /// Answer a `PUB` of a verbose or pedantic client. It is routed in any case.
    fn check_publish(&mut self, subject: &[u8]) {
        if self.flags.has(Flags::PEDANTIC) && !router::subject::is_valid_publish(subject) {
            self.refuse(error::INVALID_PUBLISH_SUBJECT);
        }
        self.acknowledge();
    }

    fn handle_sub(&mut self, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        self.io.spend(SUBSCRIBE);
        let Some(conn) = self.io.conn_mut(self.id) else {
            return;
        };
        let subscriptions = &mut conn.session.subscriptions;
        // A SID that is in use keeps its subscription.
        if subscriptions.find(sid).is_none() {
            let limits = &self.sessions.shared.limits;
            if let Err(excess) = check_subscription(limits, subject, sid) {
                return self.refuse(&refusal(subject, excess));
            }
            if limits.max_subscriptions > 0 && subscriptions.len() >= limits.max_subscriptions {
                return self.refuse(error::MAX_SUBSCRIPTIONS_EXCEEDED);
            }
            let handle = subscriptions.insert(Subscription::new(subject, queue, sid));
            let subscriber = self.sessions.subscriber(self.id, handle);
            let routing = &self.sessions.shared.routing;
            if routing.subscribe(subject, queue, subscriber).is_err() {
                subscriptions.remove(handle);
                return self.refuse(error::INVALID_SUBJECT);
            }
            self.sessions.counts.add(Counter::Subscribed, 1);
        }
        self.acknowledge();
    }

    fn handle_unsub(&mut self, sid: &[u8], max: Option<u64>) {
        let Some(conn) = self.io.conn_mut(self.id) else {
            return;
        };
        let subscriptions = &mut conn.session.subscriptions;
        let Some(handle) = subscriptions.find(sid) else {
            return;
        };
        let Some(subscription) = subscriptions.value_mut(handle) else {
            return;
        };
        match max {
            Some(max) if max > subscription.delivered => subscription.max = max,
            _ => {
                let (fence, sessions) = (&mut self.nats.fence, &mut *self.sessions);
                fence.unsubscribe(sessions, self.publishing, self.io, self.id, handle);
            }
        }
    }

    /// Remove the subscriptions that the client made before this `CONNECT`. It is not read until that is
    /// done.
    fn start_over(&mut self) {
        let conn = self.io.conn(self.id);
        if conn.is_none_or(|conn| conn.session.subscriptions.len() == 0) {
            return;
        }
        let (sessions, publishing) = (&mut *self.sessions, &*self.publishing);
        let rest = self
            .nats
            .remove_former(sessions, publishing, self.io, self.id, 0);
        if let Some(job) = rest {
            sessions.stall(self.io, self.id);
            sessions.jobs.add(job);
            self.io.wake_at(self.io.now());
        }
    }

    /// Answer a verbose client with `+OK`.
    #[inline]
    fn acknowledge(&mut self) {
        if self.flags.has(Flags::VERBOSE)
            && let Some(conn) = self.io.writer(self.id)
        {
            outbound::append_reply(conn, encode::OK);
        }
    }

    /// Answer with an `-ERR` after which the connection goes on, in its place among the other replies.
    fn refuse(&mut self, text: &str) {
        if let Some(conn) = self.io.writer(self.id) {
            self.sessions.counts.add(Counter::Errors, 1);
            let mut bytes = Vec::with_capacity(text.len() + 10);
            encode::encode_err(&mut bytes, text);
            outbound::append_reply(conn, &bytes);
        }
    }
}

/// End a client that asks for replies and does not read them; return whether it is such a client.
fn is_flooded(sessions: &mut Sessions, io: &mut Io, id: ConnId) -> bool {
    let Some(conn) = io.conn(id) else {
        return true;
    };
    let held = conn.session.held.as_ref().map_or(0, |held| held.len());
    let is_flooded = conn.output.len() + held > sessions.shared.limits.max_pending;
    if is_flooded {
        sessions.abort(io, id, Reason::SlowConsumer);
    }
    is_flooded
}

/// Check the names of a subscription.
fn check_subscription(limits: &Limits, subject: &[u8], sid: &[u8]) -> Result<(), Excess> {
    if sid.len() > limits.max_sid {
        return Err(Excess::Sid(limits.max_sid));
    }
    limits.pattern.check(subject)
}

/// Return the text of an `-ERR` for a subscription that exceeds a limit. Of a long subject it has the
/// beginning.
fn refusal(subject: &[u8], excess: Excess) -> String {
    match subject.get(..MAX_SHOWN) {
        Some(start) => error::subscribe_refused(&[start, b"..."].concat(), excess),
        None => error::subscribe_refused(subject, excess),
    }
}

fn reason(error: &ParseError) -> Reason {
    match error {
        ParseError::PayloadTooLarge { .. } => Reason::PayloadTooLarge,
        ParseError::ControlLineTooLong { .. } => Reason::ControlLineTooLong,
        _ => Reason::ProtocolError,
    }
}
