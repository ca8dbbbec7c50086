//! A connection as the client's handler sees it, independent of its protocol.

use std::fmt;

use protocol::http::{HttpError, reason_phrase};
use protocol::nats::encode::encode_connect;
use protocol::nats::{ConnectOptions, JsonError, Message, ParseError};
use protocol::ws::handshake::HandshakeError;
use protocol::ws::{self, Batch, close};
use reactor::{Closed, Output};

use crate::rng::Rng;
use crate::subject::Subject;
use crate::target::Target;

/// Fewest bytes of a body that are kept: enough for a server's error text.
pub(crate) const MIN_BODY: usize = 1024;

/// One connection without I/O: bytes in, events out, pending sends appended on demand.
pub(crate) trait Connection: Sized + Send + 'static {
    /// Make a connection that is about to be established.
    fn new(endpoint: &Endpoint, keys: &mut Rng) -> Self;

    /// Note that the peer has accepted the connection.
    fn handle_open(&mut self) {}

    /// Return whether the workload may use it.
    fn is_ready(&self) -> bool;

    /// Return whether the connection has served its purpose and only has to be closed.
    fn is_over(&self) -> bool {
        false
    }

    /// Return whether [`append_pending`](Self::append_pending) has something to append.
    fn has_pending_sends(&self) -> bool {
        false
    }

    /// Decode received bytes and pass each event to `handle`, which may append to the outbox.
    ///
    /// # Errors
    /// The peer has broken the protocol or refused the connection.
    fn receive(
        &mut self,
        endpoint: &Endpoint,
        bytes: &mut [u8],
        handle: impl FnMut(Event<'_>, &mut Outbox),
    ) -> Result<(), LinkError>;

    /// Append the pending sends, which the bytes received so far have caused.
    ///
    /// # Errors
    /// The handshake's request cannot be encoded.
    fn append_pending(
        &mut self,
        _endpoint: &Endpoint,
        _subject: &Subject,
        _output: &mut Output,
        _keys: &mut Rng,
    ) -> Result<(), LinkError> {
        Ok(())
    }

    /// Complete the appended bytes, after which they may be sent.
    fn seal(&mut self, _output: &mut Output, _keys: &mut Rng) {}

    /// Append the protocol's close frame, if it has one.
    fn close(&mut self, _output: &mut Output, _keys: &mut Rng, _code: u16) {}
}

/// Settings that all connections of an engine have in common.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    /// The largest payload that will be sent or received, in bytes.
    pub(crate) max_payload: usize,
    /// `CONNECT` for servers with headers.
    pub(crate) connect: Vec<u8>,
    /// `CONNECT` for servers without.
    pub(crate) connect_plain: Vec<u8>,
}

impl Endpoint {
    /// Make the settings of connections that publish payloads of up to `max_payload` bytes.
    pub(crate) fn new(target: Target, max_payload: usize) -> Self {
        let encoded = |headers| {
            let options = ConnectOptions {
                verbose: false,
                pedantic: false,
                name: Some("subjectbus-loadtest".into()),
                lang: "rust".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                protocol: 1,
                headers,
                no_responders: headers,
                ..ConnectOptions::telnet()
            };
            let mut out = Vec::new();
            encode_connect(&mut out, &options);
            out
        };
        Self {
            target,
            max_payload,
            connect: encoded(true),
            connect_plain: encoded(false),
        }
    }
}

/// Reason why a connection failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkError {
    /// The connection ended, or was never established.
    Closed(Closed),
    /// The handshake was not complete in time.
    TimedOut,
    /// The server refused WebSocket.
    Handshake(HandshakeError),
    /// The server broke RFC 6455.
    WebSocket(ws::Error),
    /// The server sent a close frame.
    CloseFrame { code: Option<u16>, reason: String },
    /// The server broke the NATS protocol.
    Protocol(ParseError),
    /// `INFO` cannot be read.
    Info(JsonError),
    /// `-ERR` before the connection was ready.
    Refused(String),
    /// The server broke HTTP.
    Http(HttpError),
    /// The server sent a response without a request.
    UnexpectedResponse,
    /// The server requires TLS.
    TlsRequired,
    /// The server's limit of payloads is below the configured size.
    MaxPayload { wanted: usize, allowed: i64 },
}

