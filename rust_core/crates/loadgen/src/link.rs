//! One client connection without I/O: WebSocket handshake, `INFO`, `CONNECT`, subscription, then
//! messages.
//!
//! ```text
//! WebSocket:  Upgrading --101--> Greeting --INFO--> Joining --PONG--> Ready
//! TCP:                           Greeting --INFO--> Joining --PONG--> Ready
//! ```
//!
//! [`Link::receive`] only notes pending sends; [`Link::append_pending`] appends them. Most reads
//! cause none, and then the connection's output is not touched at all.

use protocol::nats::encode::{PING, PONG, encode_sub};
use protocol::nats::{FromServer, Limits, Parser, ServerInfo, ServerOp};
use protocol::ws::{self, Decoder, Role, close, frame, handshake};
use reactor::Output;

use crate::connection::{Connection, Endpoint, Event, LinkError, Outbox};
use crate::rng::Rng;
use crate::subject::Subject;
use crate::target::{Target, Transport};

/// SID of every connection's only subscription.
const SID: &[u8] = b"1";
/// Most bytes of a control line; `INFO` lists the addresses of the server's whole cluster.
const MAX_CONTROL_LINE: usize = 1 << 20;
/// Largest payload that any server sends.
const MAX_PAYLOAD: usize = 64 << 20;
/// Largest WebSocket message, which may hold many NATS messages.
const MAX_WS_MESSAGE: u32 = 1 << 30;

const LIMITS: Limits = Limits {
    max_control_line: MAX_CONTROL_LINE,
    max_payload: MAX_PAYLOAD,
    headers: true,
};

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
    /// Received part of a response that has not arrived whole.
    head: Vec<u8>,
}

/// Protocol operations that a connection has to send.
#[derive(Default)]
struct PendingSends {
    /// The request of the WebSocket handshake.
    upgrade: bool,
    /// `CONNECT`, `SUB` and `PING`; whether the server has headers.
    join: Option<bool>,
    /// Answers to `PING`.
    pongs: u32,
    /// Payload of the latest WebSocket ping; earlier pings need no pong (RFC 6455 section 5.5.3).
    echo: Option<Box<[u8]>>,
}

/// One client connection.
pub(crate) struct Link {
    /// Absent on TCP.
    decoder: Option<Decoder>,
    nats: Nats,
    upgrade: Option<Box<Upgrade>>,
    pending: Option<Box<PendingSends>>,
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
            pending: None,
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
            link.pending = Some(Box::new(PendingSends {
                upgrade: true,
                ..PendingSends::default()
            }));
        }
        link
    }

    /// Return whether the server has confirmed the subscription.
    #[inline]
    fn is_ready(&self) -> bool {
        self.nats.stage == Stage::Ready
    }

    #[inline]
    fn has_pending_sends(&self) -> bool {
        self.pending.is_some()
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
        let (nats, pending, outbox) = (&mut self.nats, &mut self.pending, &mut self.outbox);
        let Some(decoder) = &mut self.decoder else {
            return nats.receive(endpoint, bytes, pending, |event| handle(event, outbox));
        };
        while let Some(event) = decoder.next(&mut bytes).map_err(LinkError::WebSocket)? {
            match event {
                ws::Event::Data { bytes, .. } => {
                    nats.receive(endpoint, bytes, pending, |event| handle(event, outbox))?;
                }
                ws::Event::Ping(payload) => {
                    pending.get_or_insert_default().echo = Some(payload.into());
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

    fn append_pending(
        &mut self,
        endpoint: &Endpoint,
        subject: &Subject,
        output: &mut Output,
        keys: &mut Rng,
    ) -> Result<(), LinkError> {
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        if let (true, Some(upgrade)) = (pending.upgrade, &self.upgrade) {
            let Target { host, path, .. } = &endpoint.target;
            handshake::encode_request(output.tail(), host, path, &upgrade.key)
                .map_err(LinkError::Handshake)?;
        }
        if let Some(headers) = pending.join {
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
        for _ in 0..pending.pongs {
            self.outbox
                .append(output, keys, PONG.len(), |out| out.extend_from_slice(PONG));
        }
        if let Some(payload) = pending.echo {
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

    /// Append the close frame of a WebSocket connection.
    fn close(&mut self, output: &mut Output, keys: &mut Rng, code: u16) {
        if self.decoder.is_some() && self.upgrade.is_none() {
            self.outbox.seal(output, keys);
            close::encode_close(output.tail(), code, "", Some(keys.key()));
        }
    }
}

impl Link {
    /// Take the response of the WebSocket handshake from the front of `bytes` and return the rest;
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
    /// Take bytes of the NATS stream.
    #[inline]
    fn receive(
        &mut self,
        endpoint: &Endpoint,
        mut bytes: &[u8],
        pending: &mut Option<Box<PendingSends>>,
        mut handle: impl FnMut(Event<'_>),
    ) -> Result<(), LinkError> {
        while let Some(op) = self
            .parser
            .next(&LIMITS, &mut bytes)
            .map_err(LinkError::Protocol)?
        {
            match op {
                ServerOp::Msg { message, .. } => handle(Event::Message(message)),
                ServerOp::Ping => pending.get_or_insert_default().pongs += 1,
                ServerOp::Info(json) if self.stage == Stage::Greeting => {
                    let headers = check_info(endpoint, json)?;
                    pending.get_or_insert_default().join = Some(headers);
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

/// Return whether the server has headers.
fn check_info(endpoint: &Endpoint, json: &[u8]) -> Result<bool, LinkError> {
    let info = ServerInfo::parse(json).map_err(LinkError::Info)?;
    if info.tls_required {
        return Err(LinkError::TlsRequired);
    }
    // nats-server sends -1 for no limit; 0 stands for a server without the field.
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
