//! Bodies: how their end is found, and their data as it arrives.

use super::{HttpError, TCHARS};

/// Most digits of a chunk's size: those of the largest `u64`.
const MAX_SIZE_DIGITS: u8 = 16;

/// The most bytes of a chunk's extensions, from the `;` to the line's end.
const MAX_EXTENSION: u16 = 256;

/// The most bytes of a trailer section, its empty line included.
const MAX_TRAILERS: u16 = 8 * 1024;

/// How the end of a request's body is found (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// A body in chunks, which ends with an empty one.
    Chunked,
}

/// How the end of a response's body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body, even if the fields announce one.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// A body in chunks, which ends with an empty one.
    Chunked,
    /// The body is everything until the server closes the connection: it needs no decoder.
    UntilClose,
}

/// A step through a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEvent<'a> {
    /// The next bytes of the content, at least one. Slices follow the reads and the chunks.
    Data(&'a [u8]),
    /// The body is complete.
    End,
}

/// Decoder of one body.
///
/// Call [`BodyDecoder::next`] with each read until it returns [`BodyEvent::End`], even for
/// [`Framing::None`]; nothing has to be kept between two reads. The caller bounds the size of the
/// body.
///
/// Chunks (RFC 9112 section 7.1) are accepted only in the form that every parser reads alike: CR LF
/// and neither of them alone, no blanks around the size. Extensions (at most 256 bytes for each
/// chunk) and trailers (at most 8 KiB) are checked and discarded.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// This many bytes until the end of the body.
    Body(u64),
    /// A chunk's size: its value so far, and its number of digits.
    Size { size: u64, digits: u8 },
    /// A chunk's extensions, of which `len` bytes have arrived.
    Extension { size: u64, len: u16 },
    /// After the CR that ends a chunk's size and extensions.
    SizeEnd { size: u64 },
    /// This many bytes until the CR LF that follows a chunk's data.
    Chunk(u64),
    /// After the CR that follows a chunk's data.
    ChunkEnd,
    /// The trailer section, of which `len` bytes have arrived.
    Trailers { part: Part, len: u16 },
    /// After the body: the next bytes belong to the next message.
    Ended,
    /// After an error: nothing that follows has a meaning.
    Failed,
}

/// Position in a trailer section.
#[derive(Clone, Copy, Debug)]
enum Part {
    LineStart,
    Name,
    Value,
    /// After the CR of a field.
    LineEnd,
    /// After the CR of the empty line.
    SectionEnd,
}

impl BodyDecoder {
    /// Return a decoder for a body that is framed so.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None => State::Body(0),
            Framing::Length(len) => State::Body(len),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
        };
        Self { state }
    }

    /// Take bytes from the front of `input` up to the next event. `None` means that all of `input`
    /// was taken and more is needed.
    ///
    /// After [`BodyEvent::End`] it takes nothing and returns `None`. After an error it discards its
    /// input and returns `None`.
    ///
    /// # Errors
    /// The chunks are not well-formed; answer with the status, if that is still possible, and close.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<BodyEvent<'a>>, HttpError> {
        loop {
            match &mut self.state {
                State::Body(0) => {
                    self.state = State::Ended;
                    return Ok(Some(BodyEvent::End));
                }
                State::Body(remaining) | State::Chunk(remaining @ 1..) => {
                    return Ok(take(remaining, input).map(BodyEvent::Data));
                }
                State::Ended => return Ok(None),
                State::Failed => {
                    *input = &[];
                    return Ok(None);
                }
                _ => {}
            }
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            *input = rest;
            let after = self.state.after(byte);
            self.state = after.unwrap_or(State::Failed);
            after?;
        }
    }
}

/// Take up to `remaining` bytes from the front of `input`; `None` if it is empty.
#[inline]
fn take<'a>(remaining: &mut u64, input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(*remaining).map_or(input.len(), |len| len.min(input.len()));
    let (data, rest) = input.split_at(len);
    *input = rest;
    *remaining -= len as u64;
    (len > 0).then_some(data)
}

impl State {
    /// Return the state after a byte that is not content.
    #[inline]
    fn after(self, byte: u8) -> Result<Self, HttpError> {
        let state = match self {
            Self::Size { size, digits } => match (byte, char::from(byte).to_digit(16)) {
                (_, Some(digit)) if digits < MAX_SIZE_DIGITS => Self::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                },
                (b'\r', _) if digits > 0 => Self::SizeEnd { size },
                (b';', _) if digits > 0 => Self::Extension { size, len: 1 },
                _ => return Err(HttpError::Malformed("invalid chunk size")),
            },
            Self::Extension { size, len } => match byte {
                b'\r' => Self::SizeEnd { size },
                b'\t' | b' '..=b'~' if len < MAX_EXTENSION => {
                    Self::Extension { size, len: len + 1 }
                }
                _ => return Err(HttpError::Malformed("invalid chunk extension")),
            },
            Self::SizeEnd { size } => match (byte, size) {
                (b'\n', 0) => Self::Trailers {
                    part: Part::LineStart,
                    len: 0,
                },
                (b'\n', _) => Self::Chunk(size),
                _ => return Err(HttpError::Malformed("invalid chunk size")),
            },
            Self::Chunk(_) if byte == b'\r' => Self::ChunkEnd,
            Self::ChunkEnd if byte == b'\n' => Self::Size { size: 0, digits: 0 },
            Self::Trailers { part, len } => {
                if len == MAX_TRAILERS {
                    return Err(HttpError::TrailersTooLarge);
                }
                let Some(part) = part.after(byte)? else {
                    return Ok(Self::Body(0));
                };
                Self::Trailers { part, len: len + 1 }
            }
            _ => return Err(HttpError::Malformed("chunk data does not end with CR LF")),
        };
        Ok(state)
    }
}

impl Part {
    /// Return the position in the trailer section after `byte`; `None` at its end.
    fn after(self, byte: u8) -> Result<Option<Self>, HttpError> {
        let part = match (self, byte) {
            (Self::LineStart, b'\r') => Self::SectionEnd,
            (Self::LineStart | Self::Name, byte) if TCHARS[usize::from(byte)] => Self::Name,
            (Self::Name, b':') | (Self::Value, b'\t' | b' '..=b'~' | 0x80..) => Self::Value,
            (Self::Value, b'\r') => Self::LineEnd,
            (Self::LineEnd, b'\n') => Self::LineStart,
            (Self::SectionEnd, b'\n') => return Ok(None),
            _ => return Err(HttpError::Malformed("invalid trailer")),
        };
        Ok(Some(part))
    }
}
