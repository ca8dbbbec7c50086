//! One HTTP connection, on which requests are made one after the other.
//!
//! ```text
//! Opening --accepted--> Idle --request--> Awaiting --answer--> Idle, or Over where the connection ends
//! ```

use std::fmt;

use protocol::http::{
    BodyDecoder, BodyEvent, Framing, HeadLimits, HttpError, ResponseFraming, ResponseHead, Version,
    parse_response_head, reason_phrase,
};
use reactor::Output;

use crate::config::Transport;
use crate::connection::Connection;
use crate::link::{Endpoint, Event, LinkError};
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::subject::Subject;

/// Bytes of a body that are kept at least: enough for what a server has to say about an error.
const LEAST_BODY: usize = 1024;

/// An answer that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    /// Of a body that is longer than any that is wanted only the beginning, one byte too long.
    pub(crate) body: &'a [u8],
    /// Bytes of the head, and of interim ones before it.
    pub(crate) head_bytes: u64,
    /// Whether the connection ends with it.
    pub(crate) is_last: bool,
}

impl Answer<'_> {
    /// Whether the request was answered as it should be.
    #[inline]
    pub(crate) fn is_success(&self) -> bool {
        self.status == 200
    }
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = String::from_utf8_lossy(&self.body[..self.body.len().min(LEAST_BODY)]);
        write!(
            f,
            "{} {}: {}",
            self.status,
            reason_phrase(self.status),
            said.trim()
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Idle,
    Awaiting,
    Over,
}

/// See the module.
pub(crate) struct HttpLink {
    stage: Stage,
    /// Whether the request asked for the connection to be closed.
    is_single: bool,
    /// What has arrived of an answer that did not arrive whole.
    partial: Option<Box<Partial>>,
}

#[derive(Default)]
struct Partial {
    head: Vec<u8>,
    /// Bytes of interim responses.
    interim: u64,
    rest: Option<Rest>,
    body: Vec<u8>,
}

/// An answer whose head is complete.
struct Rest {
    begun: Begun,
    decoder: BodyDecoder,
}

/// What a head says.
#[derive(Clone, Copy)]
struct Begun {
    status: u16,
    head_bytes: u64,
    is_last: bool,
}

impl HttpLink {
    /// A request was appended, whose answer comes next.
    pub(crate) fn expect_answer(&mut self) {
        self.stage = Stage::Awaiting;
    }

    fn complete<'b>(&mut self, begun: Begun, body: &'b [u8]) -> Event<'b> {
        let is_last = begun.is_last || self.is_single;
        self.stage = if is_last { Stage::Over } else { Stage::Idle };
        Event::Answer(Answer {
            status: begun.status,
            body,
            head_bytes: begun.head_bytes,
            is_last,
        })
    }

    /// Takes a part of an answer, or more than one, from the front of `bytes`.
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
                    let (answer, after) = bytes.split_at(used + len as usize);
                    *bytes = after;
                    let (_, body) = answer.split_at(used);
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

impl Partial {
    /// Takes the head, and interim ones before it, from the front of `bytes`; whether it is complete.
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
            self.rest = Some(Rest {
                begun: Begun {
                    head_bytes,
                    ..begun
                },
                decoder: BodyDecoder::new(framing),
            });
            break;
        }
        let is_complete = self.rest.is_some();
        // What was there before held no whole head.
        *bytes = if is_complete {
            &bytes[start - before..]
        } else {
            &[]
        };
        self.head.drain(..start);
        Ok(is_complete)
    }

    /// Takes the body from the front of `bytes` and keeps at most `most` of it; what its head said once
    /// it is complete.
    fn receive_body(&mut self, most: usize, bytes: &mut &[u8]) -> Result<Option<Begun>, LinkError> {
        let Some(Rest { begun, decoder }) = &mut self.rest else {
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

/// The head at the front of `bytes`: what it says, how its body is framed, and its length.
fn read_head(bytes: &[u8]) -> Result<Option<(Begun, Framing, usize)>, LinkError> {
    let parsed = parse_response_head(bytes, HeadLimits::default()).map_err(LinkError::Http)?;
    let Some((head, used)) = parsed else {
        return Ok(None);
    };
    let begun = Begun {
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

/// An answer that only the connection's end completes cannot be told from one that was cut short.
const UNFRAMED: HttpError = HttpError::Malformed("an answer without a length");

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

    fn owes(&self) -> bool {
        false
    }

    fn receive(
        &mut self,
        endpoint: &Endpoint,
        bytes: &mut [u8],
        mut handle: impl FnMut(Event<'_>, &mut Outbox),
    ) -> Result<(), LinkError> {
        let most = endpoint.max_payload.saturating_add(1).max(LEAST_BODY);
        let (mut rest, mut outbox): (&[u8], _) = (bytes, Outbox::new(false));
        while !rest.is_empty() {
            match self.stage {
                Stage::Awaiting => {
                    self.receive_part(most, &mut rest, &mut |event| handle(event, &mut outbox))?;
                }
                Stage::Over => return Ok(()),
                Stage::Opening | Stage::Idle => return Err(LinkError::Unasked),
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        _: &Endpoint,
        _: &Subject,
        _: &mut Output,
        _: &mut Rng,
    ) -> Result<(), LinkError> {
        Ok(())
    }

    fn seal(&mut self, _: &mut Output, _: &mut Rng) {}

    fn close(&mut self, _: &mut Output, _: &mut Rng, _: u16) {}
}

#[cfg(test)]
mod tests;
