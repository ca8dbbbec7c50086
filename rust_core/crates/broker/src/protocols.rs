//! The protocols of connections: one type for each, with the state of its input and of its output.
//!
//! While received bytes are read, the parser that reads them is taken out of the session, because the
//! operations that it finds change sessions. It is put back unless the connection has ended.

use std::time::Instant;

use protocol::nats::{FromClient, Parser};
use protocol::ws::{Batch, Decoder, Role};

use crate::http::{EventFormat, Http};
use crate::transport::{ListenerKind, TransportKind};

/// Largest message in bytes that the echo takes, which is the largest of the Autobahn test suite.
const MAX_ECHO: u32 = 64 << 20;

/// The input of NATS over WebSocket: frames, and the stream inside them.
pub(crate) struct Frames {
    pub(crate) decoder: Decoder,
    pub(crate) parser: Parser<FromClient>,
}

impl Frames {
    /// Return the input of a connection that has received nothing. `max_message` is in bytes.
    pub(crate) const fn new(max_message: u32) -> Self {
        Self {
            decoder: Decoder::new(Role::Server, max_message),
            parser: Parser::new(),
        }
    }
}

/// NATS over WebSocket.
pub(crate) struct WebSocket {
    pub(crate) input: Frames,
    /// The frame that the output of this turn goes into.
    batch: Batch,
}

impl WebSocket {
    /// Take the input out, to read bytes that were received.
    pub(crate) const fn take_input(&mut self) -> Frames {
        std::mem::replace(&mut self.input, Frames::new(0))
    }
}

/// A WebSocket echo for conformance suites: whole messages, sent back as they came.
pub(crate) struct Echo {
    pub(crate) decoder: Decoder,
    /// The message that is being received.
    pub(crate) message: Vec<u8>,
    batch: Batch,
}

impl Echo {
    /// Take the decoder out, to read bytes that were received.
    pub(crate) const fn take_decoder(&mut self) -> Decoder {
        std::mem::replace(&mut self.decoder, Decoder::new(Role::Server, 0))
    }
}

/// The protocol of a connection, with its state.
pub(crate) enum Protocol {
    /// NATS over plain TCP.
    Tcp(Parser<FromClient>),
    /// NATS over WebSocket.
    WebSocket(WebSocket),
    /// HTTP, of clients or of the monitor's callers. In a box, because most connections that begin so
    /// become WebSocket connections, which need less memory.
    Http(Box<Http>),
    /// The conformance echo.
    Echo(Box<Echo>),
}

impl Protocol {
    /// Return the protocol that a connection to a listener begins with at `now`.
    pub(crate) fn new(listener: ListenerKind, now: Instant) -> Self {
        match listener {
            ListenerKind::Tcp => Self::Tcp(Parser::new()),
            ListenerKind::Http | ListenerKind::Monitor => {
                Self::Http(Box::new(Http::new(listener, now)))
            }
        }
    }

    /// Return NATS over WebSocket. `max_message` is in bytes.
    pub(crate) const fn websocket(max_message: u32) -> Self {
        Self::WebSocket(WebSocket {
            input: Frames::new(max_message),
            batch: Batch::new(),
        })
    }

    /// Return the conformance echo.
    pub(crate) fn echo() -> Self {
        Self::Echo(Box::new(Echo {
            decoder: Decoder::new(Role::Server, MAX_ECHO),
            message: Vec::new(),
            batch: Batch::new(),
        }))
    }

    /// Return the kind that counters and log name.
    #[inline]
    pub(crate) const fn kind(&self) -> TransportKind {
        match self {
            Self::Tcp(_) => TransportKind::Tcp,
            Self::WebSocket(_) | Self::Echo(_) => TransportKind::WebSocket,
            Self::Http(_) => TransportKind::Http,
        }
    }

    /// Return the bytes of received input that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        match self {
            Self::Tcp(parser) => parser.kept_bytes(),
            Self::WebSocket(websocket) => websocket.input.parser.kept_bytes(),
            Self::Http(http) => http.kept_bytes(),
            Self::Echo(echo) => echo.message.capacity(),
        }
    }

    /// Return the open frame of a WebSocket.
    #[inline]
    pub(crate) fn batch(&mut self) -> Option<&mut Batch> {
        match self {
            Self::Tcp(_) | Self::Http(_) => None,
            Self::WebSocket(websocket) => Some(&mut websocket.batch),
            Self::Echo(echo) => Some(&mut echo.batch),
        }
    }

    /// Return the format of the events that the connection is sent instead of NATS operations.
    #[inline]
    pub(crate) fn events(&self) -> Option<EventFormat> {
        match self {
            Self::Http(http) => http.events(),
            _ => None,
        }
    }
}
