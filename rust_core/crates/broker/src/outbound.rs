//! What is appended to a connection's output: NATS operations, framed where the connection is a
//! WebSocket.

use protocol::nats::encode;
use protocol::ws::{Batch, OpCode, close, frame};
use reactor::{Conn, Output};

use crate::http::events::{EventFormat, encode_data, encode_id};
use crate::mail::Message;
use crate::session::{Flags, Session};
use crate::subscriptions::Subscription;
use crate::transport::TransportKind;

/// How a connection's output is put together.
pub(crate) enum Framing {
    /// The NATS stream as it is.
    Tcp,
    /// The NATS stream in the frames of a WebSocket.
    WebSocket(Batch),
    /// Answers of HTTP.
    Http,
    /// Messages alone, as Server-Sent Events.
    Events(EventFormat),
}

impl Framing {
    #[inline]
    pub(crate) const fn transport(&self) -> TransportKind {
        match self {
            Self::Tcp => TransportKind::Tcp,
            Self::WebSocket(_) => TransportKind::WebSocket,
            Self::Http | Self::Events(_) => TransportKind::Http,
        }
    }
}

/// Appends `len` bytes of the NATS stream, which `encode` writes.
#[inline]
pub(crate) fn append(
    framing: &mut Framing,
    output: &mut Output,
    len: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    if output.tail_is_full() {
        seal_frame(framing, output);
        output.seal();
    }
    let tail = output.tail();
    if let Framing::WebSocket(batch) = framing {
        batch.begin(tail, len, None);
    }
    encode(tail);
}

/// Completes the open frame.
#[inline]
pub(crate) fn seal_frame(framing: &mut Framing, output: &mut Output) {
    if let Framing::WebSocket(batch) = framing {
        batch.seal(output.tail(), None);
    }
}

/// A message as its last receiver got it: most receivers of one message want the same bytes.
#[derive(Default)]
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    sid: Vec<u8>,
    has_headers: bool,
    /// The message as the data of an event, by format.
    events: [Vec<u8>; 2],
    /// Receivers in a row who wanted other bytes than the one before.
    misses: u32,
}

impl Encoded {
    /// Misses after which a message's bytes are not kept any more.
    const PATIENCE: u32 = 4;

    /// Forgets the last message.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.events.iter_mut().for_each(Vec::clear);
        self.misses = 0;
    }

    /// The message as the data of an event.
    fn event(&mut self, format: EventFormat, message: &Message<'_>) -> &[u8] {
        let data = &mut self.events[format as usize];
        if data.is_empty() {
            encode_data(data, format, message);
        }
        data
    }

    /// The message for `sid`, encoded anew where the one before wanted something else; `None` when
    /// that is so every time.
    fn message(&mut self, sid: &[u8], has_headers: bool, message: &Message<'_>) -> Option<&[u8]> {
        if self.bytes.is_empty() || self.sid != sid || self.has_headers != has_headers {
            if self.misses > Self::PATIENCE {
                return None;
            }
            self.misses += 1;
            self.bytes.clear();
            self.sid.clear();
            self.sid.extend_from_slice(sid);
            self.has_headers = has_headers;
            encode_message(&mut self.bytes, sid, has_headers, message);
        } else {
            self.misses = 0;
        }
        Some(&self.bytes)
    }
}

/// Appends a message for a subscription of a client that asked for `flags`. `encoded` serves messages
/// with several receivers.
#[inline]
pub(crate) fn append_message(
    framing: &mut Framing,
    output: &mut Output,
    flags: Flags,
    subscription: &Subscription,
    message: &Message<'_>,
    encoded: Option<&mut Encoded>,
) {
    if let Framing::Events(format) = *framing {
        append_event(output, format, subscription.delivered, message, encoded);
        return;
    }
    let sid = subscription.sid();
    let has_headers = message.headers.is_some() && flags.has(Flags::HEADERS);
    let kept = encoded.and_then(|encoded| encoded.message(sid, has_headers, message));
    match kept {
        Some(bytes) => append(framing, output, bytes.len(), |out| {
            out.extend_from_slice(bytes);
        }),
        None => append(
            framing,
            output,
            message_len(sid, has_headers, message),
            |out| {
                encode_message(out, sid, has_headers, message);
            },
        ),
    }
    output.add_items(1);
}

/// Appends a message as the event with this number.
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

/// Bytes that [`encode_message`] appends.
fn message_len(sid: &[u8], has_headers: bool, message: &Message<'_>) -> usize {
    let Message {
        subject,
        reply,
        headers,
        payload,
    } = *message;
    match headers {
        Some(headers) if has_headers => encode::hmsg_len(subject, sid, reply, headers, payload),
        _ => encode::msg_len(subject, sid, reply, payload),
    }
}

/// A receiver that does not know headers gets the message without them.
#[inline]
fn encode_message(out: &mut Vec<u8>, sid: &[u8], has_headers: bool, message: &Message<'_>) {
    let Message {
        subject,
        reply,
        headers,
        payload,
    } = *message;
    match headers {
        Some(headers) if has_headers => {
            encode::encode_hmsg(out, subject, sid, reply, headers, payload);
        }
        _ => encode::encode_msg(out, subject, sid, reply, payload),
    }
}

/// Appends operations that are encoded already.
pub(crate) fn append_bytes(conn: &mut Conn<Session>, bytes: &[u8]) {
    let Conn {
        session, output, ..
    } = conn;
    append(&mut session.framing, output, bytes.len(), |out| {
        out.extend_from_slice(bytes)
    });
    if !session.flags.has(Flags::GREETED) {
        // Some clients read one frame per line until the handshake is over.
        seal_frame(&mut session.framing, output);
    }
}

/// Appends an answer that keeps its place among `PONG` and `+OK`: after everything that was routed
/// before an `UNSUB` that precedes it.
pub(crate) fn append_reply(conn: &mut Conn<Session>, bytes: &[u8]) {
    let held = conn.session.held.as_mut();
    if !held.is_some_and(|held| held.append(bytes)) {
        append_bytes(conn, bytes);
    }
}

/// Appends the replies that are held back, for a connection that ends.
pub(crate) fn append_held(conn: &mut Conn<Session>) {
    if let Some(held) = conn.session.held.take() {
        held.replies().for_each(|reply| append_bytes(conn, reply));
    }
}

/// Appends `-ERR '<text>'`, if the connection speaks NATS.
pub(crate) fn append_error(conn: &mut Conn<Session>, text: &str) {
    if let Framing::Http | Framing::Events(_) = conn.session.framing {
        return;
    }
    let mut bytes = Vec::with_capacity(text.len() + 10);
    encode::encode_err(&mut bytes, text);
    append_bytes(conn, &bytes);
}

/// Appends a pong frame.
pub(crate) fn append_pong(conn: &mut Conn<Session>, payload: &[u8]) {
    seal_frame(&mut conn.session.framing, &mut conn.output);
    frame::encode_frame(conn.output.tail(), OpCode::Pong, payload, None);
}

/// Appends a close frame, if the connection is a WebSocket.
pub(crate) fn append_close(conn: &mut Conn<Session>, code: u16, reason: &str) {
    if let Framing::WebSocket(_) = conn.session.framing {
        seal_frame(&mut conn.session.framing, &mut conn.output);
        close::encode_close(conn.output.tail(), code, reason, None);
    }
}
