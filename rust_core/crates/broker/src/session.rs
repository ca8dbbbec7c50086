//! The state of one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use protocol::nats::{ConnectOptions, FromClient, Parser};
use protocol::ws::{Decoder, Role};

use crate::backpressure::Backlog;
use crate::clients::ClientInfo;
use crate::http::Http;
use crate::log::{Client, Logged};
use crate::outbound::Framing;
use crate::reason::Reason;
use crate::replies::HeldReplies;
use crate::shared::ListenerKind;
use crate::subscriptions::Subscriptions;
use crate::traffic::Traffic;

/// Largest message that the echo takes: what the Autobahn test suite sends.
const MAX_ECHO: u32 = 64 << 20;

/// A plain WebSocket echo: whole messages, as they came.
pub(crate) struct Echo {
    pub(crate) decoder: Decoder,
    pub(crate) message: Vec<u8>,
}

impl Echo {
    pub(crate) fn new() -> Self {
        Self {
            decoder: Decoder::new(Role::Server, MAX_ECHO),
            message: Vec::new(),
        }
    }
}

/// How received bytes are read. Authentication and TLS belong before it, compression inside
/// `WebSocket`.
pub(crate) enum Transport {
    /// NATS over plain TCP.
    Tcp(Parser<FromClient>),
    /// HTTP, of clients or of the monitor. Apart from the session, because most connections that begin
    /// so become WebSocket, which needs less.
    Http(Box<Http>),
    /// NATS over WebSocket.
    WebSocket(Decoder, Parser<FromClient>),
    /// The conformance echo.
    Echo(Box<Echo>),
    /// Taken out while its bytes are being read, or ended.
    Busy,
}

/// What a client has asked for and how far its handshake has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const VERBOSE: u8 = 1;
    pub(crate) const PEDANTIC: u8 = 2;
    pub(crate) const ECHO: u8 = 4;
    pub(crate) const HEADERS: u8 = 8;
    pub(crate) const NO_RESPONDERS: u8 = 16;
    /// Understands an `INFO` at any time.
    pub(crate) const ASYNC_INFO: u8 = 32;
    /// The first `PONG` has been sent.
    pub(crate) const GREETED: u8 = 64;

    /// Of a request to the gateway.
    pub(crate) const GATEWAY: Self = Self(Self::ECHO);

    /// Before any `CONNECT`.
    pub(crate) const TELNET: Self = Self(Self::VERBOSE | Self::PEDANTIC | Self::ECHO);

    #[inline]
    pub(crate) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }

    /// What `CONNECT` asks for; the greeting's state stays.
    pub(crate) fn connect(&mut self, options: &ConnectOptions) {
        let asked = [
            (options.verbose, Self::VERBOSE),
            (options.pedantic, Self::PEDANTIC),
            (options.echo, Self::ECHO),
            (options.headers, Self::HEADERS),
            (options.no_responders, Self::NO_RESPONDERS),
            (options.protocol >= 1, Self::ASYNC_INFO),
        ];
        let flags = asked.iter().filter(|(on, _)| *on).map(|(_, flag)| flag);
        self.0 = flags.fold(self.0 & Self::GREETED, |all, flag| all | flag);
    }
}

/// Received bytes that wait for the next turn, because this one has spent its budget.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Of the NATS stream.
    pub(crate) plain: Vec<u8>,
    /// Behind these: frames as received.
    pub(crate) frames: Vec<u8>,
}

/// One connection.
pub(crate) struct Session {
    /// The connection's id among all of this process.
    pub(crate) cid: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) framing: Framing,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) traffic: Traffic,
    /// What the client says of itself.
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) held: Option<Box<HeldReplies>>,
    pub(crate) deferred: Option<Box<Deferred>>,
    /// Why the connection ends, once that is decided.
    pub(crate) ended: Option<Reason>,
    pub(crate) flags: Flags,
    /// Pings without an answer.
    pub(crate) pings_out: u8,
    /// Something was received since the last ping timer.
    pub(crate) is_active: bool,
    /// Counted among the clients.
    pub(crate) is_client: bool,
    /// Has one of the places that `max_connections` limits.
    pub(crate) has_place: bool,
    /// Not read from, because a receiver of its messages has fallen behind.
    pub(crate) is_stalled: bool,
    /// What waits for a client whose socket has stopped taking bytes.
    pub(crate) backlog: Option<Box<Backlog>>,
}

impl Session {
    /// A connection that has come in this second since the broker started.
    pub(crate) fn new(
        cid: u64,
        peer: SocketAddr,
        listener: ListenerKind,
        now: Instant,
        second: u32,
    ) -> Self {
        let (transport, framing) = match listener {
            ListenerKind::Tcp => (Transport::Tcp(Parser::new()), Framing::Tcp),
            ListenerKind::Http | ListenerKind::Monitor => (
                Transport::Http(Box::new(Http::new(listener, now))),
                Framing::Http,
            ),
        };
        Self {
            cid,
            peer,
            is_client: listener != ListenerKind::Monitor,
            transport,
            framing,
            subscriptions: Subscriptions::default(),
            traffic: Traffic {
                started: second,
                active: second,
                ..Traffic::default()
            },
            info: None,
            held: None,
            deferred: None,
            ended: None,
            flags: Flags::TELNET,
            pings_out: 0,
            is_active: false,
            has_place: false,
            is_stalled: false,
            backlog: None,
        }
    }
}

impl Logged for Session {
    fn client(&self) -> Client {
        Client {
            cid: self.cid,
            remote: self.peer,
            transport: self.framing.transport(),
        }
    }

    fn info(&self) -> Option<Arc<ClientInfo>> {
        self.info.clone()
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_stays_small() {
        // A million of them: see docs/architecture.md on memory.
        assert!(size_of::<Session>() <= 240, "{}", size_of::<Session>());
    }

    #[test]
    fn connect_replaces_what_telnet_has() {
        let mut flags = Flags::TELNET;
        flags.set(Flags::GREETED);
        let options = ConnectOptions {
            verbose: false,
            pedantic: false,
            headers: true,
            ..Default::default()
        };
        flags.connect(&options);
        assert!(flags.has(Flags::GREETED) && flags.has(Flags::ECHO) && flags.has(Flags::HEADERS));
        assert!(!flags.has(Flags::VERBOSE) && !flags.has(Flags::PEDANTIC));
    }
}
