//! The streaming decoder: received bytes in, slices of messages and control frames out.

use super::frame::{Header, MAX_CONTROL_PAYLOAD, MAX_HEADER, OpCode};
use super::utf8::{InvalidUtf8, Validator};
use super::{Error, Role, close, mask};

/// The type of a message (RFC 6455 section 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// Arbitrary bytes.
    Binary,
}

/// Event from the peer. It borrows from the bytes given to [`Decoder::next`] or from the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The next slice of the open message, unmasked. Slices follow the reads, not the frames.
    Data {
        /// The message's type.
        kind: Kind,
        /// At least one byte, unless it ends the message. A slice of a text may end inside a
        /// character, unless it ends the message.
        bytes: &'a [u8],
        /// Whether the message is complete with this slice.
        end_of_message: bool,
    },
    /// Ping: answer with a pong that carries the same payload, at most 125 bytes.
    Ping(&'a [u8]),
    /// Pong, with or without a ping before it.
    Pong(&'a [u8]),
    /// A close frame: answer with one unless one was sent, then close the transport.
    Close {
        /// Code, valid on the wire; `None` if the frame carries no code.
        code: Option<u16>,
        /// The reason, often empty.
        reason: &'a str,
    },
}

/// Decoder of one connection's received bytes.
///
/// Call [`Decoder::next`] with each read until it returns `None`; the decoder then has taken all
/// bytes. It keeps counters for a data frame, and the bytes of a header or control frame that two
/// reads share.
#[derive(Debug)]
pub struct Decoder {
    /// Payload of a control frame that arrived in parts. Present only while such a frame is
    /// received and until the call after the one that returned it.
    control: Option<Box<Control>>,
    state: State,
    /// Payload bytes that the headers of the open message announced so far.
    message_len: u32,
    max_message: u32,
    utf8: Validator,
    role: Role,
    /// Type of the open message: a fragmented one, or one whose payload is arriving.
    message: Option<Kind>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Between frames: `len` bytes of a header are here, fewer than it has.
    Header { bytes: [u8; MAX_HEADER], len: u8 },
    /// Inside a data frame. `key` is rotated to the next byte; zero without a mask.
    Data {
        remaining: u32,
        key: [u8; 4],
        fin: bool,
    },
    /// Inside a control frame.
    Control {
        opcode: OpCode,
        remaining: u8,
        key: [u8; 4],
    },
    /// After a close frame or an error: nothing that follows has a meaning (section 1.4).
    Closed,
}

impl State {
    const BETWEEN_FRAMES: Self = Self::Header {
        bytes: [0; MAX_HEADER],
        len: 0,
    };
}

/// A step that the decoder took; unlike [`Event`] it does not borrow from the decoder.
enum Step<'i> {
    Data {
        kind: Kind,
        bytes: &'i [u8],
        end_of_message: bool,
    },
    /// A complete control frame; without a payload here it is in [`Decoder::control`].
    Control(OpCode, Option<&'i [u8]>),
}

impl Decoder {
    /// Return a decoder for the side in `role`. A message of more than `max_message` bytes, summed
    /// over its fragments, is refused when the header that exceeds the limit arrives.
    #[must_use]
    pub const fn new(role: Role, max_message: u32) -> Self {
        Self {
            control: None,
            state: State::BETWEEN_FRAMES,
            message_len: 0,
            max_message,
            utf8: Validator::new(),
            role,
            message: None,
        }
    }

    /// Take bytes from the front of `input`, unmasking them in place, up to the next event. `None`
    /// means that all of `input` was taken.
    ///
    /// After [`Event::Close`] and after an error the decoder discards its input and returns `None`.
    ///
    /// # Errors
    /// The peer broke RFC 6455 or the size limit; [`Error`] says what to do.
    #[inline]
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i mut [u8],
    ) -> Result<Option<Event<'s>>, Error> {
        if self.control.is_some() && !matches!(self.state, State::Control { .. }) {
            self.control = None;
        }
        let step = match self.step(input) {
            Ok(Some(step)) => step,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.state = State::Closed;
                return Err(error);
            }
        };
        match step {
            Step::Data {
                kind,
                bytes,
                end_of_message,
            } => Ok(Some(Event::Data {
                kind,
                bytes,
                end_of_message,
            })),
            Step::Control(opcode, payload) => {
                let kept = self.control.as_deref().map(Control::payload);
                control_event(opcode, payload.or(kept).unwrap_or_default()).map(Some)
            }
        }
    }

    /// Return whether a close frame or an error ended the stream.
    #[inline]
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    #[inline]
    fn step<'i>(&mut self, input: &mut &'i mut [u8]) -> Result<Option<Step<'i>>, Error> {
        loop {
            match self.state {
                State::Header { bytes, len } => {
                    let Some(header) = self.parse_header(input, bytes, len)? else {
                        return Ok(None);
                    };
                    self.handle_header(header)?;
                }
                State::Data {
                    remaining,
                    key,
                    fin,
                } => {
                    if remaining > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    let step = self.take_data(input, remaining, key, fin)?;
                    if step.is_some() {
                        return Ok(step);
                    }
                }
                State::Control {
                    opcode,
                    remaining,
                    key,
                } => return Ok(self.take_control(input, opcode, remaining, key)),
                State::Closed => {
                    *input = &mut [];
                    return Ok(None);
                }
            }
        }
    }

    /// Take a header from `input`, of which the first `kept` bytes may have come before.
    #[inline]
    fn parse_header(
        &mut self,
        input: &mut &mut [u8],
        mut bytes: [u8; MAX_HEADER],
        kept: u8,
    ) -> Result<Option<Header>, Error> {
        if input.is_empty() {
            return Ok(None);
        }
        if kept == 0
            && let Some((header, len)) = Header::parse(input, self.role)?
        {
            take(input, len);
            return Ok(Some(header));
        }
        // Two reads share the header: put it together.
        let kept = usize::from(kept);
        let added = input.len().min(MAX_HEADER - kept);
        let total = kept + added;
        bytes[kept..total].copy_from_slice(&input[..added]);
        match Header::parse(&bytes[..total], self.role)? {
            Some((header, len)) => {
                take(input, len - kept);
                Ok(Some(header))
            }
            None => {
                take(input, added);
                let len = total as u8;
                self.state = State::Header { bytes, len };
                Ok(None)
            }
        }
    }

    /// Check a header against the open message and the limit, and enters its frame.
    #[inline]
    fn handle_header(&mut self, header: Header) -> Result<(), Error> {
        let key = header.mask.unwrap_or_default();
        self.message = match (header.opcode, self.message) {
            (OpCode::Continuation, None) => return Err(Error::UnexpectedContinuation),
            (OpCode::Continuation, open) => open,
            (OpCode::Text | OpCode::Binary, Some(_)) => return Err(Error::ExpectedContinuation),
            (OpCode::Text, None) => Some(Kind::Text),
            (OpCode::Binary, None) => Some(Kind::Binary),
            (opcode @ (OpCode::Close | OpCode::Ping | OpCode::Pong), _) => {
                self.state = State::Control {
                    opcode,
                    remaining: header.len as u8,
                    key,
                };
                return Ok(());
            }
        };
        let total = header.len.saturating_add(self.message_len.into());
        if total > self.max_message.into() {
            return Err(Error::MessageTooBig);
        }
        self.message_len = total as u32;
        self.state = State::Data {
            remaining: header.len as u32,
            key,
            fin: header.fin,
        };
        Ok(())
    }

    /// Take the part of a data frame's `remaining` payload that `input` has; `None` if the frame
    /// ended without an event.
    #[inline]
    fn take_data<'i>(
        &mut self,
        input: &mut &'i mut [u8],
        remaining: u32,
        key: [u8; 4],
        fin: bool,
    ) -> Result<Option<Step<'i>>, Error> {
        let bytes = take(input, remaining as usize);
        mask::apply(bytes, key, 0);
        let remaining = remaining - bytes.len() as u32;
        self.state = if remaining == 0 {
            State::BETWEEN_FRAMES
        } else {
            State::Data {
                remaining,
                key: mask::rotated(key, bytes.len()),
                fin,
            }
        };
        let end_of_message = remaining == 0 && fin;
        let kind = self.message.unwrap_or(Kind::Binary);
        if kind == Kind::Text {
            self.utf8.feed(bytes)?;
        }
        if end_of_message {
            self.utf8.finish()?;
            self.message = None;
            self.message_len = 0;
        }
        let step = Step::Data {
            kind,
            bytes,
            end_of_message,
        };
        Ok((end_of_message || !bytes.is_empty()).then_some(step))
    }

    /// Take the part of a control frame's `remaining` payload that `input` has; `None` if the rest
    /// is missing.
    fn take_control<'i>(
        &mut self,
        input: &mut &'i mut [u8],
        opcode: OpCode,
        remaining: u8,
        key: [u8; 4],
    ) -> Option<Step<'i>> {
        let bytes = take(input, remaining.into());
        mask::apply(bytes, key, 0);
        let remaining = remaining - bytes.len() as u8;
        let is_whole = remaining == 0 && self.control.is_none();
        if !is_whole && !bytes.is_empty() {
            self.control.get_or_insert_default().extend(bytes);
        }
        if remaining > 0 {
            self.state = State::Control {
                opcode,
                remaining,
                key: mask::rotated(key, bytes.len()),
            };
            return None;
        }
        self.state = match opcode {
            OpCode::Close => State::Closed,
            _ => State::BETWEEN_FRAMES,
        };
        Some(Step::Control(opcode, is_whole.then_some(bytes)))
    }
}

