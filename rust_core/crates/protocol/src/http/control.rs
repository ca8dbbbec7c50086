//! Fields of a head that govern the connection and the framing of the body.

use super::body::{Framing, ResponseFraming};
use super::{HttpError, MAX_CONNECTION_OPTIONS, ResponseHead, TCHARS, Version, byte_set, members};

/// Facts about a request that a server needs before it reads the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Framing of the body (RFC 9112 section 6).
    pub framing: Framing,
    /// Whether the connection stays open after the response (RFC 9112 section 9.3). HTTP/1.0
    /// connections never do, so no response needs `Connection: keep-alive`.
    pub keep_alive: bool,
    /// Whether the client waits for [`CONTINUE`](super::CONTINUE) before it sends the body (RFC 9110
    /// section 10.1.1). HTTP/1.0 has no expectations, and its `Expect` fields are ignored.
    pub expects_continue: bool,
    /// Whether there is an `Upgrade` field.
    pub upgrade: bool,
}

impl Control {
    /// Read the facts from the fields of a request, and the value of `Host` into `host`.
    #[inline]
    pub(super) fn read<'a>(
        version: Version,
        fields: &[httparse::Header<'a>],
        host: &mut Option<&'a [u8]>,
    ) -> Result<Self, HttpError> {
        let (mut length, mut coding) = (None, None);
        let (mut duplicate, mut close, mut upgrade) = (false, false, false);
        let mut expects_continue = Ok(false);
        let mut options = 0;
        for &httparse::Header { name, value } in fields {
            let is = |other| name.eq_ignore_ascii_case(other);
            // No two of these names are of the same length.
            match name.len() {
                4 if is("host") => duplicate |= host.replace(value).is_some(),
                6 if is("expect") => {
                    expects_continue =
                        expects_continue.and_then(|before| Ok(before | expects(value)?));
                }
                7 => upgrade |= is("upgrade"),
                10 if is("connection") => {
                    let some = members(value).take(MAX_CONNECTION_OPTIONS + 1);
                    options += some
                        .inspect(|member| close |= member.eq_ignore_ascii_case(b"close"))
                        .count();
                }
                14 if is("content-length") => duplicate |= length.replace(value).is_some(),
                17 if is("transfer-encoding") => duplicate |= coding.replace(value).is_some(),
                _ => {}
            }
        }
        if duplicate {
            return Err(HttpError::DuplicateHeader);
        }
        if options > MAX_CONNECTION_OPTIONS {
            return Err(HttpError::TooManyConnectionOptions);
        }
        check_host(*host, version)?;
        Ok(Self {
            framing: framing(length, coding, version)?,
            keep_alive: version == Version::Http11 && !close,
            expects_continue: version == Version::Http11 && expects_continue?,
            upgrade,
        })
    }
}

impl ResponseHead<'_> {
    /// Return the framing of the body (RFC 9112 section 6.3), as strictly as for a request;
    /// `method_was_head` is whether the request was a HEAD.
    ///
    /// # Errors
    /// [`HttpError`]; close the connection.
    pub fn framing(&self, method_was_head: bool) -> Result<ResponseFraming, HttpError> {
        if method_was_head || matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(ResponseFraming::None);
        }
        let length = self.headers.value("content-length")?;
        let coding = self.headers.value("transfer-encoding")?;
        Ok(match framing(length, coding, self.version)? {
            Framing::None => ResponseFraming::UntilClose,
            Framing::Length(len) => ResponseFraming::Length(len),
            Framing::Chunked => ResponseFraming::Chunked,
        })
    }
}

/// Return the framing of a body. Fields that two parsers could read differently are refused.
fn framing(
    length: Option<&[u8]>,
    coding: Option<&[u8]>,
    version: Version,
) -> Result<Framing, HttpError> {
    match (length, coding) {
        (None, None) => Ok(Framing::None),
        (Some(length), None) => parse_length(length).map(Framing::Length),
        (Some(_), Some(_)) => Err(HttpError::Malformed(
            "both Content-Length and Transfer-Encoding",
        )),
        (None, Some(_)) if version == Version::Http10 => {
            Err(HttpError::Malformed("Transfer-Encoding in HTTP/1.0"))
        }
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (None, Some(coding)) => Err(coding_error(coding)),
    }
}

/// Read the value of `Content-Length`: 1 to 19 digits, which always fit into a `u64`.
fn parse_length(value: &[u8]) -> Result<u64, HttpError> {
    if !matches!(value.len(), 1..=19) || !value.iter().all(u8::is_ascii_digit) {
        return Err(HttpError::Malformed("invalid Content-Length"));
    }
    let digits = value.iter().map(|digit| u64::from(digit - b'0'));
    Ok(digits.fold(0, |length, digit| length * 10 + digit))
}

/// Return the error of a `Transfer-Encoding` other than `chunked`: an unknown coding, or a list in
/// which `chunked` is repeated, not last, or has a parameter.
fn coding_error(value: &[u8]) -> HttpError {
    let invalid = HttpError::Malformed("invalid Transfer-Encoding");
    let mut chunked = false;
    for coding in members(value) {
        let name = coding.split(|byte| *byte == b';').next();
        let name = name.unwrap_or_default().trim_ascii_end();
        if chunked || name.is_empty() || !name.iter().all(|byte| TCHARS[usize::from(*byte)]) {
            return invalid;
        }
        chunked = name.eq_ignore_ascii_case(b"chunked");
        if chunked && name.len() < coding.len() {
            return invalid;
        }
    }
    HttpError::TransferCoding
}

/// Return whether an `Expect` field lists `100-continue`, and nothing else.
fn expects(value: &[u8]) -> Result<bool, HttpError> {
    let mut expectations = members(value).filter(|member| !member.is_empty());
    expectations.try_fold(false, |_, expectation| {
        let known = expectation.eq_ignore_ascii_case(b"100-continue");
        known.then_some(true).ok_or(HttpError::Expectation)
    })
}

/// Check that HTTP/1.1 has a `Host`, and that it consists of characters of a name, an address and a
/// port. It may be empty (RFC 9112 section 3.2).
fn check_host(host: Option<&[u8]>, version: Version) -> Result<(), HttpError> {
    match host {
        None if version == Version::Http11 => Err(HttpError::Malformed("missing Host")),
        Some(host) if !host.iter().all(|byte| HOST_CHARS[usize::from(*byte)]) => {
            Err(HttpError::Malformed("invalid Host"))
        }
        _ => Ok(()),
    }
}

/// Whether a byte may stand in a host or its port (RFC 3986 sections 3.2.2 and 3.2.3).
const HOST_CHARS: [bool; 256] = byte_set(b"!$%&'()*+,-.:;=[]_~");
