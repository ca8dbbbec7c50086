//! Requests over HTTP: from received bytes to the gateway, to the monitor, or to a WebSocket connection.
//!
//! A request is read whole, routed by its head, and carried out once its body has come. One request of a
//! connection is under way at a time: the bytes behind it wait, first in the connection's buffer, then in
//! the kernel.

use std::time::Duration;

use protocol::http::{
    BodyDecoder, BodyEvent, CONTINUE, Framing, HeadLimits, HttpError, RequestHead, parse_head,
};
use protocol::ws::handshake;
use reactor::ConnId;

use super::answer;
use super::connection::{Http, Incoming, State};
use super::exchange::Exchange;
use super::gateway::Gateway;
use super::route::Call;
use crate::admission::Stage;
use crate::io::{Io, Timer};
use crate::metrics::table::{Counter, Flow};
use crate::monitor::Monitor;
use crate::origins::Source;
use crate::protocols::Protocol;
use crate::reason::Reason;
use crate::session::Flags;
use crate::sessions::Sessions;
use crate::transport::{ListenerKind, TransportKind};

/// The refusal of a WebSocket connection for a page of another origin.
const FOREIGN_PAGE: &str = "pages of this origin may not connect; websocket.origins in the configuration lists those that may";
/// The answer to a request that takes too long: status and detail.
pub(crate) const TIMEOUT: (u16, &str) = (408, "the request did not come in time");
/// The longest name that DNS has.
const LONGEST_NAME: usize = 253;

/// The requests of one connection, and the parts that they reach. Methods return false when the connection
/// is not read as HTTP any more: it has ended or has become WebSocket.
pub(crate) struct Requests<'a> {
    pub(crate) on: Exchange<'a>,
    pub(crate) gateway: &'a mut Gateway,
    pub(crate) monitor: &'a mut Monitor,
}

