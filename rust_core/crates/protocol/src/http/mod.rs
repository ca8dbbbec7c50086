//! HTTP/1.1 ([RFC 9112]), as strict as interoperability allows: input that two parsers could read
//! differently is refused.
//!
//! A server calls [`parse_head`] with the received bytes until it returns a head, then
//! [`RequestHead::control`]. It passes the bytes after the head to a [`BodyDecoder`] until that
//! returns [`BodyEvent::End`]; the bytes after the body are the next request. A client does the
//! same with [`parse_response_head`] and [`ResponseHead::framing`].
//!
//! [RFC 9112]: https://www.rfc-editor.org/rfc/rfc9112

mod body;
mod control;
mod request;
mod response;
mod target;

use std::fmt;

pub use body::{BodyDecoder, BodyEvent, Framing, ResponseFraming};
pub use control::Control;
pub use request::{RequestHead, encode_request, parse_head};
pub(crate) use response::encode_fields;
pub use response::{
    CONTINUE, ResponseHead, encode_chunk, encode_head, encode_head_chunked,
    encode_head_until_close, encode_last_chunk, encode_response, encode_rest, parse_response_head,
    reason_phrase,
};
pub use target::{decode_percent, query_value, split_authority};

/// The most header fields that any [`HeadLimits`] allows.
pub const MAX_HEADERS: usize = 64;

/// The most members that the `Connection` fields of a request may have together. Browsers send one or
/// two; every field that is forwarded has to be looked for among them.
pub const MAX_CONNECTION_OPTIONS: usize = 16;

/// Bounds of the size of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The largest head in bytes, from the request line to the empty line.
    pub max_bytes: usize,
    /// Most header fields; [`MAX_HEADERS`] applies if this is larger.
    pub max_headers: usize,
}

impl Default for HeadLimits {
    /// Return 8 KiB and 64 fields.
    fn default() -> Self {
        Self {
            max_bytes: 8 * 1024,
            max_headers: MAX_HEADERS,
        }
    }
}

/// The version that a head names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// Why a message is refused. The text ([`fmt::Display`]) is short and fit for an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// Input that is not well-formed HTTP, with a description.
    Malformed(&'static str),
    /// A header field that may stand once stands more than once.
    DuplicateHeader,
    /// A parameter of the query that may stand once stands more than once.
    DuplicateParameter,
    /// The request line does not fit [`HeadLimits::max_bytes`].
    TargetTooLong,
    /// The head does not fit [`HeadLimits::max_bytes`].
    HeadTooLarge,
    /// More fields than [`HeadLimits::max_headers`].
    TooManyHeaders,
    /// More members in the `Connection` fields than [`MAX_CONNECTION_OPTIONS`].
    TooManyConnectionOptions,
    /// The trailer section of a chunked body takes more than 8 KiB.
    TrailersTooLarge,
    /// The client expects something other than `100-continue`.
    Expectation,
    /// A transfer coding other than `chunked`.
    TransferCoding,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    Version,
}

impl HttpError {
    /// Return the status that answers a request with this error (RFC 9110 section 15, RFC 6585).
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::DuplicateHeader | Self::DuplicateParameter => 400,
            Self::TargetTooLong => 414,
            Self::Expectation => 417,
            Self::HeadTooLarge
            | Self::TooManyHeaders
            | Self::TooManyConnectionOptions
            | Self::TrailersTooLarge => 431,
            Self::TransferCoding => 501,
            Self::Version => 505,
        }
    }

    /// Return the error's text.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::DuplicateHeader => "duplicate header field",
            Self::DuplicateParameter => "duplicate query parameter",
            Self::TargetTooLong => "request line too long",
            Self::HeadTooLarge => "head too large",
            Self::TooManyHeaders => "too many header fields",
            Self::TooManyConnectionOptions => "Connection has more than 16 members",
            Self::TrailersTooLarge => "trailers too large",
            Self::Expectation => "expectation not supported",
            Self::TransferCoding => "transfer coding not supported",
            Self::Version => "HTTP version not supported",
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for HttpError {}

/// The header fields of a parsed head: a view of its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The whole head, well-formed.
    head: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Return every field in order: its name as sent and its value without surrounding blanks.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.head;
        let mut next_line = move || {
            let (line, after) = rest.split_at(memchr::memchr(b'\n', rest)? + 1);
            rest = after;
            Some(line)
        };
        // Empty lines before the first line are skipped (RFC 9112 section 2.2).
        while next_line() == Some(b"\r\n") {}
        std::iter::from_fn(move || {
            let line = next_line()?;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// Return the values of all fields called `name`, in any case of letters.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let fields = self.iter();
        fields
            .filter_map(move |(n, value)| n.eq_ignore_ascii_case(name.as_bytes()).then_some(value))
    }

    /// Return the value of the field `name`, which may stand only once.
    ///
    /// # Errors
    /// [`HttpError::DuplicateHeader`] when it stands more than once.
    pub fn value(&self, name: &str) -> Result<Option<&'a [u8]>, HttpError> {
        let mut values = self.values(name);
        let first = values.next();
        match values.next() {
            None => Ok(first),
            Some(_) => Err(HttpError::DuplicateHeader),
        }
    }

    /// Return how many fields are called `name`.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.values(name).count()
    }

    /// Return whether the comma-separated lists in the fields `name` have the member `token`, in
    /// any case of letters (RFC 9110 section 5.6.1).
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.values(name).any(|value| has_member(value, token))
    }

    /// Return the members of all `Connection` fields, collected once.
    ///
    /// # Errors
    /// [`HttpError::TooManyConnectionOptions`]; [`RequestHead::control`] has the same error.
    pub fn connection_options(&self) -> Result<ConnectionOptions<'a>, HttpError> {
        let mut options = ConnectionOptions::default();
        for member in self.values("Connection").flat_map(members) {
            options.add(member)?;
        }
        Ok(options)
    }
}

