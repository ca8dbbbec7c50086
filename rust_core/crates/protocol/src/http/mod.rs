//! HTTP/1.1 heads ([RFC 9112]), as strict as interoperability allows: what two parsers could
//! read differently is refused.
//!
//! [RFC 9112]: https://www.rfc-editor.org/rfc/rfc9112

mod request;
mod response;

use std::fmt;

pub use request::{RequestHead, parse_head};
pub use response::{ResponseHead, encode_response, parse_response_head, reason_phrase};
pub(crate) use response::{encode_fields, encode_head};

/// The most header fields that any [`HeadLimits`] allows.
pub const MAX_HEADERS: usize = 64;

/// Bounds of what a head may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The largest head in bytes, from the request line to the empty line.
    pub max_bytes: usize,
    /// The most header fields; [`MAX_HEADERS`] holds where this is larger.
    pub max_headers: usize,
}

impl Default for HeadLimits {
    /// 8 KiB and 64 fields.
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

/// Why a head is refused. The text ([`fmt::Display`]) is short and fit for an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// Not HTTP, or HTTP that is not well-formed; says what.
    Malformed(&'static str),
    /// A header field that may stand once stands more than once.
    DuplicateHeader,
    /// The request line does not fit [`HeadLimits::max_bytes`].
    TargetTooLong,
    /// The head does not fit [`HeadLimits::max_bytes`].
    HeadTooLarge,
    /// More fields than [`HeadLimits::max_headers`].
    TooManyHeaders,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    Version,
}

impl HttpError {
    /// The status that answers a request with this error (RFC 9110 section 15, RFC 6585).
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::DuplicateHeader => 400,
            Self::TargetTooLong => 414,
            Self::HeadTooLarge | Self::TooManyHeaders => 431,
            Self::Version => 505,
        }
    }

    /// The error's text.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::DuplicateHeader => "duplicate header field",
            Self::TargetTooLong => "request line too long",
            Self::HeadTooLarge => "head too large",
            Self::TooManyHeaders => "too many header fields",
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
    /// The field lines, each with its CRLF; well-formed.
    lines: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Every field in order: its name as sent and its value without surrounding blanks.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.lines;
        std::iter::from_fn(move || {
            let end = memchr::memchr(b'\n', rest)?;
            let (line, after) = rest.split_at(end + 1);
            rest = after;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// The values of all fields called `name`, in any case of letters.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let fields = self.iter();
        fields
            .filter_map(move |(n, value)| n.eq_ignore_ascii_case(name.as_bytes()).then_some(value))
    }

    /// The value of the field `name`, which may stand only once.
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

    /// How many fields are called `name`.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.values(name).count()
    }

    /// Whether the comma-separated lists in the fields `name` have the member `token`, in any case
    /// of letters (RFC 9110 section 5.6.1).
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        let mut members = self
            .values(name)
            .flat_map(|value| value.split(|b| *b == b','));
        members.any(|member| member.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let fields = self.iter().map(|(name, value)| (text(name), text(value)));
        f.debug_map().entries(fields).finish()
    }
}

/// The bounds of a head within a buffer, found by its line ends alone.
struct HeadSpan {
    /// Where the field lines start: after the request or status line.
    fields: usize,
    /// Where the head ends: after the empty line. `None` when that has not arrived.
    end: Option<usize>,
}

impl HeadSpan {
    /// Finds the head at the start of `buf`. `fields` is 0 while the first line is incomplete.
    ///
    /// httparse takes a bare LF as a line end; here it is an error (RFC 9112 section 2.2 leaves
    /// the choice), because a peer that reads it otherwise would see another head.
    fn find(buf: &[u8]) -> Result<Self, HttpError> {
        let mut fields = 0;
        let mut line_start = 0;
        for newline in memchr::memchr_iter(b'\n', buf) {
            let line = &buf[line_start..newline];
            let Some((b'\r', line)) = line.split_last() else {
                return Err(HttpError::Malformed("line ends without CR"));
            };
            line_start = newline + 1;
            match (fields, line.is_empty()) {
                // Empty lines before the first line are skipped (RFC 9112 section 2.2).
                (0, true) => {}
                (0, false) => fields = line_start,
                (_, true) => {
                    let end = Some(line_start);
                    return Ok(Self { fields, end });
                }
                (_, false) => {}
            }
        }
        Ok(Self { fields, end: None })
    }

    /// The field lines of a complete head in `buf`, and the head's length in bytes.
    fn headers<'a>(&self, buf: &'a [u8]) -> Option<(Headers<'a>, usize)> {
        let end = self.end?;
        let lines = buf.get(self.fields..end.checked_sub(2)?)?;
        Some((Headers { lines }, end))
    }

    /// What an incomplete head is that has filled `max_bytes`.
    const fn too_large(&self) -> HttpError {
        match self.fields {
            0 => HttpError::TargetTooLong,
            _ => HttpError::HeadTooLarge,
        }
    }
}

/// The part of `buf` that a head may take, and within it the part to parse: never past its end.
fn bounded(buf: &[u8], limits: HeadLimits) -> Result<(&[u8], HeadSpan), HttpError> {
    let view = &buf[..buf.len().min(limits.max_bytes)];
    let span = HeadSpan::find(view)?;
    let view = span.end.map_or(view, |end| &view[..end]);
    Ok((view, span))
}

/// A malformed head in our words.
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