impl Requests<'_> {
    /// Read requests and carry them out.
    pub(crate) fn receive(&mut self, input: &[u8]) {
        let Some(http) = self.on.http() else { return };
        let mut held = std::mem::take(&mut http.buffer);
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(input);
        }
        let mut rest: &[u8] = if is_held { &held } else { input };
        self.on.sessions.reading.begin(self.on.id);
        let mut is_put_off = false;
        while !rest.is_empty() {
            let is_spent = self.on.io.is_spent() || self.on.sessions.reading.is_stalled();
            let Some(http) = self.on.http() else { break };
            if http.is_waiting() {
                break;
            }
            if is_spent {
                is_put_off = true;
                break;
            }
            match http.state {
                State::New | State::Idle | State::Head => {}
                State::Body(_) => {
                    if !self.receive_body(&mut rest) {
                        break;
                    }
                    continue;
                }
                // Bytes of a client that listens to events mean nothing.
                State::Reply(_) | State::Queued(_) | State::Survey(_) | State::Events(_) => {
                    rest = &[];
                    continue;
                }
            }
            let goes_on = match parse_head(rest, HeadLimits::default()) {
                Ok(Some((head, used))) => {
                    rest = &rest[used..];
                    self.begin_request(&head, &mut rest)
                }
                Ok(None) => {
                    self.await_head();
                    break;
                }
                Err(error) => self.refuse(error),
            };
            if !goes_on {
                break;
            }
        }
        let is_here = self.on.sessions.reading.end();
        let is_stalled = self.on.sessions.reading.is_stalled();
        let Some(http) = self.on.http().filter(|_| is_here) else {
            return;
        };
        let left = rest.len();
        if is_held && left > 0 {
            held.drain(..held.len() - left);
            http.buffer = held;
        } else {
            http.buffer = rest.to_vec();
        }
        let is_waiting = http.is_waiting() && !http.buffer.is_empty();
        if is_put_off {
            self.on.sessions.reading.put_off(self.on.id);
        }
        let reads_on = !(is_put_off || is_waiting || is_stalled);
        self.on.io.set_reading(self.on.id, reads_on);
    }

    /// End a request that takes too long, or a connection that has been idle for too long.
    pub(crate) fn handle_timer(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
        let now = io.now();
        let limits = &sessions.shared.limits;
        let http = io.conn(id).and_then(|conn| conn.session.http());
        let Some(http) = http else { return };
        let patience = match http.state {
            State::New | State::Head | State::Body(_) => limits.handshake_timeout,
            State::Idle => limits.http_idle_timeout,
            State::Reply(_) | State::Queued(_) | State::Survey(_) => Duration::MAX,
            State::Events(_) => return,
        };
        let left = patience.saturating_sub(now.saturating_duration_since(http.since));
        if !left.is_zero() {
            // A request may begin meanwhile, and has no more time than that.
            io.set_timer(id, Timer::HANDSHAKE, left.min(limits.http_check()));
        } else if matches!(http.state, State::Idle) {
            sessions.end(io, id, Reason::HttpAnswered, None);
        } else {
            sessions.end_request(io, id, Reason::HandshakeTimeout, TIMEOUT);
        }
    }

    /// Wait for the rest of a head.
    fn await_head(&mut self) {
        let now = self.on.io.now();
        if let Some(http) = self.on.http()
            && !matches!(http.state, State::Head)
        {
            http.enter(State::Head, now);
        }
    }

    /// Route a request by its head, and carry it out if it has come whole.
    fn begin_request(&mut self, head: &RequestHead<'_>, rest: &mut &[u8]) -> bool {
        if !self.on.sessions.introduce(self.on.io, self.on.id) {
            return false;
        }
        let control = head.control();
        if control.is_ok() && !self.on.sessions.shared.hosts.serves(head.authority()) {
            return self.refuse_host(head.authority());
        }
        let Some(http) = self.on.http() else {
            return false;
        };
        let (is_client, is_for_health) = (http.listener == ListenerKind::Http, http.is_for_health);
        let may_upgrade = control.as_ref().map_or(true, |control| control.upgrade);
        if is_client && may_upgrade && head.headers.has_token("Upgrade", "websocket") {
            return self.begin_websocket(head, control.err(), rest);
        }
        let control = match control {
            Ok(control) => control,
            Err(error) => return self.refuse(error),
        };
        self.on.sessions.counts.add(Counter::HttpRequests, 1);
        let mut call = std::mem::take(&mut self.gateway.call);
        if is_client {
            call.route(head, &self.on.sessions.shared.gateway);
        } else {
            call.route_monitor(head);
        }
        call.keep_alive = control.keep_alive && !is_for_health;
        if call.is_upgrade() {
            self.gateway.call = call;
            return self.begin_websocket(head, None, rest);
        }
        if let Some(Stage::Refused(refusal)) =
            self.on.io.conn(self.on.id).map(|conn| conn.session.stage)
        {
            call.fail(503, refusal.text());
            call.ends_for = Some(refusal.reason());
            call.keep_alive = false;
            return self.finish(call, &[]);
        }
        self.watch();
        let limit = self.on.sessions.shared.limits.max_payload;
        let announced = match control.framing {
            Framing::Length(length) => length,
            Framing::None | Framing::Chunked => 0,
        };
        match control.framing {
            _ if call.message_len(announced) > limit as u64 => {
                call.fail_length(limit);
                self.finish(call, &[])
            }
            // A client that asks before it sends a body is answered before it.
            _ if control.expects_continue && call.is_refused() => {
                call.keep_alive = false;
                self.finish(call, &[])
            }
            Framing::Length(length) if length <= rest.len() as u64 => {
                let (body, after) = rest.split_at(length as usize);
                *rest = after;
                self.finish(call, body)
            }
            Framing::None => self.finish(call, &[]),
            framing => {
                if control.expects_continue
                    && rest.is_empty()
                    && let Some(conn) = self.on.io.writer(self.on.id)
                {
                    conn.output.tail().extend_from_slice(CONTINUE);
                }
                let incoming = Box::new(Incoming {
                    call,
                    decoder: BodyDecoder::new(framing),
                    body: Vec::new(),
                });
                let now = self.on.io.now();
                if let Some(http) = self.on.http() {
                    http.enter(State::Body(incoming), now);
                }
                self.receive_body(rest)
            }
        }
    }

    /// Set the timer for the time that requests may take, unless it is set.
    fn watch(&mut self) {
        let is_watched = self
            .on
            .http()
            .is_none_or(|http| std::mem::replace(&mut http.is_watched, true));
        if !is_watched {
            let check = self.on.sessions.shared.limits.http_check();
            self.on.set_timer(Timer::HANDSHAKE, Some(check));
        }
    }

    /// Read more of a body; carry the request out when it has all come.
    fn receive_body(&mut self, rest: &mut &[u8]) -> bool {
        let limit = self.on.sessions.shared.limits.max_payload;
        let Some(Http {
            state: State::Body(incoming),
            ..
        }) = self.on.http()
        else {
            return true;
        };
        loop {
            match incoming.decoder.next(rest) {
                Ok(Some(BodyEvent::Data(bytes))) => {
                    let body = (incoming.body.len() + bytes.len()) as u64;
                    if incoming.call.message_len(body) > limit as u64 {
                        let mut call = std::mem::take(&mut incoming.call);
                        call.fail_length(limit);
                        return self.finish(call, &[]);
                    }
                    incoming.body.extend_from_slice(bytes);
                }
                Ok(Some(BodyEvent::End)) => {
                    let call = std::mem::take(&mut incoming.call);
                    let body = std::mem::take(&mut incoming.body);
                    return self.finish(call, &body);
                }
                Ok(None) => return true,
                Err(error) => return self.refuse(error),
            }
        }
    }

    /// Carry out a request whose body is here.
    fn finish(&mut self, mut call: Call, body: &[u8]) -> bool {
        let now = self.on.io.now();
        let Some(http) = self.on.http() else {
            return false;
        };
        http.enter(State::Idle, now);
        let is_client = http.listener == ListenerKind::Http;
        self.on.io.spend(body.len());
        call.keep_alive &= !self.on.sessions.is_draining;
        if is_client {
            self.gateway.carry_out(&mut self.on, call, body)
        } else {
            self.monitor.ask(&mut self.on, call)
        }
    }

    /// Make the connection a WebSocket, or refuse to; `error` is an error of the head besides.
    fn begin_websocket(
        &mut self,
        head: &RequestHead<'_>,
        error: Option<HttpError>,
        rest: &[u8],
    ) -> bool {
        let accepted = handshake::accept(head);
        if let (Ok(_), Some(error)) = (&accepted, error) {
            return self.refuse(error);
        }
        let shared = &self.on.sessions.shared;
        let (status, reason) = match accepted {
            Ok(_) if !self.may_connect(head) => (403, FOREIGN_PAGE),
            // A client must not send frames before it has read the answer.
            Ok(_) if !rest.is_empty() => (400, "data before the handshake was complete"),
            Ok(accept) => match head.path() {
                "/echo" if shared.limits.echo => return self.upgrade(&accept, Protocol::echo()),
                // nats-server speaks other protocols there; a client that expects them must not hang.
                path if path.ends_with("/leafnode") || path.ends_with("/mqtt") => {
                    (404, "no such protocol here")
                }
                _ => {
                    let nats = Protocol::websocket(shared.max_ws_message);
                    return self.upgrade(&accept, nats);
                }
            },
            Err(reject) => {
                let mut response = Vec::new();
                reject.encode(&mut response);
                return self.end((reject.status(), reject.reason()), &response);
            }
        };
        self.end((status, reason), &answer::plain(status, reason))
    }

    /// Make the connection a WebSocket with this protocol.
    fn upgrade(&mut self, accept: &handshake::Accept, protocol: Protocol) -> bool {
        let Some(conn) = self.on.io.writer(self.on.id) else {
            return false;
        };
        handshake::encode_accept(conn.output.tail(), accept, &[]);
        let is_echo = matches!(protocol, Protocol::Echo(_));
        conn.session.protocol = protocol;
        if is_echo {
            conn.session.flags.set(Flags::GREETED);
        }
        let stage = conn.session.stage;
        let (sessions, io, id) = (&mut *self.on.sessions, &mut *self.on.io, self.on.id);
        sessions
            .counts
            .add_flow(TransportKind::WebSocket, Flow::Opened, 1);
        if let Stage::Refused(refusal) = stage {
            sessions.end(io, id, refusal.reason(), Some(refusal.text()));
        } else if !is_echo {
            sessions.begin_half_open(io, id);
            sessions.greet(io, id);
        }
        false
    }

    /// Return whether WebSocket connections of the page that this request comes from are accepted. Programs
    /// other than browsers name no origin.
    fn may_connect(&self, head: &RequestHead<'_>) -> bool {
        let origins = &self.on.sessions.shared.websocket_origins;
        match head.headers.value("Origin") {
            Ok(None) => true,
            Ok(Some(origin)) => origins.source(origin, head.authority()) != Source::Foreign,
            Err(_) => false,
        }
    }

    /// Refuse a request to a name that does not belong to this host.
    fn refuse_host(&mut self, authority: &[u8]) -> bool {
        let shown = &authority[..authority.len().min(LONGEST_NAME)];
        let detail = format!(
            "{} is not a name of this host; allowed_hosts in the configuration lists those that are served \
             besides addresses and localhost",
            String::from_utf8_lossy(shown)
        );
        self.end((421, &detail), &answer::problem(421, &detail))
    }

    /// Answer a request that cannot be read.
    fn refuse(&mut self, error: HttpError) -> bool {
        let why = (error.status(), error.reason());
        self.end(why, &answer::problem(why.0, why.1))
    }

    /// Send a whole response, whose status and reason are `why`, and close.
    fn end(&mut self, why: (u16, &str), response: &[u8]) -> bool {
        self.on.note_refused(why.0, why.1);
        if let Some(conn) = self.on.io.writer(self.on.id) {
            conn.output.tail().extend_from_slice(response);
        }
        self.on.end(Reason::HttpAnswered)
    }
}
