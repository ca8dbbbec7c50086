//! One client connection, from the first byte to the last: WebSocket handshake, `INFO`, `CONNECT`,
//! subscription, then messages. No I/O: bytes in, events out, answers appended on demand.
//!
//! ```text
//! WebSocket:  Upgrading --101--> Greeting --INFO--> Joining --PONG--> Ready
//! TCP:                           Greeting --INFO--> Joining --PONG--> Ready
//! ```
//!
//! [`Link::receive`] only notes what has to be answered; [`Link::answer`] appends it. Most reads
//! need no answer, and then the connection is not touched for writing at all.

use std::fmt;

use protocol::http::HttpError;
use protocol::nats::encode::{PING, PONG, encode_connect, encode_sub};
use protocol::nats::{
    ConnectOptions, FromServer, JsonError, Limits, ParseError, Parser, ServerInfo, ServerOp,
};
use protocol::ws::handshake::{self, HandshakeError};
use protocol::ws::{self, Decoder, Role, close, frame};
use reactor::{Closed, Output};

use crate::config::{Target, Transport};
use crate::connection::Connection;
use crate::http::Answer;
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::subject::Subject;

/// The one subscription of every connection.
const SID: &[u8] = b"1";
/// `INFO` lists the addresses of the server's whole cluster.
const MAX_CONTROL_LINE: usize = 1 << 20;
/// The largest payload that any server sends.
const MAX_PAYLOAD: usize = 64 << 20;
/// A message may be spread over frames, and a frame hold many messages.
const MAX_WS_MESSAGE: u32 = 1 << 30;

const LIMITS: Limits = Limits {
    max_control_line: MAX_CONTROL_LINE,
    max_payload: MAX_PAYLOAD,
    headers: true,
};

/// What all connections of an engine have in common.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) target: Target,
    /// The largest payload that will be sent or received, in bytes.
    pub(crate) max_payload: usize,
    /// `CONNECT` for servers with headers.
    connect: Vec<u8>,
    /// `CONNECT` for servers without.
    connect_plain: Vec<u8>,
}

impl Endpoint {
    /// For connections that publish payloads of up to `max_payload` bytes.
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

/// Why a connection is of no use.
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
    /// The server answered no request.
    Unasked,
    /// The server wants TLS.
    TlsRequired,
    /// The server takes no payload of this size.
    MaxPayload { wanted: usize, allowed: i64 },
}

impl LinkError {
    /// Whether another attempt would end the same.
    pub(crate) const fn is_permanent(&self) -> bool {
        matches!(self, Self::TlsRequired | Self::MaxPayload { .. })
    }

    /// The code of the close frame that tells the server.
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
            Self::TimedOut => f.write_str("no complete handshake in time"),
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
            Self::Unasked => f.write_str("HTTP: an answer without a request"),
            Self::TlsRequired => f.write_str("the server requires TLS"),
            Self::MaxPayload { wanted, allowed } => {
                write!(
                    f,
                    "payloads of {wanted} bytes are wanted, the server allows {allowed}"
                )
            }
        }
    }
}

/// A message that the connection's subscription received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) subject: &'a [u8],
    /// Where an answer is expected.
    pub(crate) reply: Option<&'a [u8]>,
    /// The header block.
    pub(crate) headers: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

impl Message<'_> {
    /// Bytes of headers and payload.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.headers.map_or(0, <[u8]>::len) + self.payload.len()
    }

    /// Whether it is the server's own word about a request, which nobody has published.
    #[inline]
    pub(crate) fn is_status(&self) -> bool {
        self.headers.is_some() && self.payload.is_empty()
    }
}

