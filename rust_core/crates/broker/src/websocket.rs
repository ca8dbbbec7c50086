//! WebSocket connections: frames to the NATS stream, and the conformance echo.

use protocol::nats::{FromClient, Parser};
use protocol::ws::{Decoder, Event, Kind, OpCode, Role, frame};
use reactor::ConnId;

use crate::nats::Read;
use crate::outbound;
use crate::reason::Reason;
use crate::session::{Echo, Transport};
use crate::shard::{Io, Shard};

impl Shard {
    /// Reads frames; false when the connection has ended.
    pub(crate) fn receive_websocket(
        &mut self,
        io: &mut Io,
        id: ConnId,
        decoder: &mut Decoder,
        parser: &mut Parser<FromClient>,
        mut input: &mut [u8],
    ) -> bool {
        loop {
            match decoder.next(&mut input) {
                Ok(Some(Event::Data { bytes, .. })) => {
                    match self.receive_nats(io, id, parser, bytes) {
                        Read::All => {}
                        Read::Left(plain) => {
                            self.defer(io, id, plain, input);
                            return true;
                        }
                        Read::Ended => return false,
                    }
                }
                Ok(Some(event)) => {
                    if !self.handle_control(io, id, event) {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    self.end_frames(io, id, error);
                    return false;
                }
            }
        }
    }

    /// Reads frames and sends each message back; false when the connection has ended.
    pub(crate) fn receive_echo(
        &mut self,
        io: &mut Io,
        id: ConnId,
        echo: &mut Echo,
        mut input: &mut [u8],
    ) -> bool {
        loop {
            match echo.decoder.next(&mut input) {
                Ok(Some(Event::Data {
                    kind,
                    bytes,
                    end_of_message,
                })) => {
                    echo.message.extend_from_slice(bytes);
                    if end_of_message {
                        let opcode = match kind {
                            Kind::Text => OpCode::Text,
                            Kind::Binary => OpCode::Binary,
                        };
                        let message = std::mem::take(&mut echo.message);
                        let Some(conn) = io.writer(id) else {
                            return false;
                        };
                        if conn.output.len() > self.shared.limits.max_pending {
                            self.end_slow_consumer(io, id);
                            return false;
                        }
                        frame::encode_frame(conn.output.tail(), opcode, &message, None);
                        if conn.output.tail_is_full() {
                            conn.output.seal();
                        }
                    }
                }
                Ok(Some(event)) => {
                    if !self.handle_control(io, id, event) {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    self.end_frames(io, id, error);
                    return false;
                }
            }
        }
    }

    /// Makes the HTTP connection a WebSocket that speaks NATS.
    pub(crate) fn nats_transport(&self) -> Transport {
        Transport::WebSocket(
            Decoder::new(Role::Server, self.shared.max_ws_message),
            Parser::new(),
        )
    }

    fn handle_control(&mut self, io: &mut Io, id: ConnId, event: Event<'_>) -> bool {
        match event {
            Event::Ping(payload) => {
                if let Some(conn) = io.writer(id) {
                    outbound::append_pong(conn, payload);
                    if conn.output.len() > self.shared.limits.max_pending {
                        self.end_slow_consumer(io, id);
                        return false;
                    }
                }
                true
            }
            Event::Close { code, .. } => {
                // RFC 6455 section 5.5.1: answer with the code that was received.
                self.end_with_close(
                    io,
                    id,
                    Reason::ClientClosed,
                    None,
                    code.map(|code| (code, "")),
                );
                false
            }
            Event::Pong(_) | Event::Data { .. } => true,
        }
    }

    fn end_frames(&mut self, io: &mut Io, id: ConnId, error: protocol::ws::Error) {
        let reason = match error.close_code() {
            protocol::ws::close::INVALID_PAYLOAD => Reason::InvalidText,
            protocol::ws::close::MESSAGE_TOO_BIG => Reason::PayloadTooLarge,
            _ => Reason::ProtocolError,
        };
        let close = (error.close_code(), error.reason());
        self.end_with_close(io, id, reason, None, Some(close));
    }
}