impl LinkError {
    /// Return whether another attempt would end the same.
    pub(crate) const fn is_permanent(&self) -> bool {
        matches!(self, Self::TlsRequired | Self::MaxPayload { .. })
    }

    /// Return the code of the close frame for the server.
    pub(crate) const fn close_code(&self) -> u16 {
        match self {
            Self::WebSocket(error) => error.close_code(),
            Self::Protocol(_) => close::PROTOCOL_ERROR,
            Self::CloseFrame { code: None, .. } => close::NO_STATUS,
            Self::CloseFrame {
                code: Some(code), ..
            } => *code,
            _ => close::NORMAL,
        }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(why) => write!(f, "{why}"),
            Self::TimedOut => f.write_str("handshake not complete in time"),
            Self::Handshake(error) => write!(f, "WebSocket handshake: {error}"),
            Self::WebSocket(error) => write!(f, "WebSocket: {error}"),
            Self::CloseFrame { code, reason } => {
                let code = code.unwrap_or(close::NO_STATUS);
                write!(f, "closed by the server: {code} {reason}")
            }
            Self::Protocol(error) => write!(f, "NATS protocol: {error}"),
            Self::Info(error) => write!(f, "INFO: {error}"),
            Self::Refused(text) => write!(f, "-ERR '{text}'"),
            Self::Http(error) => write!(f, "HTTP: {error}"),
            Self::UnexpectedResponse => f.write_str("HTTP: a response without a request"),
            Self::TlsRequired => f.write_str("the server requires TLS"),
            Self::MaxPayload { wanted, allowed } => {
                write!(
                    f,
                    "payloads of {wanted} bytes are configured, the server allows {allowed}"
                )
            }
        }
    }
}

/// Event on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    /// A message that the connection's subscription received.
    Message(Message<'a>),
    /// `-ERR` on a connection that is ready, with its text.
    Error(&'a [u8]),
    /// Response to a request over HTTP.
    Response(Response<'a>),
}

/// A complete response over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    /// Body; of a body longer than expected only the beginning, one byte too long.
    pub(crate) body: &'a [u8],
    /// Bytes of the head, including interim heads before it.
    pub(crate) head_bytes: u64,
    /// Whether the connection ends with it.
    pub(crate) is_last: bool,
}

impl Response<'_> {
    /// Return whether the request was answered as it should be.
    #[inline]
    pub(crate) fn is_success(&self) -> bool {
        self.status == 200
    }
}

impl fmt::Display for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = String::from_utf8_lossy(&self.body[..self.body.len().min(MIN_BODY)]);
        write!(
            f,
            "{} {}: {}",
            self.status,
            reason_phrase(self.status),
            said.trim()
        )
    }
}

/// The open frame of a connection, if it has frames.
#[derive(Debug)]
pub(crate) struct Outbox {
    batch: Option<Batch>,
}

impl Outbox {
    /// Make the output of a connection with or without frames.
    pub(crate) const fn new(is_ws: bool) -> Self {
        let batch = if is_ws { Some(Batch::new()) } else { None };
        Self { batch }
    }

    /// Append about `len` bytes, which `write` writes.
    #[inline]
    pub(crate) fn append(
        &mut self,
        output: &mut Output,
        keys: &mut Rng,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if output.tail_is_full() {
            self.seal(output, keys);
            output.seal();
        }
        if let Some(batch) = &mut self.batch {
            batch.begin(output.tail(), len, Some(keys.key()));
        }
        write(output.tail());
    }

    /// Complete the open frame, after which the bytes may be sent.
    #[inline]
    pub(crate) fn seal(&mut self, output: &mut Output, keys: &mut Rng) {
        if let Some(batch) = &mut self.batch {
            batch.seal(output.tail(), Some(keys.key()));
        }
    }
}
