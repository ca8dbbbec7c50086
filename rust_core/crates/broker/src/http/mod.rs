//! HTTP/1.1 on the clients' and the monitor's listeners: requests in, answers out in the same order, and
//! the upgrade to WebSocket.
//!
//! A request is read whole, routed by its head, and carried out once its body has come. One request of a
//! connection is under way at a time: what a client sends behind it waits, first here, then in the
//! kernel.

mod answer;
pub(crate) mod events;
mod field_names;
mod fields;
mod gateway;
pub(crate) mod inbox;
mod pages;
mod route;
mod timeout;

use std::time::{Duration, Instant};

use protocol::http::{
    BodyDecoder, BodyEvent, CONTINUE, Framing, HeadLimits, HttpError, RequestHead, parse_head,
};
use protocol::ws::{Batch, handshake};
use reactor::ConnId;

use crate::metrics::table::{Counter, Flow};
use crate::origins::Source;
use crate::outbound;
use crate::reason::Reason;
use crate::session::{Echo, Flags, Transport};
use crate::shard::{Io, Shard, Timer};
use crate::shared::ListenerKind;
use crate::transport::TransportKind;

pub(crate) use answer::Date;
pub(crate) use route::Call;

use gateway::Waiting;
use pages::Asking;

/// The refusal of a WebSocket connection for a page of another origin.
const FOREIGN_PAGE: &str = "pages of this origin may not connect; websocket.origins in the configuration lists those that may";
/// The longest name that DNS has.
const LONGEST_NAME: usize = 253;

/// An HTTP connection that has not become WebSocket.
pub(crate) struct Http {
    /// Whose requests these are.
    listener: ListenerKind,
    /// Received and not read yet: the beginning of a head, or what follows a request under way.
    buffer: Vec<u8>,
    state: State,
    /// When this state began; inside a head, when its first byte came.
    since: Instant,
    /// When the next timer for a reply fires, if one is set.
    timer_at: Option<Instant>,
}

/// What the connection waits for.
enum State {
    /// The first request.
    New,
    /// The next request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body(Box<Incoming>),
    /// A reply to be given as the answer.
    Reply(Waiting),
    /// What the shards say to the monitor's question.
    Survey(Asking),
    /// Nothing: it is sent events.
    Events,
}

/// A request whose body has not all come.
struct Incoming {
    call: Call,
    decoder: BodyDecoder,
    body: Vec<u8>,
}

/// What became of a request.
enum Step {
    /// It is answered, or waits for its reply.
    Next,
    /// The connection has become this.
    Become(Transport),
    /// The connection has ended.
    Ended,
}

impl Http {
    /// Return a connection that came at `now`.
    pub(crate) fn new(listener: ListenerKind, now: Instant) -> Self {
        Self {
            listener,
            buffer: Vec::new(),
            state: State::New,
            since: now,
            timer_at: None,
        }
    }

    /// Whether it is between two requests, or before the first one.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::New | State::Idle)
    }

    /// Whether a request is under way whose answer comes from elsewhere.
    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Reply(_) | State::Survey(_))
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
    }
}

