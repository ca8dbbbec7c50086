//! The state of one connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use protocol::nats::ConnectOptions;

use crate::admission::Stage;
use crate::backlog::Backlog;
use crate::clients::ClientInfo;
use crate::http::Http;
use crate::info::Info;
use crate::log::{Client, Logged};
use crate::protocols::Protocol;
use crate::reason::Reason;
use crate::replies::HeldReplies;
use crate::subscriptions::Subscriptions;
use crate::traffic::Traffic;
use crate::transport::{ListenerKind, TransportKind};

/// The options of a client, and the state of its handshake.
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

    /// The options of a request to the gateway.
    pub(crate) const GATEWAY: Self = Self(Self::ECHO);

    /// The options before any `CONNECT`.
    pub(crate) const TELNET: Self = Self(Self::VERBOSE | Self::PEDANTIC | Self::ECHO);

    #[inline]
    pub(crate) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }

    /// Take the options of a `CONNECT`; the greeting's state stays.
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
    /// Bytes of the NATS stream.
    pub(crate) plain: Vec<u8>,
    /// Frames behind these bytes, as received.
    pub(crate) frames: Vec<u8>,
}

impl Deferred {
    fn bytes(&self) -> usize {
        self.plain.capacity() + self.frames.capacity()
    }
}

/// One connection.
pub(crate) struct Session {
    /// The connection's id among all of this process.
    pub(crate) cid: u64,
    /// The client's address, with the port below: smaller than a `SocketAddr`, of which IPv6's flow and scope
    /// are not needed.
    pub(crate) ip: IpAddr,
    port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) traffic: Traffic,
    /// The client's account of itself.
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) held: Option<Box<HeldReplies>>,
    pub(crate) deferred: Option<Box<Deferred>>,
    /// Reason of the connection's end, once that is decided.
    pub(crate) ended: Option<Reason>,
    pub(crate) flags: Flags,
    /// Pings without an answer.
    pub(crate) pings_out: u8,
    /// Something was received since the last ping timer.
    pub(crate) is_active: bool,
    /// The stage of its admission.
    pub(crate) stage: Stage,
    /// Whether it is not read from, because a receiver of its messages has fallen behind or its former
    /// subscriptions are being removed.
    pub(crate) is_stalled: bool,
    /// The state of a client whose socket has stopped taking bytes.
    pub(crate) backlog: Option<Box<Backlog>>,
    /// Bytes that the connection keeps besides pending output, as the account has them.
    pub(crate) kept: u32,
    /// The size class of what it holds, see [`memory`](crate::memory).
    pub(crate) size_class: u8,
}

impl Session {
    /// Make the session of a connection that has come now, which is the given time and second since the
    /// broker's start.
    pub(crate) fn new(
        cid: u64,
        peer: SocketAddr,
        listener: ListenerKind,
        stage: Stage,
        (now, second): (Instant, u32),
    ) -> Self {
        Self {
            cid,
            ip: peer.ip(),
            port: peer.port(),
            stage,
            protocol: Protocol::new(listener, now),
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
            is_stalled: false,
            backlog: None,
            kept: 0,
            size_class: 0,
        }
    }

    /// Return the bytes that the connection keeps besides pending output.
    pub(crate) fn kept_bytes(&self) -> usize {
        let deferred = self
            .deferred
            .as_ref()
            .map_or(0, |deferred| deferred.bytes());
        let held = self.held.as_ref().map_or(0, |held| held.len());
        self.protocol.kept_bytes() + deferred + held + self.subscriptions.bytes()
    }

    /// Return the client's address and port.
    pub(crate) fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Return whether it is counted among the clients.
    pub(crate) fn is_client(&self) -> bool {
        self.stage != Stage::Monitor
    }

    /// Return the kind of its protocol.
    #[inline]
    pub(crate) const fn kind(&self) -> TransportKind {
        self.protocol.kind()
    }

    /// Return the state of HTTP; `None` if the connection has ended or speaks another protocol.
    pub(crate) fn http(&self) -> Option<&Http> {
        match &self.protocol {
            Protocol::Http(http) if self.ended.is_none() => Some(http),
            _ => None,
        }
    }

    /// Return the state of HTTP, to change; `None` if the connection has ended or speaks another protocol.
    pub(crate) fn http_mut(&mut self) -> Option<&mut Http> {
        match &mut self.protocol {
            Protocol::Http(http) if self.ended.is_none() => Some(http),
            _ => None,
        }
    }

    /// Return the `INFO` for this client; `lame_duck` announces that it will be disconnected.
    pub(crate) fn info_line(&self, info: &Info, lame_duck: bool) -> Vec<u8> {
        let is_websocket = self.kind() == TransportKind::WebSocket;
        info.encode(is_websocket, lame_duck, self.cid, self.peer())
    }
}

impl Logged for Session {
    fn client(&self) -> Client {
        Client {
            cid: self.cid,
            remote: self.peer(),
            transport: self.kind(),
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
        // A million of them: see docs/explanation/bounds.md on memory.
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