/// What a connection received.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    Message(Message<'a>),
    /// `-ERR` on a connection that is ready, with its text.
    Error(&'a [u8]),
    /// The answer to a request over HTTP.
    Answer(Answer<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Upgrading,
    Greeting,
    Joining,
    Ready,
}

/// The WebSocket handshake, while it lasts.
struct Upgrade {
    key: [u8; 16],
    /// The part of the response that has arrived, where it did not arrive whole.
    head: Vec<u8>,
}

/// What has to be sent.
#[derive(Default)]
struct Owed {
    /// The request of the WebSocket handshake.
    upgrade: bool,
    /// `CONNECT`, `SUB` and `PING`; whether the server has headers.
    join: Option<bool>,
    /// Answers to `PING`.
    pongs: u32,
    /// The payload of the latest WebSocket ping; earlier ones need no answer (RFC 6455 section 5.5.3).
    echo: Option<Box<[u8]>>,
}

/// See the module.
pub(crate) struct Link {
    /// Absent on TCP.
    decoder: Option<Decoder>,
    nats: Nats,
    upgrade: Option<Box<Upgrade>>,
    owed: Option<Box<Owed>>,
    pub(crate) outbox: Outbox,
}

/// The part of a connection that the WebSocket decoder does not borrow.
struct Nats {
    parser: Parser<FromServer>,
    stage: Stage,
}

impl Connection for Link {
    fn new(endpoint: &Endpoint, keys: &mut Rng) -> Self {
        let is_ws = endpoint.target.transport == Transport::Ws;
        let mut link = Self {
            decoder: is_ws.then(|| Decoder::new(Role::Client, MAX_WS_MESSAGE)),
            nats: Nats {
                parser: Parser::new(),
                stage: if is_ws {
                    Stage::Upgrading
                } else {
                    Stage::Greeting
                },
            },
            upgrade: None,
            owed: None,
            outbox: Outbox::new(is_ws),
        };
        if is_ws {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&keys.next().to_ne_bytes());
            key[8..].copy_from_slice(&keys.next().to_ne_bytes());
            link.upgrade = Some(Box::new(Upgrade {
                key,
                head: Vec::new(),
            }));
            link.owed = Some(Box::new(Owed {
                upgrade: true,
                ..Owed::default()
            }));
        }
        link
    }

    fn handle_open(&mut self) {}

    /// Whether the server has confirmed the subscription.
    #[inline]
    fn is_ready(&self) -> bool {
        self.nats.stage == Stage::Ready
    }

    #[inline]
    fn is_over(&self) -> bool {
        false
    }

    #[inline]
    fn owes(&self) -> bool {
        self.owed.is_some()
    }

    fn receive(
        &mut self,
        endpoint: &Endpoint,
        mut bytes: &mut [u8],
        mut handle: impl FnMut(Event<'_>, &mut Outbox),
    ) -> Result<(), LinkError> {
        if self.upgrade.is_some() {
            let Some(rest) = self.receive_upgrade(bytes)? else {
                return Ok(());
            };
            bytes = rest;
        }
        let (nats, owed, outbox) = (&mut self.nats, &mut self.owed, &mut self.outbox);
        let Some(decoder) = &mut self.decoder else {
            return nats.receive(endpoint, bytes, owed, |event| handle(event, outbox));
        };
        while let Some(event) = decoder.next(&mut bytes).map_err(LinkError::WebSocket)? {
            match event {
                ws::Event::Data { bytes, .. } => {
                    nats.receive(endpoint, bytes, owed, |event| handle(event, outbox))?;
                }
                ws::Event::Ping(payload) => {
                    owed.get_or_insert_default().echo = Some(payload.into());
                }
                ws::Event::Pong(_) => {}
                ws::Event::Close { code, reason } => {
                    return Err(LinkError::CloseFrame {
                        code,
                        reason: reason.to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        endpoint: &Endpoint,
        subject: &Subject,
        output: &mut Output,
        keys: &mut Rng,
    ) -> Result<(), LinkError> {
        let Some(owed) = self.owed.take() else {
            return Ok(());
        };
        if let (true, Some(upgrade)) = (owed.upgrade, &self.upgrade) {
            let Target { host, path, .. } = &endpoint.target;
            handshake::encode_request(output.tail(), host, path, &upgrade.key)
                .map_err(LinkError::Handshake)?;
        }
        if let Some(headers) = owed.join {
            let connect = if headers {
                &endpoint.connect
            } else {
                &endpoint.connect_plain
            };
            self.outbox.append(output, keys, connect.len() + 64, |out| {
                out.extend_from_slice(connect);
                encode_sub(out, subject.as_bytes(), None, SID);
                out.extend_from_slice(PING);
            });
        }
        for _ in 0..owed.pongs {
            self.outbox
                .append(output, keys, PONG.len(), |out| out.extend_from_slice(PONG));
        }
        if let Some(payload) = owed.echo {
            self.outbox.seal(output, keys);
            let key = Some(keys.key());
            frame::encode_frame(output.tail(), ws::OpCode::Pong, &payload, key);
        }
        Ok(())
    }

    #[inline]
    fn seal(&mut self, output: &mut Output, keys: &mut Rng) {
        self.outbox.seal(output, keys);
    }

    /// Appends the close frame of a WebSocket connection.
    fn close(&mut self, output: &mut Output, keys: &mut Rng, code: u16) {
        if self.decoder.is_some() && self.upgrade.is_none() {
            self.outbox.seal(output, keys);
            close::encode_close(output.tail(), code, "", Some(keys.key()));
        }
    }
}

impl Link {
    /// Takes the response of the WebSocket handshake from the front of `bytes` and returns the rest;
    /// `None` when the response is not complete.
    fn receive_upgrade<'b>(
        &mut self,
        bytes: &'b mut [u8],
    ) -> Result<Option<&'b mut [u8]>, LinkError> {
        let Some(upgrade) = &mut self.upgrade else {
            return Ok(Some(bytes));
        };
        let before = upgrade.head.len();
        upgrade.head.extend_from_slice(bytes);
        let parsed = handshake::parse_response(&upgrade.head, &upgrade.key);
        let Some(len) = parsed.map_err(LinkError::Handshake)? else {
            return Ok(None);
        };
        self.upgrade = None;
        self.nats.stage = Stage::Greeting;
        Ok(bytes.get_mut(len.saturating_sub(before)..))
    }
}

impl Nats {
    /// Takes bytes of the NATS stream.
    #[inline]
    fn receive(
        &mut self,
        endpoint: &Endpoint,
        mut bytes: &[u8],
        owed: &mut Option<Box<Owed>>,
        mut handle: impl FnMut(Event<'_>),
    ) -> Result<(), LinkError> {
        while let Some(op) = self
            .parser
            .next(&LIMITS, &mut bytes)
            .map_err(LinkError::Protocol)?
        {
            match op {
                ServerOp::Msg {
                    subject,
                    reply,
                    headers,
                    payload,
                    ..
                } => {
                    handle(Event::Message(Message {
                        subject,
                        reply,
                        headers,
                        payload,
                    }));
                }
                ServerOp::Ping => owed.get_or_insert_default().pongs += 1,
                ServerOp::Info(json) if self.stage == Stage::Greeting => {
                    let headers = check_info(endpoint, json)?;
                    owed.get_or_insert_default().join = Some(headers);
                    self.stage = Stage::Joining;
                }
                ServerOp::Pong if self.stage == Stage::Joining => self.stage = Stage::Ready,
                ServerOp::Err(text) if self.stage == Stage::Ready => handle(Event::Error(text)),
                ServerOp::Err(text) => {
                    return Err(LinkError::Refused(
                        String::from_utf8_lossy(text).into_owned(),
                    ));
                }
                ServerOp::Info(_) | ServerOp::Pong | ServerOp::Ok => {}
            }
        }
        Ok(())
    }
}

/// Whether the server has headers.
fn check_info(endpoint: &Endpoint, json: &[u8]) -> Result<bool, LinkError> {
    let info = ServerInfo::parse(json).map_err(LinkError::Info)?;
    if info.tls_required {
        return Err(LinkError::TlsRequired);
    }
    // nats-server says -1 for no limit; 0 stands for a server that does not say.
    let wanted = endpoint.max_payload;
    let too_small = usize::try_from(info.max_payload).is_ok_and(|allowed| allowed < wanted);
    if info.max_payload > 0 && too_small {
        return Err(LinkError::MaxPayload {
            wanted,
            allowed: info.max_payload,
        });
    }
    Ok(info.headers)
}

#[cfg(test)]
mod tests;