impl Shard {
    /// Reads requests and carries them out; what the connection is then, or `None` when it has ended.
    pub(crate) fn receive_http(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut http: Box<Http>,
        input: &[u8],
    ) -> Option<Transport> {
        let mut held = std::mem::take(&mut http.buffer);
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(input);
        }
        let mut rest: &[u8] = if is_held { &held } else { input };
        self.reading = Some(id);
        self.is_stalled = false;
        let mut is_put_off = false;
        loop {
            if rest.is_empty() || http.is_waiting() {
                break;
            }
            if self.is_stalled || io.is_spent() {
                is_put_off = true;
                break;
            }
            let step = match &mut http.state {
                State::New | State::Idle | State::Head => {
                    match parse_head(rest, HeadLimits::default()) {
                        Ok(Some((head, used))) => {
                            rest = &rest[used..];
                            self.begin_request(io, id, &mut http, &head, &mut rest)
                        }
                        Ok(None) if matches!(http.state, State::Head) => break,
                        Ok(None) => {
                            http.enter(State::Head, io.now());
                            break;
                        }
                        Err(error) => self.refuse_http(io, id, error),
                    }
                }
                State::Body(_) => self.receive_body(io, id, &mut http, &mut rest),
                // A client that listens to events has nothing more to say here.
                State::Reply(_) | State::Survey(_) | State::Events => {
                    rest = &[];
                    Step::Next
                }
            };
            match step {
                Step::Next => {}
                Step::Become(transport) => return Some(transport),
                Step::Ended => return None,
            }
        }
        self.reading.take()?;
        let left = rest.len();
        if is_held && left > 0 {
            held.drain(..held.len() - left);
            http.buffer = held;
        } else {
            http.buffer = rest.to_vec();
        }
        if is_put_off {
            self.deferred.push_back(id);
        }
        let is_held_up = is_put_off || (http.is_waiting() && !http.buffer.is_empty());
        io.set_reading(id, !is_held_up && !self.is_stalled);
        Some(Transport::Http(http))
    }

    /// Routes a request by its head, and carries it out if it has come whole.
    fn begin_request(
        &mut self,
        io: &mut Io,
        id: ConnId,
        http: &mut Http,
        head: &RequestHead<'_>,
        rest: &mut &[u8],
    ) -> Step {
        let control = head.control();
        if control.is_ok() && !self.shared.hosts.serves(head.authority()) {
            return self.refuse_host(io, id, head.authority());
        }
        let is_client = http.listener == ListenerKind::Http;
        let may_upgrade = control.as_ref().map_or(true, |control| control.upgrade);
        if is_client && may_upgrade && head.headers.has_token("Upgrade", "websocket") {
            return self.begin_websocket(io, id, head, control.err(), rest);
        }
        let control = match control {
            Ok(control) => control,
            Err(error) => return self.refuse_http(io, id, error),
        };
        self.counts.add(Counter::HttpRequests, 1);
        let mut call = std::mem::take(&mut self.call);
        if is_client {
            call.route(head, &self.shared.gateway);
        } else {
            call.route_monitor(head);
        }
        call.keep_alive = control.keep_alive;
        if call.is_upgrade() {
            self.call = call;
            return self.begin_websocket(io, id, head, None, rest);
        }
        let limit = self.shared.limits.max_payload;
        let announced = match control.framing {
            Framing::Length(length) => length,
            Framing::None | Framing::Chunked => 0,
        };
        match control.framing {
            _ if call.message_len(announced) > limit as u64 => {
                call.fail_length(limit);
                self.finish(io, id, http, call, &[])
            }
            // Who asks before sending a body is answered before it.
            _ if control.expects_continue && call.is_refused() => {
                call.keep_alive = false;
                self.finish(io, id, http, call, &[])
            }
            Framing::Length(length) if length <= rest.len() as u64 => {
                let (body, after) = rest.split_at(length as usize);
                *rest = after;
                self.finish(io, id, http, call, body)
            }
            Framing::None => self.finish(io, id, http, call, &[]),
            framing => {
                if control.expects_continue
                    && rest.is_empty()
                    && let Some(conn) = io.writer(id)
                {
                    conn.output.tail().extend_from_slice(CONTINUE);
                }
                let incoming = Incoming {
                    call,
                    decoder: BodyDecoder::new(framing),
                    body: Vec::new(),
                };
                http.enter(State::Body(Box::new(incoming)), io.now());
                self.receive_body(io, id, http, rest)
            }
        }
    }

    /// Reads more of a body; carries the request out when it has all come.
    fn receive_body(&mut self, io: &mut Io, id: ConnId, http: &mut Http, rest: &mut &[u8]) -> Step {
        let limit = self.shared.limits.max_payload;
        let State::Body(incoming) = &mut http.state else {
            return Step::Next;
        };
        loop {
            match incoming.decoder.next(rest) {
                Ok(Some(BodyEvent::Data(bytes))) => {
                    let body = (incoming.body.len() + bytes.len()) as u64;
                    if incoming.call.message_len(body) > limit as u64 {
                        let mut call = std::mem::take(&mut incoming.call);
                        call.fail_length(limit);
                        return self.finish(io, id, http, call, &[]);
                    }
                    incoming.body.extend_from_slice(bytes);
                }
                Ok(Some(BodyEvent::End)) => {
                    let (call, body) = (
                        std::mem::take(&mut incoming.call),
                        std::mem::take(&mut incoming.body),
                    );
                    return self.finish(io, id, http, call, &body);
                }
                Ok(None) => return Step::Next,
                Err(error) => return self.refuse_http(io, id, error),
            }
        }
    }

    /// Carries out a request whose body is here, and keeps the call's memory for the next one.
    fn finish(
        &mut self,
        io: &mut Io,
        id: ConnId,
        http: &mut Http,
        mut call: Call,
        body: &[u8],
    ) -> Step {
        let is_placed =
            http.listener == ListenerKind::Monitor || self.place_http(io, id, &mut call);
        call.keep_alive &= is_placed && self.draining.is_none();
        http.enter(State::Idle, io.now());
        io.spend(body.len());
        let goes_on = self.carry_out(io, id, http, &call, body);
        self.call = call;
        if goes_on { Step::Next } else { Step::Ended }
    }

    /// Whether the connection has one of the places that `max_connections` limits; a call that finds
    /// none is refused.
    fn place_http(&mut self, io: &mut Io, id: ConnId, call: &mut Call) -> bool {
        if io.conn(id).is_some_and(|conn| conn.session.has_place) {
            return true;
        }
        match self.find_place(io, id) {
            Ok(()) => true,
            Err((reason, text)) => {
                call.fail(503, text);
                call.ends_for = Some(reason);
                false
            }
        }
    }

    /// Makes the connection a WebSocket, or refuses to; `error` is what else is wrong with the head.
    fn begin_websocket(
        &mut self,
        io: &mut Io,
        id: ConnId,
        head: &RequestHead<'_>,
        error: Option<HttpError>,
        rest: &mut &[u8],
    ) -> Step {
        let accepted = handshake::accept(head);
        if let (Ok(_), Some(error)) = (&accepted, error) {
            return self.refuse_http(io, id, error);
        }
        let (status, reason) = match accepted {
            Ok(_) if !self.may_connect(head) => (403, FOREIGN_PAGE),
            // A client must not send frames before it has read the answer.
            Ok(_) if !rest.is_empty() => (400, "data before the handshake was complete"),
            Ok(accept) => match head.path() {
                "/echo" if self.shared.limits.echo => {
                    let echo = Transport::Echo(Box::new(Echo::new()));
                    return self.upgrade(io, id, &accept, echo);
                }
                // nats-server speaks other protocols there; a client of theirs must not hang.
                path if path.ends_with("/leafnode") || path.ends_with("/mqtt") => {
                    (404, "no such protocol here")
                }
                _ => return self.upgrade(io, id, &accept, self.nats_transport()),
            },
            Err(reject) => {
                let mut response = Vec::new();
                reject.encode(&mut response);
                return self.end_http(io, id, (reject.status(), reject.reason()), &response);
            }
        };
        self.end_http(io, id, (status, reason), &answer::plain(status, reason))
    }

    fn upgrade(
        &mut self,
        io: &mut Io,
        id: ConnId,
        accept: &handshake::Accept,
        transport: Transport,
    ) -> Step {
        let Some(conn) = io.writer(id) else {
            return Step::Ended;
        };
        handshake::encode_accept(conn.output.tail(), accept, &[]);
        self.counts
            .add_flow(TransportKind::WebSocket, Flow::Opened, 1);
        conn.session.framing = outbound::Framing::WebSocket(Batch::new());
        let is_echo = matches!(transport, Transport::Echo(_));
        if is_echo {
            conn.session.flags.set(Flags::GREETED);
        }
        if !conn.session.has_place && !self.take_place(io, id) {
            return Step::Ended;
        }
        if !is_echo {
            self.greet(io, id);
        }
        Step::Become(transport)
    }

    /// Whether WebSocket connections are taken from where this request comes from. Programs other than
    /// browsers name no origin.
    fn may_connect(&self, head: &RequestHead<'_>) -> bool {
        let origins = &self.shared.websocket_origins;
        match head.headers.value("Origin") {
            Ok(None) => true,
            Ok(Some(origin)) => origins.source(origin, head.authority()) != Source::Foreign,
            Err(_) => false,
        }
    }

    /// Refuse a request to a name that does not belong to this host.
    fn refuse_host(&mut self, io: &mut Io, id: ConnId, authority: &[u8]) -> Step {
        let shown = &authority[..authority.len().min(LONGEST_NAME)];
        let detail = format!(
            "{} is not a name of this host; allowed_hosts in the configuration lists those that are served \
             besides addresses and localhost",
            String::from_utf8_lossy(shown)
        );
        self.end_http(io, id, (421, &detail), &answer::problem(421, &detail))
    }

    /// Answers a request that cannot be read.
    fn refuse_http(&mut self, io: &mut Io, id: ConnId, error: HttpError) -> Step {
        let why = (error.status(), error.reason());
        self.end_http(io, id, why, &answer::problem(why.0, why.1))
    }

    /// Sends a whole response, whose status and reason are `why`, and closes.
    fn end_http(&mut self, io: &mut Io, id: ConnId, why: (u16, &str), response: &[u8]) -> Step {
        self.counts.add(Counter::HttpErrors, 1);
        let session = io.conn(id).map(|conn| &conn.session);
        self.log.refused(io.now(), session, why.0, why.1);
        if let Some(conn) = io.writer(id) {
            conn.output.tail().extend_from_slice(response);
        }
        self.end(io, id, Reason::HttpAnswered, None);
        Step::Ended
    }

    /// Looks after the time that a request may take.
    pub(crate) fn handle_http_timer(&mut self, io: &mut Io, id: ConnId) {
        let now = io.now();
        let limits = &self.shared.limits;
        let Some(conn) = io.conn_mut(id) else { return };
        let Transport::Http(http) = &conn.session.transport else {
            return;
        };
        let patience = match http.state {
            State::New | State::Head | State::Body(_) => limits.handshake_timeout,
            State::Idle => limits.http_idle_timeout,
            State::Reply(_) | State::Survey(_) => Duration::MAX,
            State::Events => return,
        };
        let left = patience.saturating_sub(now.saturating_duration_since(http.since));
        if !left.is_zero() {
            // A request may begin meanwhile, and has no more time than that.
            io.set_timer(id, Timer::HANDSHAKE, left.min(limits.http_check()));
            return;
        }
        if matches!(http.state, State::Idle) {
            self.end(io, id, Reason::HttpAnswered, None);
            return;
        }
        self.counts.add(Counter::HttpErrors, 1);
        if let Some(conn) = io.writer(id) {
            let response = answer::problem(408, "the request did not come in time");
            conn.output.tail().extend_from_slice(&response);
        }
        self.end(io, id, Reason::HandshakeTimeout, None);
    }
}
