//! WebSocket connections: from frames to the NATS stream, and the conformance echo.

use protocol::ws::{Decoder, Event, Kind, OpCode, close, frame};
use reactor::ConnId;

use crate::io::Io;
use crate::nats::{Nats, Read};
use crate::outbound;
use crate::protocols::{Frames, Protocol};
use crate::publishing::Publishing;
use crate::reason::Reason;
use crate::session::Deferred;
use crate::sessions::Sessions;

/// Read frames of a connection whose `input` was taken out.
pub(crate) fn receive(
    nats: &mut Nats,
    sessions: &mut Sessions,
    publishing: &mut Publishing,
    io: &mut Io,
    id: ConnId,
    mut input: Frames,
    mut bytes: &mut [u8],
) {
    loop {
        match input.decoder.next(&mut bytes) {
            Ok(Some(Event::Data { bytes: plain, .. })) => {
                match nats.receive(sessions, publishing, io, id, &mut input.parser, plain) {
                    Read::All => {}
                    Read::Left(plain) => {
                        sessions.defer(io, id, plain, bytes);
                        break;
                    }
                    Read::Ended => return,
                }
            }
            Ok(Some(event)) => {
                if !handle_control(sessions, io, id, event) {
                    return;
                }
            }
            Ok(None) => break,
            Err(error) => return end_frames(sessions, io, id, error),
        }
    }
    put_back(io, id, input);
}

/// Read on after bytes were deferred: first the rest of the NATS stream, then the frames behind it.
pub(crate) fn receive_deferred(
    nats: &mut Nats,
    sessions: &mut Sessions,
    publishing: &mut Publishing,
    io: &mut Io,
    id: ConnId,
    mut input: Frames,
    mut deferred: Deferred,
) {
    let plain = &deferred.plain;
    match nats.receive(sessions, publishing, io, id, &mut input.parser, plain) {
        Read::All => {
            let frames = &mut deferred.frames;
            receive(nats, sessions, publishing, io, id, input, frames);
        }
        Read::Left(left) => {
            sessions.defer(io, id, left, &deferred.frames);
            put_back(io, id, input);
        }
        Read::Ended => {}
    }
}

fn put_back(io: &mut Io, id: ConnId, input: Frames) {
    if let Some(conn) = io.conn_mut(id)
        && let Protocol::WebSocket(websocket) = &mut conn.session.protocol
    {
        websocket.input = input;
    }
}

/// Read frames of the echo, whose `decoder` was taken out, and send each message back.
pub(crate) fn receive_echo(
    sessions: &mut Sessions,
    io: &mut Io,
    id: ConnId,
    mut decoder: Decoder,
    mut input: &mut [u8],
) {
    loop {
        let goes_on = match decoder.next(&mut input) {
            Ok(Some(Event::Data {
                kind,
                bytes,
                end_of_message,
            })) => echo(sessions, io, id, kind, bytes, end_of_message),
            Ok(Some(event)) => handle_control(sessions, io, id, event),
            Ok(None) => break,
            Err(error) => return end_frames(sessions, io, id, error),
        };
        if !goes_on {
            return;
        }
    }
    if let Some(conn) = io.conn_mut(id)
        && let Protocol::Echo(echo) = &mut conn.session.protocol
    {
        echo.decoder = decoder;
    }
}

/// Keep a part of a message, or send the message back with its last part. Return false when the
/// connection has ended.
fn echo(
    sessions: &mut Sessions,
    io: &mut Io,
    id: ConnId,
    kind: Kind,
    bytes: &[u8],
    is_last: bool,
) -> bool {
    let Some(conn) = io.writer(id) else {
        return false;
    };
    let Protocol::Echo(echo) = &mut conn.session.protocol else {
        return false;
    };
    echo.message.extend_from_slice(bytes);
    if !is_last {
        return true;
    }
    let message = std::mem::take(&mut echo.message);
    if conn.output.len() > sessions.shared.limits.max_pending {
        sessions.abort(io, id, Reason::SlowConsumer);
        return false;
    }
    let opcode = match kind {
        Kind::Text => OpCode::Text,
        Kind::Binary => OpCode::Binary,
    };
    frame::encode_frame(conn.output.tail(), opcode, &message, None);
    if conn.output.tail_is_full() {
        conn.output.seal();
    }
    true
}

/// Answer a control frame. Return false when the connection has ended.
fn handle_control(sessions: &mut Sessions, io: &mut Io, id: ConnId, event: Event<'_>) -> bool {
    match event {
        Event::Ping(payload) => {
            if let Some(conn) = io.writer(id) {
                outbound::append_pong(conn, payload);
                if conn.output.len() > sessions.shared.limits.max_pending {
                    sessions.abort(io, id, Reason::SlowConsumer);
                    return false;
                }
            }
            true
        }
        Event::Close { code, .. } => {
            // RFC 6455 section 5.5.1: answer with the code that was received.
            let close = code.map(|code| (code, ""));
            sessions.end_with_close(io, id, Reason::ClientClosed, None, close);
            false
        }
        Event::Pong(_) | Event::Data { .. } => true,
    }
}

/// End a connection whose frames are malformed.
fn end_frames(sessions: &mut Sessions, io: &mut Io, id: ConnId, error: protocol::ws::Error) {
    let reason = match error.close_code() {
        close::INVALID_PAYLOAD => Reason::InvalidText,
        close::MESSAGE_TOO_BIG => Reason::PayloadTooLarge,
        _ => Reason::ProtocolError,
    };
    let close = (error.close_code(), error.reason());
    sessions.end_with_close(io, id, reason, None, Some(close));
}