/// The members of a head's `Connection` fields: options such as `close`, and the names of fields that
/// end at the receiver (RFC 9110 section 7.6.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionOptions<'a> {
    list: [(u32, &'a [u8]); MAX_CONNECTION_OPTIONS],
    count: usize,
}

impl<'a> ConnectionOptions<'a> {
    fn add(&mut self, member: &'a [u8]) -> Result<(), HttpError> {
        let free = self.list.get_mut(self.count);
        *free.ok_or(HttpError::TooManyConnectionOptions)? = (mark(member), member);
        self.count += 1;
        Ok(())
    }

    /// Return whether `name` is a member, in any case of letters.
    #[inline]
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        let wanted = mark(name);
        let mut members = self.list[..self.count].iter();
        members.any(|(mark, member)| *mark == wanted && member.eq_ignore_ascii_case(name))
    }
}

/// Return a number in which most names differ: made of length, first and last byte, in either case of letters.
fn mark(name: &[u8]) -> u32 {
    let byte = |byte: Option<&u8>| u32::from(byte.map_or(0, |byte| byte | 0x20));
    (name.len() as u32) << 16 | byte(name.first()) << 8 | byte(name.last())
}

/// Return the members of a comma-separated list, without surrounding blanks; some may be empty.
fn members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b',', list).chain([list.len()]);
    let mut start = 0;
    ends.map(move |end| list[std::mem::replace(&mut start, end + 1)..end].trim_ascii())
}

/// Return whether a comma-separated list has the member `token`, in any case of letters.
fn has_member(list: &[u8], token: &str) -> bool {
    members(list).any(|member| member.eq_ignore_ascii_case(token.as_bytes()))
}

/// Whether a byte may stand in a token, such as a field's name (RFC 9110 section 5.6.2).
const TCHARS: [bool; 256] = byte_set(b"!#$%&'*+-.^_`|~");

/// Return the set of letters, digits and `others`.
const fn byte_set(others: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        set[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut i = 0;
    while i < others.len() {
        set[others[i] as usize] = true;
        i += 1;
    }
    set
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let fields = self.iter().map(|(name, value)| (text(name), text(value)));
        f.debug_map().entries(fields).finish()
    }
}

/// Return the fields of the complete head `head`, which httparse has taken.
///
/// httparse takes a bare LF as a line end; here it is an error (RFC 9112 section 2.2 leaves the
/// choice), because a peer that reads it otherwise would see another head.
#[inline]
fn fields(head: &[u8]) -> Result<Headers<'_>, HttpError> {
    // Without an early exit the loop compiles to 16 bytes at a time.
    let pairs = head.iter().zip(head.iter().skip(1));
    let bare = pairs.fold(head.starts_with(b"\n"), |bare, (before, byte)| {
        bare | ((*byte == b'\n') & (*before != b'\r'))
    });
    if bare {
        return Err(BARE_LF);
    }
    Ok(Headers { head })
}

/// Return the outcome for `view`, the part of a buffer that may be a head, if httparse found no
/// head. `refusal` is httparse's error. `first_line_too_long` is the error for a first line that
/// fills the limit.
#[cold]
fn no_head<T>(
    view: &[u8],
    limits: HeadLimits,
    refusal: Option<HttpError>,
    first_line_too_long: HttpError,
) -> Result<Option<T>, HttpError> {
    let mut line_start = 0;
    let mut in_fields = false;
    for newline in memchr::memchr_iter(b'\n', view) {
        let Some([line @ .., b'\r']) = view.get(line_start..newline) else {
            return Err(BARE_LF);
        };
        if in_fields && line.is_empty() {
            // Bytes after the head are not part of its size.
            break;
        }
        in_fields = !line.is_empty();
        line_start = newline + 1;
    }
    match refusal {
        Some(error) => Err(error),
        None if view.len() < limits.max_bytes => Ok(None),
        None if in_fields => Err(HttpError::HeadTooLarge),
        None => Err(first_line_too_long),
    }
}

const BARE_LF: HttpError = HttpError::Malformed("line ends without CR");

/// Return a malformed head in our words.
fn syntax_error(error: httparse::Error) -> HttpError {
    match error {
        httparse::Error::HeaderName => HttpError::Malformed("invalid header name"),
        httparse::Error::HeaderValue => HttpError::Malformed("invalid header value"),
        httparse::Error::NewLine => HttpError::Malformed("invalid line end"),
        httparse::Error::Status => HttpError::Malformed("invalid status line"),
        httparse::Error::Token => HttpError::Malformed("invalid request line"),
        httparse::Error::TooManyHeaders => HttpError::TooManyHeaders,
        httparse::Error::Version => HttpError::Version,
    }
}
