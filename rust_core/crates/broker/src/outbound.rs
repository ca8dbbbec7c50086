//! Appending to the output of a connection: NATS operations, in frames if the connection is a WebSocket.

use std::sync::Arc;

use protocol::nats::{Message, encode};
use protocol::ws::{OpCode, close, frame};
use reactor::{Conn, Output, Shared};

use crate::http::EventFormat;
use crate::http::events::{encode_data, encode_id};
use crate::message::OwnedMessage;
use crate::protocols::Protocol;
use crate::session::{Flags, Session};
use crate::subscriptions::Subscription;

/// Append `len` bytes of the NATS stream, which `encode` writes.
#[inline]
pub(crate) fn append(
    protocol: &mut Protocol,
    output: &mut Output,
    len: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    if output.tail_is_full() {
        seal_frame(protocol, output);
        output.seal();
    }
    let tail = output.tail();
    if let Some(batch) = protocol.batch() {
        batch.begin(tail, len, None);
    }
    encode(tail);
}

/// Complete the open frame.
#[inline]
pub(crate) fn seal_frame(protocol: &mut Protocol, output: &mut Output) {
    if let Some(batch) = protocol.batch() {
        batch.seal(output.tail(), None);
    }
}

/// A message in the form of its last receiver: most receivers of one message want the same bytes.
#[derive(Default)]
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    sid: Vec<u8>,
    has_headers: bool,
    /// The message as the data of an event, by format.
    events: [Vec<u8>; 2],
    /// Receivers in a row that wanted other bytes than the receiver before.
    misses: u32,
    /// The message itself, if outputs hold it together.
    shared: Option<Arc<OwnedMessage>>,
}

impl Encoded {
    /// Misses after which a message's bytes are not kept any more.
    const MOST_MISSES: u32 = 4;

    /// Forget the last message.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.events.iter_mut().for_each(Vec::clear);
        self.misses = 0;
        self.shared = None;
    }

    /// Have outputs hold the message together.
    pub(crate) fn share(&mut self, owned: &Arc<OwnedMessage>) {
        self.shared = Some(Arc::clone(owned));
    }

    /// Return the message as the data of an event.
    fn event(&mut self, format: EventFormat, message: &Message<'_>) -> &[u8] {
        let data = &mut self.events[format as usize];
        if data.is_empty() {
            encode_data(data, format, message);
        }
        data
    }

    /// Return the message for `sid`, encoded anew if the receiver before wanted other bytes; `None` when
    /// that is so every time.
    fn message(&mut self, sid: &[u8], message: &Message<'_>) -> Option<&[u8]> {
        let has_headers = message.headers.is_some();
        if self.bytes.is_empty() || self.sid != sid || self.has_headers != has_headers {
            if self.misses > Self::MOST_MISSES {
                return None;
            }
            self.misses += 1;
            self.bytes.clear();
            self.sid.clear();
            self.sid.extend_from_slice(sid);
            self.has_headers = has_headers;
            encode::encode_msg(&mut self.bytes, sid, message);
        } else {
            self.misses = 0;
        }
        Some(&self.bytes)
    }
}

/// Append a message for a subscription of a client that asked for `flags`. `encoded` serves messages
/// with several receivers.
#[inline]
pub(crate) fn append_message(
    protocol: &mut Protocol,
    output: &mut Output,
    flags: Flags,
    subscription: &Subscription,
    message: &Message<'_>,
    encoded: Option<&mut Encoded>,
) {
    if let Some(format) = protocol.events() {
        append_event(output, format, subscription.delivered, message, encoded);
        return;
    }
    let sid = subscription.sid();
    // A receiver that does not know headers gets the message without them.
    let message = &Message {
        headers: message.headers.filter(|_| flags.has(Flags::HEADERS)),
        ..*message
    };
    if let Some(owned) = encoded.as_ref().and_then(|encoded| encoded.shared.as_ref()) {
        append_shared(protocol, output, sid, message, owned);
        return;
    }
    let kept = encoded.and_then(|encoded| encoded.message(sid, message));
    match kept {
        Some(bytes) => append(protocol, output, bytes.len(), |out| {
            out.extend_from_slice(bytes);
        }),
        None => append(protocol, output, encode::msg_len(sid, message), |out| {
            encode::encode_msg(out, sid, message);
        }),
    }
    output.add_items(1);
}

/// Append a message that outputs hold together: a line of its own, and the rest without a copy.
fn append_shared(
    protocol: &mut Protocol,
    output: &mut Output,
    sid: &[u8],
    message: &Message<'_>,
    owned: &Arc<OwnedMessage>,
) {
    seal_frame(protocol, output);
    let tail = output.tail();
    if protocol.batch().is_some() {
        let len = encode::msg_len(sid, message);
        frame::encode_header(tail, true, OpCode::Binary, len, None);
    }
    encode::encode_msg_line(tail, sid, message);
    output.add_items(1);
    let body = owned.body(message.headers.is_some());
    output.append_shared(Arc::clone(owned) as Shared, body);
}

/// Append a message as the event with this number.
fn append_event(
    output: &mut Output,
    format: EventFormat,
    number: u64,
    message: &Message<'_>,
    encoded: Option<&mut Encoded>,
) {
    if output.tail_is_full() {
        output.seal();
    }
    let tail = output.tail();
    encode_id(tail, number);
    match encoded {
        Some(encoded) => tail.extend_from_slice(encoded.event(format, message)),
        None => encode_data(tail, format, message),
    }
    output.add_items(1);
}

/// Append operations that are encoded already.
pub(crate) fn append_bytes(conn: &mut Conn<Session>, bytes: &[u8]) {
    let Conn {
        session, output, ..
    } = conn;
    append(&mut session.protocol, output, bytes.len(), |out| {
        out.extend_from_slice(bytes)
    });
    if !session.flags.has(Flags::GREETED) {
        // Some clients read one frame per line until the handshake is over.
        seal_frame(&mut session.protocol, output);
    }
}

/// Append an answer that keeps its place among `PONG` and `+OK`: after everything that was routed
/// before an `UNSUB` that precedes it.
pub(crate) fn append_reply(conn: &mut Conn<Session>, bytes: &[u8]) {
    let held = conn.session.held.as_mut();
    if !held.is_some_and(|held| held.append(bytes)) {
        append_bytes(conn, bytes);
    }
}

/// Append the replies that are held back, for a connection that ends.
pub(crate) fn append_held(conn: &mut Conn<Session>) {
    if let Some(held) = conn.session.held.take() {
        held.replies().for_each(|reply| append_bytes(conn, reply));
    }
}

/// Append `-ERR '<text>'`, if the connection speaks NATS.
pub(crate) fn append_error(conn: &mut Conn<Session>, text: &str) {
    if let Protocol::Http(_) = conn.session.protocol {
        return;
    }
    let mut bytes = Vec::with_capacity(text.len() + 10);
    encode::encode_err(&mut bytes, text);
    append_bytes(conn, &bytes);
}

/// Append a pong frame.
pub(crate) fn append_pong(conn: &mut Conn<Session>, payload: &[u8]) {
    seal_frame(&mut conn.session.protocol, &mut conn.output);
    frame::encode_frame(conn.output.tail(), OpCode::Pong, payload, None);
}

/// Append a close frame, if the connection is a WebSocket.
pub(crate) fn append_close(conn: &mut Conn<Session>, code: u16, reason: &str) {
    if conn.session.protocol.batch().is_some() {
        seal_frame(&mut conn.session.protocol, &mut conn.output);
        close::encode_close(conn.output.tail(), code, reason, None);
    }
}