impl From<InvalidUtf8> for Error {
    fn from(_: InvalidUtf8) -> Self {
        Self::InvalidUtf8
    }
}

/// The payload of a control frame that several reads share.
#[derive(Debug)]
struct Control {
    bytes: [u8; MAX_CONTROL_PAYLOAD],
    len: u8,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_CONTROL_PAYLOAD],
            len: 0,
        }
    }
}

impl Control {
    /// Append bytes; the frame's header has bounded their sum to the capacity.
    fn extend(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        let end = start + bytes.len();
        self.bytes[start..end].copy_from_slice(bytes);
        self.len = end as u8;
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

fn control_event(opcode: OpCode, payload: &[u8]) -> Result<Event<'_>, Error> {
    Ok(match opcode {
        OpCode::Ping => Event::Ping(payload),
        OpCode::Pong => Event::Pong(payload),
        _ => {
            let (code, reason) = close::parse_payload(payload)?;
            Event::Close { code, reason }
        }
    })
}

/// Split off the first `len` bytes of `input`, or all when there are fewer.
#[inline]
fn take<'i>(input: &mut &'i mut [u8], len: usize) -> &'i mut [u8] {
    let len = len.min(input.len());
    let (bytes, rest) = std::mem::take(input).split_at_mut(len);
    *input = rest;
    bytes
}
