//! One HTTP connection, on which requests are made one after the other.
//!
//! ```text
//! Opening --accepted--> Idle --request--> Awaiting --response--> Idle, or Over if the connection ends
//! ```

use protocol::http::{
    BodyDecoder, BodyEvent, Framing, HeadLimits, HttpError, ResponseFraming, ResponseHead, Version,
    parse_response_head,
};

use crate::connection::{Connection, Endpoint, Event, LinkError, MIN_BODY, Outbox, Response};
use crate::rng::Rng;
use crate::target::Transport;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Idle,
    Awaiting,
    Over,
}

/// One HTTP connection.
pub(crate) struct HttpLink {
    stage: Stage,
    /// Whether the request asks for the connection to be closed.
    is_single: bool,
    /// Received part of a response that has not arrived whole.
    partial: Option<Box<PartialResponse>>,
}

#[derive(Default)]
struct PartialResponse {
    head: Vec<u8>,
    /// Bytes of interim responses.
    interim: u64,
    rest: Option<PartialBody>,
    body: Vec<u8>,
}

/// Body of a response whose head is complete.
struct PartialBody {
    begun: HeadSummary,
    decoder: BodyDecoder,
}

/// The fields of a head that matter.
#[derive(Clone, Copy)]
struct HeadSummary {
    status: u16,
    head_bytes: u64,
    is_last: bool,
}

impl HttpLink {
    /// Note that a request was appended, whose response comes next.
    pub(crate) fn expect_response(&mut self) {
        self.stage = Stage::Awaiting;
    }

    fn complete<'b>(&mut self, begun: HeadSummary, body: &'b [u8]) -> Event<'b> {
        let is_last = begun.is_last || self.is_single;
        self.stage = if is_last { Stage::Over } else { Stage::Idle };
        Event::Response(Response {
            status: begun.status,
            body,
            head_bytes: begun.head_bytes,
            is_last,
        })
    }

    /// Take a part of a response, or more than one, from the front of `bytes`.
    fn receive_part(
        &mut self,
        most: usize,
        bytes: &mut &[u8],
        handle: &mut impl FnMut(Event<'_>),
    ) -> Result<(), LinkError> {
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => match read_head(bytes)? {
                // The usual case: it is all here, and nothing is copied.
                Some((begun, Framing::Length(len), used))
                    if begun.status >= 200 && len <= (bytes.len() - used) as u64 =>
                {
                    let (response, after) = bytes.split_at(used + len as usize);
                    *bytes = after;
                    let (_, body) = response.split_at(used);
                    handle(self.complete(begun, &body[..body.len().min(most)]));
                    return Ok(());
                }
                _ => Box::default(),
            },
        };
        if partial.rest.is_none() && !partial.receive_head(bytes)? {
            self.partial = Some(partial);
            return Ok(());
        }
        match partial.receive_body(most, bytes)? {
            Some(begun) => handle(self.complete(begun, &partial.body)),
            None => self.partial = Some(partial),
        }
        Ok(())
    }
}

impl PartialResponse {
    /// Take the head, and interim heads before it, from the front of `bytes`; return whether it is
    /// complete.
    fn receive_head(&mut self, bytes: &mut &[u8]) -> Result<bool, LinkError> {
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let mut start = 0;
        while let Some((begun, framing, used)) = read_head(&self.head[start..])? {
            start += used;
            if begun.status < 200 {
                self.interim += used as u64;
                continue;
            }
            let head_bytes = self.interim + used as u64;
            self.rest = Some(PartialBody {
                begun: HeadSummary {
                    head_bytes,
                    ..begun
                },
                decoder: BodyDecoder::new(framing),
            });
            break;
        }
        let is_complete = self.rest.is_some();
        // The earlier bytes held no whole head.
        *bytes = if is_complete {
            &bytes[start - before..]
        } else {
            &[]
        };
        self.head.drain(..start);
        Ok(is_complete)
    }

    /// Take the body from the front of `bytes` and keep at most `most` of it. Return its head once
    /// the body is complete.
    fn receive_body(
        &mut self,
        most: usize,
        bytes: &mut &[u8],
    ) -> Result<Option<HeadSummary>, LinkError> {
        let Some(PartialBody { begun, decoder }) = &mut self.rest else {
            return Ok(None);
        };
        while let Some(event) = decoder.next(bytes).map_err(LinkError::Http)? {
            match event {
                BodyEvent::Data(data) => {
                    let room = most - self.body.len();
                    self.body.extend_from_slice(&data[..data.len().min(room)]);
                }
                BodyEvent::End => return Ok(Some(*begun)),
            }
        }
        Ok(None)
    }
}

/// Parse the head at the front of `bytes`; return its fields, the body's framing, and its length.
fn read_head(bytes: &[u8]) -> Result<Option<(HeadSummary, Framing, usize)>, LinkError> {
    let parsed = parse_response_head(bytes, HeadLimits::default()).map_err(LinkError::Http)?;
    let Some((head, used)) = parsed else {
        return Ok(None);
    };
    let begun = HeadSummary {
        status: head.status,
        head_bytes: used as u64,
        is_last: is_last(&head),
    };
    let framing = match head.framing(false).map_err(LinkError::Http)? {
        ResponseFraming::None => Framing::None,
        ResponseFraming::Length(len) => Framing::Length(len),
        ResponseFraming::Chunked => Framing::Chunked,
        ResponseFraming::UntilClose => return Err(LinkError::Http(UNFRAMED)),
    };
    Ok(Some((begun, framing, used)))
}

/// A response that only the connection's end completes looks like one that was cut short.
const UNFRAMED: HttpError = HttpError::Malformed("a response without a length");

fn is_last(head: &ResponseHead<'_>) -> bool {
    head.version == Version::Http10 || head.headers.has_token("connection", "close")
}

impl Connection for HttpLink {
    fn new(endpoint: &Endpoint, _: &mut Rng) -> Self {
        Self {
            stage: Stage::Opening,
            is_single: endpoint.target.transport == Transport::RestNew,
            partial: None,
        }
    }

    fn handle_open(&mut self) {
        self.stage = Stage::Idle;
    }

    fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Awaiting)
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    fn receive(
        &mut self,
        endpoint: &Endpoint,
        bytes: &mut [u8],
        mut handle: impl FnMut(Event<'_>, &mut Outbox),
    ) -> Result<(), LinkError> {
        let most = endpoint.max_payload.saturating_add(1).max(MIN_BODY);
        let (mut rest, mut outbox): (&[u8], _) = (bytes, Outbox::new(false));
        while !rest.is_empty() {
            match self.stage {
                Stage::Awaiting => {
                    self.receive_part(most, &mut rest, &mut |event| handle(event, &mut outbox))?;
                }
                Stage::Over => return Ok(()),
                Stage::Opening | Stage::Idle => return Err(LinkError::UnexpectedResponse),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
