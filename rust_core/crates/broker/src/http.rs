//! The HTTP listener: upgrades to WebSocket; everything else is refused.

use protocol::http::{HeadLimits, HttpError, RequestHead, encode_response, parse_head};
use protocol::ws::{Batch, handshake};
use reactor::ConnId;

use crate::counters::{Counter, Reason};
use crate::session::{Echo, Flags, Transport};
use crate::shard::{Io, Shard};

/// How a request is answered.
pub(crate) enum Answer {
    /// Become this.
    Upgrade(handshake::Accept, Transport),
    /// Send this, then close.
    Refuse(Vec<u8>),
}

impl Shard {
    /// Reads a request's head; what the connection becomes, or `None` when it has ended.
    pub(crate) fn receive_http(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut head: Vec<u8>,
        input: &[u8],
    ) -> Option<Transport> {
        let whole = join(&mut head, input);
        let answer = match parse_head(whole, HeadLimits::default()) {
            Ok(None) => {
                if head.is_empty() {
                    head = input.to_vec();
                }
                return Some(Transport::Http(head));
            }
            // A client must not send frames before it has read the answer.
            Ok(Some((_, used))) if used < whole.len() => {
                Answer::Refuse(plain(400, "data before the handshake was complete", &[]))
            }
            Ok(Some((request, _))) => self.answer(&request),
            Err(error) => Answer::Refuse(refusal(error)),
        };
        match answer {
            Answer::Upgrade(accept, transport) => self.upgrade(io, id, &accept, transport),
            Answer::Refuse(response) => {
                self.end_http(io, id, &response);
                None
            }
        }
    }

    /// Sends a whole response and closes.
    pub(crate) fn end_http(&mut self, io: &mut Io, id: ConnId, response: &[u8]) {
        if let Some(conn) = io.writer(id) {
            conn.output.tail().extend_from_slice(response);
        }
        self.end(io, id, Reason::HttpAnswered, None);
    }

    fn answer(&self, request: &RequestHead<'_>) -> Answer {
        match handshake::accept(request) {
            Err(reject) => {
                let mut response = Vec::new();
                reject.encode(&mut response);
                Answer::Refuse(response)
            }
            Ok(accept) => match request.path() {
                "/echo" if self.shared.limits.echo => {
                    Answer::Upgrade(accept, Transport::Echo(Box::new(Echo::new())))
                }
                // nats-server speaks other protocols there; a client of theirs must not hang.
                path if path.ends_with("/leafnode") || path.ends_with("/mqtt") => {
                    Answer::Refuse(plain(404, "no such protocol here", &[]))
                }
                _ => Answer::Upgrade(accept, self.nats_transport()),
            },
        }
    }

    fn upgrade(
        &mut self,
        io: &mut Io,
        id: ConnId,
        accept: &handshake::Accept,
        transport: Transport,
    ) -> Option<Transport> {
        let conn = io.writer(id)?;
        handshake::encode_accept(conn.output.tail(), accept, &[]);
        self.counts.add(Counter::WebSockets, 1);
        conn.session.framing = Some(Batch::new());
        if matches!(transport, Transport::Echo(_)) {
            conn.session.flags.set(Flags::GREETED);
        }
        if !self.take_place(io, id) {
            return None;
        }
        if !matches!(transport, Transport::Echo(_)) {
            self.greet(io, id);
        }
        Some(transport)
    }
}

/// What has arrived of a head; `input` itself when nothing arrived before.
pub(crate) fn join<'a>(head: &'a mut Vec<u8>, input: &'a [u8]) -> &'a [u8] {
    if head.is_empty() {
        return input;
    }
    head.extend_from_slice(input);
    head
}

/// The answer to a request that cannot be read.
pub(crate) fn refusal(error: HttpError) -> Vec<u8> {
    plain(error.status(), error.reason(), &[])
}

/// A response with a line of text, after which the connection is closed.
pub(crate) fn plain(status: u16, text: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut response = Vec::new();
    let mut all = vec![("Content-Type", "text/plain; charset=utf-8")];
    all.extend_from_slice(headers);
    encode_response(
        &mut response,
        status,
        &all,
        format!("{text}\n").as_bytes(),
        false,
        false,
    );
    response
}
